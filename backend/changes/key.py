"""Which columns name a row: given, declared on the table, inferred from how MERGE finds its rows, or remembered.

Rule: a key that is asked for and wrong is an error, a key that was only found and is wrong is a reason. What was
remembered is a hint, never an answer: it is kept in a file of its own a table, read again each time, and lost without
harm.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import orjson

from backend.caches import DiskCache
from backend.changes.model import KeyChoice, KeySource, VersionDiff
from backend.errors import DiffColumnError
from backend.lake.model import Commit, Metadata, TableRef
from backend.lake.table.schema import NESTED, readable_names, spelled

_MOST_TABLES = 1_000  # whose key is remembered
PROPERTY = "weir.primaryKey"

_ID = re.compile(r"(?:.*_)?(?:id|uuid|guid|key)|.*[a-z0-9](?:Id|ID|Key)", re.DOTALL)
_NAME = r"(?:`[^`]+`|\"[^\"]+\"|[A-Za-z_]\w*)(?:#\d+L?)?"
_EQUAL = re.compile(rf"^\s*({_NAME})\.({_NAME})\s*(?:=|<=>)\s*({_NAME})\.({_NAME})\s*$")
_SPARK_EQUAL = re.compile(r"^\s*(\w+)#\d+L?\s*(?:=|<=>)\s*(\w+)#\d+L?\s*$")  # Spark drops the aliases


def choose_key(
    given: Sequence[str] | None,
    metadata: Metadata,
    commits: Iterable[Commit],
    remembered: Sequence[str] | None = None,
) -> tuple[KeyChoice | None, tuple[str, ...]]:
    """The strongest key, None where there is none, and what was found on the way: given > table property > MERGE
    predicates > the last one that was given. Raises `DiffColumnError` for a wrong given one."""
    columns = readable_names(metadata)
    if given:
        return KeyChoice(_given(given, columns), KeySource.GIVEN), (f"key {_list(given)}: as given",)
    reasons: list[str] = []
    if declared := metadata.configuration.get(PROPERTY):
        names = parse_names(declared)
        missing = [name for name in names if spelled(name, columns) is None]
        if names and not missing:
            key = KeyChoice(_given(names, columns), KeySource.PROPERTY)
            return key, (f"key {_list(key.columns)}: declared by the table property {PROPERTY}",)
        reasons.append(f"the table property {PROPERTY} names {_list(missing)}, which the table does not have: ignored")
    inferred, why = _from_merges(commits, columns)
    if inferred:
        return KeyChoice(inferred, KeySource.MERGE), (*reasons, why)
    if remembered and all(spelled(name, columns) for name in remembered):
        key = KeyChoice(_given(remembered, columns), KeySource.REMEMBERED)
        return key, (*reasons, f"key {_list(key.columns)}: given when the table was last compared")
    return None, (*reasons, why)


def likely_keys(columns: Iterable[str]) -> list[str]:
    """Columns that are called as ids are: each may name a row, or another table's."""
    return [name for name in columns if _ID.fullmatch(name)]


def join_columns(
    columns: Mapping[str, str], others: Mapping[str, str], properties: Mapping[str, str]
) -> tuple[str, ...]:
    """The columns by which rows name rows of another table, in both by name and type: its declared key, and what is
    called as ids are. `properties`: of the other one."""
    same = [n for n, kind in columns.items() if others.get(n) == kind and not kind.startswith(NESTED)]
    likely = {*likely_keys(same), *parse_names(properties.get(PROPERTY, ""))}
    return tuple(name for name in same if name in likely)


def parse_names(text: str) -> tuple[str, ...]:
    """Column names from `a, b`, `` `a b`, c `` or a JSON list."""
    if text.strip().startswith("["):
        try:
            names = orjson.loads(text)
        except orjson.JSONDecodeError:
            return ()
        return tuple(str(name) for name in names)
    return tuple(name for part in re.findall(r"`[^`]+`|[^,]+", text) if (name := part.strip().strip("`")))


def merge_key(predicate: str) -> tuple[str, ...] | None:
    """The columns that a MERGE condition equates between source and target; None when it says anything else."""
    if predicate.lstrip().startswith("["):  # Spark writes a JSON list of one text
        with suppress(orjson.JSONDecodeError):
            predicate = " AND ".join(map(str, orjson.loads(predicate)))
    names: list[str] = []
    for part in re.split(r"\s+AND\s+", predicate, flags=re.IGNORECASE):
        condition = part.strip().strip("()").strip()
        if spark := _SPARK_EQUAL.match(condition):
            name, other = spark.groups()
            if name.lower() != other.lower():
                return None
        elif match := _EQUAL.match(condition):
            side, name, other_side, other = (re.sub(r"#\d+L?$", "", each).strip('`"') for each in match.groups())
            if name.lower() != other.lower() or side.lower() == other_side.lower():
                return None
        else:
            return None
        names.append(name)
    return tuple(names)


def _from_merges(commits: Iterable[Commit], columns: Sequence[str]) -> tuple[tuple[str, ...] | None, str]:
    """One key on which every MERGE of the history agrees."""
    found: dict[tuple[str, ...], int] = {}
    for commit in commits:
        predicate = commit.parameters.get("mergePredicate") or commit.parameters.get("predicate")
        if (commit.operation or "").upper() != "MERGE" or not isinstance(predicate, str):
            continue
        names = merge_key(predicate)
        if names is None:
            return None, f"no key: the MERGE of v{commit.version} finds its rows by more than equal columns"
        found.setdefault(tuple(sorted(name.lower() for name in names)), commit.version)
    if not found:
        return None, "no key: none is given, declared or seen in a MERGE"
    if len(found) > 1:
        return None, f"no key: MERGEs of the history use different ones ({'; '.join(_list(k) for k in found)})"
    names, version = next(iter(found.items()))
    if missing := [name for name in names if spelled(name, columns) is None]:
        return None, f"no key: the MERGE of v{version} uses {_list(missing)}, which the table does not have"
    key = tuple(column for column in columns if column.lower() in names)
    return key, f"key {_list(key)}: inferred from how MERGE (v{version}) finds its rows"


def _given(given: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    names = {name: spelled(name, columns) for name in given}
    if missing := [name for name, own in names.items() if own is None]:
        raise DiffColumnError(f"no column {_list(missing)} to use as a key", hint=f"columns: {_list(columns)}")
    return tuple(dict.fromkeys(own for own in names.values() if own is not None))


def _list(names: Iterable[str]) -> str:
    shown = [f"`{name}`" for name in names]
    return ", ".join(shown[:12]) + (f" and {len(shown) - 12} more" if len(shown) > 12 else "")


class KeyMemory:
    """The key of each table that a person gave last and that told its rows apart."""

    def __init__(self, cache: DiskCache) -> None:
        self._cache = cache

    def known(self, ref: TableRef) -> tuple[str, ...] | None:
        """Its columns; None when there is none."""
        columns = self._cache.load(ref.uri)
        return tuple(orjson.loads(columns)) if columns else None

    def learn(self, answer: VersionDiff) -> None:
        """Keep a key that was given, where no changed row had to be set apart."""
        is_given = answer.key is not None and answer.key.source is KeySource.GIVEN
        if answer.key and is_given and answer.is_available and not answer.changes.apart.rows:
            self._cache.save(orjson.dumps(answer.key.columns), answer.question.ref.uri)


def key_memory(home: Path) -> KeyMemory:
    return KeyMemory(DiskCache(home / "cache" / "keys", _MOST_TABLES))
