"""The files of a snapshot from a table, without a log."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from backend.lake.model import FileNumbers


@dataclass(frozen=True, slots=True)
class GivenFiles:
    """`backend.lake.model.Files` over a table of `files_schema`, with `stats` if it is there."""

    files: pa.Table

    @property
    def num_files(self) -> int:
        return int(self.files.num_rows)

    def column(self, name: str) -> pa.Array:
        column = self.files[name]
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)

    def total(self, name: str) -> tuple[int, int]:
        return int(pc.sum(self.files[name]).as_py() or 0), int(self.files[name].null_count)

    def table(self, names: Sequence[str]) -> pa.Table:
        return self.files.select(list(names))

    def take(self, numbers: FileNumbers, names: Sequence[str]) -> pa.Table:
        return self.table(names).take(pa.array(numbers))
