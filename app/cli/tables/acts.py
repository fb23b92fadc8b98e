"""`weir optimize|vacuum|restore|alter T`: what an act on a table would do, and the request for it, which a host carries
out.

Rule: nothing is asked for without a reason and, where rows or versions can be lost, the table's name typed once more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app import services
from app.cli.output import Shapes, print_json, say, shaped
from app.cli.store import done_on_host, required_store
from app.cli.tables.lake import opened
from app.ui.view.acts import preview_lines, result_lines
from backend.changes.versions import resolve_version
from backend.errors import SettingsError, StreamRefusedError
from backend.maintenance.model import ActPreview, Alter, Arguments, Restore, TableAct, act_job
from backend.maintenance.plan import load_result, preview
from backend.maintenance.readers import load_users

_SHAPES: Shapes = {
    ActPreview: shaped(without=("typed",), empty_is_null=("refused", "way_out", "way_back"), needs_name="typed"),
    TableAct: shaped("kind", without=("name",), table="name"),
}


@dataclass(frozen=True, slots=True)
class TypedAct:
    """What was typed beside the act itself. `confirm`: the table's name once more."""

    name: str
    reason: str
    confirm: str


def act(typed: TypedAct, arguments: Arguments, *, dry_run: bool, as_json: bool) -> int:
    """The preview alone, or the act; the exit code says whether it was done."""
    lake, ref = opened(typed.name)
    settings, now = services.settings(), services.now()
    users = load_users(settings, lake, services.existing_store(), ref, now=now)
    planned = preview(settings, lake, ref, arguments, users, now=now)
    confirmed = not planned.typed or typed.confirm in (typed.name, ref.name)
    if dry_run or planned.refused or not confirmed:
        print_json(planned, _SHAPES) if as_json else _say(planned)
    if dry_run:
        return 0
    if planned.refused:
        raise StreamRefusedError(f"{planned.act.kind} of {ref.name}: {planned.refused}", hint=planned.way_out)
    if not confirmed:
        raise StreamRefusedError("nothing was done", hint=f"say --confirm {ref.name} once you have read what it does")
    job = done_on_host(required_store(), act_job(planned.act, actor=services.actor(), reason=typed.reason))
    result = load_result(settings, job)
    if as_json:
        print_json({"preview": planned, "result": result, "job_id": job.job_id}, _SHAPES)
    else:
        for line in result_lines(result):
            say(line)
        say(f"Way back: {planned.way_back}.", style="dim")
    return 0


def restored(name: str, to: str, *, keeps_properties: bool) -> Restore:
    lake, ref = opened(name)
    return Restore(resolve_version(lake, ref, to), keeps_properties)


def partition_of(pairs: Sequence[str]) -> dict[str, str | None]:
    """ "day=2026-01-31"; nothing behind the sign is null. Raises `SettingsError`."""
    partition: dict[str, str | None] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise SettingsError(f"{pair!r} is no partition", hint="such as --partition day=2026-01-31")
        partition[name] = value or None
    return partition


def altered(pairs: Sequence[str], unset: Sequence[str]) -> Alter:
    """ "delta.appendOnly=true"; raises `SettingsError`."""
    given: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise SettingsError(f"{pair!r} sets no property", hint="such as --set delta.appendOnly=true")
        given[name.strip()] = value.strip()
    if not given and not unset:
        raise SettingsError("say --set KEY=VALUE or --unset KEY", hint="`weir alter --help`")
    return Alter(given, tuple(unset))


def _say(planned: ActPreview) -> None:
    say(f"{planned.act.kind} of {planned.act.name}, v{planned.act.version}", style="bold")
    if planned.refused:
        say(f"refused: {planned.refused}", style="red")
    for line in preview_lines(planned):
        say(line)
