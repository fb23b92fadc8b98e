"""The key of a table: given, declared, or inferred from how MERGE finds its rows."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from backend.changes.key import choose_key, merge_key, parse_names
from backend.changes.model import KeyChoice, KeySource
from backend.errors import DiffError
from backend.lake.model import Commit, Metadata, OperationMetrics


def metadata(*names: str, **traits: Any) -> Metadata:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in names]
    return Metadata("t-1", json.dumps({"type": "struct", "fields": fields}), **traits)


def commit(version: int, operation: str = "WRITE", **parameters: Any) -> Commit:
    return Commit(
        version, datetime(2026, 1, 1, tzinfo=UTC), operation, parameters, OperationMetrics(), {}, None, None, None
    )


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


TABLE = metadata("id", "Day", "v")


def test_the_given_key_wins_then_the_property_then_merges() -> None:
    merges = [commit(3, "MERGE", predicate="t.Day = s.Day"), commit(2, "MERGE", mergePredicate="t.day = s.day")]
    declared = metadata("id", "Day", configuration={"weir.primaryKey": "id"})
    assert choose_key(["ID"], declared, merges).key == KeyChoice(("id",), KeySource.GIVEN)
    assert choose_key(None, declared, merges).key == KeyChoice(("id",), KeySource.PROPERTY)
    assert choose_key(None, TABLE, merges).key == KeyChoice(("Day",), KeySource.MERGE)
    assert choose_key(None, TABLE, [commit(1)]).key is None


@pytest.mark.parametrize(
    ("merges", "why"),
    [
        (["t.id = s.id", "t.Day = s.Day"], "different ones"),
        (["t.id = s.id", "t.id = s.id AND t.v = 1"], "more than equal columns"),
        (["t.gone = s.gone"], "does not have"),
    ],
)
def test_merges_that_do_not_agree_make_no_key(merges: Sequence[str], why: str) -> None:
    found = choose_key(None, TABLE, [commit(i, "MERGE", predicate=text) for i, text in enumerate(merges)])
    assert found.key is None
    assert why in found.reasons[-1]


def test_a_wrong_key_is_an_error_when_given_and_a_reason_when_declared() -> None:
    with pytest.raises(DiffError, match="nope"):
        choose_key(["nope"], TABLE, ())
    found = choose_key(None, metadata("id", configuration={"weir.primaryKey": "nope"}), ())
    assert found.key is None
    assert "nope" in found.reasons[0]


def test_key_names_are_read_from_lists_quotes_and_json() -> None:
    assert parse_names("a, b") == ("a", "b")
    assert parse_names("`a b`,c") == ("a b", "c")
    assert parse_names('["a","b,c"]') == ("a", "b,c")
    assert parse_names("[broken") == ()
