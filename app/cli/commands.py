"""The commands of `weir` and their options.

Rule: a command parses, calls, prints; what is behind it is imported when it runs, so that `weir` starts fast.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from app.cli import USAGE

if TYPE_CHECKING:
    from backend.streams.acts import Action


class ByPanel(TyperGroup):
    """Lists commands under the heading of their panel: typer does so only with rich, which takes 0.2 s to load."""

    def format_commands(self, _ctx: object, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            panel = str(getattr(command, "rich_help_panel", ""))
            panels.setdefault(panel, []).append((name, command.help or ""))
        for panel, lines in panels.items():
            with formatter.section(panel):
                formatter.write_dl(lines)


app = typer.Typer(
    name="weir",
    cls=ByPanel,
    rich_markup_mode=None,
    help="See, explain and operate a Delta lakehouse.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

READ, ACT, RUN = "Read", "Act", "Run"
VERSION = "A version, `latest`, -5, or a time (ISO 8601)"
TIME = "an age (24 h, 7 d), a date or a time (UTC)"

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
TableName = Annotated[str, typer.Argument(metavar="T", help="Name of a table, or its URI under a root.")]
StreamName = Annotated[str, typer.Argument(metavar="NAME", help="Name of a stream.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the audit trail.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what it would do, and do nothing.")]
At = Annotated[str | None, typer.Option("--version", help="A version, `latest`, -5, or a time (ISO 8601).")]


@app.callback(invoke_without_command=True)
def weir(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print Weir's version.", is_eager=True)] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"weir {installed('weir')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(USAGE)


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
def export(
    name: TableName,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file; it is replaced once all is written.")],
    at: At = None,
    where: Annotated[str | None, typer.Option("--where", help="A filter, as on the page: amount >= 10.")] = None,
    columns: Annotated[str | None, typer.Option("--columns", help="Only these: a,b.")] = None,
    form: Annotated[
        Literal["csv", "parquet", "arrow"] | None, typer.Option("--format", help="None: by the name of the file.")
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
    return history.history(name, history.Request(limit, groups, since, until), as_json=as_json)


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
    at: Annotated[str | None, typer.Option("--at", help="One version: `latest`, -5, a number or a time.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Look for every data file.")] = False,
    as_json: AsJson = False,
) -> int:
    """Which versions can still be read, restored or followed, until when, and why."""
    from app.cli.tables import versions

    return versions.versions(name, at, check=check, as_json=as_json)


@app.command(rich_help_panel=READ)
def diff(
    name: TableName,
    from_version: Annotated[str, typer.Option("--from", help="A version, `latest`, -5, or a time (ISO 8601).")],
    to_version: Annotated[str, typer.Option("--to", help="The same; the older one shows what going back changes.")],
    key: Annotated[str | None, typer.Option("--key", help="Columns that name a row: a,b.")] = None,
    columns: Annotated[str | None, typer.Option("--columns", help="Compare only these: a,b.")] = None,
    method: Annotated[
        Literal["change_feed", "spark_changes", "row_id", "key_join", "multiset", "log_only"] | None,
        typer.Option("--method", help="None: the best."),
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", help="SQL over a row: changes whose row satisfies it before or after.")
    ] = None,
    tolerance: Annotated[float, typer.Option("--tolerance", min=0.0, help="Floats this close are the same.")] = 0.0,
    against: Annotated[str | None, typer.Option("--with", help="Another table, which --to is a version of.")] = None,
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

    request = changes.Request(
        name,
        from_version,
        to_version,
        key,
        columns,
        method,
        where,
        tolerance,
        against,
        rows,
        output,
        on == "host",
    )
    return changes.diff(request, as_json=as_json)


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
    from app.cli.tables import bisect

    return bisect.bisect(bisect.Request(name, condition, good, bad, check), as_json=as_json)


@app.command(rich_help_panel=READ)
def health(
    name: Annotated[str | None, typer.Argument(metavar="[T]", help="Name or URI of one table; none: all.")] = None,
    as_json: AsJson = False,
) -> int:
    """What needs attention and what maintenance would help."""
    from app.cli.tables import health

    return health.one(name, as_json=as_json) if name else health.everything(as_json=as_json)


@app.command(rich_help_panel=READ)
def expectations(
    name: Annotated[str | None, typer.Argument(metavar="[T]", help="Name or URI of one table; none: all.")] = None,
    as_json: AsJson = False,
) -> int:
    """What pipelines expect of tables, and what was found. Ends with 1 if one is broken."""
    from app.cli.streams import expectations

    return expectations.expectations(name, as_json=as_json)


@app.command(rich_help_panel=READ)
def streams(as_json: AsJson = False) -> int:
    """Every stream: desired and observed state, rate, error."""
    from app.cli.streams import listing

    return listing.everything(as_json=as_json)


@app.command(rich_help_panel=READ)
def stream(name: StreamName, as_json: AsJson = False) -> int:
    """One stream: how it flows, why it does not, who asked for what."""
    from app.cli.streams import listing

    return listing.one(name, as_json=as_json)


@app.command(rich_help_panel=READ)
def preflight(name: StreamName, as_json: AsJson = False) -> int:
    """Whether a stream can go on: checkpoint, sources, sink, owner and disk, with evidence. Ends with 1 if not."""
    from app.cli.streams import preflight

    return preflight.preflight(name, as_json=as_json)


@app.command(rich_help_panel=READ)
def jobs(as_json: AsJson = False) -> int:
    """What stream hosts were asked to compute, and what became of it."""
    from app.cli.streams import jobs

    return jobs.everything(as_json=as_json)


pipelines_app = typer.Typer(
    cls=ByPanel, rich_markup_mode=None, help="Declared pipelines: what is wrong, what feeds what."
)
app.add_typer(pipelines_app, name="pipelines", rich_help_panel=READ)


@pipelines_app.command(rich_help_panel=READ)
def check(
    module: Annotated[str | None, typer.Argument(help="A Python module; else those of `host.pipelines`.")] = None,
    as_json: AsJson = False,
) -> int:
    """All that is wrong with declared streams, with file and line. Starts nothing."""
    from app.cli.streams import pipelines

    return pipelines.check(module, as_json=as_json)


@pipelines_app.command(rich_help_panel=READ)
def graph(as_json: AsJson = False) -> int:
    """What feeds what: sources, streams and tables, with states and rows per minute."""
    from app.cli.streams import pipelines

    return pipelines.graph(as_json=as_json)


@pipelines_app.command(rich_help_panel=READ)
def latency(as_json: AsJson = False) -> int:
    """How long data takes from where it lands to each layer, by pipeline."""
    from app.cli.streams import pipelines

    return pipelines.latency(as_json=as_json)


@app.command(rich_help_panel=ACT)
def cancel(
    job: Annotated[str, typer.Argument(help="A job of `weir jobs`.")], reason: Reason, as_json: AsJson = False
) -> int:
    """Ask for a job to end."""
    from app.cli.streams import jobs

    return jobs.cancel(job, reason, as_json=as_json)


def _add_act(action: "Action", does: str) -> None:
    """`weir start`, `stop`, `drain` and `restart` take the same."""

    def act(
        name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a stream.")] = "",
        downstream: Annotated[bool, typer.Option("--downstream", help="And every stream that it feeds.")] = False,
        everything: Annotated[bool, typer.Option("--all", help="Instead of NAME: every stream.")] = False,
        layer: Annotated[str, typer.Option(help="Instead: the streams of a layer.")] = "",
        tag: Annotated[str, typer.Option(metavar="KEY=VALUE", help="Instead: streams with this tag.")] = "",
        upstream_of: Annotated[
            str, typer.Option(metavar="NAME", help="Instead: streams that feed this one, or a table.")
        ] = "",
        downstream_of: Annotated[
            str, typer.Option(metavar="NAME", help="Instead: streams that this one, or a table, feeds.")
        ] = "",
        reason: Annotated[str | None, typer.Option(help="Why; kept in the audit trail.")] = None,
        override: Annotated[
            list[str] | None,
            typer.Option(
                "--set",
                metavar="KEY=VALUE",
                help='Run with another setting from now on: "trigger=30 seconds".',
                hidden=action not in ("start", "restart"),
            ),
        ] = None,
        as_declared: Annotated[
            bool,
            typer.Option(
                "--declared", help="Run with the declared settings again.", hidden=action not in ("start", "restart")
            ),
        ] = False,
        dry_run: DryRun = False,
        as_json: AsJson = False,
    ) -> int:
        from app.cli.streams import acts
        from backend.streams.acts import Selection

        if sum(map(bool, (name, everything, layer, tag, upstream_of, downstream_of))) != 1 or (downstream and not name):
            ways = "NAME [--downstream], --all, --layer, --tag, --upstream-of or --downstream-of"
            raise typer.BadParameter(f"choose streams in one way: {ways}")
        if not dry_run and reason is None:
            raise typer.BadParameter("it is needed: why, for those who come after", param_hint="--reason")
        change = acts.Change(tuple(override or ()), as_declared)
        if change and (action not in ("start", "restart") or not name or downstream):
            raise typer.BadParameter("settings are those of one stream: weir start or restart NAME --set KEY=VALUE")
        key, _, value = tag.partition("=")
        selection = Selection(
            name="" if downstream else name,
            below=name if downstream else "",
            upstream_of=upstream_of,
            downstream_of=downstream_of,
            layer=layer,
            tag=(key, value),
            everything=everything,
        )
        if dry_run:
            return acts.preview(action, selection, change, as_json=as_json)
        return acts.request(action, selection, reason or "", change, as_json=as_json)

    app.command(name=action, help=does, rich_help_panel=ACT)(act)


_add_act("start", "Ask streams to run.")
_add_act("stop", "Ask streams to stop after their running micro-batch.")
_add_act("drain", "Ask streams to stop once they have read what is there now.")
_add_act("restart", "Ask streams to stop and start again.")


@app.command(rich_help_panel=ACT)
def reset(
    name: StreamName,
    level: Annotated[
        Literal["reprocess", "from", "full", "undo"] | None,
        typer.Option(help="reprocess: a new checkpoint; full: the tables too; undo: the last one back."),
    ] = None,
    begin: Annotated[
        list[str] | None,
        typer.Option(
            "--from", metavar="WHERE", help="Begin at a version, time or offsets; SOURCE=WHERE for each of several."
        ),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; kept in the audit trail.")] = "",
    confirm: Annotated[str, typer.Option(metavar="NAME", help="The stream's name once more.")] = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Start a stopped stream over, or take that back; says what is read again and what that risks."""
    from app.cli.streams import reset

    act = reset.Act(name, reset.level_of(level, begin or ()), tuple(begin or ()), reason, confirm)
    return reset.reset(act, dry_run=dry_run, as_json=as_json)


@app.command(rich_help_panel=ACT)
def requeue(
    name: StreamName,
    where: Annotated[str, typer.Option(help="SQL over a row of the quarantine: which ones; else all.")] = "",
    repair: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="COLUMN=SQL", help="A new value, of the row as it was: amount = abs(amount)."),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; kept in the audit trail.")] = "",
    confirm: Annotated[str, typer.Option(metavar="NAME", help="The stream's name once more.")] = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Send repaired rows of a stopped stream's quarantine through it again, each once; says first which would go."""
    from app.cli.streams import requeue

    act = requeue.Act(name, where, tuple(repair or ()), reason, confirm)
    return requeue.requeue(act, dry_run=dry_run, as_json=as_json)


@app.command(rich_help_panel=RUN)
def up() -> int:
    """UI, stream host and demo generator together."""
    from app.run.up import main

    return main()


@app.command(rich_help_panel=RUN)
def ui() -> int:
    """The UI alone."""
    from app.cli import allow_pandas

    allow_pandas()
    from app.server.asgi import main

    return main()


@app.command(rich_help_panel=RUN)
def host() -> int:
    """The stream host alone (Spark)."""
    return _become("pipelines.host")


@app.command(rich_help_panel=RUN)
def demo() -> int:
    """The demo's generator alone."""
    return _become("pipelines.demo.generator")


def _become(module: str) -> int:
    """Replace this process by `python -m module`, so that signals reach it directly. Spark's side is another program
    and never imported here; wrong settings are told before it starts."""
    from backend.settings import load_settings

    load_settings()
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", module])
