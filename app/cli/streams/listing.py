"""`weir streams|stream`.

Rule: reads through the control store; a store that does not exist is not made by asking for it.
"""

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli.output import now, print_json, print_table, say
from app.cli.streams import documents
from app.cli.tables.lake import services
from backend.errors import StreamNotFoundError
from backend.format import ago, rate_text, things, utc_text
from backend.settings import Settings
from backend.stream_model.overrides import overridden_text
from backend.stream_model.stream import HostHeartbeat, StreamState
from backend.streams.backlog.words import behind_text, data_loss_sentence, source_sentence
from backend.streams.faults import recognise
from backend.streams.verdict import StreamStatus

if TYPE_CHECKING:
    from backend.lake.lake import Lake
    from backend.store.store import ControlStore
    from backend.streams.status import Backlogs

_SQLITE = "sqlite:///"
NO_HOST_HINT = "start the host with `weir up` or `weir host`; WEIR_HOME or WEIR_STORE__URL say where its store is"


def everything(*, as_json: bool) -> int:
    settings, lake = services()
    statuses, hosts = known_streams(settings, _backlogs(settings, lake))
    if as_json:
        print_json([documents.stream(status) for status in statuses])
        return 0
    if not statuses:
        say("No streams: no host has declared any yet.")
        say(NO_HOST_HINT, style="dim")
        return 0
    print_table(
        ("stream", "desired", "state", "verdict", "behind", "last batch", "input", "why"),
        (_row(status) for status in statuses),
        right=("behind", "input"),
    )
    ours = [status for status in statuses if not status.declaration.is_attached]
    if ours and not is_host_alive(hosts, settings):
        say(f"No host is alive: {things(len(ours), 'stream')} of this lake cannot move.", style="yellow")
    return 0


def one(name: str, *, as_json: bool) -> int:
    settings, lake = services()
    status = stream_named(name, known_streams(settings, _backlogs(settings, lake))[0])
    if as_json:
        print_json(documents.whole_stream(status))
        return 0
    declaration, progress = status.declaration, status.progress
    desired = status.desired.state.value if status.desired else "–"
    say(f"{name} · {status.state.value} · {status.verdict.value}", style="bold")
    say(declaration.description)
    say(status.because)
    say()
    lines = {
        "desired": f"{desired}{_asked(status)}",
        "source": declaration.source,
        "sink": f"{declaration.writes_to}" + (f" ({declaration.sink_uri})" if declaration.sink_uri else ""),
        "trigger": f"{declaration.trigger_interval_ms / 1000:g} s",
        **({"overrides": overridden_text(status.overrides)} if status.overrides else {}),
        "checkpoint": declaration.checkpoint_location,
        "query id": (status.observed.query_id if status.observed else None) or "–",
        "batch": f"{progress.batch_id} · {ago(progress.progressed_at, now())}" if progress else "–",
        "rates": _rates(status),
        "watermark": utc_text(progress.watermark) if progress else "–",
    }
    lines |= {"waits" if place == 0 else "": text for place, text in enumerate(_waits(status))}
    for word, text in lines.items():
        say(f"{word:<11} {text}")
    for failure in status.observed.failures if status.observed else ():
        say(f"failed {ago(failure.failed_at, now())}: {failure.error_class}: {failure.message}", style="red")
    if status.observed and status.observed.last_failure:
        for fault in recognise(status.observed.last_failure):
            say(f"{fault.name}. {fault.cause}")
            say(f"→ {fault.remedy}")
        say(f"`weir preflight {name}` shows what stands against a restart.", style="dim")
    return 0


def known_streams(
    settings: Settings, backlogs: "Backlogs | None" = None
) -> tuple[list[StreamStatus], list[HostHeartbeat]]:
    """Every declared stream and every host; both empty where there is no store yet."""
    with control_store(settings) as store:
        if store is None:
            return [], []
        from backend.streams.status import statuses

        store.take_in(settings.roots)
        found = statuses(store, backlogs, now=store.now(), heartbeat_stale_s=settings.host.heartbeat_stale_s)
        return found, store.hosts(now=now())


def _backlogs(settings: Settings, lake: "Lake") -> "Backlogs":
    from backend.streams.backlog.reader import BacklogReader

    return BacklogReader(settings, lake)


def query_names(statuses: list[StreamStatus]) -> dict[str, str]:
    """Stream names by query id: a streaming commit carries no other sign of its stream."""
    return {s.observed.query_id: s.declaration.name for s in statuses if s.observed and s.observed.query_id}


def actor() -> str:
    """The person at the terminal, as the operating system knows them."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


@contextmanager
def control_store(settings: Settings) -> Iterator["ControlStore | None"]:
    """The control store, closed afterwards; None where its SQLite file does not exist."""
    file = Path(settings.store_url.removeprefix(_SQLITE).partition("?")[0])
    if settings.store_url.startswith(_SQLITE) and not file.exists():
        yield None
        return
    from backend.store.store import ControlStore

    store = ControlStore.open(settings)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def required_store(settings: Settings) -> Iterator["ControlStore"]:
    """The control store; raises `StreamNotFoundError` where there is none: then there is no stream and no job."""
    with control_store(settings) as store:
        if store is None:
            raise StreamNotFoundError("there is no control store yet, so no stream and no job", hint=NO_HOST_HINT)
        yield store


def stream_named(name: str, statuses: list[StreamStatus]) -> StreamStatus:
    """Raises `StreamNotFoundError` naming those that are there."""
    for status in statuses:
        if status.declaration.name == name:
            return status
    known = ", ".join(status.declaration.name for status in statuses)
    raise StreamNotFoundError(f"no stream {name!r}", hint=f"streams: {known}" if known else NO_HOST_HINT)


def is_host_alive(hosts: list[HostHeartbeat], settings: Settings) -> bool:
    return any((now() - host.beat_at).total_seconds() <= settings.host.heartbeat_stale_s for host in hosts)


def _asked(status: StreamStatus) -> str:
    wish = status.desired
    return f" ({wish.actor}, {ago(wish.requested_at, now())}: {wish.reason})" if wish else ""


def _rates(status: StreamStatus) -> str:
    """Those of now; a stream that does not run has none, and its last ones are said."""
    present = f"in {rate_text(status.input_rows_per_s)}, out {rate_text(status.processed_rows_per_s)}"
    last = status.progress
    if last is None or status.state is StreamState.RUNNING:
        return present
    return (
        f"{present} · its last batch: in {rate_text(last.input_rows_per_s)}, out {rate_text(last.processed_rows_per_s)}"
    )


def _waits(status: StreamStatus) -> Iterator[str]:
    """A line a source, and until when that is safe."""
    if status.backlog is None:
        return
    for source in status.backlog.sources:
        yield f"{source.name}: {source_sentence(source, now=now())}"
    if loss := status.backlog.data_loss:
        yield data_loss_sentence(loss, now=now())


def _row(status: StreamStatus) -> tuple[str, ...]:
    progress = status.progress
    return (
        status.declaration.name,
        status.desired.state.value if status.desired else "–",
        status.state.value,
        status.verdict.value,
        behind_text(status.backlog),
        ago(progress.progressed_at, now()) if progress else "–",
        rate_text(status.input_rows_per_s),
        status.because,
    )
