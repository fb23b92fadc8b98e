"""Which tables there are: roots walked without descending into tables, names that stay.

Rule: a folder that holds `_delta_log` is a table. A symlinked table is listed, a symlinked folder never walked into,
so no loop and no second name for what is below. What cannot be listed is reported, not skipped in silence.
"""

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from backend.errors import LakehouseError, StorageError, TableNotFoundError
from backend.lake.listing import LOG
from backend.lake.model import TableRef, UnreadableTable
from backend.lake.storage import Folder, Storage

LAYERS = ("bronze", "silver", "gold")
MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Listing:
    """The tables found, and the folders that could not be looked into."""

    refs: tuple[TableRef, ...]
    problems: tuple[UnreadableTable, ...] = ()


def list_tables(storage: Storage) -> Listing:
    """Every table below every root, sorted by name."""
    places: dict[str, tuple[str, str]] = {}
    problems: list[UnreadableTable] = []
    for root in storage.roots:
        try:
            found, bad = _walk(storage.folder(root))
        except LakehouseError as exc:
            problems.append(_problem(root, root, exc))
            continue
        for path in found:
            places.setdefault(f"{root}/{path}" if path else root, (root, path))
        problems += [_problem(root, f"{root}/{path}" if path else root, exc) for path, exc in bad]
    return Listing(_named(places), tuple(problems))


def layer_of(path: str) -> str | None:
    """The medallion layer, from the nearest folder named after one."""
    return next((part.lower() for part in reversed(path.split("/")) if part.lower() in LAYERS), None)


def nearest_names(name: str, refs: Sequence[TableRef]) -> TableNotFoundError:
    """The error for a name that no table has, with those that look like it."""
    names = {ref.name: ref.name for ref in refs} | {ref.name.rpartition("/")[2]: ref.name for ref in refs}
    near = dict.fromkeys(names[match] for match in difflib.get_close_matches(name, list(names), n=3, cutoff=0.5))
    hint = f"did you mean {' or '.join(near)}?" if near else "`weir tables` lists every table"
    return TableNotFoundError(f"there is no table {name!r}", hint=hint)


def _walk(folder: Folder) -> tuple[list[str], list[tuple[str, LakehouseError]]]:
    tables: list[str] = []
    problems: list[tuple[str, LakehouseError]] = []
    todo = [("", 0, False)]
    while todo:
        path, depth, is_link = todo.pop()
        try:
            entries = [entry for entry in folder.list(path) if entry.is_folder]
        except LakehouseError as exc:
            problems.append((path, exc))
            continue
        if any(entry.name == LOG for entry in entries):
            tables.append(path)
        elif depth < MAX_DEPTH and not is_link:
            for entry in entries:
                place = f"{path}/{entry.name}" if path else entry.name
                if not _is_text(entry.name):
                    problems.append((place.encode(errors="replace").decode(), _not_text()))
                elif not entry.name.startswith("."):
                    todo.append((place, depth + 1, entry.is_link))
    return tables, problems


def _is_text(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


def _not_text() -> LakehouseError:
    return StorageError("the folder's name is not UTF-8 text", hint="rename it to read the tables in it")


def _named(places: dict[str, tuple[str, str]]) -> tuple[TableRef, ...]:
    short = {uri: path or root.rpartition("/")[2] for uri, (root, path) in places.items()}
    clashes = Counter(short.values())
    refs = [
        TableRef(uri, name if clashes[name] == 1 else _rooted(*places[uri]), places[uri][0], _layer(*places[uri]))
        for uri, name in short.items()
    ]
    return tuple(sorted(refs, key=lambda ref: ref.name))


def _rooted(root: str, path: str) -> str:
    return f"{root}/{path}" if path else root


def _layer(root: str, path: str) -> str | None:
    return layer_of(path) or layer_of(root.rpartition("/")[2])


def _problem(root: str, uri: str, exc: LakehouseError) -> UnreadableTable:
    name = uri.removeprefix(root).strip("/") or root
    return UnreadableTable(TableRef(uri, name, root, layer_of(name)), exc.message, exc.hint)
