"""Changed rows side by side and the sentences about a diff, against naive recounts."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.view.changed_rows import CHANGED_MARK, build_row_table, filter_rows, style
from app.view.changes import (
    build_commit_figure,
    build_commit_frame,
    build_schema_frame,
    counts_text,
    gross_counts,
    headline,
)
from backend.diff.model import (
    ApartCounts,
    CommitChanges,
    DiffMethod,
    FilesDiff,
    KeyChoice,
    KeySource,
    NetCounts,
    RowChange,
    RowKind,
    VersionDiff,
)
from backend.lake.metadata_diff import FieldChange, FieldState, SchemaDiff
from backend.lake.model import Commit, OperationMetrics, TableRef

START = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
SCHEMA = pa.schema(
    [("id", pa.int64()), ("status", pa.string()), ("amount", pa.float64()), ("tags", pa.list_(pa.string()))]
)
REF = TableRef("/lake/t", "t", "/lake")


def commit(version: int, counts: tuple[int | None, int | None, int | None] = (0, 0, 0)) -> CommitChanges:
    made = Commit(
        version, START + timedelta(minutes=10 * version), "MERGE", {}, OperationMetrics(), {}, None, None, None
    )
    return CommitChanges(made, *counts)


def row(kind: RowKind, number: int, **changed: tuple[object, object]) -> RowChange:
    before = {"id": number, "status": "new", "amount": 1.0, "tags": ["x"]}
    after = dict(before)
    for name, (old, new) in changed.items():
        before[name], after[name] = old, new
    sides = {RowKind.INSERT: (None, after), RowKind.DELETE: (before, None), RowKind.UPDATE: (before, after)}[kind]
    return RowChange(kind, {"id": number}, *sides, changed=tuple(changed))


def diff(rows: tuple[RowChange, ...] = (), commits: tuple[CommitChanges, ...] = ()) -> VersionDiff:
    return VersionDiff(
        ref=REF,
        from_version=0,
        to_version=len(commits),
        method=DiffMethod.CHANGE_FEED,
        reasons=(),
        exact=True,
        key=KeyChoice(("id",), KeySource.PROPERTY),
        net=NetCounts(1_204, 310, 12),
        apart=ApartCounts(),
        commits=commits,
        rows=rows,
        truncated=False,
        changed_cells={},
        arrow_schema=SCHEMA,
        schema=SchemaDiff(),
        properties=(),
        files=FilesDiff(),
    )


def test_the_sentence_on_top_names_range_commits_time_and_net() -> None:
    said = headline(diff(commits=(commit(3), commit(1), commit(2))))

    assert said == "v0 → v3, 3 commits in 20 min: net 1,204 inserted, 310 updated, 12 deleted."


def test_the_way_back_says_what_it_undoes() -> None:
    assert headline(replace(diff(), from_version=9, to_version=7)).startswith("Going back from v9 to v7 undoes")


def test_unknown_updates_are_not_shown_as_a_number() -> None:
    assert counts_text(NetCounts(3, None, 2)) == "3 inserted and 2 deleted, updates among them"


@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3), max_size=12))
def test_gross_is_the_sum_over_commits(counts: list[tuple[int, int, int]]) -> None:
    commits = tuple(commit(i, each) for i, each in enumerate(counts))

    gross = gross_counts(commits)

    assert (gross.inserted, gross.updated, gross.deleted) == tuple(sum(c[i] for c in counts) for i in range(3))


def test_gross_is_unknown_where_one_commit_does_not_say() -> None:
    assert gross_counts([commit(1, (1, 1, 1)), commit(2, (None, None, None))]) == NetCounts(None, None, None)


def test_only_changed_columns_stand_twice_and_their_cells_are_marked() -> None:
    rows = (row(RowKind.UPDATE, 1, status=("new", "paid")), row(RowKind.INSERT, 2), row(RowKind.DELETE, 3))

    table = build_row_table(diff(rows), rows)

    assert list(table.frame.columns) == ["Change", "id", "status · before", "status · after", "amount", "tags"]
    assert set(table.changed) == {(0, "status · before"), (0, "status · after")}
    assert table.frame["status · before"].tolist() == ["new", None, "new"]
    assert table.frame["status · after"].tolist() == ["paid", "new", None]
    assert table.frame["tags"].tolist() == ['["x"]'] * 3


def test_the_mark_is_a_sign_and_not_colour_alone() -> None:
    rows = (row(RowKind.UPDATE, 1, status=("new", "paid"), amount=(1.0, 2.5)), row(RowKind.INSERT, 2))

    html = style(build_row_table(diff(rows), rows)).to_html()

    assert f"{CHANGED_MARK}paid" in html
    assert f"{CHANGED_MARK}2.5" in html
    assert html.count(CHANGED_MARK) == 2


def test_big_integers_and_nulls_keep_their_digits() -> None:
    big = 2**53 + 1
    rows = (row(RowKind.UPDATE, big, amount=(None, 1.5)),)

    table = build_row_table(diff(rows), rows)

    assert table.frame["id"].tolist() == [big]
    assert table.frame["amount · before"].isna().tolist() == [True]


kinds = st.sets(st.sampled_from(list(RowKind)))
columns = st.sets(st.sampled_from(["status", "amount"]))


@given(st.lists(st.tuples(st.sampled_from(list(RowKind)), columns), max_size=20), kinds, columns)
def test_filters_leave_exactly_what_was_asked(
    seeds: list[tuple[RowKind, set[str]]], wanted: set[RowKind], touched: set[str]
) -> None:
    rows = [
        row(kind, i, **dict.fromkeys(sorted(names), (1, 2)) if kind is RowKind.UPDATE else {})
        for i, (kind, names) in enumerate(seeds)
    ]

    found = filter_rows(rows, kinds=wanted, columns=touched)

    naive = [
        r for r in rows if (not wanted or r.kind in wanted) and (not touched or any(c in touched for c in r.changed))
    ]
    assert found == naive


def test_deleted_bars_go_down_and_every_row_is_in_some_bar() -> None:
    commits = tuple(commit(i, (i, 1, 2)) for i in range(1, 451))

    figure = build_commit_figure(diff(commits=commits))

    sums = {trace.name: sum(trace.y) for trace in figure.data}
    assert sums == {"inserted": sum(range(1, 451)), "updated": 450, "deleted": -900}
    assert max(len(trace.x) for trace in figure.data) <= 200


def test_without_counts_there_is_no_chart_but_a_list() -> None:
    commits = (commit(1, (None, None, None)),)

    assert build_commit_figure(diff(commits=commits)) is None
    frame = build_commit_frame(commits, now=START + timedelta(hours=1))
    assert frame.isna().iloc[0]["Inserted"]
    assert frame.iloc[0]["When"] == pytest.approx(50 * 60)


def test_each_schema_change_is_one_line() -> None:
    schema = SchemaDiff(
        added=(FieldState("country", "string", True),),
        dropped=(FieldState("old", "int", True),),
        renamed=(("a", "b"),),
        changed=(FieldChange("amount", "type", "int", "long"),),
        partitioning=((), ("day",)),
    )

    frame = build_schema_frame(schema)

    assert list(frame["What"]) == [
        "column added",
        "column dropped",
        "column renamed",
        "type changed",
        "partitioning changed",
    ]
    assert build_schema_frame(SchemaDiff()).empty
