"""Which tables there are: roots walked without descending into tables, names that stay.

Rule: a folder that holds `_delta_log` is a table. A symlinked table is listed, a symlinked folder never walked into,
so no loop and no second name for what is below. What cannot be listed is reported, not skipped in silence.
"""

import difflib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import TypeVar

from backend.errors import LakehouseError, PathRefusedError, StorageError, TableNotFoundError
from backend.lake.log.listing import LOG
from backend.lake.model import TableRef, UnreadableTable
from backend.lake.storage.folder import Folder, is_remote
from backend.lake.storage.storage import Storage

LAYERS = ("bronze", "silver", "gold")
MAX_DEPTH = 8
LOOKS_AT_ONCE = 16  # each is a request of tens of ms on an object store

Given = TypeVar("Given")
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


@dataclass(frozen=True, slots=True)
class _Look:
    """What a look at one folder found."""

    candidate: _Candidate
    is_table: bool = False
    below: tuple[_Candidate, ...] = ()
    problems: tuple[UnreadableTable, ...] = ()


def list_tables(storage: Storage, known_uris: Collection[str] = ()) -> Listing:
    """Every table below every root, sorted by name. `known` names tables (URIs) that need no second look."""
    looks, problems = [], []
    candidates: list[_Candidate] = []
    for root in storage.roots:
        try:
            candidates.append(_Candidate(storage.folder(root), root, ""))
        except LakehouseError as exc:
            problems.append(_problem(root, "", exc))
    look = partial(_look, known_uris)
    if any(is_remote(root) for root in storage.roots):
        with ThreadPoolExecutor(LOOKS_AT_ONCE, thread_name_prefix="walk") as pool:
            looks = list(_walk(candidates, lambda level: pool.map(look, level)))
    else:
        looks = list(_walk(candidates, lambda level: map(look, level)))
    tables = [look.candidate for look in looks if look.is_table]
    order = {root: number for number, root in enumerate(storage.roots)}
    found: dict[str, tuple[str, str]] = {}
    for table in sorted(tables, key=lambda table: order[table.root]):  # under nested roots the first one names it
        found.setdefault(table.uri, (table.root, table.path))
    return Listing(_named(found), (*problems, *(problem for look in looks for problem in look.problems)))


def as_they_arrive(read: Callable[[Given], Made], given: Iterable[Given], at_once: int) -> Iterator[Made]:
    """What `read` makes of each, in the order they are done. Few are under way at a time, so that leaving is quick."""
    left, running = iter(given), set[Future[Made]]()
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


def nearest_names(name: str, refs: Sequence[TableRef]) -> TableNotFoundError:
    """The error for a name that no table has, with those that look like it."""
    names = {ref.name: ref.name for ref in refs} | {ref.name.rpartition("/")[2]: ref.name for ref in refs}
    near = dict.fromkeys(names[match] for match in difflib.get_close_matches(name, list(names), n=3, cutoff=0.5))
    hint = f"did you mean {' or '.join(near)}?" if near else "`weir tables` lists every table"
    return TableNotFoundError(f"there is no table {name!r}", hint=hint)


def _walk(candidates: Sequence[_Candidate], look: Callable[[Sequence[_Candidate]], Iterable[_Look]]) -> Iterator[_Look]:
    """Level by level, so that a whole level can be looked at together."""
    level = list(candidates)
    while level:
        looks = list(look(level))
        yield from looks
        level = [candidate for pending in looks for candidate in pending.below]


def _look(known_uris: Collection[str], candidate: _Candidate) -> _Look:
    """A table is not listed (it may hold a million files): only whether it has a log is asked."""
    try:
        if candidate.uri in known_uris or _has_log(candidate):
            return _Look(candidate, is_table=True)
        if candidate.depth >= MAX_DEPTH or candidate.is_link:
            return _Look(candidate)
        entries = candidate.folder.list(candidate.path)
    except LakehouseError as exc:
        return _Look(candidate, problems=(_problem(candidate.root, candidate.path, exc),))
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
    return _Look(candidate, below=tuple(below), problems=tuple(problems))


def _has_log(candidate: _Candidate) -> bool:
    try:
        return candidate.folder.holds(f"{candidate.path}/{LOG}" if candidate.path else LOG)
    except PathRefusedError:
        if candidate.is_link:
            raise
        return True  # a log that leads outside is a table's, whose row says so


def _named(tables: dict[str, tuple[str, str]]) -> tuple[TableRef, ...]:
    short = {uri: path or root.rpartition("/")[2] for uri, (root, path) in tables.items()}
    clashes = Counter(short.values())
    refs = []
    for uri, (root, path) in tables.items():
        name = short[uri] if clashes[short[uri]] == 1 else _joined(root, path)
        refs.append(TableRef(uri, name, root, layer_of(path) or layer_of(root.rpartition("/")[2])))
    return tuple(sorted(refs, key=lambda ref: ref.name))


def _joined(root: str, path: str) -> str:
    return f"{root.rstrip('/')}/{path}" if path else root


def _problem(root: str, path: str, exc: LakehouseError) -> UnreadableTable:
    name = path or root
    return UnreadableTable(TableRef(_joined(root, path), name, root, layer_of(name)), exc.message, exc.hint)
