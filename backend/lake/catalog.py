"""Which tables there are: roots walked without descending into tables, names that stay.

Rule: a folder that holds `_delta_log` is a table. A symlinked table is listed, a symlinked folder never walked into,
so no loop and no second name for what is below. What cannot be listed is reported, not skipped in silence.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import TypeVar

from backend.errors import LakehouseError, PathRefusedError, StorageError
from backend.lake.log.listing import LOG
from backend.lake.model import TableRef, UnreadableTable
from backend.lake.storage.folder import Folder, is_remote
from backend.lake.storage.storage import Storage

LAYERS = ("bronze", "silver", "gold")
MAX_DEPTH = 8
LOOKS_AT_ONCE = 16  # each is a request of tens of ms on an object store
READS_AT_ONCE = 2  # of local tables: each keeps the interpreter busy, which pages need too

Made = TypeVar("Made")


@dataclass(frozen=True)
class Listing:
    """The tables found, and the folders that could not be looked into."""

    refs: tuple[TableRef, ...]
    problems: tuple[UnreadableTable, ...] = ()

    @cached_property
    def by_uri(self) -> Mapping[str, TableRef]:
        return {ref.uri: ref for ref in self.refs}


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A folder below a root that the walk has yet to look at."""

    folder: Folder
    root: str
    path: str
    depth: int = 0
    is_link: bool = False

    @property
    def uri(self) -> str:
        return _joined(self.root, self.path)


def list_tables(storage: Storage, known_uris: Collection[str] = ()) -> Listing:
    """Every table below every root, sorted by name. `known_uris`: tables that need no second look."""
    level, tables, problems = list[_Candidate](), list[_Candidate](), list[UnreadableTable]()
    for root in storage.roots:
        try:
            level.append(_Candidate(storage.folder(root), root, ""))
        except LakehouseError as exc:
            problems.append(_problem(root, "", exc))
    with ThreadPoolExecutor(LOOKS_AT_ONCE, thread_name_prefix="walk") as pool:
        each = pool.map if any(is_remote(root) for root in storage.roots) else map
        while level:  # a whole level is looked at together
            looks = list(zip(level, each(partial(_look, known_uris), level), strict=True))
            tables += [candidate for candidate, (is_table, _, _) in looks if is_table]
            problems += [problem for _, (_, _, odd) in looks for problem in odd]
            level = [folder for _, (_, below, _) in looks for folder in below]
    order = {root: number for number, root in enumerate(storage.roots)}
    by_uri: dict[str, _Candidate] = {}
    for table in sorted(tables, key=lambda table: order[table.root]):  # under nested roots the first one names it
        by_uri.setdefault(table.uri, table)
    return Listing(_named(by_uri), tuple(problems))


def as_they_arrive(read: Callable[[TableRef], Made], refs: Sequence[TableRef]) -> Iterator[Made]:
    """What `read` makes of each, in the order they are done. Few are under way at a time, so that leaving is quick."""
    left, running = iter(refs), set[Future[Made]]()
    at_once = LOOKS_AT_ONCE if any(is_remote(ref.uri) for ref in refs) else READS_AT_ONCE
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="cards")
    try:
        while True:
            running |= {pool.submit(read, ref) for ref in islice(left, 2 * at_once - len(running))}
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def layer_of(path: str) -> str | None:
    """The medallion layer, from the nearest folder named after one."""
    return next((name.lower() for name in reversed(path.split("/")) if name.lower() in LAYERS), None)


def _look(
    known_uris: Collection[str], candidate: _Candidate
) -> tuple[bool, Sequence[_Candidate], Sequence[UnreadableTable]]:
    """Whether it is a table, else the folders below, and what could not be looked into. A table is not listed (it may
    hold a million files): only whether it has a log is asked."""
    try:
        if candidate.uri in known_uris or _has_log(candidate):
            return True, (), ()
        if candidate.depth >= MAX_DEPTH or candidate.is_link:
            return False, (), ()
        entries = candidate.folder.list(candidate.path)
    except LakehouseError as exc:
        return False, (), [_problem(candidate.root, candidate.path, exc)]
    problems, below = [], []
    for entry in entries:
        if not entry.is_folder:
            if entry.name == LOG:
                hint = f"a table's {LOG} is a folder of commits"
                odd = StorageError(f"its {LOG} is no folder that can be opened", hint=hint)
                problems.append(_problem(candidate.root, candidate.path, odd))
            continue
        path = f"{candidate.path}/{entry.name}" if candidate.path else entry.name
        if entry.name != entry.name.encode(errors="replace").decode():
            odd = StorageError("the folder's name is not UTF-8 text", hint="rename it to read the tables in it")
            problems.append(_problem(candidate.root, path.encode(errors="replace").decode(), odd))
        elif not entry.name.startswith("."):
            below.append(_Candidate(candidate.folder, candidate.root, path, candidate.depth + 1, entry.is_link))
    return False, below, problems


def _has_log(candidate: _Candidate) -> bool:
    try:
        return candidate.folder.holds(f"{candidate.path}/{LOG}" if candidate.path else LOG)
    except PathRefusedError:
        if candidate.is_link:
            raise
        return True  # a log that leads outside is a table's, whose row says so


def _named(tables: Mapping[str, _Candidate]) -> tuple[TableRef, ...]:
    """A name is the path below the root, or the whole address where several have that."""
    short = {uri: table.path or table.root.rpartition("/")[2] for uri, table in tables.items()}
    clashes = Counter(short.values())
    refs = [
        TableRef(
            uri,
            short[uri] if clashes[short[uri]] == 1 else uri,
            table.root,
            layer_of(table.path) or layer_of(table.root.rpartition("/")[2]),
        )
        for uri, table in tables.items()
    ]
    return tuple(sorted(refs, key=lambda ref: ref.name))


def _joined(root: str, path: str) -> str:
    return f"{root.rstrip('/')}/{path}" if path else root


def _problem(root: str, path: str, exc: LakehouseError) -> UnreadableTable:
    name = path or root
    return UnreadableTable(TableRef(_joined(root, path), name, root, layer_of(name)), exc.message, exc.hint)
