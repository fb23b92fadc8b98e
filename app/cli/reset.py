"""`weir reset`: what a reset of a stream would do, and the request for it, which the stream host carries out.

Rule: nothing is asked for without a reason and, since rows change, the stream's name typed once more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app import services
from app.cli.output import Shapes, only, print_json, say, shaped
from app.cli.store import done_on_host, required_store, streams_and_hosts
from app.streams.text import reset_lines
from backend.errors import SettingsError, StreamRefusedError
from backend.stream_model.backlog import Backlog
from backend.streams.reset import ResetLevel, ResetPreview, ResetRequest, load_preview, parse_starts, reset_job

if TYPE_CHECKING:
    pass

_DOCUMENT = shaped(without=("again",), empty_is_null=("refused",), reads_again="again")
_SHAPES: Shapes = {Backlog: only("files", "rows", bytes="size_bytes")}


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
    name, store, lake = act.name, required_store(), services.lake()
    statuses, _ = streams_and_hosts()
    declared = next((status.declaration for status in statuses if status.declaration.name == name), None)
    starts = parse_starts(lake, declared, act.wheres, services.clock()) if declared and act.wheres else {}
    preview = load_preview(
        services.settings(), lake, store, statuses, name=name, level=act.level, now=services.now(), starts=starts
    )
    if dry_run or not (preview.refused or act.confirm == name):
        print_json(_DOCUMENT(preview), _SHAPES) if as_json else _say(preview)
    if dry_run:
        return 0
    if preview.refused:
        raise StreamRefusedError(f"{name} is not reset: {preview.refused}")
    if act.confirm != name:
        raise StreamRefusedError("nothing was done", hint=f"say --confirm {name} once you have read what it does")
    request = ResetRequest(name, act.level, starts)
    job = done_on_host(store, reset_job(request, actor=services.actor(), reason=act.reason))
    if as_json:
        print_json(_DOCUMENT(preview) | {"job_id": job.job_id}, _SHAPES)
    else:
        say(f"{name}: {preview.effect}.")
        say(f"Take it back with `weir reset {name} --level undo`; start it with `weir start {name}`.", style="dim")
    return 0


def _say(preview: ResetPreview) -> None:
    say(f"{preview.stream}: {preview.effect}", style="bold")
    if preview.refused:
        say(f"refused: {preview.refused}", style="red")
    for line in reset_lines(preview):
        say(line)
