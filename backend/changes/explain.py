"""What stands out among rows that changed: what was done to them, and what they have in common against the table.

Rule: a sample only proposes where to look; each count is of all changed rows and of all rows they are held against.
What chance could have made is not said. All of its SQL is here, over the tables that `compare` leaves.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import accumulate, islice
from typing import Any

import pyarrow as pa

from backend.cells import cells
from backend.changes.changed_rows import Changes, Pairing, RowBucket
from backend.changes.model import (
    Alteration,
    Common,
    Effect,
    Explanation,
    Hit,
    Limits,
    Population,
    Premises,
    RowChanges,
    RowKind,
    Trait,
)
from backend.errors import QueryError
from backend.sql.expression import check_row_condition, conjuncts, source_of
from backend.sql.session import Connection, row_errors
from backend.sql.values import quoted_name, quoted_text

LEAST_ROWS, MOST_ROWS = 6, 5_000_000  # fewer changed rows speak for themselves, of more nothing is said
_MOST_ONE_SIDED = 4_000_000  # values of rows that came and went
_SAMPLE, _MOST_COLUMNS, _MOST_TOUCHED = 4_096, 100, 12
_MOST_VALUES, _MOST_TRAITS, _MOST_BRANCHES = 3, 4, 60
_MOST_CONDITIONS, _MOST_ALTERED = 20, 3  # of three kinds and of what was done to three columns: a bit of 128 each
_LEAST_SHARE, _LEAST_LIFT = 0.9, 2.0  # so many of the changed rows, so much more often than in the table
_PROPOSED_SHARE = 0.85  # of the sample
_EVIDENCE = 16.0  # nats: chance makes one in nine million such traits
_EVIDENCE_DONE = 8.0  # nats: what was done to five rows they say themselves
_NUMBER = re.compile(r"U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)|FLOAT|DOUBLE|DECIMAL.*")
_WHOLE = re.compile(r"U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)")
_MOMENT = re.compile(r"TIMESTAMP.*")
_TEXT_EFFECTS = {Effect.UPPER: "upper", Effect.LOWER: "lower", Effect.TRIMMED: "trim"}


@dataclass(frozen=True, slots=True)
class Condition:
    """A trait that changed rows may share: `texts` and `values` are the same, as SQL and for people."""

    number: int
    column: str
    kind: str
    values: tuple[Any, ...]
    texts: tuple[str | None, ...]
    is_range: bool = False

    @property
    def freedom(self) -> int:
        """How many of its rows the condition was made from: they prove nothing."""
        return len(self.values)

    def sql(self, name: str) -> str:
        known = [f"CAST({quoted_text(text)} AS {self.kind})" for text in self.texts if text is not None]
        if self.is_range:
            return f"coalesce({name} BETWEEN {known[0]} AND {known[1]}, false)"
        parts = [f"{name} IN ({', '.join(known)})"] if known else []
        parts += [f"{name} IS NULL"] * (None in self.texts)
        return f"coalesce({' OR '.join(parts)}, false)"


@dataclass(frozen=True, slots=True)
class Group:
    """The rows changed in one way, and how many of them satisfy which of the conditions: bit i is the i-th. Where they
    are those updated rows to which this was `done`, `beside` counts the other ones."""

    kind: RowKind
    rows: int
    conditions: tuple[Condition, ...]
    masks: Mapping[int, int]
    done: Alteration | None = None
    beside: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OneSided:
    """`inserted` net rows and `rows` with all that came and went (c0 … of `columns`, `n`: how often, `is_new` where it
    is no side of an update); None where they are too many. `key`: the columns that paired rows; None: row ids did."""

    columns: tuple[str, ...]
    key: tuple[str, ...] | None
    inserted: int
    rows: pa.Table | None

    def of_key(self) -> "OneSided":
        """The same with the columns of the key alone."""
        places, key = [self.columns.index(name) for name in self.key or ()], self.key or ()
        names = [*(f"c{i}" for i in range(len(key))), "n", "is_new"]
        if self.rows is None:
            return replace(self, columns=key)
        of_key = self.rows.select([*(f"c{i}" for i in places), "n", "is_new"]).rename_columns(names)
        return replace(self, columns=key, rows=of_key)


@dataclass(frozen=True, slots=True)
class Findings:
    """What the changed rows alone tell. `groups` and what was `inserted` have to be held against the table's rows."""

    done: tuple[Alteration, ...] = ()
    groups: tuple[Group, ...] = ()
    inserted: OneSided | None = None
    hit: Hit | None = None
    joined: pa.Table | None = None  # `kind`, the values of columns that name rows of another table (k0 …) and `n`

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that conditions are about."""
        return tuple(dict.fromkeys(each.column for group in self.groups for each in group.conditions))


def find(changes: Changes, buckets: Mapping[str, RowBucket], page: RowChanges, premises: Premises) -> Findings:
    """What stands out among the changed rows; `page` has the cells that updates touch."""
    inserted, hit = _one_sided(changes, buckets), _hit(changes, buckets, premises)
    if sum(bucket.added + bucket.removed for bucket in buckets.values()) > MOST_ROWS:
        return Findings(inserted=inserted, hit=hit)
    joined = None
    if premises.joins and (queries := [*_queries(changes, buckets)]):
        keys = ", ".join(f"c{changes.pairing.columns.index(name)} AS k{i}" for i, name in enumerate(premises.joins))
        each = (f"SELECT '{kind}' AS kind, {keys}, n FROM ({query})" for kind, query in queries)
        joined = changes.connection.sql(" UNION ALL ".join(each)).to_arrow_table()
    updates = buckets["update"].keys if "update" in buckets else 0
    altered = list(_alterations(changes, page, updates)) if updates >= LEAST_ROWS else []
    groups = [_group(changes, kind, query, premises) for kind, query in _queries(changes, buckets)]
    some = [each for each in altered if LEAST_ROWS <= each[0].rows < _LEAST_SHARE * updates]
    groups += [_altered_group(changes, alteration, where, premises) for alteration, where in some[:_MOST_ALTERED]]
    done = tuple(each for each, _ in altered if each.rows >= _LEAST_SHARE * each.changed)
    return Findings(done, tuple(group for group in groups if group.conditions), inserted, hit, joined)


def _hit(changes: Changes, buckets: Mapping[str, RowBucket], premises: Premises) -> Hit | None:
    """How many of the rows as they were satisfy which branch of the condition; None where it has one alone, or where
    some satisfy none: then its writer read it otherwise."""
    columns = changes.pairing.columns
    names = ", ".join(f"c{i}" for i in range(len(columns)))
    rows = [f"SELECT {names}, -n AS n FROM ({changes.one_sided[e]}) WHERE n < 0" for e in buckets if e != "update"]
    rows += [_before(changes)] if "update" in buckets else []
    with suppress(QueryError), row_errors():  # not in DuckDB's words, or on columns that are not compared
        condition = check_row_condition(premises.predicate, columns)
        ors = (part for part in conjuncts(condition.tree) if part["type"] == "CONJUNCTION_OR")
        texts = [source_of(each, condition.text) for part in islice(ors, 1) for each in _branches(part)]
        if not rows or not 0 < len(texts) <= _MOST_BRANCHES:
            return None
        branches = [f"(\n{check_row_condition(text, columns).text}\n)" for text in texts]
        weight = "_" * (1 + max(map(len, condition.columns)))
        named = ", ".join(f"c{columns.index(name)} AS {quoted_name(name)}" for name in condition.columns)
        query = f"SELECT {named}, n AS {weight} FROM ({' UNION ALL '.join(rows)})"
        masks = _masks(changes.connection, query, weight, branches)
        if masks and not masks.get(0):
            counts = [having(masks, 1 << i) for i in range(len(branches))]
            overlap = sum(count for mask, count in masks.items() if mask.bit_count() > 1)
            return Hit(premises.operation, sum(masks.values()), tuple(zip(texts, counts, strict=True)), overlap)
    return None


def _branches(condition: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The parts of a condition of which one has to be true."""
    if condition["type"] != "CONJUNCTION_OR":
        return [condition]
    return [branch for part in condition["children"] for branch in _branches(part)]


def _one_sided(changes: Changes, buckets: Mapping[str, RowBucket]) -> OneSided | None:
    """None where no row was inserted."""
    numbers, by_id = range(len(changes.pairing.columns)), changes.pairing.by_ids
    names, others = ", ".join(f"c{i}" for i in numbers), [name for name in buckets if name != "update"]
    parts = [f"SELECT {names}, n, true AS is_new FROM ({changes.one_sided[each]})" for each in others]
    if by_id and "update" in buckets:
        for side, n in (("b", -1), ("a", 1)):
            values = ", ".join(f"{side}_c{i}" for i in numbers)
            parts.append(f"SELECT {values}, CAST({n} AS BIGINT), false FROM ({changes.pairs})")
    inserted = sum(buckets[each].added for each in others)
    entries = sum(bucket.entries for name, bucket in buckets.items() if by_id or name != "update")
    fits = entries * len(numbers) <= _MOST_ONE_SIDED
    key = None if by_id else changes.pairing.key
    rows = changes.connection.sql(" UNION ALL ".join(parts)).to_arrow_table() if inserted and fits else None
    return OneSided(changes.pairing.columns, key, inserted, rows) if inserted else None


def hold_against(findings: Findings, connection: Connection, rows: str) -> tuple[int, tuple[Mapping[int, int], ...]]:
    """How many rows there are, and how many satisfy which conditions of each group; `rows` is a query for them,
    with c0, c1 … as `findings.columns` names them."""
    names = {column: f"c{i}" for i, column in enumerate(findings.columns)}
    asked = [each.sql(names[each.column]) for group in findings.groups for each in group.conditions]
    found = _masks(connection, rows, "1", asked)
    masks, first = [], 0
    for group in findings.groups:
        mine, width = Counter[int](), len(group.conditions)
        for mask, count in found.items():
            mine[mask >> first & (1 << width) - 1] += count
        masks.append(mine)
        first += width
    return sum(found.values()), tuple(masks)


def joined_groups(connection: Connection, columns: Sequence[str], rows: Mapping[RowKind, str]) -> Findings:
    """What the rows of another table that changed ones name have in common: c0 … as `columns`, and `n`."""
    changes = Changes(connection, Pairing(tuple(columns)), "", {}, 0.0, Limits())
    groups = (_group(changes, kind, query, Premises()) for kind, query in rows.items())
    return Findings(groups=tuple(group for group in groups if group.conditions))


def explain(findings: Findings, population: Population, masks: Sequence[Mapping[int, int]]) -> Explanation:
    """What is worth a sentence; `masks` are those of the population."""
    found = (_common(group, population.rows, mine) for group, mine in zip(findings.groups, masks, strict=True))
    common = tuple(each for each in found if each is not None)
    rarer = tuple(each.done for each in common if each.done is not None and each.done not in findings.done)
    return Explanation((*findings.done, *rarer), common, population if common else None, hit=findings.hit)


# what they have in common --------------------------------------------------------------------------------------------


def _queries(changes: Changes, buckets: Mapping[str, RowBucket]) -> Iterator[tuple[RowKind, str]]:
    """The rows changed in each way: c0 … and how often each came, `n`."""
    numbers = range(len(changes.pairing.columns))
    if "update" in buckets and buckets["update"].keys >= LEAST_ROWS:
        yield RowKind.UPDATE, _before(changes)
    names, one_sided = ", ".join(f"c{i}" for i in numbers), [name for name in buckets if name != "update"]
    for kind, sign in ((RowKind.INSERT, ">"), (RowKind.DELETE, "<")):
        parts = [f"SELECT {names}, abs(n) AS n FROM ({changes.one_sided[each]}) WHERE n {sign} 0" for each in one_sided]
        if sum(buckets[each].added if sign == ">" else buckets[each].removed for each in one_sided) >= LEAST_ROWS:
            yield kind, " UNION ALL ".join(parts)


def _before(changes: Changes, where: str = "true") -> str:
    values = ", ".join(f"b_c{i} AS c{i}" for i in range(len(changes.pairing.columns)))
    return f"SELECT {values}, 1 AS n FROM ({changes.pairs}) WHERE {where}"


def _altered_group(changes: Changes, done: Alteration, where: str, premises: Premises) -> Group:
    group = _group(changes, RowKind.UPDATE, _before(changes, where), premises)
    if not group.conditions:
        return group
    asked = [each.sql(f"c{each.number}") for each in group.conditions]
    return replace(group, done=done, beside=_masks(changes.connection, _before(changes, f"NOT ({where})"), "n", asked))


def _group(changes: Changes, kind: RowKind, query: str, premises: Premises) -> Group:
    connection, asked = changes.connection, premises.columns(kind)
    types = [str(row[1]) for row in connection.execute(f"DESCRIBE {query}").fetchall()[:-1]]
    new = [name not in asked for name in changes.pairing.columns]
    flat = [i for i, each in enumerate(types) if _is_flat(each) and new[i]][:_MOST_COLUMNS]
    connection.execute(f"CREATE OR REPLACE TEMP TABLE sample AS {_sampled(query)}")
    few = _few_values(changes, flat)
    conditions = [each for number in few for each in _value_sets(changes, query, number, types[number])]
    if kind is not RowKind.INSERT:  # new rows have new numbers and times
        taken = {each.number for each in conditions}
        conditions += _ranges(changes, query, {i: types[i] for i in flat if i not in taken and _is_ordered(types[i])})
    conditions = conditions[:_MOST_CONDITIONS]
    masks = _masks(connection, query, "n", [each.sql(f"c{each.number}") for each in conditions]) if conditions else {}
    return Group(kind, sum(masks.values()), tuple(conditions), masks)


def _sampled(query: str) -> str:
    return f"SELECT * FROM ({query}) USING SAMPLE reservoir({_SAMPLE} ROWS) REPEATABLE (7)"


def _few_values(changes: Changes, numbers: Sequence[int]) -> list[int]:
    """The columns of whose sample a few values make up most."""
    each = [
        f"SELECT {i} AS number, (SELECT sum(k) FROM (SELECT sum(n) AS k FROM sample GROUP BY c{i} ORDER BY k DESC "
        f"LIMIT {_MOST_VALUES})) AS most"
        for i in numbers
    ]
    if not each:
        return []
    enough = f"most >= {_PROPOSED_SHARE} * (SELECT sum(n) FROM sample)"
    found = changes.connection.execute(f"SELECT number FROM ({' UNION ALL '.join(each)}) WHERE {enough}").fetchall()
    return sorted(number for (number,) in found)


def _value_sets(changes: Changes, query: str, number: int, kind: str) -> Iterator[Condition]:
    """The commonest value, the two commonest … that make up most of the rows."""
    name = f"c{number}"
    each = f"SELECT {name}, CAST(sum(n) AS BIGINT) AS k FROM ({query}) GROUP BY 1"
    found = changes.connection.sql(
        f"SELECT {name}, CAST({name} AS VARCHAR) AS text, k, CAST(sum(k) OVER () AS BIGINT) AS total FROM ({each}) "
        f"ORDER BY k DESC, text LIMIT {_MOST_VALUES}"
    ).to_arrow_table()
    values, texts, counts, totals = (cells(column) for column in found.columns)
    for most, rows in enumerate(accumulate(counts), 1):
        if rows >= _LEAST_SHARE * totals[0]:
            yield Condition(number, changes.pairing.columns[number], kind, tuple(values[:most]), tuple(texts[:most]))


def _ranges(changes: Changes, query: str, kinds: Mapping[int, str]) -> Iterator[Condition]:
    if not kinds:
        return
    ends = ", ".join(f"min(c{i}), max(c{i}), CAST(min(c{i}) AS VARCHAR), CAST(max(c{i}) AS VARCHAR)" for i in kinds)
    table = changes.connection.sql(f"SELECT {ends} FROM ({query})").to_arrow_table()
    found = [cells(column)[0] for column in table.columns]
    for place, (number, kind) in enumerate(kinds.items()):
        low, high, *texts = found[4 * place : 4 * place + 4]
        if low is not None and low != high and not (isinstance(high, float) and not math.isfinite(high)):
            yield Condition(number, changes.pairing.columns[number], kind, (low, high), tuple(texts), is_range=True)


def _masks(connection: Connection, source: str, weight: str, conditions: Sequence[str]) -> dict[int, int]:
    kind = "BIGINT" if len(conditions) < 63 else "HUGEINT"
    bits = " + ".join(f"CASE WHEN {each} THEN {1 << i} ELSE 0 END" for i, each in enumerate(conditions))
    found = connection.execute(
        f"SELECT mask, CAST(sum(w) AS BIGINT) FROM (SELECT CAST({bits} AS {kind}) AS mask, {weight} AS w FROM "
        f"({source})) GROUP BY mask"
    ).fetchall()
    return dict(found)


def _common(group: Group, population: int, masks: Mapping[int, int]) -> Common | None:
    """The traits that stand out, the best of each column, the rarest in the table first."""
    measured = [
        _Measured(each, 1 << i, having(group.masks, 1 << i), having(masks, 1 << i))
        for i, each in enumerate(group.conditions)
    ]
    best: dict[int, _Measured] = {}
    for each in measured:
        known = best.get(each.condition.number)
        if (
            each.stands_out(group.rows, population)
            and _is_its_own(group, each)
            and not _is_of_any_batch(group, each)
            and (known is None or each.evidence(group.rows, population) > known.evidence(group.rows, population))
        ):
            best[each.condition.number] = each
    chosen = _together(group, masks, sorted(best.values(), key=lambda each: (each.condition.is_range, each.others)))
    if not chosen:
        return None
    all_of = sum(each.bit for each in chosen)
    traits = tuple(each.trait() for each in chosen)
    return Common(group.kind, group.rows, having(group.masks, all_of), having(masks, all_of), traits, group.done)


def _is_its_own(group: Group, each: "_Measured") -> bool:
    """Whether the trait is not one of all updated rows, where the group is a part of them; that what was null was null
    says nothing, nor what the column held that was copied."""
    if group.done is not None and each.condition.column in (group.done.column, group.done.other):
        return False
    others = sum(group.beside.values())
    return each.rows * others >= _LEAST_LIFT * having(group.beside, each.bit) * group.rows


def _is_of_any_batch(group: Group, each: "_Measured") -> bool:
    """Whether nearly all rows came with a moment, or a text that counts on (a file's name, a batch), which no row had
    before: so does every batch."""
    if group.kind is not RowKind.INSERT or each.others or each.condition.is_range:
        return False
    values = each.condition.values
    return all(isinstance(value, date) or (isinstance(value, str) and re.search(r"\d", value)) for value in values)


@dataclass(frozen=True, slots=True)
class _Measured:
    condition: Condition
    bit: int
    rows: int
    others: int

    def evidence(self, total: int, population: int) -> float:
        """How much chance would have to do to make it (Chernoff), less what choosing the condition took."""
        share, usual = self.rows / total, (self.others + 0.5) / (population + 1)
        if share <= usual:
            return 0.0
        surprise = share * math.log(share / usual)
        if share < 1:
            surprise += (1 - share) * math.log((1 - share) / (1 - usual))
        chosen = 2 * math.log(total) if self.condition.is_range else 0.0
        return max(0, total - self.condition.freedom) * surprise - chosen

    def stands_out(self, total: int, population: int) -> bool:
        is_common = self.rows >= _LEAST_SHARE * total and population > 0
        lift = self.rows * population >= _LEAST_LIFT * self.others * total
        return is_common and lift and self.evidence(total, population) >= _EVIDENCE

    def trait(self) -> Trait:
        each = self.condition
        if each.is_range:
            return Trait(each.column, self.rows, self.others, bounds=(each.values[0], each.values[1]))
        values = sorted(each.values, key=lambda value: (value is None, str(value)))
        return Trait(each.column, self.rows, self.others, values=tuple(values))


def _together(group: Group, masks: Mapping[int, int], ranked: Sequence[_Measured]) -> list[_Measured]:
    """The traits that most rows have at once: a range only where it leaves fewer of the table's rows."""
    chosen: list[_Measured] = []
    bits = 0
    for each in ranked:
        both = bits | each.bit
        narrows = having(masks, both) < 0.9 * having(masks, bits)
        if having(group.masks, both) >= _LEAST_SHARE * group.rows and (narrows or not each.condition.is_range):
            chosen.append(each)
            bits = both
    return chosen[:_MOST_TRAITS]


def having(masks: Mapping[int, int], bits: int) -> int:
    """How many rows satisfy all of these conditions."""
    return sum(rows for mask, rows in masks.items() if mask & bits == bits)


# what was done to them -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Tried:
    """Something that may have been done to a column, as a condition on a pair of rows."""

    effect: Effect
    sql: str
    told: dict[str, Any] = field(default_factory=dict)


def _alterations(changes: Changes, page: RowChanges, updates: int) -> Iterator[tuple[Alteration, str]]:
    """Of each touched column what was done most often to rows that touch it, with a condition on `changes.pairs`."""
    names = sorted(page.changed_cells, key=lambda name: -page.changed_cells[name])[:_MOST_TOUCHED]
    if not names:
        return
    connection, differs = changes.connection, changes.differs()
    types = {str(row[0]): str(row[1]) for row in connection.execute(f"DESCRIBE {changes.pairs}").fetchall()}
    connection.execute(f"CREATE OR REPLACE TEMP TABLE sample AS {_sampled(changes.pairs)}")
    tried = {}
    for name in names:
        number = changes.pairing.columns.index(name)
        others = list(_taken_over(changes, number, types, differs))
        tried[name] = [*others, *_tried(connection, number, types[f"a_c{number}"], differs[name])]
    asked = [f"coalesce(count_if(({differs[name]}) AND ({each.sql})), 0)" for name in names for each in tried[name]]
    sorts = ", ".join(f"count(DISTINCT b_c{changes.pairing.columns.index(name)})" for name in names)
    ((*distinct,),) = connection.execute(f"SELECT {sorts} FROM sample").fetchall()
    ((*counts,),) = connection.execute(f"SELECT {', '.join(asked)} FROM ({changes.pairs})").fetchall()
    found = iter(counts)
    shared = {each.column: each for each in reversed(page.common)}
    swapped = set()
    for name, values in zip(names, distinct, strict=True):
        changed, pair = page.changed_cells[name], shared.get(name)
        ranked = [(next(found), each) for each in tried[name]]
        if pair is not None and pair.updates >= _LEAST_SHARE * changed:
            b, a = (f"{side}_c{changes.pairing.columns.index(name)}" for side in "ba")
            both = f"struct_pack(b := {b}, a := {a})"
            order = f"GROUP BY {b}, {a} ORDER BY count(*) DESC, {b}, {a} LIMIT 1"  # as `changed_rows` finds it
            commonest = f"(SELECT {both} FROM ({changes.pairs}) WHERE {differs[name]} {order})"
            told = {"before": pair.before, "after": pair.after}
            ranked = [(pair.updates, _Tried(Effect.REPLACED, f"{both} IS NOT DISTINCT FROM {commonest}", told))]
        rows, best = max(ranked, key=lambda each: each[0])  # of equals the first, which says most
        if best.effect is Effect.SWAPPED and best.told["other"] in swapped:
            continue  # told with the other one
        if (rows - 1) * math.log(max(values, 2)) >= _EVIDENCE_DONE:
            swapped |= {name} if best.effect is Effect.SWAPPED else set()
            where = f"({differs[name]}) AND coalesce({best.sql}, false)"
            yield Alteration(name, best.effect, rows, changed, updates, **best.told), where


def _taken_over(
    changes: Changes, number: int, types: Mapping[str, str], differs: Mapping[str, str]
) -> Iterator[_Tried]:
    """Two columns swapped, one copied from another: from the one that the sample agrees with, more than by chance."""
    after, name = f"a_c{number}", changes.pairing.columns[number]
    same_type = (i for i in range(len(changes.pairing.columns)) if i != number and types[f"b_c{i}"] == types[after])
    others = list(same_type)[:_MOST_COLUMNS]
    if not others or not _is_flat(types[after]):
        return
    mine = f"FROM sample WHERE ({differs[name]})"
    asked = ", ".join(f"coalesce(count_if({after} = b_c{i}), 0)" for i in others)
    ((total, *same),) = changes.connection.execute(f"SELECT count(*), {asked} {mine}").fetchall()
    rows, other = max(zip(same, others, strict=True), key=lambda each: each[0])
    sides = [f"(SELECT {each} AS v, count(*) AS n {mine} GROUP BY 1)" for each in (after, f"b_c{other}")]
    ((pairs,),) = changes.connection.execute(
        f"SELECT coalesce(sum(x.n * y.n), 0) FROM {sides[0]} x JOIN {sides[1]} y USING (v)"
    ).fetchall()
    by_chance = max(0.1, (pairs - rows) / max(1, total))  # rows that would agree if one column was shuffled
    surprise = rows * math.log(max(1, rows) / by_chance) - (rows - by_chance)
    if rows >= _LEAST_LIFT * by_chance and surprise >= _EVIDENCE:
        told = {"other": changes.pairing.columns[other]}
        both = f"{after} IS NOT DISTINCT FROM b_c{other} AND a_c{other} IS NOT DISTINCT FROM b_c{number}"
        yield _Tried(Effect.SWAPPED, both, told)
        yield _Tried(Effect.COPIED, f"{after} = b_c{other}", told)


def _tried(connection: Connection, number: int, kind: str, differs: str) -> Iterator[_Tried]:
    before, after = f"b_c{number}", f"a_c{number}"
    yield _Tried(Effect.EMPTIED, f"{after} IS NULL")
    if not _is_flat(kind):
        yield _Tried(Effect.FILLED, f"{before} IS NULL")
        return
    mine = f"FROM sample WHERE ({differs})"
    commonest = connection.sql(
        f"SELECT {after}, CAST({after} AS VARCHAR) {mine} AND {after} IS NOT NULL GROUP BY ALL "
        f"ORDER BY count(*) DESC, 2 LIMIT 1"
    ).to_arrow_table()
    for value, text in zip(*(cells(column) for column in commonest.columns), strict=True):
        yield _Tried(Effect.SET, f"{after} = CAST({quoted_text(text)} AS {kind})", {"after": value})
    yield _Tried(Effect.FILLED, f"{before} IS NULL")
    if _NUMBER.fullmatch(kind):
        yield from _arithmetic(connection, (before, after), kind, mine)
    elif _MOMENT.fullmatch(kind) or kind == "DATE":
        is_date = kind == "DATE"
        shift = f"({after} - {before})" if is_date else f"(epoch_us({after}) - epoch_us({before}))"
        ((added,),) = connection.execute(f"SELECT mode({shift}) {mine}").fetchall()
        if added is not None:
            told = {"by": added if is_date else _plain(added / 1_000_000), "unit": "d" if is_date else "s"}
            yield _Tried(Effect.SHIFTED, f"{shift} = {added}", told)
    elif kind == "VARCHAR":
        yield from (_Tried(effect, f"{after} = {name}({before})") for effect, name in _TEXT_EFFECTS.items())


def _arithmetic(connection: Connection, pair: tuple[str, str], kind: str, mine: str) -> Iterator[_Tried]:
    """A factor or an amount added that the sample shares, and a factor whose products were rounded."""
    b, a = (f"CAST({each} AS DOUBLE)" for each in pair)
    is_number = f"coalesce(isfinite({a}) AND isfinite({b}), false)"
    known = f"{mine} AND {is_number}"
    is_whole = _WHOLE.fullmatch(kind) is not None
    shift = f"CAST({pair[1]} AS HUGEINT) - CAST({pair[0]} AS HUGEINT)" if is_whole else f"round({a} - {b}, 6)"
    ratio = f"{a} / nullif({b}, 0)"
    ((factor, middle, added),) = connection.execute(
        f"SELECT mode(round({ratio}, 9)), round(median({ratio}), 4), mode({shift}) {known}"
    ).fetchall()
    near = f"abs({{off}}) <= 1e-9 * greatest(abs({a}), abs({b}))"
    if added is not None:
        off = f"{shift} = {added}" if is_whole else near.format(off=f"{a} - {b} - ({added!r})")
        yield _Tried(Effect.SHIFTED, f"{is_number} AND {off}", {"by": _plain(added)})
    if factor is not None:
        off = near.format(off=f"{a} - {b} * ({factor!r})")
        yield _Tried(Effect.MULTIPLIED, f"{is_number} AND {b} <> 0 AND {off}", {"by": _plain(factor)})
    decimal = re.fullmatch(r"DECIMAL\(\d+,\s*(\d+)\)", kind)
    if decimal is not None and middle is not None and middle not in (0.0, 1.0):
        half = 0.5000001 * 10.0 ** -int(decimal[1])  # of its last place
        off = f"abs({a} - {b} * ({middle!r})) <= {half!r} AND abs({a} - {b}) > {20 * half!r}"
        told = {"by": _plain(middle), "is_rounded": True}
        yield _Tried(Effect.MULTIPLIED, f"{is_number} AND {b} <> 0 AND {off}", told)


def _plain(number: float) -> float | int:
    return int(number) if float(number).is_integer() else number


def _is_ordered(kind: str) -> bool:
    return any(each.fullmatch(kind) for each in (_NUMBER, _MOMENT)) or kind == "DATE"


def _is_flat(kind: str) -> bool:
    return _is_ordered(kind) or kind in ("VARCHAR", "BOOLEAN")
