"""A table's summary: facts in words and figures, what is expected of it, and its schema as an indented tree.

Rule: pure; what the log does not say is not made up, and what no living host judges is shown as unknown, with what it
was. A bound that may not be a value has a sign (≥, ≤), and what is known for some files only says so.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.columns import Column, Columns
from app.ui.view.commits import stream_text
from app.ui.view.words import KeyFigure
from backend.expectations.model import (
    Judgement,
    Standing,
    State,
    TableExpectation,
    expected_text,
    found_text,
    judged_text,
    standing,
)
from backend.format import (
    ago,
    ago_text,
    bytes_exact,
    bytes_text,
    count_exact,
    count_text,
    cut,
    duration_text,
    figure_text,
    percent,
    signed,
    signed_bytes,
    things,
)
from backend.health.rules import MergeGain, small_files_text
from backend.lake.files.stats import ColumnTotals, StatKind
from backend.lake.history.timeline import Rhythm
from backend.lake.model import Commit, Snapshot, Timeline
from backend.lake.table.properties import is_on
from backend.lake.table.schema import Constraint, Identity, SchemaColumn, TypeChange, constraints

# facts -----------------------------------------------------------------------------------------------------------


def key_figures(snapshot: Snapshot, gain: MergeGain) -> list[KeyFigure]:
    """Rows, files, size and small files."""
    files = snapshot.num_files
    rows_help = "Not known: a file has no statistics, and Weir does not read every row to count them."
    if snapshot.num_rows is not None:
        rows = f"{count_exact(snapshot.num_rows)} rows"
        rows_help = f"{rows}: every file's statistics, minus rows that deletion vectors delete."
    return [
        KeyFigure("Rows", count_text(snapshot.num_rows), rows_help),
        KeyFigure("Files", count_text(files), f"{count_exact(files)} files"),
        KeyFigure("Size", bytes_text(snapshot.size_bytes), bytes_exact(snapshot.size_bytes)),
        KeyFigure("Small files", small_files_text(gain), "OK: merging would hardly help readers."),
    ]


def rhythm_sentence(rhythm: Rhythm | None) -> str:
    """ "A commit every 12 s, the last 4 s ago."; empty without a rhythm."""
    if rhythm is None:
        return ""
    text = f"A commit every {duration_text(rhythm.gap_s)}, the last {ago_text(rhythm.since_s)}"
    return f"{text}: that is later than usual." if rhythm.is_late else f"{text}."


def writers_sentence(commits: Sequence[Commit], streams: Mapping[str, str]) -> str:
    """Who wrote the last commits: streams by name (`streams`: those of known query ids), else the engine and user."""
    if not commits:
        return "No commit in the log says who writes this table."
    counts = Counter(_writer(commit, streams) for commit in commits)
    parts = [f"{name} ({count_text(count)})" if len(counts) > 1 else name for name, count in counts.most_common(3)]
    if len(counts) > 3:
        parts.append(things(len(counts) - 3, "other"))
    many = f"Last {things(len(commits), 'commit')}" if len(commits) > 1 else "Its only commit is"
    return f"{many} by {', '.join(parts)}."


def _writer(commit: Commit, streams: Mapping[str, str]) -> str:
    if stream := stream_text(commit, streams, with_batch=False):
        return f"stream {stream}"
    named = " by ".join(part for part in (commit.engine, commit.user) if part)
    return named or "an unnamed writer"


def growth_sentence(timeline: Timeline, now: datetime) -> str:
    """What the last 24 h brought, or all that is known of a younger table; empty where nothing can be compared."""
    if len(timeline.totals) < 2:
        return ""
    last, limit = timeline.totals[-1], now - timedelta(days=1)
    older = [item for item in timeline.totals if item.committed_at and item.committed_at <= limit]
    before, since = (older[-1], "In 24 h") if older else (timeline.totals[0], "")
    if not older:
        at = f", {ago(before.committed_at, now)}" if before.committed_at else ""
        since = f"Since v{before.version}{at}"
    rows = None if last.num_rows is None or before.num_rows is None else last.num_rows - before.num_rows
    if not rows and last.size_bytes == before.size_bytes:
        return f"{since}: no growth."
    parts = [] if rows is None else [f"{signed(rows)} {'row' if abs(rows) == 1 else 'rows'}"]
    parts.append(signed_bytes(last.size_bytes - before.size_bytes))
    return f"{since}: {', '.join(parts)}."


def traits(snapshot: Snapshot) -> list[str]:
    """The properties that whoever reads or writes the table has to know, in a few words each."""
    metadata = snapshot.metadata
    names = [f"partitioned by {', '.join(metadata.partition_columns)}"] * bool(metadata.partition_columns)
    names += ["clustered"] * ("delta.clustering" in snapshot.domains)
    names += [words for key, words in _SWITCHES.items() if is_on(metadata.configuration, key)]
    names += [
        words.format(value.removeprefix("interval "))
        for key, words in _VALUES.items()
        if (value := metadata.configuration.get(key))
    ]
    checks = len(constraints(metadata))
    return names + [things(checks, "check constraint")] * bool(checks)


_SWITCHES = {
    "delta.enableChangeDataFeed": "change feed",
    "delta.enableDeletionVectors": "deletion vectors",
    "delta.appendOnly": "append only",
    "delta.enableRowTracking": "row tracking",
    "delta.enableTypeWidening": "type widening",
    "delta.enableInCommitTimestamps": "in-commit timestamps",
}
_VALUES = {
    "delta.columnMapping.mode": "column mapping: {}",
    "delta.deletedFileRetentionDuration": "removed files kept: {}",
    "delta.logRetentionDuration": "log kept: {}",
    "delta.targetFileSize": "target file size: {}",
}


def facts(snapshot: Snapshot) -> dict[str, str]:
    """What the log says of the table itself, for a two-column list."""
    metadata, protocol, is_counted = snapshot.metadata, snapshot.protocol, snapshot.num_rows is not None
    return {
        "Partitioned by": ", ".join(metadata.partition_columns) or "not partitioned",
        "Protocol": f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}",
        "Table features": ", ".join(protocol.features) or "none",
        "Table id": metadata.id,
        "Rows known from": "statistics of every file" if is_counted else "not known: files lack statistics",
    }


# what is expected of it -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExpectationLine:
    """One expectation: its state, what is expected, what was found, when that was, and since when it is broken.
    `of_person`: one that may be taken back."""

    state: Standing
    expected: str
    found: str
    when: str
    since: datetime | None = None
    of_person: TableExpectation | None = None


def expectation_lines(
    judgements: Sequence[Judgement], silent: Sequence[Judgement], now: datetime
) -> list[ExpectationLine]:
    """Broken ones first."""
    order = list(Standing)
    return sorted(
        (_expectation_line(each, silent, now) for each in judgements), key=lambda line: order.index(line.state)
    )


def _expectation_line(judgement: Judgement, silent: Sequence[Judgement], now: datetime) -> ExpectationLine:
    when, found, is_silent = judged_text(judgement, now), found_text(judgement, now), judgement in silent
    since = judgement.broken_since if judgement.state is State.BROKEN and not is_silent else None
    if since:
        when = f"broken for {duration_text((now - since).total_seconds())} · {when}"
    if is_silent and judgement.state is not State.UNKNOWN:
        was = "OK" if judgement.state is State.MET else judgement.state
        found = f"it was {was}: {found}"
    expected = judgement.expectation
    if expected.by:
        when += f" · expected by {expected.by}: {expected.why}"
    of_person = expected if expected.by else None
    return ExpectationLine(standing(judgement, silent), expected_text(expected), found, when, since, of_person)


def expectations_sentence(expectation_lines: Sequence[ExpectationLine]) -> str:
    """ "3 table expectations: 1 broken, 2 OK"."""
    counts = Counter(line.state for line in expectation_lines)
    parts = [f"{counts[state]} {state}" for state in Standing if counts[state]]
    return f"{things(len(expectation_lines), 'table expectation')}: {', '.join(parts)}"


def away_sentence(silent: Sequence[Judgement], now: datetime) -> str:
    """Since when nobody judges; empty where somebody does."""
    if not silent:
        return ""
    last = max(stream.judged_at for stream in silent)
    away = duration_text((now - last).total_seconds())
    return f"Not judged for {away}: the host that did is away. `weir host` starts one."


# its schema -----------------------------------------------------------------------------------------------------------


MOST_TYPE = 200  # characters of a type
INDENT = "\u2003"  # an em space: a list would strip plain ones


def matching_columns(columns: Sequence[SchemaColumn], words: str) -> list[SchemaColumn]:
    """Columns whose path, type or comment holds every word, each with those it lies in."""
    wanted = words.lower().split()
    if not wanted:
        return list(columns)
    paths = {c.path for c in columns if all(word in f"{c.path} {c.type} {c.comment or ''}".lower() for word in wanted)}
    around = {path[:place] for path in paths for place, letter in enumerate(path) if letter == "."}
    return [c for c in columns if c.path in paths or c.path in around]


def schema_sentence(columns: Sequence[SchemaColumn]) -> str:
    """ "12 columns (3 not null), 4 fields inside, partitioned by day, country"."""
    top = [column for column in columns if column.depth == 0]
    required = sum(not column.nullable for column in top)
    keys = [column.path for column in top if column.is_partition]
    text = things(len(top), "column") + (f" ({count_text(required)} not null)" if required else "")
    inside = len(columns) - len(top)
    if inside:
        text += f", {things(inside, 'field')} inside"
    return f"{text}, partitioned by {', '.join(keys)}" if keys else f"{text}, not partitioned"


def shown_sentence(shown: int, start: int, matching_lines: int, total: int) -> str:
    """What part of the schema is listed, nested fields counted too; empty when it is all of it."""
    if shown == total:
        return ""
    lines = f"Lines {start + 1:,}–{start + shown:,} of {count_text(matching_lines)}" if shown < matching_lines else ""
    if matching_lines == total:
        return f"{lines}."
    of = count_text(total)
    return f"{lines} that match, of {of}." if lines else f"{matching_lines:,} of {of} lines match."


def schema_columns(totals: Mapping[str, ColumnTotals]) -> list[Column[SchemaColumn]]:
    """Nested fields are indented under their parent; traits that no column has are left out. `totals`: statistics of
    the columns that have some."""

    def of_statistics(text: Callable[[ColumnTotals], str]) -> Callable[[SchemaColumn], str]:
        return lambda column: text(totals[column.path]) if column.path in totals else ""

    def type_text(column: SchemaColumn) -> str:  # what is inside a struct stands below it
        return column.kind if column.kind == "struct" else cut(column.declared_type, MOST_TYPE)

    def null_share(known: ColumnTotals) -> str:  # deleted rows count: it may be higher among those left
        return f"{'≈ ' if known.nulls and not known.is_tight else ''}{percent(known.null_share)}"

    return [
        Column("Column", lambda column: INDENT * 2 * column.depth + column.name),
        Column("Type", type_text),
        Column("Nullable", lambda column: column.nullable, "yes", width=76, key="nullable"),
        Column("Partition", lambda column: "partition key" if column.is_partition else "", is_optional=True),
        Column("Min", of_statistics(lambda known: f"{known.lowest_sign} {figure_text(known.lowest)}".lstrip()),
                   width=186, is_optional=not totals),  # "≥ 2026-11-26 22:45:42.123 UTC"
        Column("Max", of_statistics(lambda known: f"{known.highest_sign} {figure_text(known.highest)}".lstrip()),
                   width=186, is_optional=not totals),
        Column("Null share", of_statistics(null_share), "figure", width=86, is_optional=not totals,
                   help="Of the rows in those files; ≈: rows were deleted since."),
        Column("Known for", of_statistics(_known_text), is_optional=True,
                   help="For how many data files the log says it; empty: for all."),
        Column("Comment", lambda column: column.comment or "", is_optional=True),
        Column("Default", lambda column: column.default or "", is_optional=True),
        Column("Generated as", lambda column: column.generated_as or "", is_optional=True),
        Column("Identity", lambda column: identity_text(column.identity), is_optional=True,
                   help="Numbers that the table assigns by itself."),
        Column("Widened", lambda column: "; ".join(map(type_change_text, column.widened)), is_optional=True,
                   help="How the type was widened without rewriting files."),
        Column("Id", lambda column: "" if column.field_id is None else column.field_id, is_optional=True,
                   help="Column mapping: what stays when a column is renamed."),
        Column("Name in files", lambda column: column.physical_name or "", is_optional=True,
                   help="Column mapping: the name in the data files."),
    ]  # fmt: skip


CONSTRAINTS: Columns[Constraint] = (
    Column("Constraint", lambda constraint: constraint.name, key="name"),
    Column("Every row satisfies", lambda constraint: constraint.expression, key="expression"),
)


def statistics_sentence(totals: Iterable[ColumnTotals]) -> str:
    """What the statistics shown are of, and what their signs mean."""
    totals = list(totals)
    if not totals:
        return "None of these columns has statistics."
    files = totals[0].files
    text = f"From the statistics of {things(files, 'file')}; no data was read."
    if any(column.lowest_sign or column.highest_sign for column in totals):
        text += " ≥, ≤ and ≈ are bounds: values are cut, rows were deleted, NaN is left out, or files do not say."
    known = (each.files_with_nulls if each.kind is StatKind.OTHER else each.files_with_bounds for each in totals)
    if any(0 < known_for < files for known_for in known):
        text += " Where not all files say, the true bounds may lie beyond."
    return text


def identity_text(identity: Identity | None) -> str:
    """ "from 1 by 1, last 4711"."""
    if identity is None:
        return ""
    last = "none given yet" if identity.high_water_mark is None else f"last {identity.high_water_mark}"
    given = ", values may be given" if identity.allows_explicit else ""
    return f"from {identity.start} by {identity.step}, {last}{given}"


def type_change_text(change: TypeChange) -> str:
    """ "int → bigint at v7"."""
    inside = f"{change.inside}: " if change.inside else ""
    at = "" if change.version is None else f" at v{change.version}"
    return f"{inside}{change.before} → {change.after}{at}"


def _known_text(totals: ColumnTotals) -> str:
    files, bounds, nulls = totals.files, totals.files_with_bounds, totals.files_with_nulls
    if totals.kind is StatKind.OTHER:
        bounds = nulls
    if bounds == nulls:
        return "" if bounds == files else f"{bounds:,} of {things(files, 'file')}"
    return f"bounds {bounds:,}, nulls {nulls:,} of {things(files, 'file')}"
