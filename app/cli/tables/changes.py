"""`weir diff`: what changed between two versions.

Rule: counts are told in words that hold. The exit code is 0 when nothing differs, 10 when something does, 1 when rows
cannot be compared and nothing else tells.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import typer

from app import services
from app.changes.view.sentence import rewritten_text
from app.changes.view.summary import to_markdown
from app.cli import leave_at_once
from app.cli.output import cell, fail, print_json, print_table, say
from app.cli.tables import documents
from app.cli.tables.diff_here import compared as compared_here
from app.cli.tables.export import write_file
from app.cli.tables.lake import opened
from app.ui.view.explanation import explained
from backend.changes.answer import diff as compare
from backend.changes.export import ChangedBatches, fetched, file_of
from backend.changes.key import key_memory, parse_names
from backend.changes.model import DiffMethod, Question, RowChange, RowKind, VersionDiff
from backend.changes.prepare import prepare
from backend.changes.versions import resolve_version
from backend.format import bytes_text, count_text, things, utc_text
from backend.sql.export import FORMATS
from backend.sql.session import CancelToken

CHANGED = 10  # the exit code when anything differs
SHOWN = 20  # rows on a terminal
_SIGNS = {RowKind.INSERT: "+", RowKind.UPDATE: "~", RowKind.DELETE: "−"}


@dataclass(frozen=True, slots=True)
class Request:
    """`weir diff` as typed."""

    table: str
    from_version: str
    to_version: str
    key: str | None = None
    columns: str | None = None
    method: str | None = None
    where: str | None = None
    tolerance: float = 0.0
    against: str | None = None
    rows: int | None = None
    output: Path | None = None
    on_host: bool = False


def diff(request: Request, *, as_json: bool) -> int:
    output = None if request.output is None else _Output(request.output)
    holds_few = request.rows is not None or request.on_host
    found = _compared(request, None if output is None or holds_few else output.take)
    if output is not None:
        output.finish(found)
    if as_json:
        print_json(documents.diff(found))
    else:
        shown = SHOWN if request.rows is None else request.rows
        _print(found, shown)
        if output is not None:
            say(output.words(found), style="dim")
        elif shown and (found.truncated or len(found.rows) > shown):
            written = "" if request.on_host else ", --output FILE writes all of them"
            say(f"More rows changed: --rows N shows them{written}.", style="dim")
    if found.is_changed:
        return CHANGED
    if found.is_changed is None:
        what = "no change was found so far" if found.partial else "rows cannot be compared"
        return fail(f"{what}: {'; '.join(found.reasons)}", found.hint)
    return 0


def _compared(request: Request, take: Callable[[ChangedBatches], None] | None) -> VersionDiff:
    settings = services.settings()
    lake, ref = opened(request.table)
    other = opened(request.against)[1] if request.against else None
    keys = key_memory(settings.home)
    question = Question(
        ref,
        resolve_version(lake, ref, request.from_version),
        resolve_version(lake, other or ref, request.to_version),
        key=parse_names(request.key) if request.key else None,
        remembered_key=None if request.key else keys.known(ref),
        columns=parse_names(request.columns) if request.columns else None,
        row_limit=settings.lake.diff_rows if request.rows is None else request.rows,
        method=DiffMethod(request.method) if request.method else None,
        max_bytes=settings.lake.diff_max_bytes,
        tolerance=request.tolerance,
        against=other,
        where=request.where,
        on_host=request.on_host,
    )
    if request.on_host:
        from app.cli.tables.diff_on_host import compared

        return compared(prepare(lake, question), settings)
    token = CancelToken(settings.lake.diff_time_limit_s)
    try:
        found = compared_here(lambda token: compare(lake, question, token, take=take), token)
    except KeyboardInterrupt:
        leave_at_once()
    keys.learn(found)
    return found


class _Output:
    """The file of `--output`: whole or not there. A format that is none is refused before anything is computed."""

    def __init__(self, path: Path) -> None:
        self._path, self._form = path, path.suffix.lower().removeprefix(".")
        self._rows: int | None = None
        if self._form not in (*FORMATS, "md"):
            endings = ", ".join((*FORMATS, "md"))
            raise typer.BadParameter(f"{path.name} has an ending other than {endings}", param_hint="--output")

    def take(self, changed: ChangedBatches) -> None:
        """Writes changed rows, in place of any that were written before; a summary needs none."""
        if self._form == "md":
            return
        self._rows = write_file(self._path, file_of(changed, FORMATS[self._form]))

    def finish(self, found: VersionDiff) -> None:
        """The summary, or the rows that were fetched where nobody gave all of them."""
        if self._form == "md":
            write_file(self._path, iter([(0, to_markdown(found).encode())]))
        elif self._rows is None and found.is_available:
            self.take(fetched(found))

    def words(self, found: VersionDiff) -> str:
        """What was written."""
        if self._form != "md" and self._rows is None:
            return f"{self._path}: not written, rows cannot be compared"
        if self._rows is None:
            return f"{self._path}: the summary"
        cut = " of more" if found.truncated and self._rows == len(found.rows) else ""
        return f"{self._path}: {things(self._rows, 'changed row')}{cut}"


def _print(found: VersionDiff, shown: int) -> None:
    commits = things(len(found.commits), "commit")
    say(f"{found.ref.name} · v{found.from_version} → v{found.to_version} · {commits}", style="bold")
    if found.is_available:
        say(net_words(found))
    for line in explained(found.explanation):
        say(f"  {line}")
    for reason in found.reasons:
        say(f"  {reason}", style="dim")
    files = found.files
    say(
        f"files: {count_text(files.added)} added ({bytes_text(files.bytes_added)}), "
        f"{count_text(files.removed)} removed ({bytes_text(files.bytes_removed)})"
    )
    if rewritten := rewritten_text(found):
        say(rewritten)
    _print_metadata(found)
    if found.commits:
        say()
        _print_commits(found)
    if found.rows and shown:
        say()
        _print_rows(found, shown)


def net_words(found: VersionDiff) -> str:
    """The net counts in one line; without a key the pairs are named as such."""
    net = found.net
    words = f"net{' so far' if found.partial else ''}: {things(net.inserted, 'row')} inserted, "
    words += "updates unknown, " if net.updated is None else f"{count_text(net.updated)} updated, "
    words += f"{count_text(net.deleted)} deleted"
    return words if found.exact else f"{words} (not exact, see below)"


def _print_metadata(found: VersionDiff) -> None:
    schema = found.schema
    for sign, fields in (("+", schema.added), ("−", schema.dropped)):
        for field in fields:
            say(f"schema: {sign} {field.path} {field.type}")
    for before, after in schema.renamed:
        say(f"schema: {before} renamed to {after}")
    for change in schema.changed:
        say(f"schema: {change.path}: {change.what} {change.before or 'none'} → {change.after or 'none'}")
    for prop in found.properties:
        say(f"property: {prop.key}: {prop.before or 'unset'} → {prop.after or 'unset'}")


def _print_commits(found: VersionDiff) -> None:
    print_table(
        ("version", "when", "operation", "inserted", "updated", "deleted", "who"),
        (
            (
                f"v{c.commit.version}",
                utc_text(c.commit.committed_at),
                c.commit.operation or "–",
                count_text(c.inserted),
                count_text(c.updated),
                count_text(c.deleted),
                (c.commit.origin.stream if c.commit.origin and c.commit.origin.stream else c.commit.user) or "–",
            )
            for c in found.commits
        ),
        right=("version", "inserted", "updated", "deleted"),
    )


def _print_rows(found: VersionDiff, shown: int) -> None:
    print_table(
        ("", "copies", *found.columns),
        (
            (_SIGNS[row.kind], count_text(row.copies), *(_cell(row, name) for name in found.columns))
            for row in found.rows[:shown]
        ),
        right=("copies",),
    )


def _cell(row: RowChange, name: str) -> str:
    """A value, or "before → after" where it changed."""
    if row.before is not None and row.after is not None and name in row.changed:
        return f"{cell(row.before[name])} → {cell(row.after[name])}"
    return cell((row.after if row.after is not None else row.before or {}).get(name))
