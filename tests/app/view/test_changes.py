"""Changed rows side by side and the sentences about a diff, against naive recounts."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from app.changes import text
from app.changes import view as frames
from app.changes.text import escaped, to_markdown
from app.changes.view import CHANGED_MARK, build_row_table, style
from app.ui.lists import list_frame
from app.ui.view.explanation import gross_text
from backend.changes.model import (
    Alteration,
    CommitChanges,
    CommonChange,
    DiffMethod,
    Effect,
    Explanation,
    FilesDiff,
    KeyChoice,
    KeySource,
    LogChanges,
    NetCounts,
    RowChange,
    RowKind,
    VersionDiff,
)
from backend.lake.history.history import predicate_text
from backend.lake.model import Commit, OperationMetrics, TableRef
from backend.lake.table.metadata_diff import FieldChange, PropertyChange, SchemaDiff
from backend.lake.table.schema import SchemaColumn
from tests.worlds.lake.diffs import answer_of, but

START = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
SCHEMA = pa.schema(
    [("id", pa.int64()), ("status", pa.string()), ("amount", pa.float64()), ("tags", pa.list_(pa.string()))]
)
REF = TableRef("/lake/t", "t", "/lake")
KINDS = ("Inserted", "Updated", "Deleted")


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
    return answer_of(
        to_version=len(commits),
        key=KeyChoice(("id",), KeySource.PROPERTY),
        net=NetCounts(1_204, 310, 12),
        commits=commits,
        rows=rows,
        arrow_schema=SCHEMA,
    )


def field(name: str, kind: str) -> SchemaColumn:
    return SchemaColumn(name, (name,), kind, kind, nullable=True, physical=(name,))


def test_the_sentence_names_share_metadata_and_what_was_only_rewritten() -> None:
    compaction = replace(commit(2), commit=replace(commit(2).commit, operation="OPTIMIZE"))
    changed = (PropertyChange("a", None, "1"), PropertyChange("b", "1", None), PropertyChange("feature: x", None, "s"))
    schema = SchemaDiff(added=(field("country", "string"),), renamed=(("a", "b"),))
    said = text.headline(
        but(
            diff(commits=(commit(1), compaction)),
            num_rows=(507_475, 508_667),
            properties=changed,
            schema=schema,
            rewritten={2: 40},
        )
    )
    share = (1_204 + 310 + 12) / (508_667 + 12)  # every row of either state
    assert 0.00295 < share < 0.00305
    assert said.endswith(
        "12 deleted (0.3 % of rows); 1 column added, 1 renamed; 2 properties changed; protocol changed; "
        "compaction rewrote 40 files without changing rows."
    )
    pending = text.headline(but(diff(), schema=schema), is_pending=True)
    assert "rows not compared yet, their number by statistics: ±0; 1 column added" in pending
    files, nothing = FilesDiff(rows_added=None), NetCounts(None, None, None)
    unknown = text.headline(but(diff(), method=DiffMethod.LOG_ONLY, net=nothing, files=files))
    assert "rows cannot be compared, their number by statistics: unknown" in unknown and "0 rows" not in unknown


def test_deletes_alone_hide_no_updates_but_a_filter_may_have_cut_them() -> None:
    alone = NetCounts(0, None, 5)
    for counts, may_be_updates in (((0, 0, 5), False), ((0, 3, 5), True), ((None, None, None), True)):
        filtered = but(diff(commits=(commit(1, counts),)), net=alone, where="status IS NULL")
        said = text.headline(filtered)
        assert "rows with status IS NULL: 0 rows inserted and 5 deleted" in said
        assert ("updates perhaps among them" in said) == may_be_updates, counts
    assert "among them" not in text.headline(but(diff(), net=alone))


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [
        ({"predicate": '["(id = 1)","(b = 2)"]'}, "(id = 1) AND (b = 2)"),
        ({"mergePredicate": "t.id = s.id"}, "t.id = s.id"),
        ({"predicate": "[id > 1]"}, "[id > 1]"),
        ({}, ""),
        ({"predicate": '["(order_id#53397 = s.order_id#12L)"]'}, "(order_id = s.order_id)"),
        (
            {"predicate": "[\"(`odd name`#7 > 3) AND (note#4 = 'a#12')\"]"},
            "(`odd name` > 3) AND (note = 'a#12')",
        ),
        (
            {"predicate": '["(order_id#53397 = order_id#12L) AND (day#1 = other#2)"]'},
            "(same order_id) AND (day = other)",
        ),
        ({"predicate": "[\"note = 'it''s #5'\"]"}, "note = 'it''s #5'"),
    ],
)
def test_a_condition_is_read_from_what_writers_leave_without_the_ids_of_spark_s_plan(
    parameters: dict[str, str], shown: str
) -> None:
    assert predicate_text(replace(commit(1).commit, parameters=parameters)) == shown


def test_what_updates_touch_is_listed_with_the_commonest_changes() -> None:
    common = (CommonChange("status", "new", "paid", 200), CommonChange("status", None, "x", 2))
    columns = frames.cell_columns(but(diff(), changed_cells={"amount": 31, "status": 310}, common=common))
    frame = list_frame(columns, [("status", 310), ("amount", 31)])
    assert frame["Share of updates"].tolist() == [1, 0.1]
    assert frame["Commonest changes"].tolist() == ["new → paid (200) · null → x (2)", "each different"]


HOSTILE = "a|b\n# x](http://evil) <!channel> @all `c` *d* ~e~ &lt; $1 www.evil.com __f__"


def test_the_summary_for_a_channel_shows_what_a_stranger_wrote_literally() -> None:
    made = commit(1, (1, None, 3))
    wrote = replace(made.commit, operation=HOSTILE, user=HOSTILE, parameters={"predicate": HOSTILE + "\n| x |"})
    schema = SchemaDiff(added=(field(HOSTILE, HOSTILE),), partitioning=((HOSTILE,), ()))
    markdown = to_markdown(
        but(
            diff(commits=(replace(made, commit=wrote),)),
            ref=TableRef("/lake/t", HOSTILE, "/lake"),
            schema=schema,
            properties=(PropertyChange(HOSTILE, None, HOSTILE),),
            reasons=(HOSTILE,),
        )
    )
    bare = re.sub(r"\\.", "", markdown)
    assert not set("`@<&$#[]_~") & set(bare)
    assert "://" not in markdown
    assert "www." not in markdown
    row = next(line for line in bare.splitlines() if line.startswith("| v1 |"))
    assert row.count("|") == 11
    assert escaped("delta-rs:py-1.6.6 t.order_id = 1") == "delta-rs:py-1.6.6 t.order_id = 1"


def test_names_in_the_sentences_of_the_summary_are_bold_as_code_cannot_be_escaped() -> None:
    done = tuple(Alteration(name, Effect.MULTIPLIED, 9, 9, 9, by=100) for name in ("amount", "od`d", "a*b"))
    markdown = to_markdown(but(diff(), explanation=Explanation(done)))
    assert "\n- All 9 updates multiplied **amount** by 100.\n" in markdown
    assert "**a\\*b** by 100" in markdown and "\\`od\\`d\\` by 100" in markdown


def test_the_summary_has_the_newest_commits_and_says_how_many_are_left() -> None:
    markdown = to_markdown(but(diff(commits=tuple(commit(i) for i in range(1, 26))), num_rows=(None, 5_000)))
    assert "| v25 |" in markdown
    assert "| v5 |" not in markdown
    assert "… and 5 older commits." in markdown
    assert "3,486 rows stayed the same." in markdown
    assert "1,204 rows inserted" in markdown
    assert "stayed the same" not in to_markdown(diff(), is_pending=True)


def test_what_some_commits_do_not_say_is_said() -> None:
    quiet = replace(commit(3).commit, metrics=OperationMetrics(files_added=0, files_removed=0))
    commits = [commit(1, (5, 1, 0)), commit(2, (7, None, 2)), replace(commit(3, (None,) * 3), commit=quiet)]
    assert gross_text(commits) == "at least 12 inserted, 1 updated, 2 deleted: 1 commit of 2 did not count everything"
    assert gross_text(commits[:1] + commits[2:]) == "5 inserted, 1 updated, 0 deleted"
    assert gross_text([commit(1, (None,) * 3)]) == "how many rows is not said"


def test_only_changed_columns_stand_twice_and_their_cells_are_marked_by_a_sign() -> None:
    rows = (row(RowKind.UPDATE, 2**53 + 1, status=("new", "paid")), row(RowKind.INSERT, 2), row(RowKind.DELETE, 3))
    table = build_row_table(diff(rows), rows)
    assert list(table.frame.columns) == ["Change", "id", "status · before", "status · after", "amount", "tags"]
    assert set(table.changed) == {(0, "status · before"), (0, "status · after")}
    assert table.frame["status · before"].tolist() == ["new", None, "new"]
    assert table.frame["status · after"].tolist() == ["paid", "new", None]
    assert table.frame["tags"].tolist() == ['["x"]'] * 3 and table.frame["id"].tolist()[0] == 2**53 + 1
    html = style(table).to_html()
    assert f"{CHANGED_MARK}paid" in html and html.count(CHANGED_MARK) == 1
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    at = datetime(2026, 11, 20, 10, 4, 31, 500_000, UTC)
    change = RowChange(RowKind.INSERT, {"id": 1}, None, {"id": 1, "at": at})
    assert build_row_table(but(diff(), arrow_schema=schema), [change]).frame["at"].tolist() == [
        "2026-11-20 10:04:31.5 UTC"
    ]


def test_deleted_bars_go_down_every_row_is_in_some_bar_and_without_counts_there_is_a_list() -> None:
    figure = frames.build_commit_figure(diff(commits=tuple(commit(i, (i, 1, 2)) for i in range(1, 451))))
    sums = {trace.name: sum(trace.y) for trace in figure.data}
    assert sums == {"inserted": sum(range(1, 451)), "updated": 450, "deleted": -900}
    assert max(len(trace.x) for trace in figure.data) <= 200
    unknown = (commit(1, (None, None, None)),)
    assert frames.build_commit_figure(diff(commits=unknown)) is None
    frame = list_frame(text.commit_columns(START + timedelta(hours=1), {}), unknown)
    assert frame.isna().iloc[0]["Inserted"] and frame.iloc[0]["When"] == pytest.approx(50 * 60)


def test_each_schema_change_is_one_line() -> None:
    schema = SchemaDiff(
        added=(field("country", "string"),),
        dropped=(field("old", "int"),),
        renamed=(("a", "b"),),
        changed=(FieldChange(("amount",), "type", "int", "long"),),
        partitioning=((), ("day",)),
    )
    lines = ["column added", "column dropped", "column renamed", "type changed", "partitioning changed"]
    assert [what for what, *_ in text.metadata_changes(LogChanges(schema, (), FilesDiff()))] == lines
