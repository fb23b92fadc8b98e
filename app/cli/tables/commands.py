"""The commands of `weir` that read tables, and their options.

Rule: a command parses, calls, prints; what is behind it is imported when it runs, so that `weir` starts fast.
"""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer

from app.cli.options import READ, VERSION, AsJson, At, DryRun, TableName

app = typer.Typer()

TIME = "a time (`2 h ago`, yesterday, `Monday 09:00`, 14:30), or a date or time in UTC"


@app.command(rich_help_panel=READ)
def tables(as_json: AsJson = False) -> int:
    """Every table of the lake: rows, files, size, small files, last commit."""
    from app.cli.tables import lake

    return lake.tables(as_json=as_json)


@app.command(rich_help_panel=READ)
def find(
    words: Annotated[list[str], typer.Argument(metavar="WORD…", help="Every word must be found in a table.")],
    as_json: AsJson = False,
) -> int:
    """Tables that hold a word: in name, columns, comments, description, owner or properties."""
    from app.cli.tables import lake

    return lake.find(" ".join(words), as_json=as_json)


@app.command(rich_help_panel=READ)
def table(name: TableName, at: At = None, as_json: AsJson = False) -> int:
    """One table: what it is, how big, its schema."""
    from app.cli.tables import lake

    return lake.table(name, at, as_json=as_json)


@app.command(rich_help_panel=READ)
def profile(
    name: TableName,
    at: At = None,
    against: Annotated[str | None, typer.Option("--against", help="Another version: what differs.")] = None,
    from_statistics: Annotated[
        bool, typer.Option("--statistics", help="From the log's statistics alone; no data file is opened.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """The columns of one version: nulls, bounds, distinct and commonest values; what differs from another."""
    from app.cli.tables import profile

    return profile.profile(name, at, against, from_statistics=from_statistics, as_json=as_json)


@app.command(rich_help_panel=READ)
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
    on: Annotated[
        Literal["here", "host"], typer.Option("--on", help="host: a job of the stream host, any amount of data.")
    ] = "here",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """SQL over tables and versions: silver.orders VERSION AS OF 118, "orders$history", weir.streams."""
    forms = [form for form, is_asked in (("json", as_json), ("csv", as_csv), (tool, tool)) if form and is_asked]
    if len(forms) > 1:
        raise typer.BadParameter("one of --json, --csv and --as", param_hint="--csv")
    form = forms[0] if forms else "table"
    from backend.query.process import start_process

    is_for_rows = not dry_run and tool is None and on == "here"
    with start_process() if is_for_rows else nullcontext() as process:  # before imports that take as long as its own
        from app.cli.tables import query

        text = query.text_of(statement, file, saved)
        asked = query.AskedQuery(text, at, limit, form, yes, versions, is_on_host=on == "host")
        return query.query(asked, dry_run=dry_run, process=process)


@app.command(rich_help_panel=READ)
def export(
    name: TableName,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file; it is replaced once all is written.")],
    at: At = None,
    where: Annotated[str | None, typer.Option("--where", help="SQL over a row: amount >= 10.")] = None,
    columns: Annotated[str | None, typer.Option("--columns", help="Only these: a,b.")] = None,
    form: Annotated[
        Literal["csv", "parquet", "arrow", "json"] | None,
        typer.Option("--format", help="None: by the name of the file."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Every row of one version as a file."""
    from app.cli.tables import export

    return export.export(export.Request(name, output, at, where, columns, form), as_json=as_json)


@app.command(rich_help_panel=READ)
def history(
    name: TableName,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="So many of the newest commits.")] = None,
    operation: Annotated[list[str] | None, typer.Option("--operation", help="Only commits of this operation.")] = None,
    user: Annotated[list[str] | None, typer.Option("--user", help="Only commits of this user.")] = None,
    engine: Annotated[list[str] | None, typer.Option("--engine", help="Only commits of this engine.")] = None,
    stream: Annotated[list[str] | None, typer.Option("--stream", help="Only commits of this stream.")] = None,
    since: Annotated[str | None, typer.Option("--since", help=f"Not before {TIME}.")] = None,
    until: Annotated[str | None, typer.Option("--until", help=f"Not after {TIME}.")] = None,
    as_json: AsJson = False,
) -> int:
    """The commits, newest first (30 on a terminal, all with --json, unless --limit says otherwise)."""
    from app.cli.tables import history

    groups = {"operations": operation, "users": user, "engines": engine, "streams": stream}
    return history.history(name, history.HistoryQuery(limit, groups, since, until), as_json=as_json)


@app.command(rich_help_panel=READ)
def notices(
    name: Annotated[str | None, typer.Argument(metavar="[T]", help="A table; without it, all of them.")] = None,
    since: Annotated[str, typer.Option("--since", help=f"Commits not before {TIME}.")] = "7 d",
    as_json: AsJson = False,
) -> int:
    """Commits that did what none before them did: a highest or lowest value, nulls or rows took a far larger step."""
    from app.cli.tables import notices

    return notices.notices(name, since, as_json=as_json)


@app.command(rich_help_panel=READ)
def timeline(
    name: TableName,
    since: Annotated[str, typer.Option("--since", help=f"Not before {TIME}.")] = "3 h ago",
    until: Annotated[str | None, typer.Option("--until", help=f"Not after {TIME}.")] = None,
    as_json: AsJson = False,
) -> int:
    """Commits, batches, starts, stops, acts, failures and notices of a table and what is up- and downstream of it."""
    from app.cli.tables import timeline

    return timeline.timeline(name, since, until, as_json=as_json)


@app.command(rich_help_panel=READ)
def properties(
    name: TableName,
    at: Annotated[str | None, typer.Option("--at", "--version", help=f"{VERSION}.")] = None,
    compare: Annotated[str | None, typer.Option("--compare", help="Another version: what differs.")] = None,
    as_json: AsJson = False,
) -> int:
    """Table properties and features, explained; what differs from another version."""
    from app.cli.tables import properties

    return properties.properties(name, at, compare, as_json=as_json)


@app.command(rich_help_panel=READ)
def files(name: TableName, at: At = None, as_json: AsJson = False) -> int:
    """File sizes, small files and partitions of one version."""
    from app.cli.tables import lake

    return lake.files(name, at, as_json=as_json)


@app.command(rich_help_panel=READ)
def versions(
    name: TableName,
    at: Annotated[str | None, typer.Option("--at", help=f"One version. {VERSION}.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Look for every data file.")] = False,
    as_json: AsJson = False,
) -> int:
    """Which versions can still be read, restored or followed, until when, and why."""
    from app.cli.tables import versions

    return versions.versions(name, at, check=check, as_json=as_json)


@app.command(rich_help_panel=READ)
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
    rows: Annotated[int | None, typer.Option("--rows", min=0, help="Most changed rows to show.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write all changed rows (.csv, .json, .parquet) or a summary (.md).")
    ] = None,
    on: Annotated[
        Literal["here", "host"], typer.Option("--on", help="host: a job of the stream host, any amount of data.")
    ] = "here",
    as_json: AsJson = False,
) -> int:
    """What changed between two versions: counts, rows, schema, properties, files. Exit 0: nothing, 10: something."""
    from app.cli.tables import changes
    from backend.changes.model import DiffMethod

    question = changes.question(
        name,
        (from_version, to_version),
        against=against,
        key=key,
        columns=columns,
        rows=rows,
        where=where,
        tolerance=tolerance,
        method=DiffMethod(method) if method else None,
        on_host=on == "host",
        across_replace=across_replace,
    )
    return changes.diff(question, shown=rows, output=output, as_json=as_json)


@app.command("changes", rich_help_panel=READ)
def feed(
    name: TableName,
    from_version: Annotated[str, typer.Option("--from", help=f"The version before the first change: {VERSION}.")],
    to_version: Annotated[str, typer.Option("--to", help="The version of the last change.")],
    raw: Annotated[bool, typer.Option("--raw", help="As they are: what is always done; `weir diff` nets them.")] = True,  # noqa: ARG001
    rows: Annotated[int | None, typer.Option("--rows", min=0, help="Most rows to show.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write all rows (.csv, .json, .parquet, .arrow).")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """The rows of the change feed as they are: each with its type, version and time."""
    from app.cli.tables import changes

    return changes.raw(name, (from_version, to_version), shown=rows, output=output, as_json=as_json)


@app.command(rich_help_panel=READ)
def bisect(
    name: TableName,
    condition: Annotated[str, typer.Option("--assert", help="SQL that a good version satisfies: amount >= 0.")],
    good: Annotated[str | None, typer.Option("--good", help=f"{VERSION}. None: the oldest that can be read.")] = None,
    bad: Annotated[
        str | None, typer.Option("--bad", help="The same; none: the latest. Older than good: what mended it.")
    ] = None,
    check: Annotated[int, typer.Option("--check", min=0, max=50, help="Versions to try beyond, on each side.")] = 2,
    as_json: AsJson = False,
) -> int:
    """The first version that breaks a condition, by binary search; a condition on rows means every row."""
    from app import services
    from app.cli.tables import bisect
    from backend.search.search import BisectRequest

    return bisect.bisect(name, BisectRequest(condition, good, bad, check, services.clock()), as_json=as_json)


@app.command(rich_help_panel=READ)
def health(
    name: Annotated[str | None, typer.Argument(metavar="[T]", help="Name or URI of one table; none: all.")] = None,
    as_json: AsJson = False,
) -> int:
    """What needs attention and what maintenance would help."""
    from app.cli.tables import health

    return health.one(name, as_json=as_json) if name else health.everything(as_json=as_json)


@app.command(rich_help_panel=READ)
def policies(as_json: AsJson = False) -> int:
    """What policies did to tables, what they do next, and why they wait."""
    from app.cli.tables import policies

    return policies.everything(as_json=as_json)
