"""The commands of `weir` that act on tables, and their options.

Rule: a command parses, calls, prints; what is behind it is imported when it runs, so that `weir` starts fast.
"""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.commands import VERSION, AsJson, At, DryRun, Reason, TableName

IntentFile = Annotated[
    Path | None,
    typer.Option("--intent", metavar="FILE", help="Write the act to a file for review instead of doing it."),
]
StopWriters = Annotated[
    bool, typer.Option("--stop-writers", help="Stop the streams that write it meanwhile, and start them again after.")
]
Confirm = Annotated[str, typer.Option(metavar="TABLE", help="The table's name once more.")]


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
    reason: Reason = "",
    intent: IntentFile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    from app.cli import act_requests as acts
    from backend.maintenance.model import Optimize

    chosen = acts.partition_of(partition or ())
    asked = Optimize(chosen, tuple(zorder or ()), full, purge, small_bytes, target_bytes, prove_rows)
    return acts.act(acts.TypedAct(name, reason, intent=intent), asked, dry_run=dry_run, as_json=as_json)


def vacuum(
    name: TableName,
    lite: Annotated[bool, typer.Option("--lite", help="Find the files by the log, not by listing the table.")] = False,
    reason: Reason = "",
    confirm: Confirm = "",
    intent: IntentFile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    from app.cli import act_requests as acts
    from backend.maintenance.model import Vacuum

    return acts.act(acts.TypedAct(name, reason, confirm, intent), Vacuum(lite), dry_run=dry_run, as_json=as_json)


def restore(
    name: TableName,
    to: Annotated[str, typer.Option("--to", metavar="VERSION", help=VERSION)],
    keep_properties: Annotated[bool, typer.Option("--keep-properties", help="Today's properties stay.")] = False,
    stop_writers: StopWriters = False,
    reason: Reason = "",
    confirm: Confirm = "",
    intent: IntentFile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    from app.cli import act_requests as acts

    asked = acts.restored(name, to, keeps_properties=keep_properties, stops_writers=stop_writers)
    return acts.act(acts.TypedAct(name, reason, confirm, intent), asked, dry_run=dry_run, as_json=as_json)


def rewind(
    name: TableName,
    to: Annotated[str, typer.Option("--to", metavar="VERSION", help=VERSION)],
    reason: Reason = "",
    confirm: Confirm = "",
    intent: IntentFile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    from app.cli import act_requests as acts

    asked = acts.rewound(name, to)
    return acts.act(acts.TypedAct(name, reason, confirm, intent), asked, dry_run=dry_run, as_json=as_json)


def repair(
    name: TableName,
    where: Annotated[str, typer.Option("--where", help="SQL over a row: amount < 0.")],
    values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="COLUMN=SQL", help="A new value, of the row as it was."),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete these rows.")] = False,
    from_version: Annotated[str | None, typer.Option(metavar="VERSION", help="Take its rows instead.")] = None,
    from_table: Annotated[str | None, typer.Option(metavar="T", help="Take its rows instead.")] = None,
    stop_writers: StopWriters = False,
    reason: Reason = "",
    confirm: Confirm = "",
    intent: IntentFile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    from app.cli import act_requests as acts

    source = from_version, from_table
    asked = acts.repaired(name, where, values or (), source, deletes=delete, stops_writers=stop_writers)
    return acts.act(acts.TypedAct(name, reason, confirm, intent), asked, dry_run=dry_run, as_json=as_json)


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
    reason: Reason = "",
    confirm: Confirm = "",
    intent: IntentFile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    from app.cli import act_requests as acts

    given = (add, rename, drop, widen, constraints, drop_constraints)
    asked = acts.altered(pairs or (), unset or (), comment, acts.TypedColumns(*(texts or () for texts in given)))
    return acts.act(acts.TypedAct(name, reason, confirm, intent), asked, dry_run=dry_run, as_json=as_json)


def clone(
    name: TableName,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A name below the same root, or a URI below a root.")],
    at: At = None,
    shallow: Annotated[bool, typer.Option("--shallow", help="It reads the data files of T; none is copied.")] = False,
    reason: Reason = "",
    intent: IntentFile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    from app.cli import act_requests as acts

    asked = acts.cloned(name, target, at, shallow=shallow)
    return acts.act(acts.TypedAct(name, reason, intent=intent), asked, dry_run=dry_run, as_json=as_json)


def drop(
    name: TableName,
    reason: Reason = "",
    confirm: Confirm = "",
    intent: IntentFile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    from app.cli import act_requests as acts
    from backend.maintenance.model import Drop

    return acts.act(acts.TypedAct(name, reason, confirm, intent), Drop(), dry_run=dry_run, as_json=as_json)


DroppedName = Annotated[str, typer.Argument(metavar="T", help="A dropped table, or the job that dropped it.")]


def undrop(
    name: DroppedName,
    reason: Reason = "",
    intent: IntentFile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    from app.cli import act_requests as acts
    from backend.maintenance.model import Undrop

    return acts.act(acts.TypedAct(name, reason, intent=intent), Undrop(name), dry_run=dry_run, as_json=as_json)


def purge(
    name: DroppedName,
    reason: Reason = "",
    confirm: Confirm = "",
    intent: IntentFile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    from app.cli import act_requests as acts
    from backend.maintenance.model import Purge

    return acts.act(acts.TypedAct(name, reason, confirm, intent), Purge(name), dry_run=dry_run, as_json=as_json)


def dropped(as_json: AsJson = False) -> int:
    from app.cli import act_requests as acts

    return acts.dropped(as_json=as_json)


def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="As --intent wrote it.")],
    approved_by: Annotated[str, typer.Option(metavar="NAME", help="Who reviewed it; kept in the audit trail.")] = "",
    confirm: Confirm = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    from app.cli import act_requests as acts

    return acts.apply(file, approved_by=approved_by, confirm=confirm, dry_run=dry_run, as_json=as_json)
