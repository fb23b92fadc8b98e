"""Streams as lists and key figures: all of them, one of them, what may be asked of each, and the operation log.

Rule: pure; desired (what a person wants) and observed (what a host saw) stay two columns, never one. An unknown figure
is "–" and its help says why.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from app.columns import Column, Columns
from app.streams.text import Versions, pace_text, version_of
from app.ui.states import row_expectations, stream_columns
from app.ui.view.words import KeyFigure, markdown_safe, sentence
from backend.format import (
    UNKNOWN,
    age_s,
    ago_short,
    bytes_text,
    cut,
    ms_text,
    percent,
    rate_text,
    span_text,
    things,
    utc_text,
    value_text,
)
from backend.jobs.model import JobKind
from backend.stream_model.backlog import Backlog, SourceBacklog, behind_text, data_loss_sentence
from backend.stream_model.progress import ExpectationTotal, sum_known
from backend.stream_model.stream import Action, AuditEntry, ObservedMetric, Progress, Run, StreamFailure, StreamState
from backend.streams.acts import Selection
from backend.streams.faults import Check, Outcome, recognise
from backend.streams.verdict import StreamStatus

MESSAGE_LENGTH = 120
TICKED = "Ticked rows"
ICONS: dict[Action, str] = {
    "start": ":material/play_arrow:",
    "stop": ":material/stop:",
    "restart": ":material/restart_alt:",
}


def matches(statuses: Iterable[StreamStatus], words: str) -> list[StreamStatus]:
    """Those that hold every word in name, layer, tags, state or verdict."""

    def text(status: StreamStatus) -> str:
        declared = status.declaration
        tags = (f"{tag}={value}" for tag, value in declared.tags.items())
        return " ".join((declared.name, declared.layer or "", *tags, status.state, status.verdict)).casefold()

    wanted = words.casefold().split()
    return [status for status in statuses if all(word in text(status) for word in wanted)]


def build_stream_columns(
    now: datetime, recent_rows: Mapping[str, Sequence[int]] | None = None
) -> list[Column[StreamStatus]]:
    """The columns of the list of streams. `recent_rows` are rows per recent batch for the small chart."""

    def last_rows(status: StreamStatus) -> list[int]:
        return list((recent_rows or {}).get(status.declaration.name, ()))

    def last_error(status: StreamStatus) -> str | None:
        failure = status.observed.last_failure if status.observed else None
        return f"{failure.error_class}: {failure.message}"[:MESSAGE_LENGTH] if failure else None

    def last_batch_at(status: StreamStatus) -> datetime | None:
        return status.progress.ended_at if status.progress else None

    *columns, last_batch = stream_columns(now)
    return [
        *columns,
        Column("Last 5 min", last_rows, "line", "Rows read per batch", 82),
        last_batch,
        Column("Last error", last_error),
        Column("Layer", lambda status: status.declaration.layer, "layer", key="layer"),
        Column("Last batch at", last_batch_at, "moment", "End of the last batch, exact"),
    ]


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


def newest_acts(entries: Iterable[AuditEntry]) -> list[AuditEntry]:
    """The audit trail, newest first, without what only asked what an act would do."""
    return sorted(_acts_alone(entries), key=lambda entry: entry.at, reverse=True)


# one stream -----------------------------------------------------------------------------------------------------------


_ARROW = ":material/arrow_forward:"


def key_figures(
    status: StreamStatus, totals: Sequence[ExpectationTotal] = (), *, window: str = "", now: datetime
) -> list[KeyFigure]:
    """How far behind, what waits, how it flows, and the expectations that rows of the window broke."""
    backlog, last, processed = status.backlog, status.progress, status.processed_rows_per_s
    ended_at = last.ended_at if last else None
    why = f" {markdown_safe(sentence(backlog.unknown))}" if backlog and backlog.unknown else ""
    no_rate = ""
    if status.input_rows_per_s is None:
        is_running = status.state is StreamState.RUNNING
        no_rate = " No batch of this run has ended yet." if is_running else " It does not run."
    loss = backlog.data_loss if backlog else None
    safe = f" {markdown_safe(sentence(data_loss_sentence(loss, now=now)))}" if loss else ""
    drain_s = backlog.drain_s if backlog else None
    oldest = f", from {utc_text(backlog.oldest_unread_at)}" if backlog and backlog.oldest_unread_at else ""
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
            f"Rows read per second lately, until its last sign of life.{no_rate}",
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
        *_expectation_figures(totals, status.declaration.expectations, window),
    ]


def _expectation_figures(totals: Sequence[ExpectationTotal], declared: Sequence[str], window: str) -> list[KeyFigure]:
    word, _ = row_expectations(totals, declared)
    failed = sum_known(total.failed for total in totals)
    checked = sum_known((failed, sum_known(total.passed for total in totals)))
    share = f": {percent(failed / checked)} of all checks" if failed and checked else ""
    help_text = f"Broken by a row of the last {window}{share}."
    note = f"{things(failed, 'row')} in {window}" if failed else f"in {window}"
    return [KeyFigure("Row expectations", word, help_text, note=note)] if word else []


def _waiting_note(backlog: Backlog) -> str:
    counts = ((backlog.versions, "version"), (backlog.files, "file"))
    parts = [things(count, name) for count, name in counts if count is not None]
    return " · ".join(parts or ([] if backlog.size_bytes is None else [bytes_text(backlog.size_bytes)]))


def build_source_columns(now: datetime) -> list[Column[SourceBacklog]]:
    """Of a source what waits in it, and what is to be known about that."""

    def note(source: SourceBacklog) -> str | None:
        loss = data_loss_sentence(source.data_loss, now=now) if source.data_loss else ""
        return "; ".join(part for part in (source.detail, source.unknown, loss) if part) or None

    return [
        Column("Source", lambda source: source.name, key="name"),
        Column("Kind", lambda source: source.kind, key="kind"),
        Column("Versions", lambda source: source.versions, "count"),
        Column("Files", lambda source: source.files, "count"),
        Column("Rows", lambda source: source.rows, "count"),
        Column("Size", lambda source: source.size_bytes, "bytes"),
        Column("Oldest", lambda source: age_s(source.oldest_unread_at, now), "ago"),
        Column("Note", note, width="large"),
    ]


def build_run_columns(now: datetime) -> list[Column[Run]]:
    return [
        Column("First batch", lambda run: age_s(run.first_at, now), "ago"),
        Column("Lasted", lambda run: (run.last_at - run.first_at).total_seconds(), "duration"),
        Column("Batches", lambda run: f"{run.first_batch}–{run.last_batch}"),
        Column("Rows read", lambda run: run.input_rows, "count"),
        Column("Run id", lambda run: run.run_id),
        Column("Query id", lambda run: run.query_id),
        Column("At", lambda run: run.first_at, "moment"),
    ]


def build_expectation_columns(now: datetime) -> list[Column[ExpectationTotal]]:
    """Of an expectation the rows that met and broke it in the window."""
    return [
        Column("Expectation", lambda total: total.name),
        Column("Passed", lambda total: total.passed, "count"),
        Column("Failed", lambda total: total.failed, "count"),
        Column("Failed share", lambda total: total.failed_share, "percent"),
        Column("Last failed", lambda total: age_s(total.last_failed_at, now), "ago"),
    ]


METRIC_COLUMNS: Columns[ObservedMetric] = (
    Column("Observation", lambda metric: metric.observation, key="observation"),
    Column("Metric", lambda metric: metric.name, key="name"),
    Column("Value", lambda metric: value_text(metric.value)),
)


def build_failure_columns(now: datetime) -> list[Column[StreamFailure]]:
    return [
        Column("When", lambda failure: age_s(failure.failed_at, now), "ago"),
        Column("Class", lambda failure: failure.error_class, key="error_class"),
        Column("Message", lambda failure: failure.message, width="large", key="message"),
        Column("Batch", lambda failure: failure.batch_id, "plain", key="batch_id"),
        Column("At", lambda failure: failure.failed_at, "moment", key="failed_at"),
    ]


def unfinished(batches: Sequence[Progress], failures: Sequence[StreamFailure]) -> list[StreamFailure]:
    """The last failure of each batch that has not ended since, newest first."""
    ended = {batch.batch_id for batch in batches}
    last = {failure.batch_id: failure for failure in failures if failure.batch_id not in {None, *ended}}
    return sorted(last.values(), key=lambda failure: failure.failed_at, reverse=True)


def build_batch_columns(
    versions: Versions, failures: Sequence[StreamFailure], now: datetime
) -> list[Column[Progress | StreamFailure]]:
    """Of a batch that ended, or of one that failed and has not ended since; with the error that it last had."""
    errors = {failure.batch_id: f"{failure.error_class}: {failure.message}" for failure in failures}

    def of_ended(value: Callable[[Progress], int | None]) -> Callable[[Progress | StreamFailure], int | None]:
        return lambda batch: None if isinstance(batch, StreamFailure) else value(batch)

    def ended_at(batch: Progress | StreamFailure) -> datetime:
        return batch.failed_at if isinstance(batch, StreamFailure) else batch.ended_at

    return [
        Column("Batch", lambda batch: batch.batch_id, "plain", key="batch_id"),
        Column("Ended", lambda batch: age_s(ended_at(batch), now), "ago"),
        Column("Took", of_ended(lambda batch: batch.batch_duration_ms), "ms"),
        Column("Rows read", of_ended(lambda batch: batch.num_input_rows), "count"),
        Column("Rows written", of_ended(lambda batch: batch.output_rows), "count", is_optional=True,
               help="As the sink says it; Spark's foreachBatch does not"),
        Column("Commit", of_ended(lambda batch: version_of(batch, versions)), "version",
               "The version of its table that the batch wrote"),
        Column("Error", lambda batch: errors.get(batch.batch_id), width="large", is_optional=True),
        Column("Ended at", ended_at, "moment"),
    ]  # fmt: skip


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
