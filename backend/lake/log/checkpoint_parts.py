"""The parquet files of a checkpoint, read in pieces side by side.

Rule: a piece gives only the leaves asked for, batch by batch; whatever is wrong inside is `TableCorruptError` with the
file's name.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from backend.errors import LakehouseError, TableCorruptError
from backend.lake.log.actions import BadActionError
from backend.lake.storage.folder import Folder
from backend.lake.storage.paths import is_remote
from backend.lake.table.file_times import old_columns

BATCH_ROWS = 16_384  # a column of texts of so many files is a few megabytes; four times as many take twice the memory
BUFFER_BYTES = 65_536
AT_ONCE = 2  # each holds a decoded batch; more threads cost memory and win little beside the interpreter's lock
HINT = "restore the file, or rebuild the checkpoint with the engine that writes the table"

_BOUNDS = ("minValues", "maxValues")

Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(slots=True, eq=False)
class ParquetPart:
    """One parquet file of a checkpoint: opened anew for each reading, its footer read once."""

    folder: Folder
    path: str
    _footer: pq.FileMetaData | None = None

    def pieces(self) -> list["Piece"]:
        """What can be read side by side: row groups; on an object store the whole file, whose ranges are joined."""
        if is_remote(self.folder.uri):
            return [Piece(self, None)]
        with self.opened() as file:
            return [Piece(self, (group,)) for group in range(file.num_row_groups)]

    @contextmanager
    def opened(self) -> Iterator[pq.ParquetFile]:
        with corrupt_as(self.path), self.folder.open(self.path) as source:
            remote = is_remote(self.folder.uri)
            file = pq.ParquetFile(
                source, metadata=self._footer, pre_buffer=remote, buffer_size=0 if remote else BUFFER_BYTES,
                coerce_int96_timestamp_unit="us",  # of bounds; nanoseconds do not reach year 9999
            )  # fmt: skip
            self._footer = file.metadata
            yield file

    def fields(self) -> frozenset[str]:
        """Dotted names of `add`'s fields two deep; empty when the file holds no file actions. Parsed bounds that count
        times in the calendar before 1582 are left out, so unknown: a bound that is another day rules out files."""
        with self.opened() as file:
            schema, is_old = file.schema_arrow, bool(old_columns(file.metadata))
        if "add" not in schema.names or not pa.types.is_struct(schema.field("add").type):
            return frozenset()
        names = set()
        for item in schema.field("add").type:
            names.add(item.name)
            if pa.types.is_struct(item.type):
                names |= {f"{item.name}.{inner.name}" for inner in item.type if not (is_old and inner.name in _BOUNDS)}
        return frozenset(names)

    def values(self, column: str, *, most: int | None = None) -> list[dict[str, Any]]:
        """The actions of one small kind (protocol, metaData, txn, …), as dictionaries; once `most` are found, the rest
        of the file is not read."""
        with self.opened() as file:
            if column not in file.schema_arrow.names:
                return []
            if not pa.types.is_struct(file.schema_arrow.field(column).type):
                raise BadActionError(f"{column} is no struct")
            rows: list[dict[str, Any]] = []
            groups = _groups_with(file.metadata, column)
            for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=[column], use_threads=False):
                actions = batch.column(0).drop_null().to_pylist()
                rows += [action for action in actions if any(value is not None for value in action.values())]
                if most is not None and len(rows) >= most:
                    break
        return rows


@dataclass(frozen=True, slots=True)
class Piece:
    """Row groups of a parquet file, None for all of them."""

    part: ParquetPart
    groups: tuple[int, ...] | None

    def batches(self, leaves: Sequence[str]) -> Iterator[pa.Array]:
        """The `add` struct with only these leaves, batch after batch, for every row."""
        names = [f"add.{leaf}" for leaf in leaves]
        with self.part.opened() as file:
            groups = range(file.num_row_groups) if self.groups is None else self.groups
            for batch in file.iter_batches(BATCH_ROWS, row_groups=list(groups), columns=names, use_threads=False):
                yield batch.column(0)


def side_by_side(work: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
    """In the order of the items; Arrow decodes outside the interpreter's lock."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(work, items))


@contextmanager
def corrupt_as(path: str) -> Iterator[None]:
    """Whatever Arrow or a decoder says of a file's inside becomes `TableCorruptError`."""
    try:
        yield
    except LakehouseError:
        raise
    except (pa.ArrowException, BadActionError, KeyError, ValueError, TypeError, AttributeError, OSError) as exc:
        raise TableCorruptError(f"checkpoint file {path} cannot be read: {_line(exc)}", hint=HINT) from exc


def _groups_with(footer: pq.FileMetaData, column: str) -> list[int]:
    """The row groups in which some leaf of a column may hold a value, by their statistics."""
    leaves = [i for i in range(footer.num_columns) if footer.schema.column(i).path.partition(".")[0] == column]

    def may_hold(group: int) -> bool:
        chunks = (footer.row_group(group).column(leaf) for leaf in leaves)
        return not all(
            c.is_stats_set and c.statistics.has_null_count and c.statistics.null_count == c.num_values for c in chunks
        )

    return [group for group in range(footer.num_row_groups) if may_hold(group)]


def _line(exc: Exception) -> str:
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0][:200]
