"""What people ask of a history: a version by number, `latest`, offset (`-5`), time (`2 h ago`, `yesterday`, ISO 8601)
or by the name of a pinned one; the commits that fit; and the conditions by which commits found their rows.

Rule: a time means the newest version committed at or before it, by Delta's own rule (`commit_info`); whatever cannot be
resolved says what could be. A name never hides a number or a time. Commits are looked through newest first, in
portions; what was looked at is counted and said, what was not is never claimed. Free of pandas, which the terminal does
without.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

import orjson

from backend.errors import VersionFormatError, VersionNotFoundError
from backend.format import cut, utc_text
from backend.lake.log.commit_info import LOOK_BACK
from backend.lake.model import Commit, Metadata, TableRef, VersionReader
from backend.lake.table.schema import column_types
from backend.times import FORMS, Clock, parse_time

_NUMBER = re.compile(r"(?P<before>-|latest *- *|v)?(?P<digits>[0-9]{1,30})", re.IGNORECASE)
_NAME, _TAKEN = re.compile(r"\w(?:[\w.\- ]{0,78}[\w.\-])?"), ("oldest", "now")
VERSIONS = f"a number, `latest`, an offset such as `-5`, a pin's name, or the last version at a time: {FORMS}"
_HINT = f"a version is {VERSIONS}"


@dataclass(frozen=True, slots=True)
class Offset:
    """So many versions before the latest."""

    back: int


def parse_version(text: str | int, clock: Clock) -> int | Offset | datetime:
    """What `text` names when somebody with this clock says it; raises `VersionFormatError` when it names nothing."""
    words = str(text).strip()
    if words.lower() == "latest":
        return Offset(0)
    match = _NUMBER.fullmatch(words)
    if match is None:
        try:
            return parse_time(words, clock)
        except VersionFormatError as exc:
            raise VersionFormatError(exc.message.replace("not a time", "not a version", 1), hint=_HINT) from exc
    number = int(match["digits"])
    return Offset(number) if "-" in (match["before"] or "") else number


def resolve_version(lake: VersionReader, ref: TableRef, text: str | int, clock: Clock) -> int:
    """The version that `text` names in this table; raises `VersionNotFoundError` when the table has none such."""
    try:
        wanted = parse_version(text, clock)
    except VersionFormatError:
        named = lake.named_versions(ref).get(str(text).strip())
        if named is None:
            raise
        return named
    if isinstance(wanted, datetime):
        return _at_time(lake, ref, wanted)
    latest = lake.latest_version(ref)
    version = latest - wanted.back if isinstance(wanted, Offset) else wanted
    if not 0 <= version <= latest:
        raise VersionNotFoundError(
            f"table {ref.name} has no version {str(text).strip()}", hint=f"its versions end at {latest}; {_HINT}"
        )
    return version


def check_name(text: str) -> str:
    """The name that a version is to get, without blanks around it; raises `VersionFormatError` for what cannot be one,
    or means a version already."""
    name, clock = text.strip(), Clock()
    try:
        parse_version(name, clock)
    except VersionFormatError:
        if _NAME.fullmatch(name) and name.lower() not in _TAKEN:
            return name
    raise VersionFormatError(
        f"no name for a version: {cut(name, 60)!r}",
        hint="up to 80 letters, digits, `.`, `_`, `-` and blanks, and neither a version nor a time: features-2026-11",
    )


def _at_time(lake: VersionReader, ref: TableRef, when: datetime) -> int:
    version = lake.version_at(ref, when)
    if version is not None:
        return version
    oldest = lake.history(ref)[-1:]
    first = f"; its log begins with v{oldest[0].version} of {utc_text(oldest[0].committed_at)}" if oldest else ""
    raise VersionNotFoundError(f"table {ref.name} has no version at {utc_text(when)}{first}", hint=_HINT)


# commits that fit -------------------------------------------------------------------------------------------------

PORTION = 500
NOT_NAMED = "not named"
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Which commits to keep: any of the named in each group, an empty group keeps all; times are both inclusive.

    `streams` names the stream of each query id that is known.
    """

    operations: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    engines: frozenset[str] = frozenset()
    streams: frozenset[str] = frozenset()
    since: datetime | None = None
    until: datetime | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        groups = (self.operations, self.users, self.engines, self.streams)
        return not any(groups) and self.since is None and self.until is None

    def keeps(self, commit: Commit) -> bool:
        at = commit.committed_at
        return (
            _fits(operation_of(commit), self.operations)
            and _fits(user_of(commit), self.users)
            and _fits(engine_of(commit), self.engines)
            and _fits(stream_of(commit, self.names), self.streams)
            and (self.since is None or (at is not None and at >= self.since))
            and (self.until is None or (at is not None and at <= self.until))
        )


@dataclass(frozen=True, slots=True)
class LookBack:
    """The newest commits of a range, an unbroken run newest first. `is_whole`: none of the range was left out."""

    looked_at: tuple[Commit, ...]
    is_whole: bool

    def matching(self, chosen: HistoryFilter) -> list[Commit]:
        return [commit for commit in self.looked_at if chosen.keeps(commit)]


@dataclass(frozen=True, slots=True)
class Choices:
    """What occurs among commits, most frequent first."""

    operations: Mapping[str, int]
    users: Mapping[str, int]
    engines: Mapping[str, int]
    streams: Mapping[str, int]


def look_back(
    lake: VersionReader, ref: TableRef, *, newest: int, most: int, since: datetime | None, progress: Progress
) -> LookBack:
    """At most `most` commits from `newest` down, none older than `since`; `progress` hears how many after each portion.

    Raises what `Lake.history` raises.
    """
    found: list[Commit] = []
    ending = newest
    while len(found) < most:
        wanted = min(PORTION, most - len(found))
        portion = lake.history(ref, limit=wanted, ending_version=ending)
        found += portion
        progress(len(found))
        if len(portion) < wanted or portion[-1].version == 0 or _all_before(found[-LOOK_BACK:], since):
            while found and _all_before(found[-1:], since):
                found.pop()
            return LookBack(tuple(found), is_whole=True)
        ending = portion[-1].version - 1
    return LookBack(tuple(found), is_whole=not lake.history(ref, limit=1, ending_version=ending))


def choices(commits: Iterable[Commit], names: Mapping[str, str]) -> Choices:
    """What occurs among these commits, with counts."""
    commits = list(commits)
    streams = Counter(stream for commit in commits if (stream := stream_of(commit, names)) is not None)
    groups = (Counter(name(commit) for commit in commits) for name in (operation_of, user_of, engine_of))
    return Choices(*(dict(group.most_common()) for group in (*groups, streams)))


def operation_of(commit: Commit) -> str:
    return commit.operation or NOT_NAMED


def user_of(commit: Commit) -> str:
    return commit.user or NOT_NAMED


def engine_of(commit: Commit) -> str:
    return commit.engine or NOT_NAMED


def stream_of(commit: Commit, names: Mapping[str, str]) -> str | None:
    """The stream that wrote a commit: by its stamp, else by its query id, which stands for it where nobody knows it."""
    origin = commit.origin
    if origin is None:
        return None
    return (
        origin.stream or names.get(origin.query_id or "") or (f"query {origin.query_id}" if origin.query_id else None)
    )


def _fits(value: str | None, wanted: frozenset[str]) -> bool:
    return not wanted or value in wanted


def _all_before(commits: Sequence[Commit], since: datetime | None) -> bool:
    return since is not None and all(c.committed_at is not None and c.committed_at < since for c in commits)


_NUMBERS = ("byte", "short", "integer", "long", "float", "double", "decimal")
_PLAIN = re.compile(r"[a-z_]\w*", re.IGNORECASE)
# A text in quotes stays; the number that Spark gives a column in a plan goes. A merge's `a#1 = a#2` are its two sides.
_IDS = re.compile(r"('(?:[^'\\]|\\.|'')*')|\b(\w+)#\d+L? = \2#\d+L?\b|(?<=[\w`\])])#\d+L?\b")


def example_condition(metadata: Metadata, *, is_good: bool) -> str:
    """A condition on a column of the table's own, which most good rows satisfy (`is_good`) or few rows do."""
    types = {name: kind for name, kind in column_types(metadata.schema_json).items() if _PLAIN.fullmatch(name)}
    numbers = [name for name, kind in types.items() if kind.startswith(_NUMBERS)]
    values = [name for name in numbers if not re.search(r"(^|_)(id|key)$|^(year|month|day)$", name)] or numbers
    if values:
        return f"{values[0]} {'>=' if is_good else '<'} 0"
    return f"{next(iter(types), 'column')} IS {'NOT ' if is_good else ''}NULL"


def predicate_text(commit: Commit) -> str:
    """The condition by which the commit found its rows; empty where it names none."""
    return without_ids(_predicate(commit))


def _predicate(commit: Commit) -> str:
    found = commit.parameters.get("predicate") or commit.parameters.get("mergePredicate") or ""
    if isinstance(found, str) and found.startswith("[") and found.endswith("]"):
        with suppress(orjson.JSONDecodeError):
            found = " AND ".join(str(part) for part in orjson.loads(found))
    return str(found)


def without_ids(condition: str) -> str:
    """A condition of Spark's without the ids of its plan: `order_id#53397` is `order_id`, and what a merge
    finds by it the `same order_id`."""
    return _IDS.sub(lambda match: match[1] or (f"same {match[2]}" if match[2] else ""), condition)


# what conditions have in common ----------------------------------------------------------------------------------

_CLAUSES = ("matchedPredicates", "notMatchedPredicates", "notMatchedBySourcePredicates")
_TOKEN = re.compile(
    r"(?P<text>'(?:[^'\\]|\\.|'')*')|(?P<column>[\w.`]*\w`?#\d+L?(?:\.\w+)*|`[^`]+`|\"[^\"]+\")"
    r"|(?P<call>[a-z_]\w*(?=\s*\())|(?P<number>[-+]?\d[\w.:+-]*)|(?P<word>[a-z_][\w.`-]*)|[<>=!]+|\S",
    re.IGNORECASE,
)
_WORDS = re.compile(r"and|or|not|in|inset|is|null|like|between|case|when|then|else|end|as|true|false")


def clauses_text(commit: Commit) -> str:
    """What a MERGE does with the rows it found, each with its condition: "update if s.at > t.at, insert"."""
    return ", ".join(f"{act} if {without_ids(condition)}" if condition else act for act, condition in _clauses(commit))


def condition_shape(commit: Commit) -> str | None:
    """The condition of a MERGE, UPDATE or DELETE without what changes from run to run: values, aliases, blanks,
    brackets and how often a term is repeated. None for other commits, and where a MERGE names none."""
    if commit.operation not in ("MERGE", "UPDATE", "DELETE"):
        return None
    predicate = _predicate(commit)
    if commit.operation == "MERGE" and not predicate:
        return None
    return "; ".join([_shape(predicate), *(f"{act} {_shape(condition)}" for act, condition in _clauses(commit))])


def _clauses(commit: Commit) -> list[tuple[str, str]]:
    clauses = []
    for name in _CLAUSES:
        with suppress(orjson.JSONDecodeError, TypeError):  # Spark and delta-rs write a list as text
            listed = orjson.loads(commit.parameters.get(name, "[]"))
            clauses += [clause for clause in listed if isinstance(clause, Mapping)]
    return [(str(clause.get("actionType") or ""), str(clause.get("predicate") or "")) for clause in clauses]


def _shape(condition: str) -> str:
    # Spark writes texts without quotes beside columns with their ids: what has no id there is no column.
    is_plan = "#" in condition
    tokens = [_token(match, is_plan=is_plan) for match in _TOKEN.finditer(condition) if match[0] not in "()"]
    text = re.sub(r"\?(?: (?:, )?\?)+", "?", " ".join(tokens))
    terms = re.split(r"\b(?=(?:and|or)\b)", text)
    return " ".join(dict.fromkeys(term.strip() for term in terms))


def _token(match: re.Match[str], *, is_plan: bool) -> str:
    if match["text"] or match["number"]:
        return "?"
    token = match[0].lower()
    if match["column"] or (match["word"] and not _WORDS.fullmatch(token)):
        if is_plan and not match["column"]:
            return "?"
        name = re.sub(r"#\d+l?", "", token)
        return name.rpartition(".")[2].strip('`"')
    return {"==": "=", "<>": "!="}.get(token, token)
