"""The newest batches of a stream beside the commits that they wrote.

Rule: pure. A commit belongs to a batch by query and number: after a reset numbers begin anew, with another query.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import pandas as pd

from app.streams.view.stream import ms_text
from app.ui.view.frames import ages
from backend.format import ago, things, utc_text
from backend.stream_model.stream import Progress

Versions = Mapping[tuple[str, int], int]  # by query id and batch


def version_of(batch: Progress, versions: Versions) -> int | None:
    return versions.get((batch.query_id, batch.batch_id))


def build_batch_frame(batches: Sequence[Progress], versions: Versions, *, now: datetime) -> pd.DataFrame:
    """One row a batch, in the order given."""
    written = [version_of(batch, versions) for batch in batches]
    frame = pd.DataFrame(
        {
            "Batch": [batch.batch_id for batch in batches],
            "Ended": ages([batch.ended_at for batch in batches], now),
            "Took": [ms_text(batch.batch_duration_ms) for batch in batches],
            "Rows read": pd.array([batch.num_input_rows for batch in batches], dtype="Int64"),
            "Rows written": pd.array([batch.output_rows for batch in batches], dtype="Int64"),
            "Commit": ["–" if version is None else f"v{version}" for version in written],
            "Ended at": [utc_text(batch.ended_at) for batch in batches],
        }
    )
    return frame if frame["Rows written"].notna().any() else frame.drop(columns="Rows written")


def batch_sentence(number: int, batch: Progress | None, versions: Versions, *, now: datetime) -> str:
    """ "Batch 7 read 120 rows in 2.3 s, 3 h ago, and wrote v12." """
    if batch is None:
        return f"The progress of batch {number} is not kept any more."
    version = version_of(batch, versions)
    wrote = f", and wrote v{version}" if version is not None else "; no commit of it is known"
    read = f"{things(batch.num_input_rows, 'row')} in {ms_text(batch.batch_duration_ms)}"
    return f"Batch {number} read {read}, {ago(batch.ended_at, now)}{wrote}."


def list_sentence(batches: Sequence[Progress], versions: Versions) -> str:
    """How many are listed, and where a click leads."""
    known = sum(version_of(batch, versions) is not None for batch in batches)
    least = f"The newest {things(len(batches), 'batch', 'batches')}"
    return f"{least}; {known} with a commit: click one for what it changed." if known else f"{least}."
