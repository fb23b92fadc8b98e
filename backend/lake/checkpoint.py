"""Checkpoints (classic, multi-part, V2 with sidecars): what they say of the table, and their files column by column.

Rule: only the columns asked for are read, batch by batch, into Arrow arrays; whatever is wrong inside is
`TableCorruptError` with the file's name. Sidecars must lie in the table's own `_delta_log/_sidecars` (PROTOCOL.md,
"Sidecar Files").
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backend.errors import LakehouseError, TableCorruptError
from backend.lake.actions import (
    ACTIONS,
    FILES,
    BadActionError,
    Kind,
    action_table,
    epoch_ms,
    read_metadata,
    read_protocol,
)
from backend.lake.checkpoint_columns import COLUMNS, FileColumn, file_columns, paths_of
from backend.lake.commits import domain, parse_commit, transaction
from backend.lake.listing import LOG, Checkpoint
from backend.lake.model import Metadata, Protocol
from backend.lake.partitions import physical_names
from backend.lake.paths import check_paths, is_remote, refused, resolve_log_path
from backend.lake.storage import Folder

SIDECARS = f"{LOG}/_sidecars"
BATCH_ROWS = 65_536
BUFFER_BYTES = 65_536
AT_ONCE = 2

Array = np.ndarray[Any, Any]
Item = TypeVar("Item")
Found = TypeVar("Found")
Places = tuple[Array, Array]  # positions among the keys asked for, rows of the checkpoint


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
                source, metadata=self._footer, pre_buffer=remote, buffer_size=0 if remote else BUFFER_BYTES
            )
            self._footer = file.metadata
            yield file

    def fields(self) -> frozenset[str]:
        """Dotted names of `add`'s fields two deep; empty when the file holds no file actions."""
        with self.opened() as file:
            schema = file.schema_arrow
        if "add" not in schema.names or not pa.types.is_struct(schema.field("add").type):
            return frozenset()
        found = set()
        for item in schema.field("add").type:
            found.add(item.name)
            if pa.types.is_struct(item.type):
                found |= {f"{item.name}.{inner.name}" for inner in item.type}
        return frozenset(found)

    def values(self, column: str, *, most: int | None = None) -> list[dict[str, Any]]:
        """The actions of one small kind (protocol, metaData, txn, …), as dictionaries; once `most` are found, the rest
        of the file is not read."""
        with self.opened() as file:
            if column not in file.schema_arrow.names:
                return []
            if not pa.types.is_struct(file.schema_arrow.field(column).type):
                raise BadActionError(f"{column} is no struct")
            found: list[dict[str, Any]] = []
            groups = _groups_with(file.metadata, column)
            for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=[column], use_threads=False):
                actions = batch.column(0).drop_null().to_pylist()
                found += [action for action in actions if any(value is not None for value in action.values())]
                if most is not None and len(found) >= most:
                    break
        return found


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


@dataclass(slots=True)
class _Top:
    """What the top file of a checkpoint holds beside its parquet parts."""

    parts: list[ParquetPart]
    inline: pa.Table = field(default_factory=ACTIONS.empty_table)
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: Mapping[str, int] = field(default_factory=dict)
    domains: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Pass:
    """A first look at one piece: which rows are files, where among the files the keys asked for are, and the hashes of
    all keys (on an object store)."""

    mask: Array
    places: Places
    hashes: Array


class CheckpointState:
    """The table at a checkpoint's version. What was read of it is kept; thread-safe."""

    def __init__(self, folder: Folder, checkpoint: Checkpoint, allowed: Sequence[str]) -> None:
        self._allowed = allowed
        self._table = folder.uri
        self._lock = threading.RLock()
        self._name = f"{LOG}/{checkpoint.files[0]}"
        self.version = checkpoint.version
        top = _read_top(folder, checkpoint)
        if top.protocol is None or top.metadata is None:
            raise TableCorruptError(f"checkpoint {self._name} holds no protocol or no metaData", hint=_hint())
        self.protocol: Protocol = top.protocol
        self.metadata: Metadata = top.metadata
        self._top = top
        self._live: dict[Piece, Array] | None = None  # of each piece, which of its rows are files
        self._columns: dict[str, pa.Array] = {}
        self._totals: dict[str, tuple[int, int]] = {}
        self._index: KeyIndex | None = None
        self._small: tuple[Mapping[str, int], Mapping[str, str | None]] | None = None

    @property
    def num_files(self) -> int:
        return len(self.column("size_bytes"))

    def column(self, name: str) -> pa.Array:
        """One column of `actions.FILES` over all files of the checkpoint, always in the same order."""
        with self._lock:
            if name in self._columns:
                return self._columns[name]
        group = COLUMNS[name]
        special = {"size_bytes": self._sizes, "num_records": self._num_records}
        arrays = {name: special[name]()} if name in special else self._read(group)
        with self._lock:
            if group.kept:
                self._columns.update(arrays)
        return arrays[name]

    def total(self, name: str) -> tuple[int, int]:
        """The sum of a column of whole numbers, and how many files do not say it."""
        if name not in self._totals:
            column = self.column(name)
            self._totals[name] = int(pc.sum(column).as_py() or 0), int(column.null_count)
        return self._totals[name]

    def places(self, keys: pa.Array) -> Places:
        """Where the files with these keys are: positions in `keys` and rows of the checkpoint. The first call compares
        texts while the paths stream past; a later one builds an index, for tables that are looked at again."""
        with self._lock:
            if self._live is None:
                return self._first_pass(keys)
            if self._index is None:
                self._index = KeyIndex(np.concatenate([_hashes(keys) for keys in self._key_batches()]))
            if self._index.is_exact:
                return self._index.places(keys)
            return _exact_places(self._key_batches(), keys)

    def check(self) -> None:
        """Read what must be right for any figure: sizes, and deletion vectors where there are some."""
        self.column("size_bytes")
        self.column("dv_id")

    def small_actions(self) -> tuple[Mapping[str, int], Mapping[str, str | None]]:
        """Transactions per application and domain configurations."""
        with self._lock:
            if self._small is None:
                transactions, domains = dict(self._top.transactions), dict(self._top.domains)
                for part in self._top.parts:
                    with corrupt_as(part.path):
                        for action in part.values("txn"):
                            transactions.update(transaction(action))
                        for action in part.values("domainMetadata"):
                            domains.update(domain(action))
                self._small = transactions, domains
            return self._small

    def _sizes(self) -> pa.Array:
        sizes = self._read(COLUMNS["size_bytes"])["size_bytes"]
        if sizes.null_count or (len(sizes) and pc.min(sizes).as_py() < 0):
            raise TableCorruptError(f"checkpoint {self._name} holds a file without a size", hint=_hint())
        return sizes

    def _num_records(self) -> pa.Array:
        """Unknown where the statistics contradict the deletion vector."""
        rows, deleted = self._read(COLUMNS["num_records"])["num_records"], self.column("deleted_rows")
        if not pc.any(pc.less(rows, deleted)).as_py():
            return rows
        return pc.if_else(pc.less(rows, deleted), pa.scalar(None, pa.int64()), rows)

    def _pieces(self) -> dict[Piece, Array]:
        with self._lock:
            if self._live is None:
                self._first_pass(pa.array([], pa.string()))
            assert self._live is not None
            return self._live

    def _first_pass(self, keys: pa.Array) -> Places:
        """The first look at all paths: which rows are files, do they stay inside, and where are these keys. What was
        fetched from an object store is indexed at once, to be fetched no second time."""
        pieces = [piece for part in self._top.parts if "path" in part.fields() for piece in part.pieces()]
        passes = _side_by_side(lambda piece: self._pass(piece, keys), pieces)
        check_paths(self._top.inline["path"], self._table, self._allowed)
        inline = _joined(self._top.inline["key"].chunks, pa.string())
        found, rows, start = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
        last = _Pass(np.ones(len(inline), bool), _exact_places([inline], keys), _hashes(inline))
        for one in [*passes, last]:
            found.append(one.places[0])
            rows.append(one.places[1] + start)
            start += int(one.mask.sum())
        self._live = {piece: one.mask for piece, one in zip(pieces, passes, strict=True)}
        if is_remote(self._table):
            self._index = KeyIndex(np.concatenate([one.hashes for one in (*passes, last)]))
        return np.concatenate(found), np.concatenate(rows)

    def _pass(self, piece: Piece, keys: pa.Array) -> "_Pass":
        mask, hashes = [np.zeros(0, bool)], [np.zeros(0, np.int64)]
        columns = file_columns(piece.part.fields(), "key", ())

        def batches() -> Iterator[pa.Array]:
            for struct in piece.batches(columns.leaves):
                with corrupt_as(piece.part.path):
                    live = pc.is_valid(pc.struct_field(struct, "path"))
                    mask.append(live.to_numpy(zero_copy_only=False))
                    struct = struct if mask[-1].all() else struct.filter(live)
                    check_paths(paths_of(struct), self._table, self._allowed)
                    found = columns.decode(struct)["key"]
                if is_remote(self._table):
                    hashes.append(_hashes(found))
                yield found

        places = _exact_places(batches(), keys)
        return _Pass(np.concatenate(mask), places, np.concatenate(hashes))

    def _read(self, group: FileColumn) -> dict[str, pa.Array]:
        pieces = [(piece, mask) for piece, mask in self._pieces().items() if mask.any()]
        read = _side_by_side(lambda one: list(self._decoded(*one, group)), pieces)
        chunks = {name: [batch[name] for found in read for batch in found] for name in group.names}
        for name in group.names:
            chunks[name] += self._top.inline[name].chunks
        if "dv_path" in group.names:
            for chunk in chunks["dv_path"]:
                check_paths(chunk.drop_null(), self._table, self._allowed)
        return {name: _joined(found, FILES.field(name).type) for name, found in chunks.items()}

    def _decoded(self, piece: Piece, mask: Array, group: FileColumn) -> Iterator[Mapping[str, pa.Array]]:
        columns = file_columns(piece.part.fields(), group.names[0], self._partition_names())
        if not columns.leaves:
            yield columns.missing(int(mask.sum()))
            return
        start = 0
        for struct in piece.batches(columns.leaves):
            here = mask[start : start + len(struct)]
            start += len(struct)
            with corrupt_as(piece.part.path):
                found = columns.decode(struct if here.all() else struct.filter(pa.array(here)))
            yield found

    def _key_batches(self) -> Iterator[pa.Array]:
        """Keys of the files, in the order of `column`."""
        for piece, mask in self._pieces().items():
            if mask.any():
                for batch in self._decoded(piece, mask, COLUMNS["key"]):
                    yield batch["key"]
        yield _joined(self._top.inline["key"].chunks, pa.string())

    def _partition_names(self) -> tuple[str, ...]:
        physical = physical_names(self.metadata)
        return tuple(physical.get(column, column) for column in self.metadata.partition_columns)


class KeyIndex:
    """Rows by key, as sorted 64-bit hashes (keyed anew in each process): 12 bytes a file."""

    def __init__(self, hashes: Array) -> None:
        self._rows = np.argsort(hashes).astype(np.int32)
        self._hashes = hashes[self._rows]
        self.is_exact = not bool((self._hashes[1:] == self._hashes[:-1]).any())

    def places(self, keys: pa.Array) -> Places:
        wanted = _hashes(keys)
        at = np.searchsorted(self._hashes, wanted)
        inside = np.flatnonzero(at < len(self._hashes))
        found = inside[self._hashes[at[inside]] == wanted[inside]]
        return found, self._rows[at[found]].astype(np.int64)


def _hashes(keys: pa.Array) -> Array:
    return np.fromiter(map(hash, keys.to_pylist()), np.int64, len(keys))


def _side_by_side(work: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
    """In the order of the items; Arrow decodes outside the interpreter's lock."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(work, items))


def _exact_places(batches: Iterable[pa.Array], keys: pa.Array) -> Places:
    found, rows = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    start = 0
    for batch in batches:
        at = pc.index_in(batch, value_set=keys)
        if at.null_count < len(at):
            hits = np.flatnonzero(at.is_valid().to_numpy(zero_copy_only=False))
            rows.append(hits + start)
            found.append(at.take(pa.array(hits)).to_numpy(zero_copy_only=False).astype(np.int64))
        start += len(batch)
    return np.concatenate(found), np.concatenate(rows)


def _read_top(folder: Folder, checkpoint: Checkpoint) -> _Top:
    """Protocol, metadata, inline files and the parts with the rest."""
    if len(checkpoint.files) == 1 and checkpoint.files[0].endswith(".json"):
        return _read_json_top(folder, f"{LOG}/{checkpoint.files[0]}", checkpoint.version)
    top = _Top([ParquetPart(folder, f"{LOG}/{name}") for name in checkpoint.files])
    sidecars: list[str] = []
    for part in list(top.parts):
        with corrupt_as(part.path):
            for action in part.values("protocol", most=1):
                top.protocol = read_protocol(action)
            for action in part.values("metaData", most=1):
                top.metadata = read_metadata(_with_maps(action))
            sidecars += [str(action.get("path")) for action in part.values("sidecar")]
    top.parts += [ParquetPart(folder, _sidecar_place(folder.uri, sidecar)) for sidecar in sidecars]
    return top


def _read_json_top(folder: Folder, path: str, version: int) -> _Top:
    rows: list[tuple[Any, ...]] = []
    record = parse_commit(version, folder.read(path), rows, path)
    if record.problem:
        raise TableCorruptError(record.problem, hint=_hint())
    actions = action_table(rows)
    inline = actions.filter(pc.equal(actions["kind"], int(Kind.ADD)))
    parts = [ParquetPart(folder, _sidecar_place(folder.uri, sidecar)) for sidecar in record.sidecars]
    return _Top(parts, inline, record.protocol, record.metadata, record.transactions, record.domains)


@contextmanager
def corrupt_as(path: str) -> Iterator[None]:
    """Whatever Arrow or a decoder says of a file's inside becomes `TableCorruptError`."""
    try:
        yield
    except LakehouseError:
        raise
    except (pa.ArrowException, BadActionError, KeyError, ValueError, TypeError, AttributeError, OSError) as exc:
        raise TableCorruptError(f"checkpoint file {path} cannot be read: {_line(exc)}", hint=_hint()) from exc


def _groups_with(footer: pq.FileMetaData, column: str) -> list[int]:
    """The row groups in which some leaf of a column may hold a value, by their statistics."""
    leaves = [i for i in range(footer.num_columns) if footer.schema.column(i).path.partition(".")[0] == column]

    def may_hold(group: int) -> bool:
        chunks = (footer.row_group(group).column(leaf) for leaf in leaves)
        return not all(
            c.is_stats_set and c.statistics.has_null_count and c.statistics.null_count == c.num_values for c in chunks
        )

    return [group for group in range(footer.num_row_groups) if may_hold(group)]


def _joined(chunks: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """One array; partitions stay dictionary-encoded."""
    if any(pa.types.is_dictionary(chunk.type) for chunk in chunks):
        encoded = [c if pa.types.is_dictionary(c.type) else c.dictionary_encode() for c in chunks]
        whole = pa.chunked_array(encoded).unify_dictionaries().combine_chunks()
        return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
    return pa.concat_arrays([c.cast(kind) for c in chunks]) if chunks else pa.array([], kind)


def _with_maps(action: Mapping[str, Any]) -> dict[str, Any]:
    action = dict(action)
    pairs = action.get("configuration")
    action["configuration"] = dict(pairs) if isinstance(pairs, Sequence) else pairs
    action["createdTime"] = epoch_ms(action.get("createdTime"))
    return action


def _sidecar_place(table: str, path: str) -> str:
    """A sidecar's path relative to the table; raises `PathRefusedError` when it is not in `_sidecars`."""
    decoded = unquote(path)
    place = resolve_log_path(decoded, f"{table}/{SIDECARS}", ())
    if not place.startswith(f"{table}/{SIDECARS}/"):
        raise refused(path, table)
    return place.removeprefix(f"{table}/")


def _line(exc: Exception) -> str:
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0][:200]


def _hint() -> str:
    return "restore the file, or rebuild the checkpoint with the engine that writes the table"
