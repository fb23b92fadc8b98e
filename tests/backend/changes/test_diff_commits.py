"""What commits did, and net changes out of their feed: they carry one state to the other."""

import math
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.changes.changed_rows import share_out
from backend.changes.commits import Gross, sum_up
from backend.changes.model import CommitChanges, NetCounts, Question, RowChanges, RowKind, SetApart
from backend.errors import DataFileMissingError, DiffError
from backend.lake.model import Commit, OperationMetrics
from backend.sql.session import CancelToken
from tests.worlds.cases import drawn
from tests.worlds.lake.diffs import NOWHERE

Event = tuple[int, str, tuple[Any, ...]]
INS, PRE, POST, DEL = "insert", "update_preimage", "update_postimage", "delete"


def feed(events: list[Event], schema: pa.Schema | None = None) -> pa.Table:
    schema = schema or pa.schema([("id", pa.int64()), ("v", pa.string())])
    rows = [dict(zip(schema.names, values, strict=True)) for _, _, values in events]
    table = pa.Table.from_pylist(rows, schema)
    table = table.append_column("_change_type", pa.array([kind for _, kind, _ in events], pa.string()))
    table = table.append_column("_commit_version", pa.array([version for version, _, _ in events], pa.uint64()))
    stamps = pa.array([datetime(2026, 1, 1)] * len(events), pa.timestamp("ms"))
    return table.append_column("_commit_timestamp", stamps)


def summed_feed(
    rows: pa.Table | pa.RecordBatchReader, key: tuple[str, ...], row_limit: int
) -> tuple[RowChanges, Gross]:
    compared, gross = sum_up(rows, key, Question(NOWHERE, 0, 1, row_limit=row_limit), CancelToken())
    return compared.changes, gross


def summed(
    events: list[Event], key: tuple[str, ...] = ("id",), row_limit: int = 1_000, schema: pa.Schema | None = None
) -> RowChanges:
    return summed_feed(feed(events, schema), key, row_limit)[0]


@pytest.mark.parametrize(
    ("events", "net"),
    [
        pytest.param([(1, INS, (1, "a")), (2, DEL, (1, "a"))], (0, 0, 0), id="insert then delete is nothing"),
        pytest.param(
            [(1, INS, (1, "a")), (2, PRE, (1, "a")), (2, POST, (1, "b"))],
            (1, 0, 0),
            id="insert then update is an insert",
        ),
        pytest.param(
            [(1, PRE, (1, "a")), (1, POST, (1, "b")), (2, PRE, (1, "b")), (2, POST, (1, "c"))],
            (0, 1, 0),
            id="two updates are one",
        ),
        pytest.param(
            [(1, PRE, (1, "a")), (1, POST, (1, "b")), (2, DEL, (1, "b"))],
            (0, 0, 1),
            id="update then delete is a delete",
        ),
        pytest.param(
            [(1, DEL, (1, "a")), (2, INS, (1, "b"))], (0, 1, 0), id="delete then insert of a key is an update"
        ),
        pytest.param(
            [(1, DEL, (1, "a")), (2, INS, (1, "a"))], (0, 0, 0), id="deleted and put back unchanged is nothing"
        ),
        pytest.param([(1, PRE, (1, "a")), (1, POST, (1, "a"))], (0, 0, 0), id="update that changes nothing is nothing"),
        pytest.param([(1, PRE, (1, "a")), (1, POST, (2, "a"))], (1, 0, 1), id="an update of the key is another row"),
        pytest.param([], (0, 0, 0), id="no change"),
    ],
)
def test_net_change_rules(events: list[Event], net: tuple[int, int, int]) -> None:
    assert summed(events).net == NetCounts(*net)


def test_updates_show_the_first_image_and_the_last_and_mark_the_changed_cells() -> None:
    answer = summed([(1, PRE, (1, "a")), (1, POST, (1, "b")), (2, PRE, (1, "b")), (2, POST, (1, None))])
    (row,) = answer.rows
    assert (row.kind, row.key, row.before, row.after, row.changed) == (
        RowKind.UPDATE,
        {"id": 1},
        {"id": 1, "v": "a"},
        {"id": 1, "v": None},
        ("v",),
    )
    assert answer.changed_cells == {"v": 1}


def test_gross_counts_are_per_commit_and_keep_what_net_cancels() -> None:
    answer, gross = summed_feed(
        feed([(1, INS, (1, "a")), (1, INS, (2, "a")), (2, DEL, (1, "a")), (2, PRE, (2, "a")), (2, POST, (2, "b"))]),
        ("id",),
        10,
    )
    assert [gross.of(1, INS), gross.of(2, DEL), gross.of(2, POST)] == [2, 1, 1]
    assert answer.net == NetCounts(1, 0, 0)


def test_duplicate_and_null_keys_are_counted_and_set_apart() -> None:
    answer = summed(
        [
            (1, INS, (1, "a")),
            (1, INS, (1, "b")),
            (1, INS, (None, "n")),
            (1, DEL, (None, "m")),
            (1, INS, (5, "x")),
            (1, INS, (5, "x")),
            (1, INS, (9, "fine")),
        ]
    )
    assert answer.net == NetCounts(6, 0, 1)
    assert (answer.apart.duplicate_keys, answer.apart.duplicate_inserted) == (2, 4)
    assert (answer.apart.null_inserted, answer.apart.null_deleted, answer.apart.rows) == (1, 1, 6)
    apart = Counter((row.set_apart, row.copies) for row in answer.rows)
    assert apart == {
        (SetApart.DUPLICATE_KEY, 1): 2,
        (SetApart.DUPLICATE_KEY, 2): 1,
        (SetApart.NULL_KEY, 1): 2,
        (None, 1): 1,
    }


@pytest.mark.parametrize("copies", [1, 2])
def test_a_key_with_one_row_before_and_several_after_is_not_an_update(copies: int) -> None:
    answer = summed([(1, DEL, (1, "a")), (1, INS, (1, "b")), *[(1, INS, (1, "c"))] * copies])
    assert answer.net == NetCounts(1 + copies, 0, 1)
    assert (answer.apart.duplicate_keys, answer.apart.rows) == (1, 2 + copies)
    assert all(row.set_apart is SetApart.DUPLICATE_KEY for row in answer.rows)


@pytest.mark.parametrize(
    ("events", "net"),
    [
        ([(1, INS, (1, "a")), (2, DEL, (2, "b"))], NetCounts(1, 0, 1)),
        ([(1, PRE, (1, "a")), (1, POST, (1, "b")), (2, DEL, (2, "b"))], NetCounts(0, 1, 1)),
        ([(1, PRE, (1, "a")), (1, POST, (1, "b")), (2, INS, (2, "c"))], NetCounts(1, 1, 0)),
        ([(1, PRE, (1, "a")), (1, POST, (1, "b")), (1, INS, (2, "c")), (2, DEL, (3, "d"))], NetCounts(2, None, 2)),
    ],
)
def test_without_a_key_counts_say_only_what_the_feed_can_prove(events: list[Event], net: NetCounts) -> None:
    answer = summed(events, key=())
    assert answer.net == net
    assert {row.kind for row in answer.rows} <= {RowKind.INSERT, RowKind.DELETE}
    assert all(row.key is None for row in answer.rows)


def test_without_a_key_identical_rows_are_one_change_with_copies() -> None:
    answer = summed([(1, INS, (1, "a"))] * 3 + [(2, DEL, (1, "a"))], key=())
    assert answer.net == NetCounts(2, 0, 0)
    assert [(row.kind, row.copies) for row in answer.rows] == [(RowKind.INSERT, 2)]


def test_the_limit_cuts_rows_and_never_counts_and_every_kind_is_seen() -> None:
    events: list[Event] = [(1, INS, (i, "new")) for i in range(500)]
    events += [(1, PRE, (1_000, "a")), (1, POST, (1_000, "b")), (1, DEL, (2_000, "gone"))]
    answer = summed(events, row_limit=10)
    assert answer.net == NetCounts(500, 1, 1)
    assert answer.truncated
    assert Counter(row.kind for row in answer.rows) == {RowKind.INSERT: 8, RowKind.UPDATE: 1, RowKind.DELETE: 1}
    assert summed(events, row_limit=502).truncated is False


def test_share_out_gives_the_rest_to_whoever_has_more() -> None:
    assert share_out(10, {"update": 1, "delete": 2, "insert": 100}) == {"update": 1, "delete": 2, "insert": 7}
    assert share_out(2, {"update": 5, "delete": 5, "insert": 5}) == {"update": 1, "delete": 1, "insert": 0}
    assert share_out(0, {"update": 5}) == {"update": 0}


RICH = pa.schema(
    [
        ("id", pa.int64()),
        ("big", pa.int64()),
        ("money", pa.decimal128(38, 10)),
        ("f", pa.float64()),
        ("bin", pa.binary()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("nested", pa.struct([("xs", pa.list_(pa.float64())), ("s", pa.string())])),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)


def rich(**changed: Any) -> tuple[Any, ...]:
    at = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
    row: dict[str, Any] = {
        "id": 1,
        "big": 2**63 - 2,
        "money": Decimal("12345678901234567890.0000000001"),
        "f": math.nan,
        "bin": b"\x00\xff",
        "at": at,
        "local": at.replace(tzinfo=None),
        "nested": {"xs": [1.0, math.nan], "s": None},
        "tags": [("a", 1)],
    }
    return tuple((row | changed).values())


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("big", 2**63 - 1),
        ("money", Decimal("12345678901234567890.0000000002")),
        ("f", 0.0),
        ("bin", b"\x00\xfe"),
        ("at", datetime(2026, 1, 1, 12, 0, 0, 123457, tzinfo=UTC)),
        ("local", datetime(2026, 1, 1, 12, 0, 0, 123457)),
        ("nested", {"xs": [1.0, 2.0], "s": None}),
        ("tags", [("a", 2)]),
    ],
)
def test_the_smallest_difference_of_every_type_is_seen_and_nothing_else(column: str, value: Any) -> None:
    events: list[Event] = [(1, PRE, rich()), (1, POST, rich(**{column: value}))]
    answer = summed(events, schema=RICH)
    (row,) = answer.rows
    assert row.changed == (column,)
    assert row.after is not None
    assert row.after[column] == value
    assert dict(answer.changed_cells) == {column: 1}


def test_nan_equals_nan_also_inside_nested_values() -> None:
    assert summed([(1, PRE, rich()), (1, POST, rich())], schema=RICH).net.total == 0


def test_columns_that_are_called_like_our_own_do_not_clash() -> None:
    schema = pa.schema([("n", pa.int64()), ("c0", pa.string()), ('sign "x', pa.string()), ("bucket", pa.string())])
    events: list[Event] = [(1, PRE, (1, "a", "b", "c")), (1, POST, (1, "a", "B", "c"))]
    answer = summed(events, ("n",), schema=schema)
    assert answer.rows[0].changed == ('sign "x',)


def test_an_unknown_change_type_is_an_error_and_not_a_delete() -> None:
    with pytest.raises(DiffError, match="unknown change type"):
        summed([(3, "truncate", (1, "a"))])


def test_what_breaks_the_feed_is_told_as_it_is() -> None:
    whole = feed([(1, INS, (1, "a"))])

    def batches() -> Iterator[pa.RecordBatch]:
        yield from whole.to_batches()
        raise DataFileMissingError("cdc-1.parquet is gone", hint="vacuumed")

    with pytest.raises(DataFileMissingError, match=r"cdc-1.parquet"):
        summed_feed(pa.RecordBatchReader.from_batches(whole.schema, batches()), ("id",), 1)


def test_what_an_operation_cannot_do_is_zero_where_its_writer_leaves_it_out() -> None:
    def counts(operation: str, metrics: OperationMetrics, **parameters: Any) -> tuple[int | None, ...]:
        commit = Commit(1, None, operation, parameters, metrics, {}, None, None, None)
        found = CommitChanges.reported(commit)
        assert found.is_reported
        return found.inserted, found.updated, found.deleted

    assert counts("UPDATE", OperationMetrics(rows_updated=3)) == (0, 3, 0)
    assert counts("DELETE", OperationMetrics(rows_deleted=2)) == (0, 0, 2)
    assert counts("DELETE", OperationMetrics()) == (None, None, None)
    assert counts("WRITE", OperationMetrics(rows_inserted=5), mode="Append") == (5, 0, 0)
    assert counts("STREAMING UPDATE", OperationMetrics(rows_inserted=5), outputMode="Append") == (5, 0, 0)
    assert counts("WRITE", OperationMetrics(rows_inserted=5), mode="Overwrite") == (5, None, None)
    assert counts("MERGE", OperationMetrics(rows_inserted=5)) == (5, None, None)


# -- property: replaying net changes of a → b over a gives b ----------------------------------------------------------

Row = tuple[int | None, str | None]
rows_st = st.tuples(st.one_of(st.none(), st.integers(0, 6)), st.one_of(st.none(), st.sampled_from("abc")))


@st.composite
def histories(draw: st.DrawFn, *, unique: bool) -> tuple[list[Row], list[Row], list[Event]]:
    """A first state, the state after some commits, and the feed they leave, its rows shuffled inside the commit."""
    first = draw(st.lists(rows_st, max_size=6))
    if unique:
        first = list({row[0]: row for row in first if row[0] is not None}.values())
    state, events = list(first), list[Event]()
    for version in range(1, draw(st.integers(1, 4)) + 1):
        commit = list[Event]()
        for index in reversed(range(len(state))):
            what = draw(st.sampled_from(["keep", "keep", "update", "delete"]))
            old = state[index]
            if what == "update":
                state[index] = (old[0], draw(rows_st)[1]) if unique else draw(rows_st)
                commit += [(version, PRE, old), (version, POST, state[index])]
            elif what == "delete":
                del state[index]
                commit.append((version, DEL, old))
        for row in draw(st.lists(rows_st, max_size=3)):
            if not unique or (row[0] is not None and all(row[0] != other[0] for other in state)):
                state.append(row)
                commit.append((version, INS, row))
        events += draw(st.permutations(commit))
    return first, state, events


def applied(state: list[Row], answer: RowChanges) -> Counter[Row]:
    result = Counter(state)
    for row in answer.rows:
        if row.before is not None:
            result[row.before["id"], row.before["v"]] -= row.copies
        if row.after is not None:
            result[row.after["id"], row.after["v"]] += row.copies
    assert all(count >= 0 for count in result.values()), "took away a row that was not there"
    return +result


@drawn(10)
@given(histories(unique=True))
def test_by_key_the_net_changes_carry_the_first_state_to_the_last(
    case: tuple[list[Row], list[Row], list[Event]],
) -> None:
    first, last, events = case
    answer = summed(events)
    assert applied(first, answer) == Counter(last)
    before, after = dict(first), dict(last)
    common = before.keys() & after.keys()
    expected = NetCounts(
        len(after.keys() - common), sum(before[key] != after[key] for key in common), len(before.keys() - common)
    )
    assert answer.net == expected
    assert answer.apart.rows == 0


@drawn(10)
@given(histories(unique=False), st.sampled_from([(), ("id",)]))
def test_with_duplicates_and_nulls_nothing_is_lost_either(
    case: tuple[list[Row], list[Row], list[Event]], key: tuple[str, ...]
) -> None:
    first, last, events = case
    answer = summed(events, key)
    assert applied(first, answer) == Counter(last)
    assert answer.net.inserted is not None and answer.net.deleted is not None
    assert answer.net.inserted - answer.net.deleted == len(last) - len(first)
