"""Checkpoints (classic, multi-part, V2 with sidecars): what they say of the table, and their files column by column.

Rule: only the columns asked for are read, batch by batch, into Arrow arrays; whatever is wrong inside is
`TableCorruptError` with the file's name. Sidecars must lie in the table's own `_delta_log/_sidecars` (PROTOCOL.md,
"Sidecar Files").
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import TableCorruptError
from backend.lake.log.actions import FileAction, read_metadata, read_protocol
from backend.lake.log.checkpoint_parts import (
    COLUMNS,
    HINT,
    FileColumn,
    ParquetPart,
    Piece,
    corrupt_as,
    paths_of,
    require_small,
    side_by_side,
)
from backend.lake.log.commits import domain, parse_commit, transaction
from backend.lake.log.file_set import ACTIONS, FILES, action_table, concatenated
from backend.lake.log.listing import LOG, Checkpoint
from backend.lake.model import Metadata, Protocol
from backend.lake.storage.folder import Folder, check_paths, is_remote, refused, resolve_log_path
from backend.lake.table.schema import physical_names
from backend.settings import LakeSettings

SIDECARS = f"{LOG}/_sidecars"
KEYS_KNOWN = 20_000  # a few megabytes; one search may go beyond

Array = np.ndarray[Any, Any]
Matches = tuple[Array, Array]  # positions among the keys asked for, rows of the checkpoint
Top = tuple[Protocol | None, Metadata | None, Sequence[str]]  # of the top file, with the paths of its sidecars
Pass = tuple[Array, Matches, Array]  # which rows of a piece are files, matches among those, hashes of their keys


class CheckpointState:
    """The table at a checkpoint's version. What was read of it is kept; thread-safe."""

    def __init__(self, folder: Folder, checkpoint: Checkpoint, allowed: Sequence[str], limits: LakeSettings) -> None:
        self._allowed, self._limits = allowed, limits
        self._table = folder.uri
        self._lock = threading.RLock()
        self._name = f"{LOG}/{checkpoint.files[0]}"
        self.version = checkpoint.version
        self._parts: list[ParquetPart] = []
        self._inline = ACTIONS.empty_table()  # files that the top file holds itself
        self._transactions: dict[str, int] = {}
        self._domains: dict[str, str | None] = {}
        is_json = len(checkpoint.files) == 1 and checkpoint.files[0].endswith(".json")
        read_top = self._read_json_top if is_json else self._read_parquet_top
        protocol, metadata, sidecars = read_top(folder, checkpoint)
        if protocol is None or metadata is None:
            raise TableCorruptError(f"checkpoint {self._name} holds no protocol or no metaData", hint=HINT)
        self.protocol, self.metadata = protocol, metadata
        self._parts += [ParquetPart(folder, _sidecar_path(folder.uri, sidecar), limits) for sidecar in sidecars]
        self._live: dict[Piece, Array] | None = None  # of each piece, which of its rows are files
        self._columns: dict[str, pa.Array] = {}
        self._totals: dict[str, tuple[int, int]] = {}
        self._index: _KeyIndex | None = None
        self._known: dict[str, tuple[int, ...]] = {}  # rows of the keys looked for before
        self._has_small_actions = False

    @property
    def num_files(self) -> int:
        return len(self.column("size_bytes"))

    def column(self, name: str) -> pa.Array:
        """One column of `file_set.FILES` over all files of the checkpoint, always in the same order."""
        with self._lock:
            if name in self._columns:
                return self._columns[name]
        group = COLUMNS[name]
        special = {"size_bytes": self._sizes, "num_records": self._num_records}
        arrays = {name: special[name]()} if name in special else self._read(group)
        with self._lock:
            if group.cached:
                self._columns.update(arrays)
        return arrays[name]

    def total(self, name: str) -> tuple[int, int]:
        """The sum of a column of whole numbers, and how many files do not say it."""
        if name not in self._totals:
            column = self.column(name)
            self._totals[name] = int(pc.sum(column).as_py() or 0), int(column.null_count)
        return self._totals[name]

    def matches(self, keys: pa.Array) -> Matches:
        """Where the files with these keys are: positions in `keys` and rows of the checkpoint."""
        with self._lock:
            texts = keys.to_pylist()
            if any(text not in self._known for text in texts):
                if len(self._known) > KEYS_KNOWN:
                    self._known = {}
                self._known |= dict.fromkeys(texts, ())
                for at, row in zip(*(positions.tolist() for positions in self._search(keys)), strict=True):
                    self._known[texts[at]] += (row,)
            pairs = [(at, row) for at, text in enumerate(texts) for row in self._known[text]]
        return np.array([at for at, _ in pairs], np.int64), np.array([row for _, row in pairs], np.int64)

    def _search(self, keys: pa.Array) -> Matches:
        """The first call compares texts while the paths stream past; a later one builds an index, for tables that are
        looked at again."""
        if self._live is None:
            return self._first_pass(keys)
        if self._index is None:
            self._index = _KeyIndex(np.concatenate([_hashes_of(keys) for keys in self._key_batches()]))
        if self._index.is_exact:
            return self._index.matches(keys)
        return _exact_matches(self._key_batches(), keys)

    def check(self) -> None:
        """Read what must be right for any figure: sizes, and deletion vectors where there are some."""
        self.column("size_bytes")
        self.column("dv_id")

    def small_actions(self) -> tuple[Mapping[str, int], Mapping[str, str | None]]:
        """Transactions per application and domain configurations."""
        with self._lock:
            for part in () if self._has_small_actions else self._parts:
                with corrupt_as(part.path):
                    for action in part.values("txn"):
                        self._transactions.update(transaction(action))
                    for action in part.values("domainMetadata"):
                        self._domains.update(domain(action))
            self._has_small_actions = True
            return self._transactions, self._domains

    def _sizes(self) -> pa.Array:
        sizes = self._read(COLUMNS["size_bytes"])["size_bytes"]
        if sizes.null_count or (len(sizes) and pc.min(sizes).as_py() < 0):
            raise TableCorruptError(f"checkpoint {self._name} holds a file without a size", hint=HINT)
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

    def _first_pass(self, keys: pa.Array) -> Matches:
        """The first look at all paths: which rows are files, do they stay inside, and where are these keys. What was
        fetched from an object store is indexed at once, to be fetched no second time."""
        pieces = [piece for part in self._parts if "path" in part.fields() for piece in part.pieces()]
        num_rows = sum(part.footer.num_rows for part in self._parts if part.footer)
        require_small(self._name, "rows", num_rows, self._limits.checkpoint_max_files)
        passes = side_by_side(lambda piece: self._pass(piece, keys), pieces)
        check_paths(self._inline["path"], self._table, self._allowed)
        inline = concatenated(self._inline["key"].chunks, pa.string())
        self._live = {piece: mask for piece, (mask, _, _) in zip(pieces, passes, strict=True)}
        passes.append((np.ones(len(inline), bool), _exact_matches([inline], keys), _hashes_of(inline)))
        pairs, rows, start = [], [], 0
        for mask, (at, matching), _ in passes:
            pairs.append(at)
            rows.append(matching + start)
            start += int(mask.sum())
        if is_remote(self._table):
            self._index = _KeyIndex(np.concatenate([hashes for _, _, hashes in passes]))
        return np.concatenate(pairs), np.concatenate(rows)

    def _pass(self, piece: Piece, keys: pa.Array) -> Pass:
        """A first look at one piece; the hashes only on an object store."""
        mask, hashes = [np.zeros(0, bool)], [np.zeros(0, np.int64)]
        leaves, decode = COLUMNS["key"].build(piece.part.fields(), ())

        def batches() -> Iterator[pa.Array]:
            for struct in piece.batches(leaves):
                with corrupt_as(piece.part.path):
                    live = pc.is_valid(pc.struct_field(struct, "path"))
                    mask.append(live.to_numpy(zero_copy_only=False))
                    struct = struct if mask[-1].all() else struct.filter(live)
                    check_paths(paths_of(struct), self._table, self._allowed)
                    keys_of_rows = decode(struct)["key"]
                if is_remote(self._table):
                    hashes.append(_hashes_of(keys_of_rows))
                yield keys_of_rows

        matches = _exact_matches(batches(), keys)
        return np.concatenate(mask), matches, np.concatenate(hashes)

    def _read(self, group: FileColumn) -> dict[str, pa.Array]:
        pieces = [(piece, mask) for piece, mask in self._pieces().items() if mask.any()]
        read = side_by_side(lambda one: list(self._decoded(*one, group)), pieces)
        chunks = {name: [batch[name] for batches in read for batch in batches] for name in group.names}
        for name in group.names:
            chunks[name] += self._inline[name].chunks
        if "dv_path" in group.names:
            for chunk in chunks["dv_path"]:
                check_paths(chunk.drop_null(), self._table, self._allowed)
        return {name: concatenated(arrays, FILES.field(name).type) for name, arrays in chunks.items()}

    def _decoded(self, piece: Piece, mask: Array, group: FileColumn) -> Iterator[Mapping[str, pa.Array]]:
        physical = physical_names(self.metadata)
        partitions = tuple(physical.get(column, column) for column in self.metadata.partition_columns)
        leaves, decode = group.build(piece.part.fields(), partitions)
        if not leaves:
            yield group.missing(int(mask.sum()), partitions)
            return
        start = 0
        for struct in piece.batches(leaves):
            here = mask[start : start + len(struct)]
            start += len(struct)
            with corrupt_as(piece.part.path):
                columns_by_name = decode(struct if here.all() else struct.filter(pa.array(here)))
            yield columns_by_name

    def _key_batches(self) -> Iterator[pa.Array]:
        """Keys of the files, in the order of `column`."""
        for piece, mask in self._pieces().items():
            if mask.any():
                for batch in self._decoded(piece, mask, COLUMNS["key"]):
                    yield batch["key"]
        yield concatenated(self._inline["key"].chunks, pa.string())

    def _read_parquet_top(self, folder: Folder, checkpoint: Checkpoint) -> Top:
        self._parts = [ParquetPart(folder, f"{LOG}/{name}", self._limits) for name in checkpoint.files]
        protocol, metadata, sidecars = None, None, list[str]()
        for part in self._parts:
            with corrupt_as(part.path):
                for action in part.values("protocol", most=1):
                    protocol = read_protocol(action)
                for action in part.values("metaData", most=1):
                    if isinstance(pairs := action.get("configuration"), Sequence):
                        action["configuration"] = dict(pairs)
                    metadata = read_metadata(action)
                sidecars += [str(action.get("path")) for action in part.values("sidecar")]
        return protocol, metadata, sidecars

    def _read_json_top(self, folder: Folder, checkpoint: Checkpoint) -> Top:
        rows: list[tuple[Any, ...]] = []
        record = parse_commit(checkpoint.version, folder.read(self._name), rows, self._name)
        if record.problem:
            raise TableCorruptError(record.problem, hint=HINT)
        actions = action_table(rows)
        self._inline = actions.filter(pc.equal(actions["kind"], int(FileAction.ADD)))
        self._transactions, self._domains = dict(record.transactions), dict(record.domains)
        return record.protocol, record.metadata, record.sidecars


def _sidecar_path(table: str, path: str) -> str:
    """A sidecar's path relative to the table; raises `PathRefusedError` when it is not in `_sidecars`."""
    decoded = unquote(path)
    uri = resolve_log_path(decoded, f"{table}/{SIDECARS}", ())
    if not uri.startswith(f"{table}/{SIDECARS}/"):
        raise refused(path, table)
    return uri.removeprefix(f"{table}/")


# keys ------------------------------------------------------------------------------------------------------------


class _KeyIndex:
    """Rows by key, as sorted 64-bit hashes (keyed anew in each process): 12 bytes a file."""

    def __init__(self, hashes: Array) -> None:
        self._rows = np.argsort(hashes).astype(np.int32)
        self._hashes = hashes[self._rows]
        self.is_exact = not bool((self._hashes[1:] == self._hashes[:-1]).any())

    def matches(self, keys: pa.Array) -> Matches:
        wanted = _hashes_of(keys)
        at = np.searchsorted(self._hashes, wanted)
        inside = np.flatnonzero(at < len(self._hashes))
        same = inside[self._hashes[at[inside]] == wanted[inside]]
        return same, self._rows[at[same]].astype(np.int64)


def _hashes_of(keys: pa.Array) -> Array:
    return np.fromiter(map(hash, keys.to_pylist()), np.int64, len(keys))


def _exact_matches(batches: Iterable[pa.Array], keys: pa.Array) -> Matches:
    pairs, rows = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    start = 0
    for batch in batches:
        at = pc.index_in(batch, value_set=keys)
        if at.null_count < len(at):
            hits = np.flatnonzero(at.is_valid().to_numpy(zero_copy_only=False))
            rows.append(hits + start)
            pairs.append(at.take(pa.array(hits)).to_numpy(zero_copy_only=False).astype(np.int64))
        start += len(batch)
    return np.concatenate(pairs), np.concatenate(rows)
