"""`weir optimize|vacuum|restore|rewind|repair|alter|clone|drop|undrop|purge T`, `weir apply FILE`, `weir dropped`: what
an act on a table would do, and the request for it, which a host carries out.

Rule: nothing is asked for without a reason and, where rows or versions can be lost, the table's name typed once more.
"""
# ruff: noqa: ARG001 - an act takes the table's name first, also where its arguments do not depend on it

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from app import services
from app.cli.commands import VERSION, AsJson, At, DryRun, Reason, TableName
from app.cli.lake import opened
from app.cli.output import Shapes, print_json, print_list, say, shaped
from app.cli.store import done_on_host, required_store
from app.ui.view.acts import dropped_columns, preview_lines, result_lines
from backend.errors import QueryError, SettingsError, StreamRefusedError
from backend.lake.history.history import resolve_version
from backend.maintenance.alter import read_column, read_pair, read_whole_name
from backend.maintenance.clone_and_drop import DroppedTable, dropped_tables
from backend.maintenance.model import (
    ActPreview,
    ActResult,
    Alter,
    Arguments,
    Clone,
    Drop,
    Intent,
    Optimize,
    Purge,
    Repair,
    Restore,
    Rewind,
    TableAct,
    Undrop,
    Vacuum,
    act_job,
    digest,
)
from backend.maintenance.plan import load_preview
from backend.streams.requeue import parse_repairs

_PREVIEW = shaped(without=("typed", "lifts"), empty_is_null=("refused", "way_out", "way_back"), needs_name="typed")
_SHAPES: Shapes = {
    ActPreview: lambda planned: _PREVIEW(replace(planned, way_out=_way_out(planned))),
    TableAct: shaped("kind", without=("name",), table="name"),
    DroppedTable: shaped(without=("root",)),
}
IntentFile = Annotated[
    Path | None,
    typer.Option("--intent", metavar="FILE", help="Write the act to a file for review instead of doing it."),
]
StopWriters = Annotated[
    bool, typer.Option("--stop-writers", help="Stop the streams that write it meanwhile, and start them again after.")
]
Confirm = Annotated[str, typer.Option(metavar="TABLE", help="The table's name once more.")]
ToVersion = Annotated[str, typer.Option("--to", metavar="VERSION", help=VERSION)]
DroppedName = Annotated[str, typer.Argument(metavar="T", help="A dropped table, or the job that dropped it.")]


# preview, confirm, job -------------------------------------------------------------------------------------------


def _act(*, typed: bool = True) -> Callable[[Callable[..., Arguments]], Callable[..., int]]:
    """The command of an act, from the function of its own options: those that every act takes follow them. `typed`:
    whether the table's name once more is among these."""

    def decorate(arguments_of: Callable[..., Arguments]) -> Callable[..., int]:
        def command(
            reason: Reason = "", confirm: Confirm = "", intent: IntentFile = None, dry_run: DryRun = False,
            as_json: AsJson = False, **own: Any,
        ) -> int:  # fmt: skip
            planned = _planned(own["name"], arguments_of(**own))
            return _carry_out(planned, reason, confirm, intent=intent, dry_run=dry_run, as_json=as_json)

        *common, _ = signature(command).parameters.values()
        shown = [option for option in common if typed or option.name != "confirm"]
        command.__signature__ = Signature(  # type: ignore[attr-defined] # what typer reads
            [*signature(arguments_of).parameters.values(), *shown]
        )
        return command

    return decorate


def _planned(name: str, arguments: Arguments) -> ActPreview:
    settings, lake, store = services.settings(), services.own_lake(), services.existing_store()
    return load_preview(settings, lake, store, name, arguments, now=services.now())


def _carry_out(
    planned: ActPreview, reason: str, confirm: str, *, dry_run: bool, as_json: bool, intent: Path | None = None,
    noted: Mapping[str, str] | None = None,
) -> int:  # fmt: skip
    """The preview alone, the act written to a file, or the act; the exit code says whether it was done. `noted`: what
    the audit trail keeps beside the act."""
    name = planned.act.name
    unnamed = intent is None and planned.typed and confirm not in (name, planned.act.uri)
    if dry_run or planned.refused or unnamed:
        print_json(planned, _SHAPES) if as_json else _say(planned)
    if dry_run:
        return 0
    if planned.refused:
        raise StreamRefusedError(f"{planned.act.kind} of {name}: {planned.refused}", hint=_way_out(planned))
    if unnamed:
        raise StreamRefusedError("nothing was done", hint=f"say --confirm {name} once you have read what it does")
    if intent is not None:
        if not reason.strip():
            hint = "--reason says it to the reviewer"
            raise StreamRefusedError("nothing was written: a reason is required", hint=hint)
        text = Intent.of(planned, reason).file(tuple(preview_lines(planned)), now=services.now())
        intent.write_text(text, encoding="utf-8")
        say(f"{intent}: {digest(text)}. `weir apply {intent}` does it as long as it would do the same.")
        return 0
    wanted = act_job(planned.act, actor=services.actor(), reason=reason)
    job = done_on_host(required_store(), replace(wanted, parameters={**wanted.parameters, **(noted or {})}))
    result = ActResult.of(job)
    if as_json:
        print_json({"preview": planned, "result": result, "job_id": job.job_id}, _SHAPES)
    else:
        for line in result_lines(result):
            say(line)
        say(f"Way back: {planned.way_back}.", style="dim")
    return 0


def _way_out(planned: ActPreview) -> str:
    """What lifts the refusal, with the commands that do it."""
    commands = "; ".join(f"weir {lift.verb} {' '.join(lift.subjects)}" for lift in planned.lifts)
    asked, verbs = planned.act.arguments, {lift.verb for lift in planned.lifts}
    if "stop" in verbs and isinstance(asked, Restore | Repair) and not asked.stops_writers:
        commands = f"--stop-writers, or {commands}"
    return ": ".join(filter(None, (planned.way_out, commands)))


def _say(planned: ActPreview) -> None:
    say(f"{planned.act.kind} of {planned.act.name}, v{planned.act.version}", style="bold")
    if planned.refused:
        say(f"refused: {planned.refused}", style="red")
    for line in preview_lines(planned):
        say(line)


# the acts --------------------------------------------------------------------------------------------------------


@_act(typed=False)
def optimize(
    name: TableName,
    partition: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Only files of this partition; once a column.")
    ] = None,
    zorder: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Lay rows out by this column.")] = None,
    full: Annotated[bool, typer.Option("--full", help="All files of a clustered table.")] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Rewrite the files that have deletion vectors instead.")
    ] = False,
    small_bytes: Annotated[int, typer.Option(min=0, help="Merge files below this size; 0: as the table says.")] = 0,
    target_bytes: Annotated[int, typer.Option(min=0, help="Into files of up to this size.")] = 0,
    prove_rows: Annotated[
        bool, typer.Option("--prove-rows", help="Read every row of the old files and the new ones again, and compare.")
    ] = False,
) -> Optimize:
    pairs = _pairs(partition, "is no partition", "--partition day=2026-01-31")
    chosen = {column: value or None for column, value in pairs.items()}
    return Optimize(chosen, tuple(zorder or ()), full, purge, small_bytes, target_bytes, prove_rows)


@_act()
def vacuum(
    name: TableName,
    lite: Annotated[bool, typer.Option("--lite", help="Find the files by the log, not by listing the table.")] = False,
) -> Vacuum:
    return Vacuum(lite)


@_act()
def restore(
    name: TableName,
    to: ToVersion,
    keep_properties: Annotated[bool, typer.Option("--keep-properties", help="Today's properties stay.")] = False,
    stop_writers: StopWriters = False,
) -> Restore:
    return Restore(_version(name, to), keep_properties, stop_writers)


@_act()
def rewind(name: TableName, to: ToVersion) -> Rewind:
    return Rewind(_version(name, to))


@_act()
def repair(
    name: TableName,
    where: Annotated[str, typer.Option("--where", help="SQL over a row: amount < 0.")] = "",
    values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="COLUMN=SQL", help="A new value, of the row as it was."),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete these rows.")] = False,
    from_version: Annotated[str | None, typer.Option(metavar="VERSION", help="Take its rows instead.")] = None,
    from_table: Annotated[str | None, typer.Option(metavar="T", help="Take its rows instead.")] = None,
    of_commit: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Only rows as it wrote them; without --set what it did is taken back."),
    ] = None,
    stop_writers: StopWriters = False,
) -> Repair:
    comes = bool(from_version or from_table)
    if delete or comes if of_commit else delete == bool(values or comes):
        hint = "--set COLUMN=SQL, --from-version V, --from-table T, --of-commit V, or --delete alone"
        raise QueryError("choose one thing to do with the rows", hint=hint)
    number = None if from_version is None else _version(from_table or name, from_version)
    source = from_table and services.own_lake().find(from_table).uri
    commit = None if of_commit is None else _version(name, of_commit)
    return Repair(where, parse_repairs(values or ()), number, source, stop_writers, commit)


@_act()
def alter(
    name: TableName,
    pairs: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a property.")] = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", metavar="KEY", help="Take a property away.")] = None,
    comment: Annotated[str | None, typer.Option("--comment", metavar="TEXT", help="What the table is.")] = None,
    add: Annotated[
        list[str] | None, typer.Option("--add-column", metavar="'NAME TYPE'", help="COMMENT 'text' may follow.")
    ] = None,
    rename: Annotated[list[str] | None, typer.Option("--rename-column", metavar="OLD=NEW")] = None,
    drop: Annotated[list[str] | None, typer.Option("--drop-column", metavar="NAME")] = None,
    widen: Annotated[list[str] | None, typer.Option("--widen-column", metavar="NAME=TYPE")] = None,
    constraints: Annotated[
        list[str] | None,
        typer.Option("--add-constraint", metavar="NAME=SQL", help="Every row satisfies it: positive=amount >= 0."),
    ] = None,
    drop_constraints: Annotated[list[str] | None, typer.Option("--drop-constraint", metavar="NAME")] = None,
) -> Alter:
    properties = _pairs(pairs, "sets no property", "--set delta.appendOnly=true")
    new = list(map(read_column, add or ()))
    renamed = (read_pair(text, such_as="--rename-column old=new") for text in rename or ())
    asked = Alter(
        {key.strip(): value.strip() for key, value in properties.items()},
        tuple(unset or ()),
        comment,
        {column: kind for column, kind, _ in new},
        {column: text for column, _, text in new if text},
        {old: read_whole_name(to, such_as="new") for old, to in renamed},
        tuple(read_whole_name(column, such_as="--drop-column discount") for column in drop or ()),
        dict(read_pair(text, such_as="--widen-column amount=double") for text in widen or ()),
        dict(read_pair(text, such_as="--add-constraint 'positive=amount >= 0'") for text in constraints or ()),
        tuple(drop_constraints or ()),
    )
    if asked == Alter():
        raise SettingsError("say --set KEY=VALUE, --unset KEY, or a change of its columns", hint="`weir alter --help`")
    return asked


@_act(typed=False)
def clone(
    name: TableName,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A name below the same root, or a URI below a root.")],
    at: At = None,
    shallow: Annotated[bool, typer.Option("--shallow", help="It reads the data files of T; none is copied.")] = False,
) -> Clone:
    return Clone(target, None if at is None else _version(name, at), shallow)


@_act()
def drop(name: TableName) -> Drop:
    return Drop()


@_act(typed=False)
def undrop(name: DroppedName) -> Undrop:
    return Undrop(name)


@_act()
def purge(name: DroppedName) -> Purge:
    return Purge(name)


def _version(name: str, version: str) -> int:
    lake, ref = opened(name)
    return resolve_version(lake, ref, version, services.clock())


def _pairs(texts: Sequence[str] | None, wrong: str, such_as: str) -> dict[str, str]:
    """ "NAME=VALUE" for each; raises `SettingsError`."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise SettingsError(f"{text!r} {wrong}", hint=f"such as {such_as}")
        pairs[name] = value
    return pairs


# an act in a file, and dropped tables ----------------------------------------------------------------------------


def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="As --intent wrote it.")],
    approved_by: Annotated[str, typer.Option(metavar="NAME", help="Who reviewed it; kept in the audit trail.")] = "",
    confirm: Confirm = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    text = file.read_text(encoding="utf-8")
    intent = Intent.parse(text)
    planned = _planned(intent.act.uri, intent.act.arguments)
    if moved := intent.moved(planned):
        raise StreamRefusedError(
            f"{intent.act.kind} of {intent.act.name} would do something else now: {'; '.join(moved)}",
            hint="write the intent again, and have it reviewed",
        )
    noted = {"intent": digest(text)} | ({"approved by": approved_by} if approved_by else {})
    return _carry_out(planned, intent.reason, confirm, dry_run=dry_run, as_json=as_json, noted=noted)


def dropped(as_json: AsJson = False) -> None:
    tables = dropped_tables(services.settings())
    if as_json:
        print_json(tables, _SHAPES)
    elif not tables:
        say("No table was dropped that could be brought back.")
    else:
        print_list(dropped_columns(services.now()), tables)
