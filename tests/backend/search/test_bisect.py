"""The first bad version, against a naive look at every version; and every way in which that can be impossible."""

import math
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from backend.errors import BisectError, DataFileMissingError, LakehouseError, QueryError
from backend.lake.lake import Lake
from backend.lake.model import Commit, OperationMetrics, Snapshot, TableRef
from backend.lake.rows.rows import RowQuery
from backend.lake.table.schema import columns
from backend.search import search
from backend.search.condition import Examples, Judge, VersionVerdict
from backend.search.search import Bisection, BisectProgress, BisectRequest, ProbeOutcome, Purpose, bisect
from backend.sql.filters import negated, parse_filter
from backend.sql.numbers import Numbers, Reading, ValueSource
from tests.worlds.cases import drawn
from tests.worlds.lake import builders
from tests.worlds.lake.diff_lakes import LakeWith
from tests.worlds.lake.diffs import lake_at

CONDITION = "min(amount) >= 0"


def steps_of(lake: Any, ref: TableRef, condition: str = CONDITION, **named: Any) -> list[BisectProgress]:
    return list(bisect(lake, ref, BisectRequest(condition, **named)))


def found_by(lake: Any, ref: TableRef, condition: str = CONDITION, **named: Any) -> Bisection:
    result = steps_of(lake, ref, condition, **named)[-1].result
    assert result is not None
    return result


# the search, on histories that exist only as verdicts -------------------------------------------------------------


@dataclass
class Story:
    """Whether each version is good, which cannot be read, which commits say that they moved no row, and which are not
    even in the log any more (some of `gone`)."""

    good: list[bool]
    gone: frozenset[int] = frozenset()
    quiet: frozenset[int] = frozenset()
    unlisted: frozenset[int] = frozenset()

    @property
    def changing(self) -> list[int]:
        return [v for v in range(1, len(self.good)) if v not in self.quiet or v in self.unlisted]

    @property
    def flips(self) -> list[int]:
        return [v for v in range(1, len(self.good)) if self.good[v] is not self.good[v - 1]]


class StoryLake:
    """Answers from a `Story`; its judge knows every verdict, so that only the search itself works."""

    def __init__(self, story: Story, snapshot: Snapshot) -> None:
        self.story, self._snapshot, self.judge = story, snapshot, Judge()
        self.judge.verdicts = Numbers(self._verdict)
        self.judge.examples = Numbers(lambda *_: Examples())

    def _verdict(self, _: Reading, snapshot: Snapshot, __: str) -> VersionVerdict:
        is_good = self.story.good[snapshot.version]
        return VersionVerdict(is_good, is_good)

    def latest_version(self, ref: TableRef) -> int:
        return len(self.story.good) - 1

    def versions(self, ref: TableRef) -> list[tuple[int, int]]:
        return [(v, v) for v in range(len(self.story.good)) if v not in self.story.unlisted]

    def snapshot(self, ref: TableRef, version: int | None = None) -> Snapshot:
        if version in self.story.gone:
            raise DataFileMissingError(f"a file of v{version} is gone")
        return replace(self._snapshot, version=self.latest_version(ref) if version is None else version)

    def history(
        self, ref: TableRef, *, limit: int | None = None, starting_version: int = 0, ending_version: int = 0
    ) -> list[Commit]:
        listed = set(range(len(self.story.good))) - self.story.unlisted
        return [self._commit(v) for v in range(ending_version, starting_version - 1, -1) if v in listed]

    def _commit(self, version: int) -> Commit:
        operation = "OPTIMIZE" if version in self.story.quiet else "WRITE"
        return Commit(version, None, operation, {}, OperationMetrics(), {}, None, None, None)

    def see_files(self, ref: TableRef, version: int, *, sample: int | None) -> Any:
        return iter(())

    def _never(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("every verdict is known")

    read_files = _never


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    folder = tmp_path_factory.mktemp("blank")
    builders.HandLog(folder / "t").start(columns={"id": "long", "amount": "double"})
    lake = lake_at(folder)
    return lake.snapshot(lake.find("t"))


def told(story: Story, blank: Snapshot, **named: Any) -> tuple[list[BisectProgress], Bisection]:
    lake = StoryLake(story, blank)
    ends = {"good": story.good.index(True, 0) if story.good[0] else len(story.good) - 1}
    ends["bad"] = len(story.good) - 1 if story.good[0] else 0
    request = BisectRequest(CONDITION, **{**ends, **named})
    steps = list(bisect(lake, blank.ref, request, judge=lake.judge))  # type: ignore[arg-type]
    result = steps[-1].result
    assert result is not None
    return steps, result


@st.composite
def stories(draw: st.DrawFn, *, most_flips: int = 1, can_be_gone: bool = True) -> Story:
    count = draw(st.integers(2, 40))
    flips = draw(st.integers(0, (most_flips - 1) // 2)) * 2 + 1
    places = set(draw(st.lists(st.integers(1, count - 1), min_size=1, max_size=flips, unique=True)))
    if len(places) % 2 == 0:
        places.remove(max(places))
    now, good = draw(st.booleans()), []
    for version in range(count):
        now = not now if version in places else now
        good.append(now)
    calm = [v for v in range(1, count) if v not in places]
    quiet = frozenset(draw(st.lists(st.sampled_from(calm), unique=True))) if calm else frozenset()
    inner = list(range(1, count - 1))
    gone = frozenset(draw(st.lists(st.sampled_from(inner), unique=True))) if inner and can_be_gone else frozenset()
    unlisted = frozenset(draw(st.lists(st.sampled_from(sorted(gone)), unique=True))) if gone else frozenset()
    return Story(good, gone, quiet, unlisted)


@drawn(25)
@given(story=stories(can_be_gone=False), check=st.integers(0, 3))
def test_where_all_can_be_read_the_first_version_is_found(blank: Snapshot, story: Story, check: int) -> None:
    steps, found = told(story, blank, check=check)
    (first,) = story.flips
    assert (found.culprit, found.is_monotonic) == (first, True)
    assert found.is_mended is not story.good[0]
    if check:
        assert found.last == first - 1 and first in [probe.version for probe in found.probes]
    else:
        assert len(found.probes) <= 2 + (len(story.good) - 2).bit_length()
    for step in steps:
        running = step.version is not None and step.doing.startswith("judging")
        if step.at_most_left is not None:
            assert len(found.probes) - len(step.probes) - running <= step.at_most_left


@drawn(25)
@given(story=stories(), check=st.integers(0, 2))
def test_what_cannot_be_read_leaves_exactly_the_commits_that_may_be_it(
    blank: Snapshot, story: Story, check: int
) -> None:
    _, found = told(story, blank, check=check)
    readable = [v for v in range(len(story.good)) if v not in story.gone]
    before = max(v for v in readable if story.good[v] is story.good[0])
    after = min(v for v in readable if story.good[v] is not story.good[0])
    assert list(found.candidates) == [v for v in story.changing if before < v <= after]
    skipped = {probe.version for probe in found.probes if probe.outcome is ProbeOutcome.SKIPPED}
    assert skipped <= story.gone - story.unlisted
    if check and skipped:
        never_probed = set(story.changing) - {probe.version for probe in found.probes}
        assert found.unprobed == len(never_probed) + len(skipped & set(story.changing))


@drawn(25)
@given(story=stories(most_flips=7), check=st.integers(0, 4))
def test_a_condition_that_changes_often_is_never_claimed_to_change_once_against_a_probe(
    blank: Snapshot, story: Story, check: int
) -> None:
    _, found = told(story, blank, check=check)
    judged = {p.version: p.outcome is ProbeOutcome.GOOD for p in found.probes if p.outcome is not ProbeOutcome.SKIPPED}
    assert all(judged[v] is story.good[v] for v in judged)
    assert all(is_first is story.good[0] for v, is_first in judged.items() if v <= found.last)
    assert judged[found.first_seen] is not story.good[0]
    assert any(v in found.candidates for v in story.flips)
    again = [v for v in sorted(judged) if v > found.first_seen and judged[v] is story.good[0]]
    assert list(found.again) == again and found.is_monotonic is not bool(again)
    if found.culprit is not None and check and not story.gone:
        assert found.culprit in story.flips and found.last == found.culprit - 1


def test_a_compaction_that_changed_rows_is_found_out(blank: Snapshot) -> None:
    good = [v < 7 for v in range(12)]
    _, found = told(Story(good, quiet=frozenset({6, 7, 8})), blank)
    assert found.culprit == 7 and found.commits[0].operation == "OPTIMIZE"
    _, nothing_else = told(Story(good, quiet=frozenset(range(1, 12))), blank)
    assert nothing_else.culprit == 7


def test_a_later_compaction_stands_in_for_a_version_that_is_gone(blank: Snapshot) -> None:
    good = [v < 3 for v in range(10)]
    _, found = told(Story(good, gone=frozenset({2, 3, 4, 5}), quiet=frozenset({6, 7})), blank)
    assert found.candidates == (2, 3, 4, 5) and found.culprit is None
    assert found.first_seen == 6


def test_very_many_unreadable_versions_end_the_search_with_a_range(blank: Snapshot) -> None:
    good = [v < 100 for v in range(200)]
    _, found = told(Story(good, gone=frozenset(range(1, 199))), blank)
    skipped = sum(probe.outcome is ProbeOutcome.SKIPPED for probe in found.probes)
    assert skipped <= search.MOST_SKIPPED + 1 and len(found.candidates) == 199 and found.culprit is None


# real tables ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """`orders`: v0 – v4 append good rows, v5 compacts, v6 a negative amount, v7 – v8 append good rows."""
    root = tmp_path_factory.mktemp("broken")
    builders.broken_orders(root / "orders", good=5)
    return lake_at(root)


def test_an_or_and_a_comment_stay_within_the_condition(broken: Lake) -> None:
    text = "amount < 0) OR (amount >= -3 -- all but one"
    assert found_by(broken, broken.find("orders"), "amount >= 0 OR id < 6 -- comment").culprit == 6
    with pytest.raises(BisectError, match="the bad end, satisfies the condition: 0 of 9 rows"):
        found_by(broken, broken.find("orders"), text)


@pytest.mark.parametrize(
    ("ends", "message", "hint"),
    [
        ({"good": 6, "bad": 8}, "v6, the good end, breaks the condition: min(amount) is -4.0", "at which it holds"),
        ({"good": 8, "bad": 0}, "the other way round: v8, given as good, breaks", "good 0 and bad 8"),
        ({"bad": 0}, "no version before v0", "name a good version"),
    ],
)
def test_ends_that_are_not_as_they_were_said_to_be(broken: Lake, ends: dict[str, int], message: str, hint: str) -> None:
    with pytest.raises(BisectError) as refused:
        steps_of(broken, broken.find("orders"), **ends)
    assert message in refused.value.message and hint in refused.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no condition"),
        ("read_text('/etc/passwd') = ''", "the function 'read_text' is not allowed"),
        ("amount >= 0) AS value FROM rows; SELECT (1", "only one expression"),
        ("1 = 1", "names no column"),
        ("sum(amount)", "gives DOUBLE, not true or false"),
        ("amount >= 0 AND count(*) > 1", "mixes an aggregate with the column of a single row"),
    ],
)
def test_conditions_that_are_refused(broken: Lake, text: str, message: str) -> None:
    with pytest.raises(QueryError) as refused:
        steps_of(broken, broken.find("orders"), text)
    assert message in refused.value.message


def test_a_null_passes_as_in_a_check(root: Path, lake: Lake) -> None:
    path = builders.write(root / "t", pa.table({"id": [1], "amount": pa.array([None], pa.float64())}))
    builders.write(path, {"id": [2], "amount": [-1.0]})
    for text in ("amount >= 0", CONDITION):
        found = found_by(lake, lake.find("t"), text)
        first = found.probe_of(0)
        assert first is not None and first.outcome is ProbeOutcome.GOOD and first.verdict is not None
        assert (first.verdict.nulls, first.verdict.value) == ((1, None) if found.by_row else (None, None))


def test_a_column_that_came_later_moves_the_end_that_nobody_named(root: Path, lake: Lake) -> None:
    path = root / "t"
    for number in range(3):
        builders.write(path, {"id": [number]})
    for amount in (1.0, 1.0, -1.0):
        builders.write(path, {"id": [9], "amount": [amount]}, schema_mode="merge")
    assert (found_by(lake, lake.find("t")).good, found_by(lake, lake.find("t")).culprit) == (3, 5)
    with pytest.raises(QueryError, match=r"no column 'amount' \(character 5\), at v1, the good end"):
        steps_of(lake, lake.find("t"), good=1)


def test_vacuumed_versions_are_skipped_or_not_chosen(root: Path, lake: Lake) -> None:
    path = root / "t"
    for number in range(4):
        builders.write(path, {"id": [number], "amount": [1.0]})
    for number in range(4, 8):  # each rewrites its file: what was before can be vacuumed
        DeltaTable(str(path)).update(updates={"amount": f"{5 - number}.0"}, predicate="id = 0")
    DeltaTable(str(path)).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    builders.write(path, {"id": [9], "amount": [1.0]})
    with pytest.raises(BisectError, match=r"v5, the good end, cannot be judged: .* is gone"):
        steps_of(lake, lake.find("t"), good=5)

    def is_whole(version: int) -> bool:
        return all(Path(uri).exists() for uri in DeltaTable(str(path), version=version).file_uris())

    oldest = next(filter(is_whole, range(20)))
    with pytest.raises(BisectError, match=f"v{oldest}, the good end, breaks the condition"):
        steps_of(lake, lake.find("t"), CONDITION)
    counted = found_by(lake, lake.find("t"), "count(*) < 5")  # the log alone answers, whatever was vacuumed
    assert counted.good == 0 and {probe.number.source for probe in counted.probes} == {ValueSource.LOG}
    assert counted.commit is not None and sum(probe.number.bytes_read for probe in counted.probes) == 0
    assert counted.culprit == max(v for v in range(lake.latest_version(counted.ref) + 1) if counted.probe_of(v))


def test_only_the_columns_of_the_condition_are_read(root: Path, lake: Lake) -> None:
    names = [f"c{number}" for number in range(3_000)]
    schema = pa.schema([(name, pa.int64()) for name in names])
    log = builders.HandLog(root / "wide").start(columns=dict.fromkeys(names, "long"))
    for number, value in enumerate((1, 2, -3)):
        file = root / "wide" / f"{number}.parquet"
        pq.write_table(pa.table([pa.array([value])] * 3_000, schema=schema), file)
        log.commit(builders.commit_info(), builders.add(file.name, size=file.stat().st_size, rows=1))
    asked: list[tuple[str, ...]] = []

    def read_files(snapshot: Snapshot, files: pa.Table, **more: Any) -> pa.RecordBatchReader:
        asked.append(tuple(more["columns"]))
        return lake.read_files(snapshot, files, **more)

    watched = LakeWith(lake, read_files=read_files)
    found = found_by(watched, lake.find("wide"), "c7 >= 0 AND c2999 >= c8 - 100")
    assert found.culprit == 3
    *probes, examples = asked
    assert {frozenset(columns) for columns in probes} == {frozenset({"c7", "c8", "c2999", "file0"})}
    assert len(examples) == 8 and {"c7", "c8", "c2999"} < set(examples)
    assert all(probe.number.bytes_read < 1_000 for probe in found.probes)


def test_a_table_made_anew_during_the_search_is_said(root: Path, lake: Lake) -> None:
    orders = builders.broken_orders(root / "orders", good=5)
    ref = lake.find("orders")
    steps = bisect(lake, ref, BisectRequest(CONDITION))
    for step in steps:
        if len(step.probes) == 2:
            break
    write_deltalake(str(orders), pa.table({"id": [1], "amount": [1.0]}), mode="append")
    other = orders.rename(orders.with_name("old"))
    for number in range(10):
        builders.write(orders, {"id": [number], "amount": [1.0]})
    with pytest.raises(LakehouseError) as refused:
        list(steps)
    assert other.exists() and ("made anew" in refused.value.message or "was" in refused.value.message)


def test_closing_ends_it_while_rows_come(broken: Lake) -> None:
    ended = threading.Event()

    schema = pa.schema([("amount", pa.float64())])

    def batches() -> Any:
        try:
            while True:
                yield pa.record_batch([pa.array([1.0] * 100)], schema=schema)
        finally:
            ended.set()

    endless = LakeWith(broken, read_files=lambda *_, **__: pa.RecordBatchReader.from_batches(schema, batches()))
    with closing(bisect(endless, broken.find("orders"), BisectRequest(CONDITION))) as steps:
        assert next(step for step in steps if step.rows_read) and not ended.is_set()
    assert ended.wait(60)


def test_closing_does_not_wait_for_a_log_that_takes_long(broken: Lake) -> None:
    go_on, is_read = threading.Event(), threading.Event()

    def snapshot(ref: TableRef, version: int | None = None) -> Snapshot:
        go_on.wait(60)
        is_read.set()
        return broken.snapshot(ref, version)

    steps = bisect(LakeWith(broken, snapshot=snapshot), broken.find("orders"), BisectRequest(CONDITION))
    doing = [step.doing for step, _ in zip(steps, range(3), strict=False)]
    steps.close()
    assert doing[-1] == "reading the log up to v8" and not is_read.is_set()
    go_on.set()
    assert is_read.wait(60)


def test_probes_say_what_they_cost_and_why(broken: Lake) -> None:
    steps = steps_of(broken, broken.find("orders"), "amount >= 0")
    found = steps[-1].result
    assert found is not None and steps[-1].at_most_left == 0
    assert [probe.purpose for probe in found.probes[:3]] == [Purpose.END, Purpose.END, Purpose.SEARCH]
    assert all(probe.committed_at and probe.operation and probe.duration_s > 0 for probe in found.probes)
    assert found.changing == 7 and found.unprobed == 7 - len({p.version for p in found.probes} & {1, 2, 3, 4, 6, 7, 8})


@pytest.fixture(scope="module")
def sold(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """`amounts`, `notes` and `plain`: v0 holds good rows, v1 brings bad ones beside others."""
    root = tmp_path_factory.mktemp("sold")
    days = [date(2026, 1, 1), date(2026, 1, 31), date(2026, 2, 1), date(2026, 1, 3)]
    builders.write(root / "amounts", {"id": [1], "amount": [5.0], "note": ["a"], "day": days[:1]})
    rows = {"id": [2, 3, 4, 5], "amount": [-3.0, 95.0, 90.0, None], "note": [")", "x", "y", None], "day": days}
    builders.write(root / "amounts", rows)
    builders.write(root / "amounts", {"id": [6], "amount": [7.0], "note": ["b"], "day": days[:1]})
    january, february = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)
    rows = {"id": [1, 2], "amount": [5.0, 6.0], "note": ["a", "b"], "at": [january, january]}
    builders.write(root / "notes", rows)
    amounts, notes = [-3.0, 95.0, math.nan, None, -0.5, 9.0], [")", None, "x", "it's -- so", "y", "z"]
    times = [february + timedelta(hours=12 * number) for number in range(6)]
    builders.write(root / "notes", {"id": [3, 4, 5, 6, 7, 8], "amount": amounts, "note": notes, "at": times})
    builders.write(root / "plain", {"id": [1, 2], "amount": [5.0, 5.0]})
    builders.write(root / "plain", {"id": [3, 4], "amount": [95.0, 4.0]})
    return lake_at(root)


@pytest.mark.parametrize(
    ("condition", "rule", "broken"),
    [
        ("max(amount) <= 90", "amount <= 90", lambda rows: rows["amount"] > 90),
        ("90.0 >= max( amount )", "90.0 >= amount", lambda rows: rows["amount"] > 90),
        ("min(amount * 2) > -1", "(amount * 2) > -1", lambda rows: rows["amount"] * 2 <= -1),
        (
            "count_if(amount < 0 OR note = ')') = 0",
            "NOT (amount < 0 OR note = ')')",
            lambda rows: (rows["amount"] < 0) | (rows["note"] == ")"),
        ),
        ("COUNT(*) FILTER (WHERE amount > 90) < 1", "NOT (amount > 90)", lambda rows: rows["amount"] > 90),
        (
            "max(amount) <= 90 AND min(amount) >= 0",
            "(amount <= 90) AND (amount >= 0)",
            lambda rows: (rows["amount"] > 90) | (rows["amount"] < 0),
        ),
        ("max(day) < DATE '2026-02-01'", "day < DATE '2026-02-01'", lambda rows: rows["day"] >= date(2026, 2, 1)),
    ],
)
def test_rows_that_break_an_aggregate_are_those_that_pandas_finds(
    sold: Lake, condition: str, rule: str, broken: Callable[[Any], Any]
) -> None:
    ref = sold.find("amounts")
    found = found_by(sold, ref, condition)
    state = DeltaTable(ref.uri, version=1).to_pandas()
    assert (found.culprit, found.by_row, found.row_rule) == (1, False, rule)
    assert {row["id"] for row in found.examples.rows} == set(state.loc[broken(state), "id"]) != set()


@pytest.mark.parametrize(
    ("where", "bad"),
    [
        ("amount < 0", {3, 7}),
        ("NOT (amount >= 0)", {3, 7}),
        ("amount > 90", {4, 5}),
        ("amount IS NULL", {6}),
        ("amount IS NAN", {5}),
        ("note = ')' OR amount IS NULL -- (either", {3, 6}),
        ("note = 'it''s -- so'", {6}),
        ("id > 2 AND amount <> 95", {3, 5, 7, 8}),
        ("note IN ('x', 'z') OR NULLIF(note, 'y') IS NULL", {4, 5, 7, 8}),
        ("at >= '2026-02-01 00:30:00+01:00' AND at < TIMESTAMP '2026-02-02'", {3, 4}),
    ],
)
def test_rows_that_a_filter_shows_are_those_that_the_search_is_about(sold: Lake, where: str, bad: set[int]) -> None:
    ref = sold.find("notes")
    snapshot = sold.snapshot(ref)
    query = RowQuery(("id",), parse_filter(where, columns(snapshot.metadata)), 100)
    assert set(sold.find_rows(snapshot, query).rows["id"].to_pylist()) == bad
    found = found_by(sold, ref, negated(where))
    assert found.culprit == 1 and {row["id"] for row in found.examples.rows} == bad
    verdict = next(probe.verdict for probe in found.probes if probe.version == 1)
    assert verdict is not None and verdict.violations == len(bad)


@pytest.mark.parametrize(
    "condition",
    [
        *("avg(amount) <= 20", "sum(amount) <= 100", "count(*) <= 2", "max(amount) <= 10 OR count(*) < 2"),
        *("max(amount) <= 90 AND sum(amount) < 20", "max(amount) FILTER (WHERE id > 0) <= 90", "stddev(amount) < 1"),
        *("CAST(max(amount) AS BIGINT) <= 90", "max(amount) + 1 <= 91", "max(amount) BETWEEN 1 AND 90"),
    ],
)
def test_where_no_single_row_breaks_an_aggregate_none_is_listed(sold: Lake, condition: str) -> None:
    found = found_by(sold, sold.find("plain"), condition)
    assert (found.culprit, found.row_rule, found.examples.rows) == (1, "", ())
