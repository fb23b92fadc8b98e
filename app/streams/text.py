"""The words of streams and of what may be asked of them, for pages and terminal alike.

Rule: pure, and free of pandas, which the terminal does without; what is said is what will be, not how it is done.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from backend.format import UNKNOWN, ago, cut, duration_text, ms_text, things
from backend.jobs.model import why_no_host
from backend.stream_model.overrides import trigger_text
from backend.stream_model.rollup import HOUR_S, Points
from backend.stream_model.stream import Action, HostHeartbeat, Progress, StreamDeclaration
from backend.streams.acts import LeftOut
from backend.streams.faults import Outcome, Preflight
from backend.streams.requeue import RequeueAnswer, RequeueRequest, Sample, breaking, quarantine_of
from backend.streams.reset import ResetLevel, ResetPreview, reads_again
from backend.streams.verdict import StreamStatus

Versions = Mapping[tuple[str, int], int]  # that batches wrote, by query id and batch: after a reset numbers begin anew
MOST_SAMPLE_COLUMNS = 12
RESET_LABELS = {
    ResetLevel.REPROCESS: "Read all again",
    ResetLevel.FROM: "Read again from …",
    ResetLevel.FULL: "Empty tables and read all again",
    ResetLevel.UNDO: "Undo the last reset",
}
_EFFECTS: Mapping[Action, str] = {
    "start": "The host starts {who} from its checkpoint; nothing is read twice and nothing is skipped.",
    "stop": "The host stops {who}. Its checkpoint stays.",
    "restart": "The host stops {who} after the running micro-batch and starts it again from its checkpoint.",
}
STOPS: Mapping[str, tuple[Action, str]] = {  # when a stream stops, as a person chooses it
    "Now": ("stop", "After the running micro-batch"),
    "Drain": ("drain", "Once it has read what is there now"),
    "Drain the chain": ("drain through", "With all that it feeds: each once it has read what came before it"),
}
BY_WEIGHT = (Outcome.FAILED, Outcome.WARNING, Outcome.UNKNOWN, Outcome.OK)  # what needs a person first


# streams and their batches ---------------------------------------------------------------------------------------


def host_sentence(hosts: Sequence[HostHeartbeat], *, now: datetime, stale_s: float) -> str | None:
    """What is wrong with the hosts, and the way out; None when one is alive."""
    why = why_no_host(hosts, now=now, stale_s=stale_s)
    return None if why is None else f"{why[:1].upper()}{why[1:]}. Start one with `weir host`."


def window_sentence(points: Points, *, window: str) -> str:
    """How many batches the charts show, and what a point is."""
    if not points.batches:
        return f"No batch in the last {window}."
    point = "one batch" if points.width_s is None else f"the mean of a batch over {duration_text(points.width_s)}"
    text = f"{things(points.batches, 'batch', 'batches')} in the last {window}. Each point is {point}"
    dropped = f" {things(points.dropped_rows, 'row')} dropped as too late." if points.dropped_rows else ""
    if points.grain_s is None:
        return f"{text}.{dropped}"
    backlog = " The backlog is the most that waited after a batch." if points.knows_backlog else ""
    return f"{text}, from sums kept per {'hour' if points.grain_s == HOUR_S else 'minute'}.{backlog}{dropped}"


def version_of(batch: Progress, versions: Versions) -> int | None:
    return versions.get((batch.query_id, batch.batch_id))


def batch_sentence(number: int, batch: Progress | None, versions: Versions, *, now: datetime) -> str:
    """ "Batch 7 read 120 rows in 2.3 s, 3 h ago, and wrote v12." """
    if batch is None:
        return f"The progress of batch {number} is not kept any more."
    version = version_of(batch, versions)
    wrote = f", and wrote v{version}" if version is not None else "; no commit of it is known"
    read = f"{things(batch.num_input_rows, 'row')} in {ms_text(batch.batch_duration_ms)}"
    return f"Batch {number} read {read}, {ago(batch.ended_at, now)}{wrote}."


def batches_sentence(batches: Sequence[Progress], versions: Versions) -> str:
    """How many are listed, and where a click leads."""
    linked = sum(version_of(batch, versions) is not None for batch in batches)
    newest = f"The newest {things(len(batches), 'batch', 'batches')}"
    return f"{newest}; {linked} with a commit: click one for what it changed." if linked else f"{newest}."


def pace_text(declared: StreamDeclaration) -> str:
    """ "10 seconds", "available now"; "–" where another application does not tell."""
    interval_ms = declared.trigger_interval_ms
    return UNKNOWN if declared.is_attached and not interval_ms else trigger_text(interval_ms)


# start, stop, restart --------------------------------------------------------------------------------------------


def effect_sentence(action: Action, names: Sequence[str]) -> str:
    """What the host does when `action` is asked of these streams."""
    who = names[0] if len(names) == 1 else "each"
    several = f"{things(len(names), 'stream')}, sources first: {', '.join(names)}. " if len(names) > 1 else ""
    return several + _EFFECTS[action].format(who=who)


def left_out_sentences(left_out: Iterable[LeftOut]) -> list[str]:
    """Who was chosen and is not asked; one sentence a reason."""
    names: dict[str, list[str]] = {}
    for stream in left_out:
        names.setdefault(stream.why, []).append(stream.name)
    return [f"Left out: {', '.join(of_reason)}. Why: {why}" for why, of_reason in names.items()]


def downstream_sentence(action: Action, below: Sequence[StreamStatus]) -> str:
    """What the streams below will show; empty without any."""
    if not below:
        return ""
    names = ", ".join(status.declaration.name for status in below)
    return f"Downstream, {names} will have nothing new to read." if action == "stop" else f"Downstream: {names}."


# preflight -------------------------------------------------------------------------------------------------------


def preflight_sentence(preflight: Preflight) -> str:
    """Whether the stream can go on, and how many checks say so."""
    name, failed = preflight.name, len(preflight.failed)
    if failed:
        return f"{name} cannot go on: {things(failed, 'check')} failed."
    parts = [f"{len(checks)} {outcome.value}" for outcome in BY_WEIGHT if (checks := preflight.of(outcome))]
    return f"{name} can go on: {things(len(preflight.checks), 'check')}, {', '.join(parts).replace('ok', 'OK')}."


def consequence(preflight: Preflight) -> str:
    """What a start will do in spite of the failed checks; empty without any."""
    if preflight.ok:
        return ""
    this = "this stands" if len(preflight.failed) == 1 else "these stand"
    return f"As long as {this}, it fails again or loses rows."


# reset and requeue -----------------------------------------------------------------------------------------------


def reset_lines(preview: ResetPreview) -> list[str]:
    """What is read again, what that risks, what streams below it see."""
    again = [f"Reads again: {reads_again(preview.again)}"] if preview.again is not None else []
    downstream = (f"Downstream: {line}" for line in preview.downstream)
    return [*again, *(f"Risk: {risk}" for risk in preview.risks), *downstream]


def requeue_lines(answer: RequeueAnswer, request: RequeueRequest, declared: StreamDeclaration) -> list[str]:
    """What was chosen, what goes, what stays and why."""
    source = f"{quarantine_of(declared)}, version {request.version}"
    if not answer.chosen:
        return [f"No row of {source} is chosen"]
    lines = [f"Chosen: {things(answer.chosen, 'row')} of {source}"]
    lines.append(f"Go to {declared.sink_table}: {things(answer.met, 'row')}")
    if answer.warned:
        lines.append(f"Of these, {breaking(answer.warned)}, which only warns")
    if answer.left:
        stays = things(answer.left, "row")
        lines.append(f"Stay as they are: {stays}; even repaired, {breaking(answer.broken)}")
    return lines


def requeue_samples(answer: RequeueAnswer) -> list[dict[str, str]]:
    """A few rows, those that go first; the columns that the repair changes come first, with both values."""
    changed = {name for sample in answer.samples for name in sample.after if _differs(sample, name)}
    names = [name for sample in answer.samples[:1] for name in sample.after]
    names.sort(key=lambda name: name not in changed)
    return [
        {
            "Goes": "yes" if sample.goes else f"stays: breaks {', '.join(sample.broken)}",
            **{name: _cell(sample, name) for name in names[:MOST_SAMPLE_COLUMNS]},
        }
        for sample in answer.samples
    ]


def _cell(sample: Sample, name: str) -> str:
    after = _value(sample.after[name])
    return f"{_value(sample.before.get(name))} → {after}" if _differs(sample, name) else after


def _differs(sample: Sample, name: str) -> bool:
    return sample.before.get(name) != sample.after[name]


def _value(value: object) -> str:
    return cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
