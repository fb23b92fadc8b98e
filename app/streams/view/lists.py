"""Streams as lists and key figures: all of them, one of them, what may be asked of each, and the operation log.

Rule: pure; desired (what a person wants) and observed (what a host saw) stay two columns, never one. An unknown figure
is "–" and its help says why.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce

import pandas as pd

from app.streams.text import Versions, effect_sentence, ms_text, pace_text, version_of
from app.ui.states import row_expectations, stream_cells
from app.ui.view.frames import ages
from app.ui.view.words import KeyFigure, markdown_safe, sentence
from backend.format import (
    UNKNOWN,
    ago_short,
    bytes_text,
    cut,
    duration_text,
    percent,
    rate_text,
    span_text,
    things,
    utc_text,
    value_text,
)
from backend.jobs.model import JobKind
from backend.stream_model.backlog import Backlog, SourceBacklog, backlog_text, behind_text, data_loss_sentence
from backend.stream_model.progress import ExpectationTotal, sum_known
from backend.stream_model.stream import Action, AuditEntry, ObservedMetric, Progress, Run, StreamFailure, StreamState
from backend.streams.acts import Selection, blocked
from backend.streams.faults import Check, Outcome, recognise
from backend.streams.verdict import StreamStatus

MESSAGE_LENGTH = 120
_GENERATION = re.compile(r", generation \d+")  # of a request, for hosts
TICKED = "Ticked rows"
STREAM_COLUMNS = (
    *("Stream", "Verdict", "Why", "Wanted", "Observed", "Behind", "Rows in", "Last 5 min", "Last batch"),
    *("Last error", "Layer", "Last batch at"),
)
ICONS: dict[Action, str] = {
    "start": ":material/play_arrow:",
    "stop": ":material/stop:",
    "restart": ":material/restart_alt:",
}


@dataclass(frozen=True, slots=True)
class ActButton:
    """One thing a person can ask of a stream. `blocked` says why not, None when it may be asked."""

    action: Action
    label: str
    icon: str
    effect: str
    blocked: str | None


def in_order(statuses: Sequence[StreamStatus], shown: Sequence[str]) -> list[StreamStatus]:
    """As the names were shown before; those not shown yet come after them."""
    rank = {name: place for place, name in enumerate(shown)}
    return sorted(statuses, key=lambda status: rank.get(status.declaration.name, len(rank)))


def matches(statuses: Iterable[StreamStatus], words: str) -> list[StreamStatus]:
    """Those that hold every word in name, layer, tags, state or verdict."""
    wanted = words.casefold().split()
    return [status for status in statuses if all(word in _text(status) for word in wanted)]


def _text(status: StreamStatus) -> str:
    declared = status.declaration
    tags = (f"{tag}={value}" for tag, value in declared.tags.items())
    parts = (declared.name, declared.layer or "", *tags, status.state.value, status.verdict.value)
    return " ".join(parts).casefold()


def last_batch_at(status: StreamStatus) -> datetime | None:
    """When the last batch ended."""
    return status.progress.ended_at if status.progress else None


def error_text(status: StreamStatus) -> str:
    """The last error in one line, "–" without any."""
    failure = status.observed.last_failure if status.observed else None
    return f"{failure.error_class}: {failure.message}"[:MESSAGE_LENGTH] if failure else "–"


def build_stream_frame(
    statuses: Sequence[StreamStatus], *, now: datetime, recent_rows: Mapping[str, Sequence[int]] | None = None
) -> pd.DataFrame:
    """One row a stream, in the order given. `recent_rows` are rows per recent batch for the small chart."""
    rows = [
        stream_cells(status, now)
        | {
            "Behind": backlog_text(status.backlog),
            "Last 5 min": list((recent_rows or {}).get(status.declaration.name, ())),
            "Last error": error_text(status),
            "Layer": status.declaration.layer,
            "Last batch at": utc_text(last_batch_at(status)),
        }
        for status in statuses
    ]
    frame = pd.DataFrame(rows, columns=list(STREAM_COLUMNS))
    return frame.astype({"Rows in": "Float64", "Last batch": "Float64"})


def acts(status: StreamStatus, *, refused: str | None) -> tuple[ActButton, ...]:
    """Start, stop and restart with what each does and why it may not be asked. `refused`: why nobody may act here."""
    return tuple(
        ActButton(action, action.capitalize(), icon, effect_sentence(action, status), _why_not(status, action, refused))
        for action, icon in ICONS.items()
    )


def acts_on_all(statuses: Sequence[StreamStatus], *, refused: str | None) -> tuple[ActButton, ...]:
    """The same for several streams at once: an act is blocked when it is for each of them."""
    if not statuses:
        blank = "Tick a stream first."
        return tuple(
            ActButton(action, action.capitalize(), icon, blank, refused or blank) for action, icon in ICONS.items()
        )
    merged: list[ActButton] = []
    for options in zip(*(acts(status, refused=refused) for status in statuses), strict=True):
        merged.append(next((button for button in options if button.blocked is None), options[0]))
    return tuple(merged)


def allowed(statuses: Iterable[StreamStatus], action: Action) -> list[StreamStatus]:
    """Those of the streams that `action` may be asked of now."""
    return [status for status in statuses if blocked(status, action) is None]


def scopes(statuses: Iterable[StreamStatus]) -> dict[str, Selection | None]:
    """Whom the buttons may act on, by what a person reads; None for the ticked rows."""
    declarations = [status.declaration for status in statuses]
    layers = sorted({declared.layer for declared in declarations if declared.layer})
    tags = sorted({tag for declared in declarations for tag in declared.tags.items()})
    return {
        TICKED: None,
        "All streams": Selection(everything=True),
        **{f"Layer {layer}": Selection(layer=layer) for layer in layers},
        **{f"Tag {tag}={value}": Selection(tag=(tag, value)) for tag, value in tags},
    }


def marks(entries: Sequence[AuditEntry], failures: Sequence[StreamFailure]) -> tuple[tuple[datetime, str], ...]:
    """What charts mark: "stop by ann: upgrade", "failed: ZeroDivisionError"."""
    acts = [(entry.at, f"{entry.action} by {entry.actor}: {cut(entry.reason)}") for entry in _acts_alone(entries)]
    return (*acts, *((failure.failed_at, f"failed: {failure.error_class}") for failure in failures))


def _acts_alone(entries: Iterable[AuditEntry]) -> Iterable[AuditEntry]:
    return (entry for entry in entries if JobKind.REQUEUE_PREVIEW not in entry.action)


def build_operation_log(entries: Sequence[AuditEntry], *, now: datetime, roots: Sequence[str] = ()) -> pd.DataFrame:
    """The audit trail, newest first: when, who, what, why; without what only asked what an act would do. What lies
    below one of the `roots` stands by its name."""
    places = [f"{root.rstrip('/')}/" for root in sorted(roots, key=len, reverse=True) if root.strip("/")]
    newest = sorted(_acts_alone(entries), key=lambda entry: entry.at, reverse=True)
    return pd.DataFrame(
        {
            "When": ages([entry.at for entry in newest], now),
            "Act": [entry.action for entry in newest],
            "Stream or table": [entry.subject for entry in newest],
            "Reason": [entry.reason for entry in newest],
            "Who": [entry.actor for entry in newest],
            "Detail": [
                reduce(lambda text, place: text.replace(place, ""), places, _GENERATION.sub("", entry.detail)) or "–"
                for entry in newest
            ],
            "At": [utc_text(entry.at) for entry in newest],
        }
    )


def _why_not(status: StreamStatus, action: Action, refused: str | None) -> str | None:
    return blocked(status, action) if status.declaration.is_attached else refused or blocked(status, action)


# one stream -----------------------------------------------------------------------------------------------------------


_ARROW = ":material/arrow_forward:"


def key_figures(status: StreamStatus, totals: Sequence[ExpectationTotal] = (), *, now: datetime) -> list[KeyFigure]:
    """How far behind, what waits, how it flows, and the rows that broke an expectation where one is declared."""
    backlog, last, ended_at = status.backlog, status.progress, last_batch_at(status)
    why = f" {markdown_safe(sentence(backlog.unknown))}" if backlog and backlog.unknown else ""
    no_rate = ""
    if status.input_rows_per_s is None:
        is_running = status.state is StreamState.RUNNING
        no_rate = " No batch of this run has ended yet." if is_running else " It does not run."
    loss = backlog.data_loss if backlog else None
    safe = f" {markdown_safe(sentence(data_loss_sentence(loss, now=now)))}" if loss else ""
    drain_s = backlog.drain_s if backlog else None
    oldest = f", from {utc_text(backlog.oldest_unread_at)}" if backlog and backlog.oldest_unread_at else ""
    processed = status.processed_rows_per_s
    missing = " No batch has been reported yet." if last is None else ""
    return [
        KeyFigure(
            "Behind",
            behind_text(backlog),
            f"Age of the oldest input that it has not read{oldest}.{why}{safe}",
            note=f"caught up in {span_text(drain_s)}" if drain_s else "",
        ),
        KeyFigure(
            "Waiting",
            things(backlog.rows, "row") if backlog and backlog.rows is not None else UNKNOWN,
            f"Rows of its sources that it has not read, from its checkpoint and their logs.{why}",
            note=_waiting_note(backlog) if backlog else "",
        ),
        KeyFigure(
            "Input",
            rate_text(status.input_rows_per_s),
            f"Rows read a second of late, until its last sign of life.{no_rate}",
            note=f"{rate_text(processed)} in a batch" if processed is not None else "",
        ),
        KeyFigure(
            "Batch duration",
            ms_text(last.batch_duration_ms if last else None),
            f"How long the last batch took.{missing}",
            note=f"trigger {pace_text(status.declaration)}",
        ),
        KeyFigure(
            "Last batch",
            ago_short(ended_at, now),
            f"{f'It ended at {utc_text(ended_at)}.' if ended_at else ''}{missing}".strip(),
            note=f"{things(last.num_input_rows, 'row')} in batch {last.batch_id}" if last else "",
        ),
        *_expectation_figures(totals, status.declaration.expectations),
    ]


def _expectation_figures(totals: Sequence[ExpectationTotal], declared: Sequence[str]) -> list[KeyFigure]:
    word, _ = row_expectations(totals, declared)
    failed = sum_known(total.failed for total in totals)
    checked = sum_known((failed, sum_known(total.passed for total in totals)))
    note = f"{things(failed, 'row')}, {percent(failed / checked)} of checks" if failed and checked else ""
    help_text = "Those that rows of the window shown broke."
    return [KeyFigure("Row expectations", word, help_text, note=note)] if word else []


def _waiting_note(backlog: Backlog) -> str:
    counts = ((backlog.versions, "version"), (backlog.files, "file"))
    parts = [things(count, name) for count, name in counts if count is not None]
    return " · ".join(parts or ([] if backlog.size_bytes is None else [bytes_text(backlog.size_bytes)]))


def build_source_frame(status: StreamStatus, *, now: datetime) -> pd.DataFrame:
    """One row a source: what waits in it, and what is to be known about that."""
    sources = status.backlog.sources if status.backlog else ()
    return pd.DataFrame(
        {
            "Source": [source.name for source in sources],
            "Kind": [source.kind for source in sources],
            "Versions": pd.array([source.versions for source in sources], dtype="Int64"),
            "Files": pd.array([source.files for source in sources], dtype="Int64"),
            "Rows": pd.array([source.rows for source in sources], dtype="Int64"),
            "Size": pd.array([source.size_bytes for source in sources], dtype="Int64"),
            "Oldest": ages([source.oldest_unread_at for source in sources], now),
            "Note": [_source_note(source, now) for source in sources],
        }
    )


def _source_note(source: SourceBacklog, now: datetime) -> str:
    loss = data_loss_sentence(source.data_loss, now=now) if source.data_loss else ""
    return "; ".join(part for part in (source.detail, source.unknown, loss) if part) or UNKNOWN


def build_run_frame(runs: Sequence[Run], *, now: datetime) -> pd.DataFrame:
    """The runs, newest first."""
    return pd.DataFrame(
        {
            "First batch": ages([run.first_at for run in runs], now),
            "Lasted": [duration_text((run.last_at - run.first_at).total_seconds()) for run in runs],
            "Batches": [f"{run.first_batch}–{run.last_batch}" for run in runs],
            "Rows read": [run.input_rows for run in runs],
            "Run id": [run.run_id for run in runs],
            "Query id": [run.query_id for run in runs],
            "At": [utc_text(run.first_at) for run in runs],
        }
    )


def build_expectation_frame(totals: Sequence[ExpectationTotal], *, now: datetime) -> pd.DataFrame:
    """Passed and failed rows per expectation in the window."""
    return pd.DataFrame(
        {
            "Expectation": [total.name for total in totals],
            "Passed": pd.array([total.passed for total in totals], dtype="Int64"),
            "Failed": pd.array([total.failed for total in totals], dtype="Int64"),
            "Failed share": pd.array([total.failed_share for total in totals], dtype="Float64"),
            "Last failed": ages([total.last_failed_at for total in totals], now),
        }
    )


def build_metric_frame(metrics: Sequence[ObservedMetric]) -> pd.DataFrame:
    """What the function observed in the last batch."""
    return pd.DataFrame(
        {
            "Observation": [metric.observation for metric in metrics],
            "Metric": [metric.name for metric in metrics],
            "Value": [value_text(metric.value) for metric in metrics],
        }
    )


def build_failure_frame(status: StreamStatus, *, now: datetime) -> pd.DataFrame:
    """The failures that count towards giving up, newest first."""
    failures = tuple(reversed(status.observed.failures)) if status.observed else ()
    return pd.DataFrame(
        {
            "When": ages([failure.failed_at for failure in failures], now),
            "Class": [failure.error_class for failure in failures],
            "Message": [failure.message for failure in failures],
            "Batch": pd.array([failure.batch_id for failure in failures], dtype="Int64"),
            "At": [utc_text(failure.failed_at) for failure in failures],
        }
    )


def unfinished(batches: Sequence[Progress], failures: Sequence[StreamFailure]) -> list[StreamFailure]:
    """The last failure of each batch that has not ended since, newest first."""
    ended = {batch.batch_id for batch in batches}
    last = {failure.batch_id: failure for failure in failures if failure.batch_id not in {None, *ended}}
    return sorted(last.values(), key=lambda failure: failure.failed_at, reverse=True)


def build_batch_frame(
    batches: Sequence[Progress], versions: Versions, failures: Sequence[StreamFailure] = (), *, now: datetime
) -> pd.DataFrame:
    """One row for each batch that failed and has not ended since, then one a batch in the order given; each with the
    error that it last had."""
    failed, written = unfinished(batches, failures), [version_of(batch, versions) for batch in batches]
    errors = {failure.batch_id: f"{failure.error_class}: {failure.message}" for failure in failures}
    ids = [*(failure.batch_id for failure in failed), *(batch.batch_id for batch in batches)]
    ended, unknown = (
        [*(failure.failed_at for failure in failed), *(batch.ended_at for batch in batches)],
        [None] * len(failed),
    )
    frame = pd.DataFrame(
        {
            "Batch": ids,
            "Ended": ages(ended, now),
            "Took": [*(UNKNOWN for _ in failed), *(ms_text(batch.batch_duration_ms) for batch in batches)],
            "Rows read": pd.array([*unknown, *(batch.num_input_rows for batch in batches)], dtype="Int64"),
            "Rows written": pd.array([*unknown, *(batch.output_rows for batch in batches)], dtype="Int64"),
            "Commit": [UNKNOWN if version is None else f"v{version}" for version in (*unknown, *written)],
            "Error": [errors.get(number) for number in ids],
            "Ended at": [utc_text(moment) for moment in ended],
        }
    )
    return frame.drop(columns=[name for name in ("Rows written", "Error") if frame[name].isna().all()])


def check_text(check: Check) -> str:
    """One check in Markdown without its sign: name, evidence and, where something is to be done, the remedy."""
    evidence = f"**{markdown_safe(check.name)}** · {markdown_safe(check.detail)}"
    remedy = "" if check.outcome is Outcome.OK else check.remedy
    return f"{evidence}  \n{_ARROW} {markdown_safe(remedy)}" if remedy else evidence


def cause_lines(failure: StreamFailure, failed: Sequence[Check]) -> list[str]:
    """What caused a failure and what to do, in Markdown. The checks that failed tell apart what the error does
    not; those that it says nothing of come after."""
    faults, evidence = recognise(failure), {check.remedy: f" {markdown_safe(check.detail)}." for check in failed}
    proven = [fault for fault in faults if fault.remedy in evidence]
    either = "Either: " if len(proven or faults) > 1 else ""
    lines = [
        f"{either}**{fault.name}.**{evidence.get(fault.remedy, '')} {fault.cause}  \n"
        f"{_ARROW} {markdown_safe(fault.remedy)}"
        for fault in proven or faults
    ]
    lines += [check_text(check) for check in failed if check.remedy not in {fault.remedy for fault in proven}]
    return lines or [f"{_ARROW} Remove the cause, then restart the stream. Preflight, below, found nothing against it."]
