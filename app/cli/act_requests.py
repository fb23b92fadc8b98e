"""`weir optimize|vacuum|restore|rewind|repair|alter|clone|drop|undrop|purge T`, `weir apply FILE`: what an act on a
table would do, and the request for it, which a host carries out.

Rule: nothing is asked for without a reason and, where rows or versions can be lost, the table's name typed once more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from app import services
from app.cli.lake import opened
from app.cli.output import Shapes, print_json, print_table, say, shaped
from app.cli.store import done_on_host, required_store
from app.ui.view.acts import preview_lines, result_lines
from backend.errors import QueryError, SettingsError, StreamRefusedError
from backend.format import bytes_text, count_text, utc_text
from backend.lake.history.history import resolve_version
from backend.maintenance.alter import read_column, read_pair, read_whole_name
from backend.maintenance.clone_and_drop import DroppedTable, dropped_tables
from backend.maintenance.model import (
    ActPreview,
    ActResult,
    Alter,
    Arguments,
    Clone,
    Intent,
    Repair,
    Restore,
    Rewind,
    TableAct,
    act_job,
    digest,
)
from backend.maintenance.plan import load_preview
from backend.streams.requeue import parse_repairs

_SHAPES: Shapes = {
    ActPreview: shaped(without=("typed",), empty_is_null=("refused", "way_out", "way_back"), needs_name="typed"),
    TableAct: shaped("kind", without=("name",), table="name"),
    DroppedTable: shaped(without=("root",)),
}


@dataclass(frozen=True, slots=True)
class TypedAct:
    """What was typed beside the act itself. `confirm`: the table's name once more; `intent`: the file to write it to,
    instead of doing it."""

    name: str
    reason: str
    confirm: str = ""
    intent: Path | None = None


def act(typed: TypedAct, arguments: Arguments, *, dry_run: bool, as_json: bool) -> int:
    """The preview alone, the act written to a file, or the act; the exit code says whether it was done."""
    planned = _planned(typed.name, arguments)
    if dry_run:
        print_json(planned, _SHAPES) if as_json else _say(planned)
        return 0
    if typed.intent is None:
        return _done(planned, typed.reason, confirm=typed.confirm, noted={}, as_json=as_json)
    _refuse(planned, as_json=as_json)
    if not typed.reason.strip():
        raise StreamRefusedError("nothing was written: a reason is required", hint="--reason says it to the reviewer")
    text = Intent.of(planned, typed.reason).file(tuple(preview_lines(planned)), now=services.now())
    typed.intent.write_text(text, encoding="utf-8")
    say(f"{typed.intent}: {digest(text)}. `weir apply {typed.intent}` does it while it would do the same.")
    return 0


def apply(file: Path, *, approved_by: str, confirm: str, dry_run: bool, as_json: bool) -> int:
    """What a file says, while it would do what was reviewed."""
    text = file.read_text(encoding="utf-8")
    intent = Intent.parse(text)
    planned = _planned(intent.act.uri, intent.act.arguments)
    if moved := intent.moved(planned):
        raise StreamRefusedError(
            f"{intent.act.kind} of {intent.act.name} would do something else now: {'; '.join(moved)}",
            hint="write the intent anew, and have that reviewed",
        )
    if dry_run:
        print_json(planned, _SHAPES) if as_json else _say(planned)
        return 0
    noted = {"intent": digest(text)} | ({"approved by": approved_by} if approved_by else {})
    return _done(planned, intent.reason, confirm=confirm, noted=noted, as_json=as_json)


def _planned(name: str, arguments: Arguments) -> ActPreview:
    settings, lake, store = services.settings(), services.lake(), services.existing_store()
    return load_preview(settings, lake, store, name, arguments, now=services.now())


def dropped(*, as_json: bool) -> int:
    tables = dropped_tables(services.settings())
    if as_json:
        print_json(tables, _SHAPES)
    elif not tables:
        say("No table was dropped that could be brought back.")
    else:
        print_table(
            ("table", "job", "rows", "size", "dropped", "by", "reason"),
            (
                (
                    table.name, table.job_id, count_text(table.num_rows), bytes_text(table.size_bytes),
                    utc_text(datetime.fromisoformat(table.dropped_at)), table.actor, table.reason,
                )
                for table in tables
            ),
            right=("rows", "size"),
        )  # fmt: skip
    return 0


def _refuse(planned: ActPreview, *, as_json: bool) -> None:
    if planned.refused:
        print_json(planned, _SHAPES) if as_json else _say(planned)
        reason = f"{planned.act.kind} of {planned.act.name}: {planned.refused}"
        raise StreamRefusedError(reason, hint=planned.way_out)


def _done(planned: ActPreview, reason: str, *, confirm: str, noted: Mapping[str, str], as_json: bool) -> int:
    """`noted`: what the audit trail keeps beside the act."""
    _refuse(planned, as_json=as_json)
    name = planned.act.name
    if planned.typed and confirm not in (name, planned.act.uri):
        print_json(planned, _SHAPES) if as_json else _say(planned)
        raise StreamRefusedError("nothing was done", hint=f"say --confirm {name} once you have read what it does")
    wanted = act_job(planned.act, actor=services.actor(), reason=reason)
    job = done_on_host(required_store(), replace(wanted, parameters={**wanted.parameters, **noted}))
    result = ActResult.of(job)
    if as_json:
        print_json({"preview": planned, "result": result, "job_id": job.job_id}, _SHAPES)
    else:
        for line in result_lines(result):
            say(line)
        say(f"Way back: {planned.way_back}.", style="dim")
    return 0


def restored(name: str, to: str, *, keeps_properties: bool, stops_writers: bool) -> Restore:
    lake, ref = opened(name)
    return Restore(resolve_version(lake, ref, to, services.clock()), keeps_properties, stops_writers)


def rewound(name: str, to: str) -> Rewind:
    lake, ref = opened(name)
    return Rewind(resolve_version(lake, ref, to, services.clock()))


def repaired(
    name: str, where: str, values: Sequence[str], source: tuple[str | None, str | None],
    *, deletes: bool, stops_writers: bool,
) -> Repair:  # fmt: skip
    """`source`: version and table that rows come from. Raises `QueryError`, and where there is no such table or
    version."""
    version, table = source
    if deletes == any((values, version, table)):
        hint = "--set COLUMN=SQL, --from-version V, --from-table T, or --delete alone"
        raise QueryError("a repair is told one thing that becomes of the rows", hint=hint)
    lake, ref = opened(table or name)
    number = None if version is None else resolve_version(lake, ref, version, services.clock())
    return Repair(where, parse_repairs(values), number, table and ref.uri, stops_writers)


def cloned(name: str, target: str, version: str | None, *, shallow: bool) -> Clone:
    lake, ref = opened(name)
    return Clone(target, None if version is None else resolve_version(lake, ref, version, services.clock()), shallow)


def partition_of(pairs: Sequence[str]) -> dict[str, str | None]:
    """ "day=2026-01-31"; nothing behind the sign is null. Raises `SettingsError`."""
    partition: dict[str, str | None] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise SettingsError(f"{pair!r} is no partition", hint="such as --partition day=2026-01-31")
        partition[name] = value or None
    return partition


@dataclass(frozen=True, slots=True)
class TypedColumns:
    """What was typed of columns and constraints: "NAME TYPE", "OLD=NEW", "NAME", "NAME=TYPE", "NAME=CONDITION"."""

    add: Sequence[str] = ()
    rename: Sequence[str] = ()
    drop: Sequence[str] = ()
    widen: Sequence[str] = ()
    constraints: Sequence[str] = ()
    drop_constraints: Sequence[str] = ()


def altered(pairs: Sequence[str], unset: Sequence[str], comment: str | None, typed: TypedColumns) -> Alter:
    """ "delta.appendOnly=true"; raises `SettingsError`, `QueryError` for names and types."""
    given: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise SettingsError(f"{pair!r} sets no property", hint="such as --set delta.appendOnly=true")
        given[name.strip()] = value.strip()
    new = list(map(read_column, typed.add))
    asked = Alter(
        given,
        tuple(unset),
        comment,
        {name: kind for name, kind, _ in new},
        {name: text for name, _, text in new if text},
        {old: read_whole_name(to, such_as="new") for old, to in _pairs(typed.rename, "--rename-column old=new")},
        tuple(read_whole_name(name, such_as="--drop-column discount") for name in typed.drop),
        dict(_pairs(typed.widen, "--widen-column amount=double")),
        dict(_pairs(typed.constraints, "--add-constraint 'positive=amount >= 0'")),
        tuple(typed.drop_constraints),
    )
    if asked == Alter():
        raise SettingsError("say --set KEY=VALUE, --unset KEY or what of its columns", hint="`weir alter --help`")
    return asked


def _pairs(texts: Sequence[str], such_as: str) -> list[tuple[str, str]]:
    return [read_pair(text, such_as=such_as) for text in texts]


def _say(planned: ActPreview) -> None:
    say(f"{planned.act.kind} of {planned.act.name}, v{planned.act.version}", style="bold")
    if planned.refused:
        say(f"refused: {planned.refused}", style="red")
    for line in preview_lines(planned):
        say(line)
