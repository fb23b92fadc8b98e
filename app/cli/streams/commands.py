"""The commands of `weir` that read and steer streams, and their options.

Rule: as for tables: a command parses, calls, prints; what is behind it is imported when it runs.
"""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from app.cli.options import ACT, READ, AsJson, ByPanel, DryRun, Reason, TableName

if TYPE_CHECKING:
    from backend.stream_model.stream import Action

app = typer.Typer()

StreamName = Annotated[str, typer.Argument(metavar="NAME", help="Name of a stream.")]


@app.command(rich_help_panel=READ)
def expectations(
    name: Annotated[str | None, typer.Argument(metavar="[T]", help="Name or URI of one table; none: all.")] = None,
    as_json: AsJson = False,
) -> int:
    """What pipelines and people expect of tables, and what was found. Ends with 1 if one is broken."""
    from app.cli.streams import expectations

    return expectations.expectations(name, as_json=as_json)


@app.command(rich_help_panel=ACT)
def expect(
    name: TableName,
    condition: Annotated[str, typer.Argument(metavar="CONDITION", help="What holds, as for `weir bisect --assert`.")],
    no_more: Annotated[bool, typer.Option("--no-more", help="Take it back.")] = False,
    reason: Reason = "",
    as_json: AsJson = False,
) -> int:
    """Expect a condition of a table from now on; hosts judge it, and no pipeline forgets it."""
    from app.cli.streams import expectations

    return expectations.expect(name, condition, reason, no_more=no_more, as_json=as_json)


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
        through: Annotated[
            bool,
            typer.Option(
                "--through",
                help="Until all of it is through: each stops after those that feed it, with what they brought.",
                hidden=action != "drain",
            ),
        ] = False,
        dry_run: DryRun = False,
        as_json: AsJson = False,
    ) -> int:
        from app.cli.streams import acts
        from backend.streams.acts import Selection

        if through and action != "drain":
            raise typer.BadParameter("it says how to drain: weir drain … --through")
        asked: Action = "drain through" if through else action

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
            return acts.preview(asked, selection, change, as_json=as_json)
        return acts.request(asked, selection, reason or "", change, as_json=as_json)

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
    """Reset a stopped stream, or undo the last reset; says what is read again and what that risks."""
    from app.cli.streams import reset

    act = reset.TypedReset(name, reset.level_of(level, begin or ()), tuple(begin or ()), reason, confirm)
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
    """Requeue repaired rows of a stopped stream's quarantine, each once; says first which would go."""
    from app.cli.streams import requeue

    act = requeue.TypedRequeue(name, where, tuple(repair or ()), reason, confirm)
    return requeue.requeue(act, dry_run=dry_run, as_json=as_json)
