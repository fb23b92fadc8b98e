"""`weir query "SELECT …"`: what is typed; what comes of it is in `query_answer`.

Rule: the process that computes rows is started before imports that take as long as its own.
"""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer

from app.cli.commands import VERSION, AsJson, DryRun, OnHost
from backend.query.process import start_process


def query(
    statement: Annotated[str | None, typer.Argument(metavar="[SQL]", help="One SELECT over the lake.")] = None,
    file: Annotated[Path | None, typer.Option("-f", "--file", help="A file with the statement.")] = None,
    saved: Annotated[
        str | None, typer.Option("--saved", metavar="NAME", help="What somebody saved; weir.queries lists it.")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", help=f"For tables without VERSION AS OF their own. {VERSION}.")
    ] = None,
    versions: Annotated[
        str, typer.Option("--versions", help="118,9: of each place that names a table, whatever it says there.")
    ] = "",
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=0, help="Most rows to show (1,000; with --csv all)."),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the rows as CSV.")] = False,
    tool: Annotated[
        Literal["pandas", "arrow", "spark", "trino"] | None,
        typer.Option("--as", help="Print it as code for this tool, at the versions that it would read."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="However many bytes it reads.")] = False,
    on: OnHost = "here",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    forms = [form for form, is_asked in (("json", as_json), ("csv", as_csv), (tool, tool)) if form and is_asked]
    if len(forms) > 1:
        raise typer.BadParameter("one of --json, --csv and --as", param_hint="--csv")
    form = forms[0] if forms else "table"
    is_for_rows = not dry_run and tool is None and on == "here"
    with start_process() if is_for_rows else nullcontext() as process:
        from app.cli.query_answer import AskedQuery, answer, text_of

        asked = AskedQuery(text_of(statement, file, saved), at, limit, form, yes, versions, is_on_host=on == "host")
        answer(asked, dry_run=dry_run, process=process)
