"""A cache of timelines on disk, so that a restart does not read every commit again.

Rule: a file is named by table, table id and the rule for small files. It holds the tag of the newest commit that it
covers, and is believed only while that commit is the same. Lost or damaged, it costs time alone.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from backend.errors import LakehouseError
from backend.lake.log.log import TableLog
from backend.lake.model import VersionTotals
from backend.settings import HealthSettings

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "1"
MOST_FILES = 2_000
_LAST_TAG = b"weir.last_commit"

_log = logging.getLogger(__name__)  # structlog would cost each command 0.2 s


class TimelineStore:
    """`folder` None: nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def load(self, log: TableLog, health: HealthSettings, first: int) -> list[VersionTotals]:
        """Totals from version `first` on, as far as they were kept; empty when they cannot be believed."""
        path = self._path(log, health)
        if path is None or not path.is_file():
            return []
        import pyarrow as pa

        try:
            with pa.memory_map(str(path)) as source:
                table = pa.ipc.open_file(source).read_all()
            rows = [VersionTotals(**row) for row in table.to_pylist()]
            kept_tag = (table.schema.metadata or {}).get(_LAST_TAG, b"").decode()
        except (OSError, pa.ArrowException, TypeError) as exc:
            _log.warning("the timeline in %s cannot be read: %.200s", path, exc)
            return []
        rows = [row for row in rows if row.version >= first]
        if not rows or rows[0].version != first or kept_tag != log.commit_tag(rows[-1].version):
            return []
        return rows

    def save(self, log: TableLog, health: HealthSettings, totals: Sequence[VersionTotals]) -> None:
        path = self._path(log, health)
        if path is None:
            return
        tag = log.commit_tag(totals[-1].version)
        if not tag:
            return
        import pyarrow as pa

        columns = {name: [getattr(item, name) for item in totals] for name in _schema().names}
        table = pa.table(columns, schema=_schema().with_metadata({_LAST_TAG: tag.encode()}))
        unfinished = path.with_suffix(f".{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with pa.OSFile(str(unfinished), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            unfinished.replace(path)
            self._prune()
        except OSError as exc:
            _log.warning("the timeline is not kept in %s: %.200s", path, exc)

    def _path(self, log: TableLog, health: HealthSettings) -> Path | None:
        if self._folder is None or not self._folder.parent.is_dir():
            return None
        try:
            table_id = log.state(log.latest()).metadata.id
        except LakehouseError:
            return None
        rule = (health.min_files, health.small_file_ratio, health.target_file_bytes)
        named = "\0".join((FORMAT, log.ref.uri, table_id, str(rule)))
        return self._folder / f"{hashlib.sha256(named.encode()).hexdigest()[:32]}.arrow"

    def _prune(self) -> None:
        assert self._folder is not None
        files = sorted(self._folder.glob("*.arrow"), key=lambda file: file.stat().st_mtime)
        for file in files[:-MOST_FILES]:
            file.unlink(missing_ok=True)


@cache
def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            ("version", pa.int64()),
            ("committed_at", pa.timestamp("us", tz="UTC")),
            ("operation", pa.string()),
            ("num_files", pa.int64()),
            ("size_bytes", pa.int64()),
            ("num_rows", pa.int64()),
            ("small_files", pa.int64()),
        ]
    )
