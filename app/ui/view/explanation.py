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
    Hit,
    LookIn,
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
_MOST_VALUE, _MOST_CONDITION, _MOST_BRANCHES, _MOST_COLUMNS = 40, 80, 6, 4
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
        among = ", updates among them" if counts.inserted and counts.deleted else ""
        return f"{inserted} inserted and {deleted} deleted{among}"
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


def stands_out(found: Explanation) -> list[str]:
    """The first of it in short, "All 28 updates multiplied `amount` by 100; all have `country` = ES.", then what else
    is known; empty where nothing stands out."""
    lines = explained(found)
    if not found.done or (found.repeats is not None and not found.repeats.is_by_chance):
        return lines
    first = found.done[0]
    whose = (first, None) if first.rows == first.updates else (first,)
    shared = [each for each in found.common if each.rows == each.of and each.done in whose]
    also = [f"; all have {_traits(each)}" for each in shared if each.kind is RowKind.UPDATE]
    title = f"{_altered(first)}{''.join(also[:1])}."
    return [title, *(line for line in lines if line[:-1] not in title)]


def explained(found: Explanation) -> list[str]:
    """One sentence for each thing that was done, then what the rows have in common; none where nothing stands out."""
    sentences = [] if found.repeats is None or found.repeats.is_by_chance else [*_repeats(found.repeats)]
    population = found.population
    for each in found.done:
        causes = [] if population is None else [_common(c, population) for c in found.common if c.done == each]
        sentences.append(" ".join((f"{_altered(each)}.", *causes)))
    sentences += [] if found.hit is None else [f"{_hit(found.hit)}."]
    if population is not None:
        own = set(found.repeats.differs) if found.repeats else set()  # told with the rows that were there already
        others = [each for each in found.common if each.done is None and not own >= {t.column for t in each.traits}]
        sentences += [_common(each, population) for each in others]
    return sentences


def looked_in(found: LookIn) -> list[str]:
    """How many changed rows name a row of the other table, and what those share."""
    where = f"`{found.table}` v{found.version}"
    if found.reason:
        return [f"Not looked in {where}: {found.reason}."]
    are = f"{found.found:,} of {things(found.of, 'changed row')} have one row in {where} by `{found.by}`."
    if found.population is None or not found.common:
        return [are, "They share nothing there that other rows have not."]
    return [are, *(_common(each, found.population, " found there") for each in found.common)]


def _hit(found: Hit) -> str:
    """ "The DELETE took 4,843 rows: `status = 'x'` 4,580, `email IS NULL` 300, both 37"."""
    parts = [f"`{cut(condition, _MOST_CONDITION)}` {rows:,}" for condition, rows in found.branches[:_MOST_BRANCHES]]
    left = len(found.branches) - len(parts)
    parts += [f"{left:,} more conditions"] if left else []
    more = "both" if len(found.branches) == 2 else "more than one of them"
    did = "took" if found.operation == "DELETE" else "changed"
    return f"The {found.operation} {did} {things(found.of, 'row')}: {', '.join(parts)}, {more} {found.overlap:,}"


def _altered(each: Alteration) -> str:
    """ "All 28 updates multiplied `amount` by 100", "7 of 9 updates set `a` to null, and no other touched it"."""
    if each.rows == each.updates:
        return f"{f'All {each.rows:,} updates' if each.rows > 1 else 'The update'} {_did(each)}"
    if each.rows == each.changed:
        return f"{each.rows:,} of {each.updates:,} updates {_did(each)}, and no other touched it"
    return f"{each.rows:,} of the {each.changed:,} updates that touched `{each.column}` {_did(each)}"


def _did(each: Alteration) -> str:
    column, by = f"`{each.column}`", each.by or 0
    match each.effect:
        case Effect.REPLACED:
            return f"changed {column} from {value_text(each.before)} to {value_text(each.after)}"
        case Effect.EMPTIED:
            return f"set {column} to null"
        case Effect.FILLED:
            return f"filled {column} where it was null"
        case Effect.SET:
            return f"set {column} to {value_text(each.after)}"
        case Effect.MULTIPLIED:
            inverse = 1 / by if by else 0
            divides = 0 < abs(by) < 1 and abs(inverse - round(inverse)) < 1e-6
            factor = f"{round(inverse) if divides else by:,}".replace("-", "−")
            did = f"{'divided' if divides else 'multiplied'} {column} by {factor}"
            return f"{did} and rounded it" if each.is_rounded else did
        case Effect.SHIFTED:
            days = " d" if each.unit == "d" else ""
            what = duration_text(abs(by)) if each.unit == "s" else f"{abs(by):,}{days}"
            return f"added {what} to {column}" if by > 0 else f"subtracted {what} from {column}"
        case Effect.SWAPPED:
            return f"swapped {column} and `{each.other}`"
        case Effect.COPIED:
            return f"copied `{each.other}` into {column}"
        case Effect.TRIMMED:
            return f"trimmed {column}"
    return f"made {column} {each.effect.value}"


def _traits(found: Common) -> str:
    return ", ".join(trait_text(trait) for trait in found.traits)


def _claim(found: Common, there: str) -> str:
    of = things(found.of, _KINDS[found.kind]) + there
    if found.done:
        who = f"All {found.of:,} of them" if found.rows == found.of else f"{found.rows:,} of these {found.of:,} updates"
    else:
        who = f"All {of}" if found.rows == found.of else f"{found.rows:,} of the {of}"
    return f"{who} have {_traits(found)}"


def _common(found: Common, population: Population, there: str = "") -> str:
    table = f"v{population.version}" if population.is_whole else f"the compared files of v{population.version}"
    table += there
    if not found.others:
        return f"{_claim(found, there)}; none of the {things(population.rows, 'row')} of {table} has."
    share = percent(found.rows / found.of)
    against = f"{share} against {percent(found.others / population.rows)} of the rows of {table}"
    counts = f"{found.others:,} of {population.rows:,}"
    is_all = found.kind is not RowKind.INSERT and found.others == found.rows == found.of
    return f"{_claim(found, there)}: {against} ({counts}).{' No other row has all of this.' if is_all else ''}"


def _repeats(found: Repeats) -> Iterator[str]:
    key, inserted = ", ".join(f"`{name}`" for name in found.key), things(found.of, "inserted row")
    if found.rows is None:
        yield f"Whether {key} of the {inserted} {_was(found.of)} there already is not known: that is too much to read."
        return
    all_of = f"All {inserted}" if found.of > 1 else "The inserted row"
    who = all_of if found.rows == found.of else f"{found.rows:,} of the {inserted}"
    alike, known_by, wrote, differs = (
        "",
        f" by {key}" if found.key else " in every column",
        "",
        [*found.differs.items()],
    )
    names = ", ".join(f"`{name}`" for name, _ in differs[:_MOST_COLUMNS])
    names += f" and {len(differs) - _MOST_COLUMNS:,} more" if len(differs) > _MOST_COLUMNS else ""
    if not found.key:
        known_by += f" but {names}" if differs else ""
    elif found.copies:
        some = "" if found.copies == found.rows else f"{found.copies:,} of them "
        alike = f"; {some}{'an exact copy' if found.copies == 1 else 'exact copies'}"
    if found.key and differs and all(count == found.rows for _, count in differs):
        alike += f"; only {names} {'differs' if len(differs) == 1 else 'differ'}"
    elif found.key and differs:
        alike += "; " + ", ".join(f"`{name}` differs in {count:,}" for name, count in differs[:_MOST_COLUMNS])
        alike += f", {len(differs) - _MOST_COLUMNS:,} more columns in some" if len(differs) > _MOST_COLUMNS else ""
    if found.written_by:
        left = len(found.written_by) - _MOST_WRITERS
        writers = " and ".join(_writer(commit) for commit in found.written_by[:_MOST_WRITERS])
        wrote = f", in files of {writers}{f' and {left:,} more' if left > 0 else ''}"
    yield f"{who} {_was(found.rows)} there already at v{found.version}{known_by}{wrote}{alike}."
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
    """ "v60 (WRITE, ann, job hourly count 60)"."""
    named = [cut(each, _MOST_VALUE) for each in (commit.operation, commit.user, commit.job) if each]
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
