"""What stands out among changed rows, and which inserted ones were there already: as a recount in pandas finds them."""

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from app.cli.diff import SHAPES
from app.cli.output import encoded
from app.ui.view.explanation import explained
from backend.changes.answer import compare_rows
from backend.changes.changed_rows import Pairing, RowBucket
from backend.changes.explain import explain, hold_against
from backend.changes.host_job import SUMMARY, UNEXPLAINED, DiffSummary, read_answer
from backend.changes.model import (
    Alteration,
    Common,
    DiffMethod,
    Effect,
    Explanation,
    Limits,
    Population,
    Repeats,
    RowChanges,
    RowKind,
    Trait,
    VersionDiff,
)
from backend.changes.plan import PreparedDiff
from backend.jobs.documents import to_document
from backend.jobs.model import Job, JobKind, JobState
from backend.jobs.results import results_lake
from backend.lake.lake import Lake
from backend.settings import load_settings
from backend.sql.session import CancelToken, session
from tests.worlds.cases import MORE, drawn
from tests.worlds.lake import builders
from tests.worlds.lake.diff_lakes import ByDeltalake
from tests.worlds.lake.diffs import Asked, asked, compare, compared, diff, lake_at, prepare
from tests.worlds.lake.planted import BAD_DAYS, Planted, plant

TYPES = {
    "id": pa.int64(),
    "currency": pa.string(),
    "region": pa.string(),
    "day": pa.date32(),
    "amount": pa.float64(),
    "price": pa.decimal128(12, 2),
    "stock": pa.int32(),
    "at": pa.timestamp("us", "UTC"),
    "note": pa.string(),
    "is_open": pa.bool_(),
}
COLUMNS = tuple(TYPES)
BY_ID = asked(key=("id",), row_limit=10)
START = datetime(2026, 11, 1, tzinfo=UTC)


@cache
def table(rows: int, seed: int) -> pd.DataFrame:
    chance = random.Random(seed)
    made = [
        {
            "id": number,
            "currency": chance.choice(["EUR", "USD", "JPY", "GBP", "CHF", "SEK"]),
            "region": chance.choice(["EMEA", "APAC", "AMER", None]),
            "day": date(2026, 11, 1) + timedelta(days=chance.randrange(14)),
            "amount": chance.randrange(100, 100_000) / 100,
            "price": Decimal(chance.randrange(100, 100_000)) / 100,
            "stock": chance.randrange(1_000),
            "at": START + timedelta(seconds=chance.randrange(1_000_000)),
            "note": chance.choice([None, "a", "Bee", " c "]) if chance.random() < 0.3 else f"Note {number}",
            "is_open": chance.random() < 0.5,
        }
        for number in range(rows)
    ]
    return pd.DataFrame(made, columns=list(COLUMNS)).astype("object")


Change = Callable[[Any], Any]
CHANGES: dict[str, tuple[str, Change, Effect]] = {
    "factor": ("amount", lambda v: v * 100, Effect.MULTIPLIED),
    "rebate": ("price", lambda v: (v * Decimal("0.9")).quantize(Decimal("0.01")), Effect.MULTIPLIED),
    "shift": ("stock", lambda v: v - 7, Effect.SHIFTED),
    "later": ("at", lambda v: v + timedelta(hours=2), Effect.SHIFTED),
    "constant": ("note", lambda _: "n/a", Effect.SET),
    "emptied": ("region", lambda _: None, Effect.EMPTIED),
    "emptied text": ("note", lambda _: None, Effect.EMPTIED),
    "upper": ("note", lambda v: v and v.upper(), Effect.UPPER),
}
HOLDS: dict[Effect, Callable[[Alteration, Any, Any], bool]] = {
    Effect.REPLACED: lambda a, b, c: b == a.before and c == a.after,
    Effect.EMPTIED: lambda _a, _b, c: c is None,
    Effect.FILLED: lambda _a, b, _c: b is None,
    Effect.SET: lambda a, _b, c: c == a.after,
    Effect.UPPER: lambda _a, b, c: b is not None and c == b.upper(),
    Effect.MULTIPLIED: lambda a, b, c: abs(float(c) - float(b) * a.by) <= (0.00501 if a.is_rounded else 1e-6),
    Effect.SHIFTED: lambda a, b, c: c - b == (timedelta(seconds=a.by) if a.unit == "s" else a.by),
}


def stream(before: pd.DataFrame, after: pd.DataFrame, types: Mapping[str, pa.DataType] = TYPES) -> pa.Table:
    names, parts = [*(f"c{i}" for i in range(len(types))), "sign"], []
    for sign, frame in ((-1, before), (1, after)):
        values = frame.astype("object").where(frame.notna(), None)
        arrays = [pa.array(values[name].tolist(), kind) for name, kind in types.items()]
        parts.append(pa.table([*arrays, pa.array([sign] * len(frame), pa.int8())], names))
    return pa.concat_tables(parts)


def found(before: pd.DataFrame, after: pd.DataFrame, query: Asked = BY_ID) -> tuple[RowChanges, Explanation]:
    rows = stream(before, after)
    changes, findings = compared(lambda _: rows.to_reader(), COLUMNS, query)
    old = rows.filter(pa.compute.equal(rows["sign"], -1))

    def beside(connection: Any) -> str:
        names = findings.columns
        connection.register("beside", old.select([f"c{COLUMNS.index(n)}" for n in names]).rename_columns(names))
        return "SELECT " + ", ".join(f'"{name}" AS c{i}' for i, name in enumerate(names)) + " FROM beside"

    if not findings.groups:
        return changes, Explanation(findings.done)
    with session(CancelToken()) as connection:
        total, masks = hold_against(findings, connection, beside(connection))
    return changes, explain(findings, Population(0, total, True), masks)


def has(trait: Trait, values: pd.Series) -> pd.Series:
    if trait.bounds:
        return values.map(lambda v: v is not None and trait.bounds[0] <= v <= trait.bounds[1])
    return values.map(lambda v: any(v is None if wanted is None else v == wanted for wanted in trait.values))


def recount(common: Common, changed: pd.DataFrame, everything: pd.DataFrame) -> None:
    """Every count of the sentence, one row after the other."""
    assert common.of == len(changed)
    for frame, whole in ((changed, common.rows), (everything, common.others)):
        together = pd.Series([True] * len(frame), index=frame.index)
        for trait in common.traits:
            mine = has(trait, frame[trait.column])
            assert int(mine.sum()) == (trait.rows if frame is changed else trait.others), trait
            together &= mine
        assert int(together.sum()) == whole


@drawn(6)
@given(
    seed=st.integers(0, 9),
    what=st.sampled_from(sorted(CHANGES)),
    currency=st.sampled_from(["EUR", "JPY"]),
    days=st.integers(1, 3),
    beside=st.integers(0, 3),
)
def test_a_planted_change_is_told_with_the_counts_of_a_recount(
    seed: int, what: str, currency: str, days: int, beside: int
) -> None:
    before, (column, change, effect) = table(1_500, seed), CHANGES[what]
    first = date(2026, 11, 1) + timedelta(days=seed % 10)
    hit = (before["currency"] == currency) & before["day"].map(lambda d: first <= d < first + timedelta(days=days))
    hit |= before.index.isin(range(beside))  # a few rows that have nothing to do with it
    after = before.copy()
    after.loc[hit, column] = pd.Series([change(v) for v in before.loc[hit, column]], before.index[hit], dtype="object")
    touched = [b is not c and b != c for b, c in zip(before[column], after[column], strict=True)]
    answer, explanation = found(before, after)
    assert answer.net.updated == sum(touched)
    pairs = [(b, c) for b, c, is_touched in zip(before[column], after[column], touched, strict=True) if is_touched]
    if (len(pairs) - 1) * math.log(max(2, len({b for b, _ in pairs}))) < 8:  # nats: eight rows of three regions
        assert explanation.done == ()
        return
    (done,) = explanation.done
    assert done.effect is effect or (done.effect is Effect.REPLACED and len({b for b, _ in pairs}) <= 2)
    assert (done.column, done.changed, done.updates) == (column, len(pairs), len(pairs))
    assert done.rows == sum(HOLDS[done.effect](done, b, c) for b, c in pairs)
    for common in explanation.common:
        recount(common, before[touched], before)
    if len(pairs) > 30 and not beside:
        (common,) = explanation.common
        traits = {trait.column: trait for trait in common.traits}
        assert traits["currency"].values == (currency,) and common.rows == common.of
        assert "currency" in " ".join(explained(explanation)) and "100 % against" in " ".join(explained(explanation))


@drawn(3)
@given(seed=st.integers(0, 9), share=st.sampled_from([0.01, 0.1, 0.5, 1.0]))
def test_random_changes_are_met_with_silence(seed: int, share: float) -> None:
    before, other, chance = table(1_000, seed), table(1_000, seed + 1), random.Random(seed)
    after = before.copy()
    hit = set(chance.sample(range(1_000), int(1_000 * share)))
    for name in ("currency", "region", "day", "amount", "price", "stock", "at"):
        pairs = zip(before[name], other[name], strict=True)
        after[name] = [new if i in hit and chance.random() < 0.5 else old for i, (old, new) in enumerate(pairs)]
    _, explanation = found(before, after)
    assert explanation.common == () and explanation.done == (), explained(explanation)


def test_deleted_and_inserted_rows_say_what_they_have_in_common() -> None:
    before = table(1_200, 3)
    gone = (before["currency"] == "JPY") & before["region"].map(lambda r: r is None)
    more = table(300, 4).assign(id=range(5_000, 5_300), region="MARS")
    after = pd.concat([before[~gone], more.astype("object")])
    _, explanation = found(before, after)
    by_kind = {each.kind: each for each in explanation.common}
    recount(by_kind[RowKind.DELETE], before[gone], before)
    recount(by_kind[RowKind.INSERT], more, before)
    lost, came = by_kind[RowKind.DELETE], by_kind[RowKind.INSERT]
    assert {trait.column: trait.values for trait in lost.traits} == {"currency": ("JPY",), "region": (None,)}
    assert [trait.values for trait in came.traits] == [("MARS",)] and came.others == 0
    texts = explained(explanation)
    assert any("No other row has all of this" in text for text in texts)
    assert any("`region` = MARS; none of the 1,200 rows of v0 has" in text for text in texts)


def test_a_filter_leaves_only_its_rows_to_explain() -> None:
    before = table(900, 6)
    hit = before["currency"] == "SEK"
    after = before.copy()
    after.loc[hit, "stock"] = [value + 1_000 for value in before.loc[hit, "stock"]]
    answer, explanation = found(before, after, asked(key=("id",), row_limit=10, where="stock >= 1500"))
    few = hit & before["stock"].map(lambda v: v >= 500)
    assert answer.net.updated == int(few.sum())
    assert (explanation.done[0].effect, explanation.done[0].by, explanation.done[0].rows) == (
        Effect.SHIFTED,
        1_000,
        int(few.sum()),
    )
    recount(explanation.common[0], before[few], before)


def changed_beside(cause: Callable[[pd.DataFrame], Any]) -> tuple[pd.DataFrame, pd.DataFrame, Any]:
    """Rows before and after, and those whose amount was multiplied; beside them 300 rows got any other amount."""
    before, chance = table(1_500, 8), random.Random(8)
    hit = cause(before)
    others = chance.sample([i for i in before.index if not hit[i]], 300)
    after = before.copy()
    after.loc[others, "amount"] = [chance.randrange(100, 100_000) / 100 + 0.001 for _ in others]
    after.loc[hit, "amount"] = before.loc[hit, "amount"] * 100
    return before, after, hit


def test_what_was_done_to_some_of_the_changed_rows_is_told_with_its_cause() -> None:
    before, after, hit = changed_beside(lambda rows: (rows["currency"] == "JPY") & (rows["region"] == "APAC"))
    _, explanation = found(before, after)
    (done,), (cause,) = explanation.done, explanation.common
    assert (done.column, done.effect, done.by) == ("amount", Effect.MULTIPLIED, 100)
    assert (done.rows, done.changed, done.updates) == (int(hit.sum()), int(hit.sum()) + 300, int(hit.sum()) + 300)
    assert cause.done == done
    assert {trait.column: trait.values for trait in cause.traits} == {"currency": ("JPY",), "region": ("APAC",)}
    recount(cause, before[hit], before)
    (text,) = explained(explanation)
    touched = f"{done.rows} of the {done.changed} updates that touched `amount`"
    assert text.startswith(f"{touched} multiplied `amount` by 100. All ")


def test_what_was_done_to_some_rows_without_a_cause_of_their_own_is_not_told() -> None:
    chance = random.Random(1)
    before, after, _ = changed_beside(lambda rows: pd.Series([chance.random() < 0.04 for _ in rows.index]))
    assert found(before, after)[1] == Explanation()
    before, after, hit = changed_beside(lambda rows: (rows["currency"] == "EUR") & (rows["stock"] < 300))
    _, explanation = found(before, after.where(before["currency"] == "EUR", before))  # so all that changed is in euro
    assert [each.rows for each in explanation.done] == [int(hit.sum())]
    assert {trait.column for common in explanation.common if common.done for trait in common.traits} == {"stock"}


ALONE = ", and no other touched it"
DONE = (
    (Effect.MULTIPLIED, (931, 931, 931), {"by": 100}, "All 931 updates multiplied `a` by 100"),
    (Effect.MULTIPLIED, (9, 9, 9), {"by": 0.01}, "All 9 updates divided `a` by 100"),
    (Effect.MULTIPLIED, (9, 9, 9), {"by": 1.1, "is_rounded": True},
     "All 9 updates multiplied `a` by 1.1 and rounded it"),
    (Effect.SHIFTED, (9, 9, 9), {"by": -3600, "unit": "s"}, "All 9 updates subtracted 1 h from `a`"),
    (Effect.SHIFTED, (9, 10, 12), {"by": 2, "unit": "d"}, "9 of the 10 updates that touched `a` added 2 d to `a`"),
    (Effect.REPLACED, (7, 7, 9), {"before": "new"}, f"7 of 9 updates changed `a` from new to null{ALONE}"),
    (Effect.SET, (7, 7, 7), {"after": date(2026, 1, 2)}, "All 7 updates set `a` to 2026-01-02"),
    (Effect.SWAPPED, (7, 7, 7), {"other": "b"}, "All 7 updates swapped `a` and `b`"),
    (Effect.COPIED, (7, 7, 8), {"other": "b"}, f"7 of 8 updates copied `b` into `a`{ALONE}"),
)  # fmt: skip


@pytest.mark.parametrize(("effect", "counts", "told", "text"), DONE)
def test_what_was_done_in_words(effect: Effect, counts: tuple[int, int, int], told: dict[str, Any], text: str) -> None:
    assert explained(Explanation((Alteration("a", effect, *counts, **told),))) == [f"{text}."]


def places(seed: int) -> pd.DataFrame:
    chance = random.Random(seed)
    return pd.DataFrame(
        {
            "id": range(400),
            "lat": [chance.randrange(-90_000, 90_000) / 1_000 for _ in range(400)],
            "lon": [chance.choice([None, chance.randrange(-180_000, 180_000) / 1_000]) for _ in range(400)],
            "shop": [chance.choice(["north", "south", "east", None]) for _ in range(400)],
            "ship_to": [f"street {chance.randrange(300)}" for _ in range(400)],
            "bill_to": [chance.choice([None, f"street {chance.randrange(300)}"]) for _ in range(400)],
        }
    ).astype("object")


def taken_over(before: pd.DataFrame, after: pd.DataFrame) -> tuple[Alteration, ...]:
    kinds = [pa.int64(), pa.float64(), pa.float64(), pa.string(), pa.string(), pa.string()]
    rows = stream(before, after, dict(zip(before, kinds, strict=True)))
    return compared(lambda _: rows.to_reader(), tuple(before), BY_ID)[1].done


@drawn(6)
@given(seed=st.integers(0, 99), share=st.sampled_from([0.1, 0.5, 1.0]), beside=st.integers(0, 2))
def test_columns_that_took_over_each_others_values_are_told_with_the_counts_of_pandas(
    seed: int, share: float, beside: int
) -> None:
    before, chance = places(seed), random.Random(seed)
    hit = pd.Series([chance.random() < share for _ in before.index])
    after = before.copy()
    after.loc[hit, ["lat", "lon"]] = before.loc[hit, ["lon", "lat"]].to_numpy()
    after.loc[hit, "bill_to"] = before.loc[hit, "ship_to"]
    after.loc[before.index[:beside], "bill_to"] = "elsewhere"  # nobody lives there
    old, new = (frame.where(frame.notna(), "null") for frame in (before, after))
    touched = {name: old[name] != new[name] for name in before}
    updates = int(pd.DataFrame(touched).any(axis=1).sum())
    swapped = touched["lat"] & (new["lat"] == old["lon"]) & (new["lon"] == old["lat"])
    copied = touched["bill_to"] & (new["bill_to"] == old["ship_to"])
    done = {each.column: each for each in taken_over(before, after)}
    (both,) = {"lat", "lon"} & set(done)  # told once
    assert (done[both].effect, {both, done[both].other}) == (Effect.SWAPPED, {"lat", "lon"})
    assert (done[both].rows, done[both].changed) == (int(swapped.sum()), int(touched[both].sum()))
    address = done["bill_to"]
    assert (address.effect, address.other, address.updates) == (Effect.COPIED, "ship_to", updates)
    assert (address.rows, address.changed) == (int(copied.sum()), int(touched["bill_to"].sum()))


def test_values_that_agree_by_chance_are_no_copy() -> None:
    before, chance = places(3), random.Random(3)
    after = before.copy()
    after["bill_to"] = [chance.choice(["north", "south", "east"]) for _ in before.index]
    assert 80 < (after["bill_to"] == before["shop"]).sum() < 160
    assert all(each.effect is not Effect.COPIED for each in taken_over(before, after))
    for seed in range(5 * MORE):  # new numbers that now and then are those of another column
        before, chance = places(seed), random.Random(seed)
        before["lat"], before["lon"] = ([chance.randrange(most) for _ in range(400)] for most in (50, 2_000))
        after = before.copy()
        after["lat"] = [chance.randrange(100, 150) if n % 2 else chance.randrange(50) for n in range(400)]
        assert all(each.effect is not Effect.COPIED for each in taken_over(before, after)), seed
    before = places(3)
    after = before.copy()
    after["bill_to"] = "north"
    (done,) = taken_over(before, after)
    assert (done.effect, done.after) == (Effect.SET, "north")


ODD: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "whole": (pa.int64(), [2**63 - 1, -(2**63)] * 4, [0] * 8),
    "float": (pa.float64(), [float("nan"), float("inf"), -1e308, 1e-320] * 2, [float("-inf")] * 8),
    "decimal": (pa.decimal128(38, 10), [Decimal(10) ** 27, -(Decimal(10) ** 27)] * 4, [Decimal(7)] * 8),
    "date": (pa.date32(), [date.min, date.max] * 4, [date(2026, 1, 1)] * 8),
    "moment": (pa.timestamp("us"), [datetime.min, datetime.max] * 4, [datetime(2026, 1, 1)] * 8),
    "yes": (pa.bool_(), [True, None] * 4, [False] * 8),
    "text": (pa.string(), ["it's", "", "\0", "ä\n"] * 2, ["'); DROP TABLE changed; --"] * 8),
    "bytes": (pa.binary(), [b"a", b"\0"] * 4, [None] * 8),
    "list": (pa.list_(pa.int32()), [[1], [], None, [2]] * 2, [None] * 8),
}


@pytest.mark.parametrize("name", ODD)
def test_no_value_of_any_type_is_too_odd(name: str) -> None:
    kind, before, after = ODD[name][0], ODD[name][1] * 5, ODD[name][2] * 5
    schema = pa.schema([("c0", pa.int64()), ("c1", kind), ("sign", pa.int8())])
    pairs = [(number, old, -1) for number, old in enumerate(before)] + [(n, new, 1) for n, new in enumerate(after)]
    rows = pa.Table.from_pylist([dict(zip(schema.names, each, strict=True)) for each in pairs], schema)
    _, findings = compared(lambda _: rows.to_reader(), ("id", name), asked(key=("id",), row_limit=10))
    touched = sum(old is not new and old != new for old, new in zip(before, after, strict=True))
    (done,) = findings.done
    effect = Effect.EMPTIED if after[0] is None else Effect.SET
    assert done.effect in (effect, Effect.REPLACED) and done.rows == touched


NOW = datetime(2026, 11, 20, tzinfo=UTC)


# on tables ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Planted]:
    path = tmp_path_factory.mktemp("planted") / "lake" / "payments"
    return path, plant(path, versions=5, bad_version=3)


@pytest.fixture(scope="module")
def lake(planted: tuple[Path, Planted]) -> Lake:
    return lake_at(planted[0].parent)


EXPLAINED_BY: dict[str, Any] = {
    "files": asked(),
    "whole rows": asked(method=DiffMethod.MULTISET),
    "only files that differ": asked(limits=Limits(values_beside=10)),
}


@pytest.mark.parametrize("way", [*EXPLAINED_BY, "deltalake"])
def test_each_count_is_that_of_pandas(lake: Lake, planted: tuple[Path, Planted], way: str) -> None:
    path, made = planted
    states = [DeltaTable(str(path), version=version).to_pandas() for version in (2, 3)]
    before, after = (state.set_index("payment_id") for state in states)
    hit = before.index[before["amount"] != after["amount"].reindex(before.index)]
    reader: Any = ByDeltalake(lake) if way == "deltalake" else lake
    found = diff(reader, lake.find("payments"), 2, 3, **EXPLAINED_BY.get(way, {})).explanation
    assert len(hit) == made.changed
    kinds = ["insert", "delete"] if way == "whole rows" else ["update"]
    assert [(each.kind.value, each.of, each.rows) for each in found.common] == [(k, len(hit), len(hit)) for k in kinds]
    if way != "whole rows":
        (done,) = found.done
        assert (done.column, done.effect, done.by, done.rows) == ("amount", Effect.MULTIPLIED, 100, len(hit))
    assert found.population is not None and found.population.rows == made.rows_before == len(before)
    assert found.population.is_whole is (way != "only files that differ")
    for common in found.common:
        traits = {trait.column: trait for trait in common.traits}
        assert traits["currency"].values == ("JPY",) and traits["day"].values == BAD_DAYS
        for name in ("currency", "day", "region"):
            assert traits[name].others == int(before[name].isin(traits[name].values).sum())
        assert common.others == int(((before["currency"] == "JPY") & before["day"].isin(BAD_DAYS)).sum())


def test_an_append_of_the_usual_rows_needs_no_explanation(lake: Lake) -> None:
    explanation = diff(lake, lake.find("payments"), 1, 2).explanation
    assert explanation.done == () and explanation.common == ()


def test_the_document_says_the_same(lake: Lake, planted: tuple[Path, Planted]) -> None:
    document = encoded(diff(lake, lake.find("payments"), 2, 3), SHAPES)["explanation"]
    assert document["done"][0].items() >= {"column": "amount", "effect": "multiplied", "by": 100}.items()
    (common,) = document["common"]
    assert common["of"] == common["rows"] == planted[1].changed
    values = {trait["column"]: trait["values"] for trait in common["traits"]}
    assert values["currency"] == ["JPY"] and json.loads(json.dumps(document)) == document


@pytest.mark.parametrize("method", [DiffMethod.KEY_JOIN, DiffMethod.MULTISET])
def test_a_whole_answer_of_the_stream_host_is_explained_as_one_of_here(
    lake: Lake, tmp_path: Path, method: DiffMethod
) -> None:
    options = asked(key=None if method is DiffMethod.MULTISET else ("payment_id",), row_limit=10_000)
    prepared = prepare(lake, lake.find("payments"), 2, 3, **(options | asked(method=method)))
    here = compare_rows(prepared, CancelToken())
    there = as_by_host(prepared, here, tmp_path)
    assert here.explanation.common and there.explanation == here.explanation


@pytest.mark.parametrize(("rows_listed", "values_beside"), [(20, 50_000_000), (10_000, 10)])
def test_what_the_host_left_out_is_not_guessed_and_no_large_table_is_read(
    lake: Lake, tmp_path: Path, rows_listed: int, values_beside: int
) -> None:
    options = asked(key=("payment_id",), row_limit=rows_listed, limits=Limits(values_beside=values_beside))
    prepared = prepare(lake, lake.find("payments"), 2, 3, **options)
    found = as_by_host(prepared, compare_rows(prepared, CancelToken()), tmp_path)
    assert not found.explanation.common
    assert (UNEXPLAINED in found.reasons) is found.changes.truncated is (rows_listed == 20)
    assert bool(found.explanation.done) is not found.changes.truncated  # what was done needs no other row


def as_by_host(prepared: PreparedDiff, found: VersionDiff, home: Path) -> VersionDiff:
    """The same answer after a way through a result table, as a stream host writes it."""
    changes = found.changes
    cells = pa.struct([(f"c{i}", field.type) for i, field in enumerate(changes.arrow_schema)])
    inserted, updated, deleted = changes.net.inserted or 0, changes.net.updated or 0, changes.net.deleted or 0
    buckets = {
        "insert": RowBucket(inserted, inserted, inserted, 0),
        "update": RowBucket(updated, updated, updated, updated),
        "delete": RowBucket(deleted, deleted, 0, deleted),
    }
    columns, key = changes.columns, found.key.columns if found.key else ()
    summary = DiffSummary(found.method, Pairing(columns, key), buckets, changes.changed_cells, by="by Spark")

    def side(values: Any) -> Any:
        return values and {f"c{i}": values[name] for i, name in enumerate(columns)}

    rows = [(SUMMARY, 0, 0, to_document(summary), None, None)]
    for number, row in enumerate(found.changes.rows):
        rows.append((row.kind.value, number, row.copies, None, side(row.before), side(row.after)))
    kinds = {"what": pa.string(), "number": pa.int64(), "n": pa.int64(), "detail": pa.string()}
    schema = pa.schema(kinds | {"before": cells, "after": cells})
    settings = load_settings(home=home, jobs={"results_uri": str(home / "results")})
    uri = home / "results" / "job"
    uri.parent.mkdir()
    write_deltalake(uri, pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema))
    job = Job("job", JobKind.DIFF, "payments", "", "", "me", "", 60.0, JobState.DONE, NOW, result_uri=str(uri))
    return read_answer(results_lake(settings), settings, prepared, job)


def test_what_every_batch_has_of_its_own_says_nothing_of_this_one(tmp_path: Path) -> None:
    for day in range(1, 5):
        of_batch = {"source_file": f"part-{day}.csv", "ingested_at": datetime(2026, 11, day, tzinfo=UTC)}
        values = {**of_batch, "currency": "JPY" if day == 4 else "EUR"}
        batch = {"id": range(day * 100, day * 100 + 60)} | {name: [value] * 60 for name, value in values.items()}
        write_deltalake(tmp_path / "batches", pa.table(batch), mode="append")
    (common,) = compare(tmp_path, 2, 3).explanation.common
    assert [(trait.column, trait.values) for trait in common.traits] == [("currency", ("JPY",))]


# rows that were there already -----------------------------------------------------------------------------------------


KEY = ("sku", "site")


def rows(numbers: range, *, more: int = 0) -> dict[str, list[Any]]:
    return {
        "sku": [f"s{number // 4}" for number in numbers],
        "site": [number % 4 for number in numbers],
        "stock": [number * 10 + more for number in numbers],
    }


def counted(path: Path, *, change_feed: bool) -> Path:
    """v1 counts 40 keys, v2 another 20, v3 is v1 loaded a second time with ten new keys and three of v2 counted anew;
    v4 and v5 take four of the repeated ones back."""
    configuration = builders.CHANGE_FEED if change_feed else None
    builders.write(path, rows(range(1000, 1010)), configuration=configuration)
    for version, numbers in ((1, range(40)), (2, range(40, 60))):
        job = CommitProperties(custom_metadata={"job": f"hourly count {version}"})
        builders.write(path, rows(numbers), commit_properties=job)
    new = [pd.DataFrame(rows(range(40))), pd.DataFrame(rows(range(60, 70))), pd.DataFrame(rows(range(50, 53), more=1))]
    builders.write(path, pd.concat(new).to_dict("list"))
    DeltaTable(str(path)).delete("sku = 's0'")
    builders.write(path, rows(range(4)))
    return path


def repeats_in(path: Path, first: int, second: int) -> tuple[int, int, int, dict[Any, int]]:
    """Inserted rows, those whose key was there, those that are copies, and the keys in more than one row."""
    before, after = (
        [tuple(row) for row in DeltaTable(str(path), version=v).to_pandas().itertuples(index=False)]
        for v in (first, second)
    )
    came = Counter(after)
    came.subtract(Counter(before))
    inserted = [row for row in came for _ in range(max(0, came[row]))]
    keys, whole = {row[:2] for row in before}, set(before)
    holding = Counter(row[:2] for row in after)
    new = {row[:2] for row in inserted}
    repeated = {key: holding[key] for key in new if holding[key] > 1}
    return len(inserted), sum(row[:2] in keys for row in inserted), sum(row in whole for row in inserted), repeated


REPEATS_BY: dict[str, Any] = {
    "key join": asked(key=KEY, method=DiffMethod.KEY_JOIN),
    "deltalake": asked(key=KEY, method=DiffMethod.KEY_JOIN),
    "change feed": asked(key=KEY, method=DiffMethod.CHANGE_FEED),
    "whole rows": asked(method=DiffMethod.MULTISET),
}


@pytest.fixture(scope="module")
def loaded_twice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`with_feed` and `plain`, as `counted` makes them."""
    root = tmp_path_factory.mktemp("loaded_twice")
    counted(root / "with_feed", change_feed=True)
    counted(root / "plain", change_feed=False)
    return root


@pytest.mark.parametrize("way", REPEATS_BY)
@pytest.mark.parametrize("versions", [(2, 3), (1, 2), (2, 5)])
def test_rows_that_were_there_are_counted_as_pandas_counts_them(
    loaded_twice: Path, way: str, versions: tuple[int, int]
) -> None:
    lake, name = lake_at(loaded_twice), "with_feed" if way == "change feed" else "plain"
    path, reader = loaded_twice / name, ByDeltalake(lake) if way == "deltalake" else lake
    found = diff(reader, lake.find(name), *versions, **REPEATS_BY[way]).explanation.repeats
    inserted, known, copies, repeated = repeats_in(path, *versions)
    if versions == (1, 2):
        assert known == 0 and found is None
        return
    assert found is not None and found.version == versions[0] and found.of == inserted
    if way == "whole rows":
        assert (found.key, found.rows, found.copies) == ((), copies, copies)
        return
    assert (found.key, found.rows, found.copies, found.keys) == (KEY, known, copies, len(repeated))
    assert len(found.listed) == 10
    assert all(repeated[tuple(key.values())] == held for key, held in found.listed)
    writers = {commit.version: commit.job for commit in found.written_by}
    assert writers == {1: "job hourly count 1", 2: "job hourly count 2"}


def test_repeated_rows_in_words(loaded_twice: Path) -> None:
    lake = lake_at(loaded_twice)
    who, repeated, *_ = explained(diff(lake, lake.find("plain"), 2, 3, key=KEY).explanation)
    writers = "in files of v1 (WRITE, job hourly count 1) and v2 (WRITE, job hourly count 2)"
    copies = "40 of them exact copies; `stock` differs in 3"
    assert who == f"43 of the 53 inserted rows were there already at v2 by `sku`, `site`, {writers}; {copies}."
    assert repeated.startswith("43 keys are there more than once afterwards: `sku` = s0, `site` = 0 in 2 rows; ")
    assert repeated.endswith("; and 33 more.")
    unread = diff(lake, lake.find("plain"), 2, 3, **asked(key=KEY, limits=Limits(values_beside=10))).explanation
    assert unread.repeats == Repeats(2, 53, key=KEY), "too much to read"
    assert "not known" in explained(unread)[0]
