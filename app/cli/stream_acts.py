"""The commands of `weir` that steer streams, and their options.

Rule: a command parses, calls, prints; what is behind it is imported when it runs.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from app.cli.commands import AsJson, DryRun, StreamName

if TYPE_CHECKING:
    from backend.stream_model.stream import Action


def _act(action: "Action") -> Callable[..., int]:
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
        from app.cli import stream_requests as acts
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

    return act


start, stop, drain, restart = _act("start"), _act("stop"), _act("drain"), _act("restart")


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
    from app.cli import reset

    act = reset.TypedReset(name, reset.level_of(level, begin or ()), tuple(begin or ()), reason, confirm)
    return reset.reset(act, dry_run=dry_run, as_json=as_json)


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
    from app.cli import requeue

    act = requeue.TypedRequeue(name, where, tuple(repair or ()), reason, confirm)
    return requeue.requeue(act, dry_run=dry_run, as_json=as_json)
