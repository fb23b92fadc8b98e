"""The words of a comparison, for page and terminal: what it found, what it takes, how far it is, how it knows; and
all of it as Markdown for the incident channel.

Rule: pure, and free of pandas, which the terminal does without. Net counts are of states, gross counts of commits; what
is not known is said to be unknown. In Markdown every text of a table, a writer or a log is escaped, so that nothing in
it becomes a link, a mention, a table or a heading.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from operator import itemgetter

from app.columns import Column, Columns, shown
from app.ui.view.commits import writer_text
from app.ui.view.explanation import counts_text, stands_out
from app.ui.view.theme import operation_text
from backend.changes.cache import DiffProgress, LogPart
from backend.changes.model import CommitChanges, DiffMethod, LogChanges, RowChange, VersionDiff
from backend.format import (
    age_s,
    bytes_text,
    count_text,
    cut,
    duration_text,
    percent,
    signed,
    things,
)
from backend.lake.history.history import predicate_text
from backend.lake.table.metadata_diff import CLUSTERED_BY
from backend.search.key_history import KeyStep

METHOD_WORDS = {
    DiffMethod.CHANGE_FEED: "Change data feed: the writers recorded each changed row.",
    DiffMethod.SAME_VERSION: "Both sides are the same version: there is nothing to compare.",
    DiffMethod.ROW_ID: "Row ids: the rows of the files that differ, paired by the ids that row tracking gave them.",
    DiffMethod.KEY_JOIN: "Join by key: the rows of the files that differ, paired by their key.",
    DiffMethod.MULTISET: "Whole rows: those of the files that differ, without a key to pair them by.",
    DiffMethod.LOG_ONLY: "Log alone: rows cannot be compared here; files, commits, schema and properties can.",
}
_BREAKS = "NOT ("


def headline(diff: VersionDiff, *, is_pending: bool = False) -> str:
    """One sentence: "v118 → v131, 13 commits in 2 h 10 min: 1,204 rows inserted, …; schema unchanged; …".

    `is_pending`: rows are not compared yet.
    """
    if diff.method is DiffMethod.SAME_VERSION:
        return f"v{diff.question.from_version} and v{diff.question.to_version} are the same version: nothing differs."
    rows = rows_text(diff, is_pending=is_pending)
    if diff.question.where and not is_pending and diff.is_available:
        rows = f"of {filter_text(diff.question.where)}: {rows}"
    metadata = metadata_texts(diff.log)
    if diff.question.against is not None:  # two tables differ, nothing changed
        metadata = [text.replace("unchanged", "the same").replace("changed", "different") for text in metadata]
    changes = "; ".join(part for part in (rows, *metadata, rewritten_text(diff)) if part)
    return f"{range_text(diff)}: {changes}."


def filter_text(where: str) -> str:
    """The filter on rows in words: "rows that break amount >= 0" for what First bad version asks."""
    rule = where[len(_BREAKS) : -1] if where.startswith(_BREAKS) and where.endswith(")") else ""
    is_whole = min(accumulate((sign == "(") - (sign == ")") for sign in rule), default=-1) >= 0
    return f"rows that break {rule}" if is_whole else f"rows with {where}"


def range_text(diff: VersionDiff) -> str:
    """The two versions, how many commits lie between them and over which time."""
    question = diff.question
    if question.against is not None:
        return f"{question.ref.name} v{question.from_version} → {question.against.name} v{question.to_version}"
    commits = things(len(diff.commits), "commit")
    times = [each.commit.committed_at for each in diff.commits if each.commit.committed_at]
    span = f" in {duration_text((max(times) - min(times)).total_seconds())}" if len(times) > 1 else ""
    if diff.is_reverse:
        return f"Going back from v{question.from_version} to v{question.to_version} undoes {commits}{span}"
    return f"v{question.from_version} → v{question.to_version}, {commits}{span}"


def rows_text(diff: VersionDiff, *, is_pending: bool = False) -> str:
    """What differs in rows, with its share of all rows."""
    net, more = diff.changes.net, diff.log.files.more_rows
    if is_pending or not diff.is_available:
        rows = "rows not compared yet" if is_pending else "rows cannot be compared"
        return f"{rows}, their number by statistics: {'unknown' if more is None else signed(more)}"
    words = "no row differs" if net.total == 0 else counts_text(net, noun="row")
    if net.total == 0 or net.updated is None:
        # Without a key a filter may let through one side of an update alone.
        may_be_updates = diff.question.where and net.total and any(each.updated != 0 for each in diff.commits)
        return (
            f"{words}, updates perhaps among them" if may_be_updates and not (net.inserted and net.deleted) else words
        )
    share = changed_share(diff)
    if share is None:
        return words if diff.question.where else f"{words} (share unknown)"
    return f"{words} ({percent(share)} of rows)"


def changed_share(diff: VersionDiff) -> float | None:
    """Changed rows of all rows that either state has; None where updates or row counts are not known."""
    same, changed = diff.unchanged, diff.changes.net.total
    if same is None or changed is None or same < 0 or not same + changed:
        return None
    return changed / (same + changed)


def gross_source_text(commits: Iterable[CommitChanges]) -> str:
    """Where the counts of commits are from."""
    kinds = {each.is_reported for each in commits}
    if kinds == {True}:
        return "as their writers report"
    return "counted in the change feed" if kinds == {False} else "counted in the change feed or as their writers report"


def metadata_texts(log: LogChanges) -> list[str]:
    """What changed of schema, properties and protocol: "2 columns added, 1 renamed, partitioning changed", "1 property
    changed"; "unchanged" is said too."""
    schema, kinds = log.schema, Counter(change[0] for change in metadata_changes(log))
    changed = {each.path for each in schema.changed}
    counts = {"added": schema.added, "dropped": schema.dropped, "renamed": schema.renamed, "changed": changed}
    columns = [f"{count_text(len(fields))} {word}" for word, fields in counts.items() if fields]
    if columns:
        count, word = next((len(fields), word) for word, fields in counts.items() if fields)
        columns[0] = f"{things(count, 'column')} {word}"
    columns += ["partitioning changed"] if schema.partitioning else []
    own = kinds["property changed"]
    return [
        ", ".join(columns) or ("schema unchanged" if own else "schema and properties unchanged"),
        *([f"{things(own, 'property', 'properties')} changed"] if own else []),
        *(kind for kind in ("clustering changed", "protocol changed") if kinds[kind]),
    ]


def metadata_changes(log: LogChanges) -> list[tuple[str, str, str | None, str | None]]:
    """What differs of schema, properties and protocol, of what, as it was and as it is: ("type changed", "amount",
    "int", "long"); None: nothing was or is there."""
    schema = log.schema
    before, after = (", ".join(columns) or "none" for columns in schema.partitioning or ((), ()))
    kinds = {CLUSTERED_BY: "clustering changed", "feature": "protocol changed", "protocol": "protocol changed"}
    return [
        *(("column added", field.path, None, field.kind) for field in schema.added),
        *(("column dropped", field.path, field.kind, None) for field in schema.dropped),
        *(("column renamed", after, before, after) for before, after in schema.renamed),
        *((f"{each.what} changed", each.path, each.before, each.after) for each in schema.changed),
        *([("partitioning changed", "", before, after)] if schema.partitioning else []),
        *(
            (kinds.get(each.key.partition(": ")[0], "property changed"), each.key, each.before, each.after)
            for each in log.properties
        ),
    ]


METADATA_CHANGES: Columns[tuple[str, str, str | None, str | None]] = (
    Column("What", itemgetter(0)),
    Column("Name", lambda change: change[1] or None),
    Column("Before", lambda change: change[2] or None),
    Column("After", lambda change: change[3] or None),
)


def rewrites(diff: VersionDiff) -> list[CommitChanges]:
    """The commits that replaced files without changing a row."""
    return [each for each in diff.commits if each.commit.version in (diff.log.rewritten or {})]


def rewritten_text(diff: VersionDiff) -> str:
    """ "compaction rewrote 40 files without changing rows"; empty where nothing was only rewritten."""
    if not diff.log.rewritten:
        return ""
    files = things(sum(diff.log.rewritten.values()), "file")
    if all((each.commit.operation or "").upper().startswith(("OPTIMIZE", "REORG")) for each in rewrites(diff)):
        return f"compaction rewrote {files} without changing rows"
    return f"{files} rewritten without changing rows"


def exactness_text(diff: VersionDiff) -> str:
    """How far the counts can be trusted."""
    net = diff.changes.net
    if not diff.is_available:
        return "No counts of rows."
    if diff.exact and diff.key is None and (net.updated or (net.inserted and net.deleted)):
        return "Exact: every changed row is counted. Without a key a row with new values is one deleted, one inserted."
    if diff.exact:
        return "Exact: every changed row is counted, and updates are told from inserts and deletes."
    if net.updated is None:
        return "Exact as rows that came and went; an updated row counts once as deleted and once as inserted."
    return "Not exact in every part; the reasons say where."


def key_text(diff: VersionDiff) -> str:
    """How rows of the two versions are paired."""
    if diff.key is None:
        return "No key is known: rows are compared as whole rows. A key, under How to compare, pairs them."
    return f"Rows are paired by {', '.join(diff.key.columns)} (from {diff.key.source.value})."


# what comparing rows takes, and how far it is ----------------------------------------------------------------------


def reads_text(part: LogPart) -> str:
    """What comparing rows reads: "38.2 MB of data files"."""
    if part.plan.method is DiffMethod.CHANGE_FEED:
        return f"the change feed of {things(len(part.outline.commits), 'commit')}"
    size = part.plan.bytes_to_read
    return "only the log" if size is None else f"{bytes_text(size)} of data files"


def progress_text(step: DiffProgress) -> tuple[float, str]:
    """How far a comparison is: share done, and words: "1.2 M of 4.8 M rows read · 12 s"."""
    took = duration_text(step.elapsed_s if step.elapsed_s < 10 else round(step.elapsed_s))
    if step.is_waiting:
        return 0.0, f"Waiting for other comparisons to end · {took}"
    if not step.rows_read:
        return 0.0, f"Opening files · {took}"
    if step.rows_total is None:
        return 0.0, f"{things(step.rows_read, 'row')} read · {took}"
    share = step.rows_read / step.rows_total if step.rows_total else 1.0
    return share, f"{count_text(step.rows_read)} of {count_text(step.rows_total)} rows read · {took}"


# the rows listed ----------------------------------------------------------------------------------------------------


def shown_text(diff: VersionDiff, listed: Sequence[RowChange]) -> str:
    """How many rows are listed of how many there are, and what the marks mean."""
    fetched = len(diff.changes.rows)
    parts = [f"{count_text(len(listed))} of {count_text(fetched)} rows listed" if len(listed) < fetched else ""]
    if diff.changes.truncated:
        changed = things(diff.changes.net.total, "changed row")
        parts.append(f"{count_text(fetched)} were fetched of {changed}; the counts above are whole")
    if any(row.changed for row in listed):
        parts.append("● marks a changed cell")
    if diff.question.against is None and any(row.key is not None and row.set_apart is None for row in listed):
        parts.append("click a row for the history of its key")
    caption = " · ".join(part for part in parts if part) or f"{things(fetched, 'row')} listed"
    return caption[0].upper() + caption[1:]


def repeated_texts(steps: Sequence[KeyStep]) -> list[str]:
    """Of one key: "v61: a second row with this key", "v64: one row with this key again"."""
    counts = {step.version: step.rows for step in steps if step.rows is not None}
    return [f"v{version}: {_repeated(*rows)}" for version, rows in sorted(counts.items()) if _repeated(*rows)]


def _repeated(before: int, after: int) -> str:
    if before == after or max(before, after) < 2:
        return ""
    if (before, after) == (1, 2):
        return "a second row with this key"
    return "one row with this key again" if after == 1 else f"{things(after, 'row')} with this key, {before:,} before"


def file_stem(diff: VersionDiff) -> str:
    """The name of a file that is downloaded, without its suffix."""
    return f"{diff.question.ref.name.replace('/', '_')}_v{diff.question.from_version}_v{diff.question.to_version}"


# as Markdown ----------------------------------------------------------------------------------------------------------


MOST_COMMITS = 20
MOST_LINES = 20
MOST_TEXT = 120
_MARKUP = re.compile(r"[\\`*\[\]<>|~@#&$]|(?<![^\W_])_|_(?![^\W_])|(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE)
_LINE_BREAKS = str.maketrans(dict.fromkeys("\r\n\t\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", " "))


def to_markdown(diff: VersionDiff, *, is_pending: bool = False, streams: Mapping[str, str] | None = None) -> str:
    """The sentences, at most 20 commits, metadata changes and the method. `is_pending`: rows are not compared yet.
    `streams` names the stream of a query id."""
    known = [] if is_pending else [exactness_text(diff), key_text(diff)]
    same = [] if is_pending or diff.unchanged is None else ["", f"{things(diff.unchanged, 'row')} stayed the same."]
    finding = [_escaped_line(line) for line in stands_out(diff.explanation)]
    parts = [
        f"**{escaped(diff.question.ref.name)}** · {escaped(headline(diff, is_pending=is_pending))}",
        *(["", *(f"- {line}" for line in finding)] if finding else []),
        *same,
        *_commit_lines(diff, streams or {}),
        *_metadata_lines(diff.log),
        *("", f"How it knows: {METHOD_WORDS[diff.method]}", ""),
        *(f"- {_escaped_line(cut(reason, 300))}" for reason in (*known, *diff.reasons)),
    ]
    return "\n".join(parts) + "\n"


def escaped(text: object) -> str:
    """Anybody's text as Markdown that shows it literally, in one line."""
    plain = str(text).translate(_LINE_BREAKS)
    plain = "".join(character for character in plain if character.isprintable())
    return _MARKUP.sub(r"\\\g<0>", plain)


def _commit_lines(diff: VersionDiff, streams: Mapping[str, str]) -> list[str]:
    if not diff.commits:
        return []
    newest = sorted(diff.commits, key=lambda each: -each.commit.version)
    columns = shown(commit_columns(None, streams), newest, "page")
    head = [column.name for column in columns], ["---:" if column.is_right else "---" for column in columns]
    cells = [[escaped(cut(column.text(each), MOST_TEXT)) for column in columns] for each in newest[:MOST_COMMITS]]
    left = len(newest) - MOST_COMMITS
    return [
        "",
        f"Commits, newest first; rows are gross, {gross_source_text(diff.commits)}:",
        "",
        *(f"| {' | '.join(row)} |" for row in (*head, *cells)),
        *([f"\n… and {left:,} older commits."] if left > 0 else []),
    ]


def _metadata_lines(log: LogChanges) -> list[str]:
    lines = [
        f"{what} {_bold(name) if name else ''}: "
        + " → ".join("none" if side is None else escaped(cut(side, MOST_TEXT)) for side in (before, after))
        for what, name, before, after in metadata_changes(log)
    ]
    left = len(lines) - MOST_LINES
    more = [f"- … and {left:,} more"] if left > 0 else []
    listed = [f"- {line}" for line in lines[:MOST_LINES]]
    return ["", "Schema, properties and protocol:", "", *listed, *more] if lines else []


def _escaped_line(text: str) -> str:
    """A sentence of Weir's, whose names stand between backticks."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one of the names has a backtick itself
        return escaped(text)
    return "".join(_bold(part) if index % 2 and part.strip() else escaped(part) for index, part in enumerate(parts))


def _bold(text: str) -> str:
    """A name of the table's; bold, because code spans cannot be escaped."""
    return f"**{escaped(cut(text, MOST_TEXT))}**"


# the commits in between ------------------------------------------------------------------------------------------


def commit_columns(now: datetime | None, streams: Mapping[str, str]) -> list[Column[CommitChanges]]:
    """What each did to rows (gross) and files. `streams` names the stream of a query id; `now`: how long ago, too."""
    gross = "Gross: by this commit alone"
    return [
        Column("Version", lambda each: each.commit.version, "version", key="version"),
        *([Column("When", lambda each: age_s(each.commit.committed_at, now), "ago", on="page")] if now else []),
        Column("Operation", lambda each: operation_text(each.commit.operation)),
        Column("By", lambda each: cut(writer_text(each.commit, streams))),
        Column("Job", lambda each: cut(each.commit.job or ""), is_optional=True),
        Column("Condition", lambda each: cut(predicate_text(each.commit)) or None, on="page"),
        Column("Inserted", lambda each: each.inserted, "count", gross),
        Column("Updated", lambda each: each.updated, "count", gross),
        Column("Deleted", lambda each: each.deleted, "count", gross),
        Column("Files added", lambda each: each.commit.metrics.files_added, "count"),
        Column("Files removed", lambda each: each.commit.metrics.files_removed, "count"),
        Column("At", lambda each: each.commit.committed_at, "moment"),
    ]
