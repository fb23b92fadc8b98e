"""Two versions by their names, and the key of a table."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from backend.changes.key import choose_key, merge_key, parse_names
from backend.changes.model import KeyChoice, KeySource
from backend.errors import DiffError, VersionFormatError, VersionNotFoundError
from backend.lake.history.history import check_name, parse_version, resolve_version
from backend.lake.model import Commit, Metadata, OperationMetrics, TableRef
from backend.times import Clock
from tests.worlds.lake.diffs import NOWHERE

START = datetime(2026, 1, 1, tzinfo=UTC)
CLOCK = Clock(START + timedelta(minutes=400, seconds=20), timezone(timedelta(hours=2)))


def commit(version: int, operation: str = "WRITE", **parameters: Any) -> Commit:
    at = START + timedelta(minutes=version)
    return Commit(version, at, operation, parameters, OperationMetrics(), {}, None, None, None)


@dataclass
class LakeWithLog:
    """Fifty-two pages would be slow to write; a log of `length` commits a minute apart."""

    length: int
    names: Mapping[str, int] = field(default_factory=dict)

    def named_versions(self, ref: TableRef) -> Mapping[str, int]:
        return self.names

    def latest_version(self, ref: TableRef) -> int:
        return self.length - 1

    def history(self, ref: TableRef, *, limit: int | None = None, ending_version: int | None = None) -> list[Commit]:
        last = self.length - 1 if ending_version is None else ending_version
        return [commit(version) for version in range(last, -1, -1)][:limit]

    def version_at(self, ref: TableRef, when: datetime) -> int | None:
        return min(self.length - 1, (when - START) // timedelta(minutes=1)) if when >= START else None


@pytest.mark.parametrize(
    "text",
    [
        *("", "banana", "1.5", "v", "2026-13-01", "tomorrow", "today 08:41", "latest2", "latest+1", "v-1"),
        *("--1", "1_0", "٣", "9" * 5_000, "NaN", "1; DROP TABLE t", "2126-11-20T10:00+25:00", "2026-02-30"),
        "0001-01-01T00:00+14:00",
    ],
)
def test_what_names_no_version_is_refused_with_the_forms_that_do(text: str) -> None:
    with pytest.raises(VersionFormatError) as refused:
        parse_version(text, CLOCK)
    assert "`latest`" in refused.value.hint and "such as `-5`" in refused.value.hint
    assert len(refused.value.message) < 200


@pytest.mark.parametrize(
    ("text", "version"),
    [
        *(("7", 7), (7, 7), ("v7", 7), ("latest", 499), ("-5", 494), (-5, 494), ("latest-2", 497)),
        ("2026-01-01T02:10+02:00", 10),
        ("2026-01-01T00:10:30Z", 10),
        ("2026-01-01T00:10:00Z", 10),
        ("2030-01-01", 499),
        ("30 min ago", 370),
        ("2 h ago", 280),
        ("today 04:30", 150),
        ("08:40", 400),
        ("02:00", 0),
    ],
)
def test_versions_by_name_resolve_against_the_log(text: str | int, version: int) -> None:
    assert resolve_version(LakeWithLog(500), NOWHERE, text, CLOCK) == version


@pytest.mark.parametrize("text", ["500", "-501", "2025-12-31T23:59Z", "yesterday", "24 h ago"])
def test_a_version_that_is_not_there_is_not_found(text: str) -> None:
    with pytest.raises(VersionNotFoundError):
        resolve_version(LakeWithLog(500), NOWHERE, text, CLOCK)


def test_a_pins_name_means_its_version_and_hides_no_other() -> None:
    lake = LakeWithLog(500, {"features-2026-11": 118, "gone": 900, "latest": 3, "30 min ago": 3})
    assert resolve_version(lake, NOWHERE, " features-2026-11 ", CLOCK) == 118
    assert resolve_version(lake, NOWHERE, "gone", CLOCK) == 900, "so that it can be unpinned by its name"
    assert resolve_version(lake, NOWHERE, "latest", CLOCK) == 499
    assert resolve_version(lake, NOWHERE, "30 min ago", CLOCK) == 370
    with pytest.raises(VersionFormatError, match="'Features-2026-11'"):
        resolve_version(lake, NOWHERE, "Features-2026-11", CLOCK)


@pytest.mark.parametrize("name", ["features-2026-11", " Q3 audit ", "möbel_v2", "x", "a" * 80])
def test_what_may_be_a_name_means_nothing_else(name: str) -> None:
    assert check_name(name) == name.strip()


@pytest.mark.parametrize(
    "name",
    [
        *("", "118", "v118", "latest", "-5", "2 h ago", "yesterday", "2026-11-20", "now", "Oldest"),
        *("a'b", "a/b", "-x", "a" * 81),
    ],
)
def test_what_means_a_version_or_cannot_be_typed_is_no_name(name: str) -> None:
    with pytest.raises(VersionFormatError, match="no name for a version"):
        check_name(name)


# the key --------------------------------------------------------------------------------------------------------------


def table_of(*names: str, **traits: Any) -> Metadata:
    fields = [{"name": name, "type": "long", "nullable": True, "table_of": {}} for name in names]
    return Metadata("t-1", json.dumps({"type": "struct", "fields": fields}), **traits)


@pytest.mark.parametrize(
    ("predicate", "key"),
    [
        ("t.id = s.id", ("id",)),
        ("target.id = source.id AND target.day = source.day", ("id", "day")),
        ('["(t.order_id#12L = s.order_id#40L)"]', ("order_id",)),
        ('["(order_id#12L = order_id#40L)"]', ("order_id",)),
        ('["((t.a#1 = s.a#2) AND (t.b#3 <=> s.b#4))"]', ("a", "b")),
        ("t.`odd name` = s.`odd name`", ("odd name",)),
        ("t.id = s.other_id", None),
        ("t.id = s.id AND t.is_current = true", None),
        ("t.id = s.id OR t.k = s.k", None),
        ("t.id = t.id", None),
        ("t.id > s.id", None),
        ("lower(t.id) = lower(s.id)", None),
        ("", None),
        ("[not json", None),
    ],
)
def test_a_merge_condition_names_a_key_only_when_it_is_nothing_but_equal_columns(
    predicate: str, key: tuple[str, ...] | None
) -> None:
    assert merge_key(predicate) == key


TABLE = table_of("id", "Day", "v")


def test_the_given_key_wins_then_the_property_then_merges() -> None:
    merges = [commit(3, "MERGE", predicate="t.Day = s.Day"), commit(2, "MERGE", mergePredicate="t.day = s.day")]
    declared = table_of("id", "Day", configuration={"weir.primaryKey": "id"})
    assert choose_key(["ID"], declared, merges)[0] == KeyChoice(("id",), KeySource.GIVEN)
    assert choose_key(None, declared, merges)[0] == KeyChoice(("id",), KeySource.PROPERTY)
    assert choose_key(None, TABLE, merges)[0] == KeyChoice(("Day",), KeySource.MERGE)
    assert choose_key(None, TABLE, [commit(1)])[0] is None


@pytest.mark.parametrize(
    ("merges", "why"),
    [
        (["t.id = s.id", "t.Day = s.Day"], "different ones"),
        (["t.id = s.id", "t.id = s.id AND t.v = 1"], "more than equal columns"),
        (["t.gone = s.gone"], "does not have"),
    ],
)
def test_merges_that_do_not_agree_make_no_key(merges: Sequence[str], why: str) -> None:
    key, reasons = choose_key(None, TABLE, [commit(i, "MERGE", predicate=text) for i, text in enumerate(merges)])
    assert key is None
    assert why in reasons[-1]


def test_a_wrong_key_is_an_error_when_given_and_a_reason_when_declared() -> None:
    with pytest.raises(DiffError, match="nope"):
        choose_key(["nope"], TABLE, ())
    key, reasons = choose_key(None, table_of("id", configuration={"weir.primaryKey": "nope"}), ())
    assert key is None
    assert "nope" in reasons[0]


def test_key_names_are_read_from_lists_quotes_and_json() -> None:
    assert parse_names("a, b") == ("a", "b")
    assert parse_names("`a b`,c") == ("a b", "c")
    assert parse_names('["a","b,c"]') == ("a", "b,c")
    assert parse_names("[broken") == ()
