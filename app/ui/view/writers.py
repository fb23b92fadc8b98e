"""Who wrote a commit, in the same words on every page.

Rule: pure, and free of pandas, which the terminal does without. A batch that the commit does not name is left out.
"""

from collections.abc import Mapping, Sequence

from backend.format import UNKNOWN
from backend.lake.history.history import stream_of
from backend.lake.model import Commit

_LETTERS = 8  # of a query id, where nobody knows the stream's name


def stream_text(commit: Commit, streams: Mapping[str, str], *, with_batch: bool = True) -> str:
    """ "silver_orders, batch 41"; empty for a commit that no stream wrote. `streams`: the names of query ids."""
    name, origin = stream_of(commit, streams), commit.origin
    if name is None or origin is None:
        return ""
    if origin.query_id and name == f"query {origin.query_id}":
        name = f"query {origin.query_id[:_LETTERS]}"
    return f"{name}, batch {origin.batch_id}" if with_batch and origin.batch_id is not None else name


def writer_text(commit: Commit, streams: Mapping[str, str], *, with_batch: bool = True) -> str:
    """The stream and batch, else the user, else the engine, else a dash."""
    return stream_text(commit, streams, with_batch=with_batch) or commit.user or commit.engine or UNKNOWN


def last_by_another(newest: Sequence[Commit], streams: Mapping[str, str]) -> Commit | None:
    """Of commits, newest first, the first one that the newest's writer did not write."""
    writers = [writer_text(commit, streams, with_batch=False) for commit in newest]
    return next((commit for commit, writer in zip(newest, writers, strict=True) if writer != writers[0]), None)
