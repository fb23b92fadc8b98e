"""Changed rows in words, for pages and terminal alike: how many they are, and what stands out among them.

Rule: pure, and free of pandas, which the terminal does without. What is not known is said to be unknown. Each sentence
has its count, and names what the rows are held against.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from backend.changes.model import (
    Alteration,
    CommitChanges,
    Common,
    Effect,
    Explanation,
    NetCounts,
    Population,
    Repeats,
    RowKind,
    Trait,
)
from backend.format import count_text, cut, datetime_text, duration_text, percent, things
from backend.lake.model import Commit
from backend.sql.values import json_value

_KINDS = {RowKind.UPDATE: "updated row", RowKind.INSERT: "inserted row", RowKind.DELETE: "deleted row"}
_MOST_VALUE = 40
_MOST_WRITERS = 3
_MOST_WHOLE = 2  # rows with all of their columns in one sentence


def counts_text(counts: NetCounts, *, noun: str = "") -> str:
    """ "1,204 rows inserted, 310 updated, 12 deleted"."""
    inserted, updated, deleted = (
        "unknown" if count is None else count_text(count) for count in (counts.inserted, counts.updated, counts.deleted)
    )
    if noun:
        inserted = f"unknown {noun}s" if counts.inserted is None else things(counts.inserted, noun)
    if counts.inserted is None and counts.updated is None and counts.deleted is None:
        return "how many rows is unknown"
    if counts.updated is None and counts.inserted is not None:
        return f"{inserted} inserted and {deleted} deleted, updates among them"
    return f"{inserted} inserted, {updated} updated, {deleted} deleted"


def gross_text(commits: Iterable[CommitChanges]) -> str:
    """What the commits did, added up. Where some do not say: the sum of the others, and how many do not."""
    moved = [each for each in commits if each.commit.may_change_rows]
    silent = [each for each in moved if None in (each.inserted, each.updated, each.deleted)]
    counts = {
        name: [count for each in moved if (count := getattr(each, name)) is not None]
        for name in ("inserted", "updated", "deleted")
    }
    if not silent:
        return counts_text(NetCounts(*map(sum, counts.values())))
    sums = ", ".join(f"{count_text(sum(each))} {name}" for name, each in counts.items() if each)
    if not sums:
        return "how many rows is not said"
    of = f": {things(len(silent), 'commit')} of {len(moved):,} did not count everything" if len(moved) > 1 else ""
    return f"at least {sums}{of}"


# what stands out ------------------------------------------------------------------------------------------------------


def explained(found: Explanation) -> list[str]:
    """One sentence for each thing that was done, then what the rows have in common; none where nothing stands out."""
    sentences = [] if found.repeats is None or found.repeats.is_by_chance else [*_repeats(found.repeats)]
    population = found.population
    for each in found.done:
        causes = [] if population is None else [_common(c, population) for c in found.common if c.done == each]
        sentences.append(" ".join((f"`{each.column}` {_done(each)} {_where(each)}.", *causes)))
    if population is not None:
        sentences += [_common(common, population) for common in found.common if common.done is None]
    return sentences


def _done(each: Alteration) -> str:
    match each.effect:
        case Effect.REPLACED:
            return f"{value_text(each.before)} → {value_text(each.after)}"
        case Effect.EMPTIED:
            return "set to null"
        case Effect.FILLED:
            return "null → a value"
        case Effect.SET:
            return f"set to {value_text(each.after)}"
        case Effect.MULTIPLIED:
            return _factor(each.by or 0) + (", rounded," if each.is_rounded else "")
        case Effect.SHIFTED:
            return _added(each.by or 0, each.unit)
        case Effect.SWAPPED | Effect.COPIED:
            return f"{'swapped with' if each.effect is Effect.SWAPPED else 'copied from'} `{each.other}`"
    return f"made {each.effect.value}" if each.effect is not Effect.TRIMMED else "trimmed"


def _factor(by: float) -> str:
    inverse = 1 / by if by else 0
    if 0 < abs(by) < 1 and abs(inverse - round(inverse)) < 1e-6:
        return f"÷ {_number(round(inverse))}"
    return f"× {_number(by)}"


def _added(by: float, unit: str) -> str:
    sign = "+" if by > 0 else "−"
    if unit == "s":
        return f"{sign} {duration_text(abs(by))}"
    return f"{sign} {_number(abs(by))}{' d' if unit == 'd' else ''}"


def _number(value: float) -> str:
    return f"{value:,}".replace("-", "−")


def _where(each: Alteration) -> str:
    if each.rows == each.updates:
        return f"in {'all ' if each.rows > 1 else 'the '}{things(each.rows, 'updated row')}"
    touching = "" if each.changed == each.updates else " that change it"
    if each.rows == each.changed:
        return f"in all {each.rows:,} of {each.updates:,} updated rows{touching}"
    return f"in {each.rows:,} of the {things(each.changed, 'updated row')}{touching}"


def _common(found: Common, population: Population) -> str:
    traits = ", ".join(trait_text(trait) for trait in found.traits)
    share = percent(found.rows / found.of)
    of = things(found.of, _KINDS[found.kind])
    these = "these " if found.done else ""
    who = f"All {these}{of}" if found.rows == found.of else f"{found.rows:,} of {these or 'the '}{of}"
    table = f"v{population.version}" if population.is_whole else f"the compared files of v{population.version}"
    if not found.others:
        return f"{who} have {traits}; none of the {things(population.rows, 'row')} of {table} has."
    against = f"{share} against {percent(found.others / population.rows)} of the rows of {table}"
    counts = f"{found.others:,} of {population.rows:,}"
    is_all = found.kind is not RowKind.INSERT and found.others == found.rows == found.of
    return f"{who} have {traits}: {against} ({counts})." + (" No other row has all of this." if is_all else "")


def _repeats(found: Repeats) -> Iterator[str]:
    key, inserted = ", ".join(f"`{name}`" for name in found.key), things(found.of, "inserted row")
    if found.rows is None:
        yield f"Whether {key} of the {inserted} {_was(found.of)} there already is not known: that is too much to read."
        return
    all_of = f"All {inserted}" if found.of > 1 else "The inserted row"
    who = all_of if found.rows == found.of else f"{found.rows:,} of the {inserted}"
    alike = ""
    if found.key and found.copies:
        some = "" if found.copies == found.rows else f"{found.copies:,} of them "
        alike = f"; {some}{'an exact copy' if found.copies == 1 else 'exact copies'}"
    known_by = f" by {key}" if found.key else " in every column"
    yield f"{who} {_was(found.rows)} there already at v{found.version}{known_by}{alike}."
    if found.written_by:
        left = len(found.written_by) - _MOST_WRITERS
        writers = " and ".join(_writer(commit) for commit in found.written_by[:_MOST_WRITERS])
        yield f"The files that hold them there were written by {writers}{f' and {left:,} more' if left > 0 else ''}."
    if found.keys:
        listed = found.listed[: None if found.key else _MOST_WHOLE]
        each = "; ".join(f"{_key(values)} in {things(rows, 'row')}" for values, rows in listed)
        more = f"; and {found.keys - len(listed):,} more" if found.keys > len(listed) else ""
        what = things(found.keys, "key" if found.key else "row")
        yield f"{what} {'is' if found.keys == 1 else 'are'} there more than once afterwards: {each}{more}."


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _key(values: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}` = {value_text(value)}" for name, value in values.items())


def _writer(commit: Commit) -> str:
    """ "v60 (WRITE, job hourly count 60)"."""
    named = [cut(each, _MOST_VALUE) for each in (commit.operation, commit.job or commit.user) if each]
    return f"v{commit.version} ({', '.join(named) or 'unnamed'})"


def trait_text(trait: Trait) -> str:
    """ "`currency` = JPY", "`day` = 2026-11-11 or 2026-11-12", "`id` from 3 to 8"."""
    if trait.bounds:
        low, high = trait.bounds
        return f"`{trait.column}` from {value_text(low)} to {value_text(high)}"
    return f"`{trait.column}` = {' or '.join(value_text(value) for value in trait.values)}"


def value_text(value: Any) -> str:
    """A value in a sentence."""
    if value is None:
        return "null"
    if isinstance(value, datetime):
        return datetime_text(value)
    return cut(str(json_value(value)), _MOST_VALUE) if value != "" else '""'
