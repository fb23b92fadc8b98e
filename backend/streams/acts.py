"""What may be asked of a stream now, and which streams one command asks something of.

Rule: pure. A stream that was named is asked in any case; of many that were chosen by a rule, those that cannot or need
not be asked are left out, each with the reason.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from backend.errors import StreamNotFoundError
from backend.stream_model.stream import Action, DesiredState, StreamState
from backend.streams.graph import build_graph, in_graph_order
from backend.streams.verdict import StreamStatus


@dataclass(frozen=True, slots=True)
class Selection:
    """Streams by name, `with_downstream` with all that they feed; or by one of the rest. `tag`: its name and value."""

    names: tuple[str, ...] = ()
    with_downstream: bool = False
    upstream_of: str = ""
    downstream_of: str = ""
    layer: str = ""
    tag: tuple[str, str] = ("", "")
    everything: bool = False


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A chosen stream of which nothing is asked, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class ActPlan:
    """What is asked of whom, sources first, and who is left out."""

    action: Action
    asked: tuple[StreamStatus, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of the streams that are asked."""
        return tuple(status.declaration.name for status in self.asked)


def choose(selection: Selection, statuses: Sequence[StreamStatus], *, now: datetime) -> list[StreamStatus]:
    """The streams of a selection, sources first. Raises `StreamNotFoundError` where there is none."""
    graph = build_graph(statuses, {}, now=now)
    above = selection.names if selection.with_downstream else (selection.downstream_of,)
    names = {
        *selection.names,
        *(graph.upstream(selection.upstream_of) if selection.upstream_of else ()),
        *(name for start in above for name in graph.downstream(start)),
    }
    tag, value = selection.tag
    chosen = [
        status
        for status in in_graph_order(statuses, now=now)
        if selection.everything
        or status.declaration.name in names
        or (selection.layer and status.declaration.layer == selection.layer)
        or (tag and status.declaration.tags.get(tag) == value)
    ]
    if not chosen or not set(selection.names) <= {status.declaration.name for status in chosen}:
        raise _nothing_chosen(selection, statuses)
    return chosen


def plan_acts(action: Action, selection: Selection, statuses: Sequence[StreamStatus], *, now: datetime) -> ActPlan:
    """Raises `StreamNotFoundError` where nothing is chosen."""
    return plan_of(action, choose(selection, statuses, now=now), named=selection.names)


def plan_of(action: Action, chosen: Sequence[StreamStatus], *, named: Collection[str] = ()) -> ActPlan:
    """Of which of the chosen streams something is asked. Those that were `named` are asked in any case."""
    why = {
        status.declaration.name: blocked(status, action) for status in chosen if status.declaration.name not in named
    }
    return ActPlan(
        action,
        tuple(status for status in chosen if why.get(status.declaration.name) is None),
        tuple(LeftOut(name, text) for name, text in why.items() if text is not None),
    )


def blocked(status: StreamStatus, action: Action) -> str | None:
    """Why `action` cannot or need not be asked of the stream now; None where it may be."""
    if status.declaration.is_attached:
        return f"{status.declaration.pipeline}, another Spark application, runs it: act there."
    return _BLOCKED[action](status)


def _nothing_chosen(selection: Selection, statuses: Sequence[StreamStatus]) -> StreamNotFoundError:
    declared = [status.declaration for status in statuses]
    names = [stream.name for stream in declared]
    if missing := [name for name in selection.names if name not in names]:
        return StreamNotFoundError(f"no stream {missing[0]!r}", hint=_known("streams", names))
    if selection.layer:
        layers = (stream.layer for stream in declared if stream.layer)
        return StreamNotFoundError(f"no stream has the layer {selection.layer!r}", hint=_known("layers", layers))
    if selection.tag[0]:
        tags = (f"{tag}={value}" for stream in declared for tag, value in stream.tags.items())
        return StreamNotFoundError(f"no stream has the tag {'='.join(selection.tag)}", hint=_known("tags", tags))
    if end := selection.upstream_of or selection.downstream_of:
        words = "feeds" if selection.upstream_of else "reads what comes from"
        return StreamNotFoundError(f"no stream {words} {end!r}", hint="`weir pipelines graph` shows what feeds what")
    return StreamNotFoundError("no stream is declared", hint="a host declares its streams when it starts: `weir host`")


def _known(what: str, names: Iterable[str]) -> str:
    listed = ", ".join(sorted(set(names)))
    return f"{what}: {listed}" if listed else f"there are no {what}"


def _wants(status: StreamStatus, state: DesiredState) -> bool:
    return status.desired is not None and status.desired.state is state


def _start_blocked(status: StreamStatus) -> str | None:
    if not _wants(status, DesiredState.RUNNING) or status.state in (StreamState.FAILED, StreamState.COMPLETED):
        return None
    if status.state.flows:
        return f"It is {status.state.value.lower()} already."
    if status.state is StreamState.BACKOFF:
        return "Its host starts it again after the pause; Restart does it now."
    return "It is wanted running already; a host has yet to start it."


def _stop_blocked(status: StreamStatus) -> str | None:
    if not _wants(status, DesiredState.STOPPED):
        return None if status.state is not StreamState.STOPPED or not _stop_wanted(status) else "It is stopped already."
    if status.state is StreamState.STOPPED:
        return "It is stopped already."
    return "It is wanted stopped already; its host finishes the running micro-batch first."


def _drain_blocked(status: StreamStatus) -> str | None:
    if status.desired and status.desired.drains and status.state is StreamState.RUNNING:
        return "It stops by itself once it has read what was there."
    return None if status.state is StreamState.RUNNING else "It does not run, so it cannot catch up."


def _stop_wanted(status: StreamStatus) -> bool:
    return status.desired is not None and status.desired.wants_stop


_BLOCKED: Mapping[Action, Callable[[StreamStatus], str | None]] = {
    "start": _start_blocked,
    "stop": _stop_blocked,
    "drain": _drain_blocked,
    "drain through": _drain_blocked,
    "restart": lambda status: "It is wanted stopped: use Start." if _stop_wanted(status) else None,
}
