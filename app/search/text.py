"""First bad version in words and lists, for the page and the terminal: the answer, its commit, its probes.

Rule: pure, and free of pandas, which the terminal does without. A sentence claims no more than the probes saw; a count
that nobody gives is not made up. An outcome has a sign and a word.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import orjson

from app.columns import Column
from app.ui.view.commits import stream_text
from app.ui.view.explanation import counts_text, explained, gross_text
from app.ui.view.theme import operation_style
from app.ui.view.words import KeyFigure
from backend.changes.model import CommitChanges, VersionDiff
from backend.format import (
    UNKNOWN,
    age_s,
    bytes_text,
    count_text,
    cut,
    duration_text,
    figure_text,
    percent,
    things,
    utc_text,
)
from backend.lake.history.history import predicate_text
from backend.lake.model import Commit
from backend.lake.table.schema import column_names
from backend.search.condition import Examples
from backend.search.notice import Measure
from backend.search.search import Bisection, BisectProgress, Probe, ProbeOutcome, Purpose, gave_text
from backend.search.suggest import QUANTILES, Held, Suggestion, measure_text
from backend.sql.numbers import ValueSource
from backend.sql.values import json_value

MOST_TEXT = 200  # characters of what a writer noted
MOST_PAIRS = 6
MOST_NAMED = 8  # versions in one sentence
_COUNTED = re.compile(r"count\(\*\) FILTER \((?P<where>.+)\) <=? [\d*.count() ]+", re.IGNORECASE)
_AT_ENDS = {
    Measure.REPEATS: "rows whose `{}` another row has",
    Measure.WHERE: "rows where `{}`",
    Measure.WHOLE: "whole numbers in `{}`",
}
MOST_CONDITION = 80  # characters of a condition in one sentence
SIGNS = {ProbeOutcome.GOOD: "✓ good", ProbeOutcome.BAD: "✕ bad", ProbeOutcome.SKIPPED: "○ skipped"}
_PURPOSES = {Purpose.END: "an end", Purpose.SEARCH: "search", Purpose.CHECK: "check"}
MOST_COLUMNS = 40
HEADS = ("Lowest", *(("1 % below", "Median", "1 % above")[: len(QUANTILES)]), "Highest", "Null")
WIDE_PX, ENDS_PX = 140, 205  # "890.91 → 83,137.07", "2026-11-20 10:04:31.522 UTC"
NULLS_PASS = "null passes, as in a CHECK constraint"


def means_text(result: Bisection) -> str:
    """What it means that a version satisfies the condition, and which rows break it."""
    if result.by_row:
        return f"every row has to satisfy it; a row for which it gives {NULLS_PASS}"
    rows = f": every row has to satisfy `{one_line(result.row_rule)}`" if result.row_rule else ", no row by itself"
    return f"the version as a whole has to satisfy it{rows}; {NULLS_PASS}"


def headline(result: Bisection, streams: Mapping[str, str] | None = None) -> str:
    """The answer in one sentence: "v118 (MERGE by stream silver_orders, …) is the first version that breaks …"."""
    text = one_line(result.condition)
    does = f"satisfies `{text}` again" if result.is_mended else f"breaks `{text}`"
    if result.culprit is None:
        return (
            f"The first version that {does} is one of {things(len(result.candidates), 'commit')}: "
            f"{versions_text(result.candidates)}"
        )
    by = commit_text(result.commit, streams or {}) if result.commit else "its commit is not in the log any more"
    return f"v{result.culprit} ({by}) is the first version that {does}"


def notes(result: Bisection) -> list[str]:
    """What stands beside the answer: the values on both sides, what disagrees, what was not looked at."""
    sentences = [*_values(result), *disagreement(result), *_skipped(result)]
    if result.older_id is not None:
        low, high = sorted((result.good, result.bad))
        sentences.append(
            f"another table took its place in between: its id is {result.older_id} at v{low} and {result.table_id} "
            f"at v{high}; their rows are compared as those of two tables"
        )
    judged = [probe for probe in result.probes if probe.outcome is not ProbeOutcome.SKIPPED]
    unjudged = f"; not judged: {things(result.unprobed, 'commit')} that changed rows" if result.unprobed else ""
    sentences.append(f"{things(len(judged), 'version')} judged{unjudged}")
    if judged and all(probe.number.source is ValueSource.LOG for probe in judged):
        sentences.append("the log's row counts answered: no data file was opened")
    return sentences


def commit_text(commit: Commit, streams: Mapping[str, str]) -> str:
    """ "MERGE by stream silver_orders, batch 41, 2026-11-20 14:05:00 UTC"."""
    stream = stream_text(commit, streams)
    who = f"stream {stream}" if stream else commit.user
    by = f" by {who}" if who else ""
    at = "at an unknown time" if commit.committed_at is None else utc_text(commit.committed_at)
    return f"{commit.operation or 'operation not named'}{by}, {at}"


def versions_text(versions: Sequence[int]) -> str:
    """ "v4, v5, v6", long lists with their ends."""
    if len(versions) <= MOST_NAMED:
        return ", ".join(f"v{version}" for version in versions) or UNKNOWN
    first = ", ".join(f"v{version}" for version in versions[: MOST_NAMED - 2])
    return f"{first} … v{versions[-1]}"


def one_line(condition: str) -> str:
    """A condition short enough for a sentence."""
    return cut(" ".join(condition.split()), MOST_CONDITION)


def read_text(probe: Probe) -> str:
    """What judging it cost."""
    number = probe.number
    match number.source:
        case ValueSource.LOG:
            return "from the log"
        case ValueSource.KEPT:
            return "judged before"
    if number.files is None or (probe.outcome is ProbeOutcome.SKIPPED and not number.files_read):
        return "nothing read"
    if not number.files_read:
        return f"nothing: {things(number.files, 'file')} judged before" if number.files else "nothing: it has no file"
    files = f"{count_text(number.files_read)} of {things(number.files, 'file')}"
    return f"{files}, {things(number.rows_read, 'row')}, {bytes_text(number.bytes_read)} read"


def probe_line(probe: Probe) -> str:
    """One probe for a terminal."""
    took = duration_text(round(probe.duration_s, 2))
    return f"v{probe.version}  {probe.outcome.value}  {gave_text(probe)} · {read_text(probe)} · {took}"


def _values(result: Bisection) -> list[str]:
    """The condition on both sides of the change, as probed."""
    words = ("bad", "good") if result.is_mended else ("good", "bad")
    sentences = []
    for version, word, end in ((result.last, words[0], "last"), (result.first_seen, words[1], "first")):
        probe = result.probe_of(version)
        if probe is None:
            continue
        which = f"the {end} {word} version" if result.culprit is not None else f"{word}"
        is_that = end == "last" or version == result.culprit
        sentences.append(f"v{version} is {which if is_that else word}: {gave_text(probe)}")
    return sentences


def disagreement(result: Bisection) -> list[str]:
    """What probes saw beside one change."""
    if not result.again:
        return []
    word, opposite = ("bad", "good") if result.is_mended else ("good", "bad")
    verb = "is" if len(result.again) == 1 else "are"
    first = f"v{result.culprit}" if result.culprit is not None else f"among {versions_text(result.candidates)}"
    return [
        f"{versions_text(result.again)} {verb} {word} again: the condition changes more than once; "
        f"the first {opposite} version after {word} v{result.last} is {first}"
    ]


def _skipped(result: Bisection) -> list[str]:
    gone = [probe for probe in result.probes if probe.outcome is ProbeOutcome.SKIPPED]
    sentences = []
    if gone:
        versions = versions_text(sorted(probe.version for probe in gone))
        why = f": {gone[0].reason}" if len(gone) == 1 else f"; of v{gone[0].version}, {gone[0].reason}"
        sentences.append(f"{versions} could not be judged{why}")
    if result.culprit is not None and result.culprit != result.first_seen:
        sentences.append(
            f"v{result.culprit} itself was not judged; v{result.first_seen} was, and no commit in between changed rows"
        )
    return sentences


def answer_figures(result: Bisection, latest: int) -> list[KeyFigure]:
    """How many rows are bad at the bad end, the last good version, and the count at each version that was judged."""
    figures, probe = list[KeyFigure](), result.probe_of(max(result.good, result.bad))
    if probe and probe.verdict:
        label = "Bad now" if probe.version == latest else f"Bad at v{probe.version}"
        rows = probe.verdict.violations
        value = gave_text(probe) if rows is None else f"{rows:,} of {things(probe.verdict.rows or 0, 'row')}"
        figures.append(KeyFigure(label, value, "Rows that break the condition"))
    figures.append(KeyFigure("Last bad" if result.is_mended else "Last good", f"v{result.last}", "As judged"))
    counts = {probe.version: probe.verdict.violations for probe in result.probes if probe.verdict}
    if counts and None not in counts.values():
        at = " → ".join(f"v{version} {counts[version]:,}" for version in sorted(counts))
        figures.append(KeyFigure("Bad rows by version", at, "Only versions that were judged"))
    return figures


# findings, and before and while it runs -------------------------------------------------------------------------------


def suggestion_text(suggestion: Suggestion) -> str:
    """ "highest `amount` 1,998.4 up to v36, 1,284,900 from v38"."""
    before, after = (measure_text(suggestion.measure, value) for value in (suggestion.before, suggestion.after))
    if suggestion.measure in _AT_ENDS:  # known there alone
        what = (
            _AT_ENDS[suggestion.measure].format(suggestion.column) if suggestion.column else "rows that are there twice"
        )
        return f"{what}: {before} at v{suggestion.last}, {after} at v{suggestion.first}"
    what = f"{suggestion.measure.value} of `{suggestion.column}`" if suggestion.column else suggestion.measure.value
    return f"{what}: {before} up to v{suggestion.last}, {after} at v{suggestion.first}"


def compared_text(held: Sequence[Held]) -> str:
    """What was compared to suggest conditions, and what was not."""
    first, last = held[0], held[-1]
    metadata = last.metadata
    bare = [name for name in column_names(metadata) if name not in last.columns] if metadata else []
    lack = f"; none for {cut(', '.join(bare), MOST_CONDITION)}" if bare else ""
    rows = "not read, so order of times, values of texts and quantiles are not judged"
    if last.quantiles or last.values or last.repeats is not None:
        rows = "read at both ends for quantiles, repeats and, in small tables, order of times and values of texts"
    return (
        f"Compared: {len(held)} of {last.version - first.version + 1:,} versions, v{first.version} → v{last.version}, "
        f"by the log's statistics of {things(len(last.columns), 'column')}{lack}. Rows were {rows}. Not judged: "
        "length and spelling of texts, and single values of one column against another."
    )


def progress_text(step: BisectProgress) -> tuple[float, str]:
    """How far a search is: share done, and words."""
    done, left = len(step.probes), step.at_most_left
    words = [f"{step.doing[:1].upper()}{step.doing[1:]}"]
    if step.rows_read:
        words.append(f"{things(step.rows_read, 'row')} read")
    words.append(f"{things(done, 'version')} judged")
    if left is not None:
        words.append(f"at most {left} more")
    return (done / max(1, done + left + (step.version is not None)) if left is not None else 0.0), " · ".join(words)


# the commit that was found --------------------------------------------------------------------------------------------


def commit_facts(commit: Commit, streams: Mapping[str, str]) -> dict[str, str]:
    """Who made it, when, with what and why, as far as the writer says."""
    stream = stream_text(commit, streams)
    facts = {
        "Operation": commit.operation or "not named",
        "Condition": cut(predicate_text(commit), MOST_TEXT),
        "When": utc_text(commit.committed_at),
        "User": commit.user or UNKNOWN,
        "Engine": commit.engine or UNKNOWN,
        "Job": commit.job or "",
        "Stream": stream,
    }
    try:
        noted = orjson.loads(commit.user_metadata or "{}")
    except orjson.JSONDecodeError:
        noted = commit.user_metadata
    if not isinstance(noted, dict):
        facts["Note"] = cut(commit.user_metadata or "", MOST_TEXT)
    elif not stream:  # a stream notes what stands here already
        facts |= {f"{name[:1].upper()}{name[1:40]}": cut(str(noted[name]), MOST_TEXT) for name in [*noted][:MOST_PAIRS]}
    return {name: text for name, text in facts.items() if text}


def changed_text(result: Bisection, diff: VersionDiff | None) -> str:
    """The rows that the commit changed as a whole, beside those that break the condition."""
    broken = result.probe_of(result.bad_seen)
    verdict = broken.verdict if broken else None
    broken_rows = verdict.violations if verdict else None
    breaks = f"; {things(broken_rows, 'row')} of v{result.bad_seen} break the condition" if broken_rows else ""
    if diff is not None and diff.is_available and diff.changes.net.total is not None:
        return f"{things(diff.changes.net.total, 'row')} ({counts_text(diff.changes.net)}){breaks}."
    if result.commit is None:
        return "not known."
    return f"{gross_text([CommitChanges.reported(result.commit)])}, as its writer reports{breaks}."


def cause_texts(changed: VersionDiff, broken: VersionDiff | None, *, by_row: bool = True) -> list[str]:
    """What stands out among the rows that the commit changed; and among the `broken` ones what others do not have.
    `by_row`: they break the condition, else they are those that it counts."""
    sentences = explained(changed.explanation)
    if broken is not None and broken.explanation.trait_columns - changed.explanation.trait_columns:
        whole = {each.column for each in changed.explanation.done if each.rows == each.updates}
        which = "that break it" if by_row else "that it counts"
        more = tuple(each for each in broken.explanation.done if each.column not in whole)  # once is enough
        sentences += [f"Of those {which}: {each}" for each in explained(replace(broken.explanation, done=more))]
    return sentences


def where_broken(result: Bisection) -> str | None:
    """Which rows break the condition, as SQL, or which ones it counts; None where no rows can be named."""
    if result.row_rule:
        return f"NOT ({result.row_rule})"
    counted = _COUNTED.fullmatch(result.condition)
    return counted and counted["where"]


# where to look next --------------------------------------------------------------------------------------------------


def diff_command(result: Bisection) -> str:
    """What shows the change itself in a terminal."""
    across = "" if result.older_id is None else " --across-replace"
    return f"weir diff {shlex.quote(result.ref.name)} --from {result.last} --to {result.changed_at}{across}"


# lists ----------------------------------------------------------------------------------------------------------------


def probe_columns(now: datetime) -> list[Column[Probe]]:
    return [
        Column("Version", lambda probe: probe.version, "version", key="version"),
        Column("Outcome", lambda probe: SIGNS[probe.outcome]),
        Column("It gave", gave_text, width="large"),
        Column("Probed for", lambda probe: _PURPOSES[probe.purpose]),
        Column("Operation", lambda probe: f"{operation_style(probe.operation).glyph} {probe.operation or 'not named'}"),
        Column("When", lambda probe: age_s(probe.committed_at, now), "ago"),
        Column("Read", read_text),
        Column("Took", lambda probe: probe.duration_s, "duration"),
        Column("At", lambda probe: probe.committed_at, "moment", key="committed_at"),
    ]


def example_columns(examples: Examples) -> list[Column[Mapping[str, Any]]]:
    """Of rows that break the condition every value as text; numbers stand to the right."""

    def text(value: object) -> str:
        return cut("null" if value is None else str(json_value(value)), MOST_TEXT)

    def column(name: str) -> Column[Mapping[str, Any]]:
        kinds = {type(row.get(name)) for row in examples.rows} - {type(None)}
        is_number = bool(kinds) and kinds <= {int, float, Decimal}
        return Column(name, lambda row: text(row.get(name)), "figure" if is_number else "text")

    return [column(name) for name in examples.columns]


def held_columns(held: Sequence[Held]) -> list[Column[str]]:
    """Of a column, by its name, what it holds at the newest of the versions, "a → b" where the oldest is known to
    differ."""
    first, last = held[0], held[-1]

    def column(place: int, head: str) -> Column[str]:
        def text(name: str) -> str:
            old, new = _cells(first, name)[place], _cells(last, name)[place]
            return new if old in (new, UNKNOWN) else f"{old} → {new}"

        width = None if head == HEADS[-1] else ENDS_PX if head in (HEADS[0], HEADS[-2]) else WIDE_PX
        return Column(head, text, width=width)

    return [Column("Column", str), *(column(place, head) for place, head in enumerate(HEADS))]


def _cells(held: Held, name: str) -> list[str]:
    column = held.columns.get(name)
    if column is None:
        return [UNKNOWN] * len(HEADS)
    quantiles = [figure_text(value) for value in held.quantiles.get(name, ())] or [UNKNOWN] * len(QUANTILES)
    low, high = (UNKNOWN if end is None else figure_text(end) for end in (column.lowest, column.highest))
    return [low, *quantiles, high, percent(column.null_share)]
