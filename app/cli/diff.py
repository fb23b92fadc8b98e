"""`weir diff`, `weir changes`: what changed between two versions.

Rule: counts are told in words that hold. The exit code is 0 when nothing differs, 10 when something does, 1 when rows
cannot be compared and nothing else tells. Ctrl-C ends a comparison here; on a host it cancels the job.
"""

import signal
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from app import services
from app.changes.text import (
    METADATA_CHANGES,
    commit_columns,
    exactness_text,
    headline,
    metadata_changes,
    progress_text,
    to_markdown,
)
from app.cli import leave_at_once
from app.cli.commands import VERSION, AsJson, OnHost, TableName
from app.cli.history import commit_document
from app.cli.lake import opened
from app.cli.output import (
    Document,
    Shapes,
    cell,
    fail,
    fields_of,
    only,
    print_json,
    print_list,
    print_table,
    say,
    status_line,
)
from app.cli.rows import ending_of, write_file
from app.cli.store import found_on_host
from app.ui.view.explanation import looked_in, stands_out
from backend.cells import row_cells
from backend.changes.answer import diff as compare
from backend.changes.cache import Differences
from backend.changes.changed_rows import ChangedBatches, fetched, file_of, row_document
from backend.changes.commits import feed_rows
from backend.changes.compare import Take
from backend.changes.host_job import DiffJobs
from backend.changes.key import key_memory, parse_names
from backend.changes.model import CommitChanges, DiffMethod, Hit, Question, RowChange, RowKind, Trait, VersionDiff
from backend.format import bytes_text, count_text, things
from backend.lake.history.history import resolve_version
from backend.lake.lake import Lake
from backend.lake.model import Commit, TableRef
from backend.lake.table.metadata_diff import FieldChange, SchemaDiff
from backend.lake.table.schema import SchemaColumn
from backend.sql.export import FORMATS, encoded

CHANGED = 10  # the exit code when anything differs
SHOWN = 20  # rows on a terminal
_SILENT_S = 1.0  # what is over sooner needs no word
_SIGNS = {RowKind.INSERT: "+", RowKind.UPDATE: "~", RowKind.DELETE: "−"}


def diff(
    name: TableName,
    from_version: Annotated[str, typer.Option("--from", help=f"{VERSION}.")],
    to_version: Annotated[str, typer.Option("--to", help="The same; the older one shows what going back changes.")],
    key: Annotated[str | None, typer.Option("--key", help="Columns that name a row: a,b.")] = None,
    columns: Annotated[str | None, typer.Option("--columns", help="Compare only these: a,b.")] = None,
    method: Annotated[
        Literal["change_feed", "row_id", "key_join", "multiset", "log_only"] | None,
        typer.Option("--method", help="None: the best."),
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", help="SQL over a row: changes whose row satisfies it before or after.")
    ] = None,
    tolerance: Annotated[float, typer.Option("--tolerance", min=0.0, help="Floats this close are the same.")] = 0.0,
    against: Annotated[str | None, typer.Option("--with", help="Another table, which --to is a version of.")] = None,
    across_replace: Annotated[
        bool, typer.Option("--across-replace", help="As two tables where CREATE OR REPLACE lies in between.")
    ] = False,
    look_in: Annotated[
        str | None, typer.Option("--look-in", help="A table whose rows the changed ones name: what they share there.")
    ] = None,
    shown: Annotated[int | None, typer.Option("--rows", min=0, help="Most changed rows to show.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write all changed rows (.csv, .json, .parquet) or a summary (.md).")
    ] = None,
    on: OnHost = "here",
    as_json: AsJson = False,
) -> int:
    """`shown`: so many rows are listed, and read; None: a few, and as many as the settings say."""
    limits, (lake, ref) = services.settings().lake, opened(name)
    other = opened(against)[1] if against else None
    question = Question(
        ref,
        resolve_version(lake, ref, from_version, services.clock()),
        resolve_version(lake, other or ref, to_version, services.clock()),
        other,
        key=parse_names(key) if key else None,
        remembered_key=None if key else key_memory(services.settings().home).known(ref),
        columns=parse_names(columns) if columns else None,
        where=where,
        tolerance=tolerance,
        method=DiffMethod(method) if method else None,
        row_limit=limits.diff_rows if shown is None else shown,
        max_bytes=limits.diff_max_bytes,
        on_host=on == "host",
        across_replace=across_replace,
        look_in=opened(look_in)[1] if look_in else None,
    )
    form = ending_of(output, (*FORMATS, "md")) if output else ""
    num_written: list[int] = []  # rows in the file: those of the last call, as another method may begin anew

    def take(changed: ChangedBatches) -> None:
        if output:
            num_written[:] = [write_file(output, file_of(changed, FORMATS[form]))]

    takes_all = form in FORMATS and shown is None and not question.on_host
    answer = _answer(question, take if takes_all else None)
    if output and form == "md":
        write_file(output, iter([(0, to_markdown(answer).encode())]))
    elif form and not num_written and answer.is_available:
        take(fetched(answer))
    if as_json:
        print_json(answer, SHAPES)
    else:
        _print(answer, SHOWN if shown is None else shown)
        if form:
            content = "the summary" if form == "md" else "not written, rows cannot be compared"
            if num_written:
                cut = " of more" if answer.changes.truncated and num_written == [len(answer.changes.rows)] else ""
                content = f"{things(num_written[0], 'changed row')}{cut}"
            say(f"{output}: {content}", style="dim")
        elif shown != 0 and (answer.changes.truncated or len(answer.changes.rows) > (shown or SHOWN)):
            written = "" if question.on_host else ", --output FILE writes all of them"
            say(f"More rows changed: --rows N shows them{written}.", style="dim")
    if answer.is_changed:
        return CHANGED
    if answer.is_changed is None:
        return fail(f"rows cannot be compared: {'; '.join(answer.reasons)}", answer.hint)
    return 0


def changes(
    name: TableName,
    from_version: Annotated[str, typer.Option("--from", help=f"The version before the first change: {VERSION}.")],
    to_version: Annotated[str, typer.Option("--to", help="The version of the last change.")],
    raw: Annotated[bool, typer.Option("--raw", help="As recorded, the default; `weir diff` nets them.")] = True,  # noqa: ARG001
    shown: Annotated[int | None, typer.Option("--rows", min=0, help="Most rows to show.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write all rows (.csv, .json, .parquet, .arrow).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """`shown` as for `diff`; a file gets all of them."""
    form = None if output is None else FORMATS[ending_of(output, FORMATS)]
    lake, ref = opened(name)
    low, high = (resolve_version(lake, ref, version, services.clock()) for version in (from_version, to_version))
    few = services.settings().lake.diff_rows if as_json else SHOWN
    feed = feed_rows(lake, ref, (low, high), limit=few if shown is None else shown)
    rows = row_cells(feed.rows)
    if as_json:
        named = {"name": ref.name, "uri": ref.uri, "from_version": low, "to_version": high}
        print_json(named | {"rows": rows, "truncated": feed.truncated})
    else:
        print_table(feed.rows.column_names, ([cell(value) for value in row.values()] for row in rows))
        if feed.truncated:
            say("There are more rows: --rows N shows them, --output FILE writes all of them.", style="dim")
    if output is not None and form is not None:
        written = write_file(output, encoded(lake.changes(ref, low, high), form))
        say(f"{output}: {things(written, 'row')} of the change feed", style="dim", to_stderr=True)


def _answer(question: Question, take: Take | None) -> VersionDiff:
    settings, lake = services.settings(), services.own_lake()
    if question.on_host:
        jobs = DiffJobs(settings, lake)
        if (answer := jobs.without_rows(question)) is not None:
            return answer
        wanted = jobs.request(question, actor=services.actor(), reason="weir diff")
        return found_on_host(wanted, "compare", lambda job: jobs.answer(question, job))
    keys = key_memory(settings.home)
    differences = Differences(settings.lake.diff_time_limit_s, partial(compare, take=take), keys.learn)
    try:
        return here(differences, lake, question)
    except KeyboardInterrupt:
        leave_at_once()


def here(differences: Differences, lake: Lake, question: Question) -> VersionDiff:
    """The answer; raises what comparing raises, `KeyboardInterrupt` where it was interrupted. Ctrl-C itself raises
    nothing meanwhile: within a lock, that would break the lock."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda signum, _: pressed.append(signum))
    with ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGINT, before)
        show: Callable[[str], None] | None = None
        for step in differences.over(lake, question):
            if step.result is not None:
                return step.result
            if pressed:
                break
            if show is None and step.elapsed_s > _SILENT_S:
                show = stack.enter_context(status_line())
            if show is not None:
                show(progress_text(step)[1])
    raise KeyboardInterrupt


# --json ---------------------------------------------------------------------------------------------------------------


def _diff_document(diff: VersionDiff) -> Document:
    question, changes, log = diff.question, diff.changes, diff.log
    rewritten = None if log.rewritten is None else sum(log.rewritten.values())
    return {
        "name": question.ref.name,
        "uri": question.ref.uri,
        "from_version": question.from_version,
        "to_version": question.to_version,
        "method": diff.method,
        "reasons": diff.reasons,
        "hint": diff.hint or None,
        "exact": diff.exact,
        "partial": None,  # an answer is whole
        "key": diff.key,
        "first_covered_version": log.first_covered_version,
        "net": fields_of(changes.net) | {"unchanged": diff.unchanged},
        "num_rows": dict(zip(("from", "to"), diff.num_rows, strict=True)),
        "against": question.against,
        "set_apart": changes.apart,
        "commits": diff.commits,
        "changed_cells": changes.changed_cells,
        "common_changes": changes.common,
        "explanation": diff.explanation,
        "rows": changes.rows,
        "truncated": changes.truncated,
        "schema": log.schema,
        "properties": log.properties,
        "files": fields_of(log.files) | {"rewritten": rewritten},
    }


def _commit_changes(value: CommitChanges) -> Document:
    counts = {name: getattr(value, name) for name in ("inserted", "updated", "deleted")}
    source = "writer" if value.is_reported else "change_feed"
    return commit_document(value.commit) | {"changes": counts | {"source": source}}


def _schema_document(value: SchemaDiff) -> Document:
    renamed = [{"before": before, "after": after} for before, after in value.renamed]
    partitioning = value.partitioning and dict(zip(("before", "after"), value.partitioning, strict=True))
    return fields_of(value) | {"renamed": renamed, "partitioning": partitioning}


def _trait_document(value: Trait) -> Document:
    return fields_of(value) | {"values": None if value.bounds else value.values}


def _hit_document(value: Hit) -> Document:
    return fields_of(value) | {"branches": [{"condition": each, "rows": rows} for each, rows in value.branches]}


SHAPES: Shapes = {
    VersionDiff: _diff_document,
    TableRef: only("name", "uri"),
    CommitChanges: _commit_changes,
    RowChange: row_document,
    Trait: _trait_document,
    Hit: _hit_document,
    Commit: only("version", "operation", "user", "job"),
    SchemaDiff: _schema_document,
    SchemaColumn: only("path", type="kind", nullable="nullable", comment="comment"),
    FieldChange: only("path", "what", "before", "after"),
}


# for people -----------------------------------------------------------------------------------------------------------


def _print(diff: VersionDiff, shown: int) -> None:
    say(f"{diff.question.ref.name}: {headline(diff)}", style="bold")
    look_in = diff.explanation.look_in
    for line in (*stands_out(diff.explanation), *(looked_in(look_in) if look_in else ())):
        say(f"  {line}")
    for line in (exactness_text(diff), *diff.reasons):
        say(f"  {line}", style="dim")
    files = diff.log.files
    added, removed = f"{count_text(files.added)} added", f"{count_text(files.removed)} removed"
    say(f"files: {added} ({bytes_text(files.bytes_added)}), {removed} ({bytes_text(files.bytes_removed)})")
    if metadata := metadata_changes(diff.log):
        say()
        print_list(METADATA_CHANGES, metadata)
    if diff.commits:
        say()
        print_list(commit_columns(services.now(), {}), diff.commits)
    if diff.changes.rows and shown:
        say()
        _print_rows(diff, shown)


def _print_rows(found: VersionDiff, shown: int) -> None:
    print_table(
        ("", "copies", *found.changes.columns),
        (
            (_SIGNS[row.kind], count_text(row.copies), *(_cell(row, name) for name in found.changes.columns))
            for row in found.changes.rows[:shown]
        ),
        right=("copies",),
    )


def _cell(row: RowChange, name: str) -> str:
    """A value, or "before → after" where it changed."""
    if row.before is not None and row.after is not None and name in row.changed:
        return f"{cell(row.before[name])} → {cell(row.after[name])}"
    return cell((row.after if row.after is not None else row.before or {}).get(name))
