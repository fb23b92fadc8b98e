"""`weir reset`: what a reset of a stream would do, and the request for it, which the stream host carries out.

Rule: nothing is asked for without a reason and, since rows change, the stream's name typed once more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.cli.output import now, print_json, say
from app.cli.streams.jobs import awaited, require_host
from app.cli.streams.listing import actor, known_streams, required_store
from app.cli.tables.lake import services
from app.streams.text import reset_lines
from backend.errors import JobError, SettingsError, StreamRefusedError
from backend.jobs.model import JobState
from backend.settings import Settings
from backend.streams.reset.plan import ResetLevel, ResetPreview, ResetRequest, reset_job
from backend.streams.reset.preview import load_preview
from backend.streams.reset.starts import parse_starts

if TYPE_CHECKING:
    from backend.store.store import ControlStore


@dataclass(frozen=True, slots=True)
class TypedReset:
    """What was typed. `wheres`: where its sources begin, of FROM."""

    name: str
    level: ResetLevel
    wheres: tuple[str, ...]
    reason: str
    confirm: str


def level_of(level: str | None, wheres: Sequence[str]) -> ResetLevel:
    """`--from` is a level of its own; raises `SettingsError` where both or neither are given."""
    if wheres and level in (None, ResetLevel.FROM):
        return ResetLevel.FROM
    if wheres or level in (None, ResetLevel.FROM):
        raise SettingsError("say --from WHERE, or --level reprocess, full or undo", hint="`weir reset --help`")
    return ResetLevel(level)


def reset(act: TypedReset, *, dry_run: bool, as_json: bool) -> int:
    """The preview alone, or the act; the exit code says whether it was done."""
    name, settings, lake = act.name, *services()
    with required_store(settings) as store:
        statuses, _ = known_streams(settings)
        declared = next((each.declaration for each in statuses if each.declaration.name == name), None)
        starts = parse_starts(lake, declared, act.wheres) if declared and act.wheres else {}
        found = load_preview(settings, lake, store, statuses, name=name, level=act.level, now=now(), starts=starts)
        if dry_run or not (found.refused or act.confirm == name):
            print_json(_document(found)) if as_json else _say(found)
        if dry_run:
            return 0
        if found.refused:
            raise StreamRefusedError(f"{name} is not reset: {found.refused}")
        if act.confirm != name:
            raise StreamRefusedError("nothing was done", hint=f"say --confirm {name} once you have read what it does")
        job_id = _done(store, settings, ResetRequest(name, act.level, starts), act.reason)
    if as_json:
        print_json({**_document(found), "job_id": job_id})
    else:
        say(f"{name}: {found.effect}.")
        say(f"Take it back with `weir reset {name} --level undo`; start it with `weir start {name}`.", style="dim")
    return 0


def _done(store: "ControlStore", settings: Settings, request: ResetRequest, reason: str) -> str:
    """Waits for the host; raises `JobError` where it could not, or is not there."""
    require_host(store, settings)
    wanted = reset_job(request, actor=actor(), reason=reason)
    job = awaited(store, settings, store.jobs.submit(wanted, now=now()), hint="`weir jobs` says when it is done")
    if job.state is not JobState.DONE:
        raise JobError(f"{request.stream} was not reset: {job.error or job.state.value.lower()}", hint=job.hint)
    return job.job_id


def _say(found: ResetPreview) -> None:
    say(f"{found.stream}: {found.effect}", style="bold")
    if found.refused:
        say(f"refused: {found.refused}", style="red")
    for line in reset_lines(found):
        say(line)


def _document(found: ResetPreview) -> dict[str, object]:
    again = found.again
    return {
        "stream": found.stream,
        "level": found.level.value,
        "refused": found.refused or None,
        "effect": found.effect,
        "reads_again": {"files": again.files, "bytes": again.size_bytes, "rows": again.rows} if again else None,
        "risks": list(found.risks),
        "downstream": list(found.downstream),
    }
