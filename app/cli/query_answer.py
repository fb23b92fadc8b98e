"""The answer of `weir query "SELECT …"`: SQL over the lake, and which versions it read.

Rule: rows go to stdout, what they were read from is said under them (beside a CSV file: on stderr).
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from app import services
from app.cli.output import Shapes, cell, only, print_json, print_table, say
from app.cli.store import found_on_host
from app.ui.view.code import TOOLS, code, cost_text, read_text
from backend.cells import cells, distinct_names, row_cells
from backend.errors import QueryError, SavedQueryNotFoundError
from backend.format import things
from backend.query.answer import FirstRows, KeptRows, answered, job_request, kept_rows, query_limits
from backend.query.plan import QueryPlan, TableRead, plan_query
from backend.sql.export import FORMATS, encoded
from backend.sql.session import open_ahead

MOST_ROWS = 1_000
_SHAPES: Shapes = {TableRead: only("table", "version", "committed_at", "num_files", "size_bytes")}


@dataclass(frozen=True, slots=True)
class AskedQuery:
    """`limit`: None for the default; `form`: table, json, csv or a tool whose code is printed; `is_confirmed`: however
    much it reads; `versions`: as `QueryPlan.pins`, with commas; `is_on_host`: by Spark."""

    text: str
    at: str | None = None
    limit: int | None = None
    form: str = "table"
    is_confirmed: bool = False
    versions: str = ""
    is_on_host: bool = False


def text_of(statement: str | None, file: Path | None, saved: str | None) -> str:
    """The statement as typed, of a file or of the store; raises `QueryError` unless there is just one of them."""
    if [statement, file, saved].count(None) != 2:
        hint = 'weir query "SELECT …", weir query -f q.sql, or weir query --saved NAME'
        raise QueryError("a query is typed, in a file or saved, one of them", hint=hint)
    if saved is not None:
        store = services.existing_store()
        if store is None:
            raise SavedQueryNotFoundError(f"no saved query {saved!r}", hint="there is no control store yet")
        return store.saved.get(saved).text
    try:
        return statement if file is None else file.read_text("utf-8")  # type: ignore[return-value]
    except (OSError, ValueError) as exc:
        raise QueryError(f"{file} cannot be read: {exc}", hint="name a file of UTF-8 text") from exc


def answer(asked: AskedQuery, *, dry_run: bool, process: "subprocess.Popen[bytes] | None") -> None:
    """`process`: one that was started for its rows."""
    if process is not None:
        open_ahead()
    settings = services.settings()
    world = services.world(services.own_lake(), services.actor())
    tool = next((tool for tool in TOOLS if tool.lower() == asked.form), None)
    limit = asked.limit if asked.limit is not None or tool else None if asked.form == "csv" else MOST_ROWS
    most_rows = None if limit is None else limit + (tool is None)
    pins = asked.versions.split(",") if asked.versions else []
    plan = plan_query(world, asked.text, services.clock(), at=asked.at, pins=pins, most_rows=most_rows)
    if dry_run:
        if asked.form == "json":
            document = {"tables": plan.reads, "num_files": plan.num_files, "size_bytes": plan.size_bytes}
            print_json(document, _SHAPES)
        else:
            say(cost_text(plan))
        return
    if tool is not None:
        sys.stdout.write(f"{code(plan, tool)}\n")
        return
    if asked.is_on_host:
        kept = _on_host(plan)
        first = FirstRows(kept.rows.to_reader(), limit)
        _print(first, _taken(first, asked.form), plan, asked.form, kept)
        return
    if not asked.is_confirmed:
        plan.require_small(settings.lake.query_max_bytes)
    with answered(world, plan, query_limits(settings.lake), services.actor(), process=process) as rows:
        first = FirstRows(rows, limit)
        table = _taken(first, asked.form)
    _print(first, table, plan, asked.form)


def _on_host(plan: QueryPlan) -> KeptRows:
    from backend.jobs.results import results_lake

    settings = services.settings()
    wanted = job_request(plan, actor=services.actor(), reason="weir query", time_limit_s=settings.jobs.time_limit_s)
    lake = results_lake(settings)
    return found_on_host(wanted, "answer", lambda job: kept_rows(lake, settings, job))


def _taken(first: FirstRows, form: str) -> pa.Table:
    """The rows; none of a CSV file, which is written as they come."""
    schema = first.reader.schema
    if form != "csv":
        return pa.Table.from_batches(first.batches(), schema=schema)
    for _, piece in encoded(pa.RecordBatchReader.from_batches(schema, first.batches()), FORMATS["csv"]):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
    return schema.empty_table()


def _print(first: FirstRows, table: pa.Table, plan: QueryPlan, form: str, kept: KeptRows | None = None) -> None:
    """`kept`: of which they are the first, where a host computed them."""
    is_cut = first.is_cut or (kept is not None and kept.is_cut)
    by = kept.by if kept is not None else None
    if form == "json":
        print_json(_document(plan, table, is_cut=is_cut, by=by), _SHAPES)
        return
    if form == "table":
        _print_rows(table)
    rows = f"{'the first ' if is_cut else ''}{things(first.num_rows, 'row')}{read_text(plan)}"
    say(f"{rows}{f', computed by {by}' if by else ''}", to_stderr=form == "csv")


def _document(plan: QueryPlan, table: pa.Table, *, is_cut: bool, by: str | None) -> dict[str, object]:
    names = distinct_names(table.column_names, "{}_{}")
    return {
        "columns": [{"name": n, "type": str(kind)} for n, kind in zip(names, table.schema.types, strict=True)],
        "rows": row_cells(table.rename_columns(names)),
        "truncated": is_cut,
        "computed_by": by,
        "tables": plan.reads,
    }


def _print_rows(table: pa.Table) -> None:
    names, types = distinct_names(table.column_names, "{}_{}"), table.schema.types
    numbers = [name for name, kind in zip(names, types, strict=True) if pa.types.is_primitive(kind)
               and not pa.types.is_temporal(kind) and not pa.types.is_boolean(kind)]  # fmt: skip
    rows = zip(*([cell(value) for value in cells(column)] for column in table.columns), strict=True)
    print_table(names, rows, right=numbers)
