"""A difference of two versions as Markdown, for the incident channel.

Rule: pure, and free of pandas. Every text of a table, a writer or a log is escaped, so that nothing in it becomes a
link, a mention, a table or a heading.
"""

import re
from collections.abc import Iterable, Mapping

from app.changes.text import (
    METHOD_WORDS,
    exactness_text,
    gross_source_text,
    headline,
    key_text,
)
from app.ui.view.commits import writer_text
from app.ui.view.explanation import explained
from backend.changes.model import CommitChanges, DiffMethod, VersionDiff
from backend.format import count_text, cut, utc_text
from backend.lake.history.history import predicate_text

MOST_COMMITS = 20
MOST_LINES = 20
MOST_TEXT = 120
_MARKUP = re.compile(r"[\\`*\[\]<>|~@#&$]|(?<![^\W_])_|_(?![^\W_])|(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE)
_BREAKS = str.maketrans(dict.fromkeys("\r\n\t\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", " "))


def to_markdown(diff: VersionDiff, *, is_pending: bool = False, streams: Mapping[str, str] | None = None) -> str:
    """The sentence, counts, at most 20 commits, metadata changes and the method. `is_pending`: rows are not compared
    yet. `streams` names the stream of a query id."""
    parts = [
        f"**{escaped(diff.question.ref.name)}** · {escaped(headline(diff, is_pending=is_pending))}",
        *_rows(diff, is_pending=is_pending),
        *_explanation(diff),
        *_commits(diff, streams or {}),
        *_metadata(diff),
        *_method(diff, is_pending=is_pending),
    ]
    return "\n".join(parts) + "\n"


def escaped(text: object) -> str:
    """Anybody's text as Markdown that shows it literally, in one line."""
    plain = str(text).translate(_BREAKS)
    plain = "".join(character for character in plain if character.isprintable())
    return _MARKUP.sub(r"\\\g<0>", plain)


def _rows(diff: VersionDiff, *, is_pending: bool) -> list[str]:
    if is_pending or not diff.is_available or diff.method is DiffMethod.SAME_VERSION:
        return []
    net = diff.changes.net
    named = (("inserted", net.inserted), ("updated", net.updated), ("deleted", net.deleted), ("same", diff.unchanged))
    cells = " | ".join("unknown" if count is None else count_text(count) for _, count in named)
    return [
        "",
        f"| net rows | {' | '.join(name for name, _ in named)} |",
        "|---|---:|---:|---:|---:|",
        f"| | {cells} |",
    ]


def _explanation(diff: VersionDiff) -> list[str]:
    said = [f"- {_line(line)}" for line in explained(diff.explanation)]
    return ["", "What stands out:", "", *said] if said else []


def _commits(diff: VersionDiff, streams: Mapping[str, str]) -> list[str]:
    if not diff.commits:
        return []
    newest = sorted(diff.commits, key=lambda each: -each.commit.version)
    left = len(newest) - MOST_COMMITS
    return [
        "",
        f"Commits, newest first; rows are gross, {gross_source_text(diff.commits)}:",
        "",
        "| version | at | operation | by | condition | inserted | updated | deleted |",
        "|---|---|---|---|---|---:|---:|---:|",
        *(_commit(each, streams) for each in newest[:MOST_COMMITS]),
        *([f"\n… and {left:,} older commits."] if left > 0 else []),
    ]


def _commit(each: CommitChanges, streams: Mapping[str, str]) -> str:
    commit = each.commit
    counts = (each.inserted, each.updated, each.deleted)
    texts = (commit.operation or "unnamed", writer_text(commit, streams), predicate_text(commit) or "–")
    cells = [f"v{commit.version}", utc_text(commit.committed_at), *(escaped(cut(text, MOST_TEXT)) for text in texts)]
    return f"| {' | '.join([*cells, *(count_text(count) for count in counts)])} |"


def _metadata(diff: VersionDiff) -> list[str]:
    schema = diff.log.schema
    lines = [
        *(f"column {_code(field.path)} added, {escaped(cut(field.kind, MOST_TEXT))}" for field in schema.added),
        *(f"column {_code(field.path)} dropped" for field in schema.dropped),
        *(f"column {_code(before)} renamed to {_code(after)}" for before, after in schema.renamed),
        *(f"{each.what} of {_code(each.path)}: {_from_to(each.before, each.after)}" for each in schema.changed),
        *([f"partitioning: {_from_to(*map(_names, schema.partitioning))}"] if schema.partitioning else []),
        *(f"{_code(each.key)}: {_from_to(each.before, each.after)}" for each in diff.log.properties),
    ]
    if not lines:
        return []
    left = len(lines) - MOST_LINES
    more = [f"- … and {left:,} more"] if left > 0 else []
    return ["", "Schema, properties and protocol:", "", *(f"- {line}" for line in lines[:MOST_LINES]), *more]


def _method(diff: VersionDiff, *, is_pending: bool) -> list[str]:
    known = [] if is_pending else [exactness_text(diff), escaped(key_text(diff))]
    reasons = [_line(cut(reason, 300)) for reason in diff.reasons]
    return ["", f"How it knows: {METHOD_WORDS[diff.method]}", "", *(f"- {line}" for line in (*known, *reasons))]


def _from_to(before: str | None, after: str | None) -> str:
    return " → ".join("none" if text is None else escaped(cut(text, MOST_TEXT)) for text in (before, after))


def _names(columns: Iterable[str]) -> str:
    return ", ".join(columns) or "none"


def _line(text: str) -> str:
    """A sentence of Weir's, whose names stand between backticks."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one of the names has a backtick itself
        return escaped(text)
    return "".join(_code(part) if index % 2 and part.strip() else escaped(part) for index, part in enumerate(parts))


def _code(text: str) -> str:
    """A name of the table's; bold, because code spans cannot be escaped."""
    return f"**{escaped(cut(text, MOST_TEXT))}**"
