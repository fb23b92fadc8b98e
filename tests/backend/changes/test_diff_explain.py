"""What stands out among changed rows is what a recount in pandas finds; what chance made is not said."""

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.ui.view.explanation import explained
from backend.changes.compare import Compared, column_name
from backend.changes.explain import explain, hold_against
from backend.changes.model import Alteration, Common, Effect, Explanation, Population, RowKind, Trait
from backend.sql.session import CancelToken
from tests.worlds.cases import drawn
from tests.worlds.lake.diffs import Asked, asked, compared

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


def stream(before: pd.DataFrame, after: pd.DataFrame) -> pa.Table:
    fields = [pa.field(column_name(i), kind) for i, kind in enumerate(TYPES.values())]
    parts = []
    for sign, frame in ((-1, before), (1, after)):
        arrays = [pa.array(frame[name].tolist(), kind) for name, kind in TYPES.items()]
        parts.append(pa.table([*arrays, pa.array([sign] * len(frame), pa.int8())], [*(f.name for f in fields), "sign"]))
    return pa.concat_tables(parts)


def found(before: pd.DataFrame, after: pd.DataFrame, query: Asked = BY_ID) -> tuple[Compared, Explanation]:
    rows = stream(before, after)
    answer = compared(lambda _: rows.to_reader(), COLUMNS, query)
    old = rows.filter(pa.compute.equal(rows["sign"], -1))

    def beside(connection: Any) -> str:
        names = answer.findings.columns
        connection.register("beside", old.select([column_name(COLUMNS.index(n)) for n in names]).rename_columns(names))
        return "SELECT " + ", ".join(f'"{name}" AS c{i}' for i, name in enumerate(names)) + " FROM beside"

    if not answer.findings.groups:
        return answer, Explanation(answer.findings.done)
    total, masks = hold_against(answer.findings, beside, CancelToken())
    return answer, explain(answer.findings, Population(0, total, True), masks)


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

    answer, said = found(before, after)

    assert answer.changes.net.updated == sum(touched)
    (done,) = said.done
    pairs = [(b, c) for b, c, is_touched in zip(before[column], after[column], touched, strict=True) if is_touched]
    assert done.effect is effect or (done.effect is Effect.REPLACED and len({b for b, _ in pairs}) <= 2)
    assert (done.column, done.changed, done.updates) == (column, len(pairs), len(pairs))
    assert done.rows == sum(HOLDS[done.effect](done, b, c) for b, c in pairs)
    for common in said.common:
        recount(common, before[touched], before)
    if len(pairs) > 30 and not beside:
        (common,) = said.common
        told = {trait.column: trait for trait in common.traits}
        assert told["currency"].values == (currency,) and common.rows == common.of
        assert "currency" in " ".join(explained(said)) and "100 % against" in " ".join(explained(said))


@drawn(6)
@given(seed=st.integers(0, 9), share=st.sampled_from([0.01, 0.1, 0.5, 1.0]))
def test_random_changes_are_met_with_silence(seed: int, share: float) -> None:
    before, other, chance = table(1_000, seed), table(1_000, seed + 1), random.Random(seed)
    after = before.copy()
    hit = set(chance.sample(range(1_000), int(1_000 * share)))
    for name in ("currency", "region", "day", "amount", "price", "stock", "at"):
        pairs = zip(before[name], other[name], strict=True)
        after[name] = [new if i in hit and chance.random() < 0.5 else old for i, (old, new) in enumerate(pairs)]

    _, said = found(before, after)

    assert said.common == () and said.done == (), explained(said)


def test_deleted_and_inserted_rows_say_what_they_have_in_common() -> None:
    before = table(1_200, 3)
    gone = (before["currency"] == "JPY") & before["region"].map(lambda r: r is None)
    more = table(300, 4).assign(id=range(5_000, 5_300), region="MARS")
    after = pd.concat([before[~gone], more.astype("object")])

    _, said = found(before, after)

    by_kind = {each.kind: each for each in said.common}
    recount(by_kind[RowKind.DELETE], before[gone], before)
    recount(by_kind[RowKind.INSERT], more, before)
    lost, came = by_kind[RowKind.DELETE], by_kind[RowKind.INSERT]
    assert {trait.column: trait.values for trait in lost.traits} == {"currency": ("JPY",), "region": (None,)}
    assert [trait.values for trait in came.traits] == [("MARS",)] and came.others == 0
    texts = explained(said)
    assert any("No other row has all of this" in text for text in texts)
    assert any("`region` = MARS; none of the 1,200 rows of v0 has" in text for text in texts)


def test_without_a_key_whole_rows_that_went_and_came_are_told() -> None:
    before = table(800, 5)
    hit = before["currency"] == "CHF"
    after = before.copy()
    after.loc[hit, "amount"] = before.loc[hit, "amount"] * 10

    _, said = found(before, after, asked(key=(), row_limit=10))

    assert said.done == ()
    for common in said.common:
        assert common.kind in (RowKind.INSERT, RowKind.DELETE) and common.of == int(hit.sum())
        assert {trait.column: trait.values for trait in common.traits}["currency"] == ("CHF",)


def test_a_filter_leaves_only_its_rows_to_explain() -> None:
    before = table(900, 6)
    hit = before["currency"] == "SEK"
    after = before.copy()
    after.loc[hit, "stock"] = [value + 1_000 for value in before.loc[hit, "stock"]]

    answer, said = found(before, after, asked(key=("id",), row_limit=10, where="stock >= 1500"))

    few = hit & before["stock"].map(lambda v: v >= 500)
    assert answer.changes.net.updated == int(few.sum())
    assert (said.done[0].effect, said.done[0].by, said.done[0].rows) == (Effect.SHIFTED, 1_000, int(few.sum()))
    recount(said.common[0], before[few], before)


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

    _, said = found(before, after)

    (done,), (cause,) = said.done, said.common
    assert (done.column, done.effect, done.by) == ("amount", Effect.MULTIPLIED, 100)
    assert (done.rows, done.changed, done.updates) == (int(hit.sum()), int(hit.sum()) + 300, int(hit.sum()) + 300)
    assert cause.done == done
    assert {trait.column: trait.values for trait in cause.traits} == {"currency": ("JPY",), "region": ("APAC",)}
    recount(cause, before[hit], before)
    (text,) = explained(said)
    assert text.startswith(f"`amount` × 100 in {done.rows} of the {done.changed} updated rows. All these ")


def test_what_was_done_to_some_rows_without_a_cause_of_their_own_is_not_told() -> None:
    chance = random.Random(1)
    before, after, _ = changed_beside(lambda rows: pd.Series([chance.random() < 0.04 for _ in rows.index]))
    assert found(before, after)[1] == Explanation()

    before, after, hit = changed_beside(lambda rows: (rows["currency"] == "EUR") & (rows["stock"] < 300))
    _, said = found(before, after.where(before["currency"] == "EUR", before))  # so all that changed is in euro
    assert [each.rows for each in said.done] == [int(hit.sum())]
    assert {trait.column for common in said.common if common.done for trait in common.traits} == {"stock"}


DONE = (
    (Effect.MULTIPLIED, (931, 931, 931), {"by": 100}, "× 100 in all 931 updated rows"),
    (Effect.MULTIPLIED, (9, 9, 9), {"by": 0.01}, "÷ 100 in all 9 updated rows"),
    (Effect.MULTIPLIED, (9, 9, 9), {"by": 1.1, "is_rounded": True}, "× 1.1, rounded, in all 9 updated rows"),
    (Effect.SHIFTED, (9, 9, 9), {"by": -3600, "unit": "s"}, "− 1 h in all 9 updated rows"),
    (Effect.SHIFTED, (9, 10, 12), {"by": 2, "unit": "d"}, "+ 2 d in 9 of the 10 updated rows that change it"),
    (Effect.REPLACED, (7, 7, 9), {"before": "new"}, "new → null in all 7 of 9 updated rows that change it"),
    (Effect.SET, (7, 7, 7), {"after": date(2026, 1, 2)}, "set to 2026-01-02 in all 7 updated rows"),
    (Effect.SWAPPED, (7, 7, 7), {"other": "b"}, "swapped with `b` in all 7 updated rows"),
    (Effect.COPIED, (7, 7, 8), {"other": "b"}, "copied from `b` in all 7 of 8 updated rows that change it"),
)


@pytest.mark.parametrize(("effect", "counts", "told", "text"), DONE)
def test_what_was_done_in_words(effect: Effect, counts: tuple[int, int, int], told: dict[str, Any], text: str) -> None:
    assert explained(Explanation((Alteration("a", effect, *counts, **told),))) == [f"`a` {text}."]


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
    schema = pa.schema([("c0", pa.int64()), *((f"c{i}", pa.float64() if i < 3 else pa.string()) for i in range(1, 6))])
    parts = []
    for sign, frame in ((-1, before), (1, after)):
        values = frame.astype("object").where(frame.notna(), None)
        arrays = [pa.array(values[name].tolist(), field.type) for name, field in zip(frame, schema, strict=True)]
        parts.append(pa.table([*arrays, pa.array([sign] * len(frame), pa.int8())], [*schema.names, "sign"]))
    return compared(lambda _: pa.concat_tables(parts).to_reader(), tuple(before), BY_ID).findings.done


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
    for seed in range(20):  # new numbers that now and then are those of another column
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

    answer = compared(lambda _: rows.to_reader(), ("id", name), asked(key=("id",), row_limit=10))

    touched = sum(old is not new and old != new for old, new in zip(before, after, strict=True))
    (done,) = answer.findings.done
    effect = Effect.EMPTIED if after[0] is None else Effect.SET
    assert done.effect in (effect, Effect.REPLACED) and done.rows == touched
