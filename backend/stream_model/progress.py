"""What micro-batches say of themselves: Spark's StreamingQueryProgress as `Progress`, phases, expectations, versions.

Rule: pure. What Spark leaves out, writes as NaN or marks as unknown (−1) becomes None, never 0 and never an error.
Source: https://spark.apache.org/docs/latest/structured-streaming-programming-guide.html (monitoring queries).
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from backend.errors import StreamError
from backend.lake.model import Commit
from backend.stream_model.stream import ExpectationCount, ObservedMetric, Progress

TOTAL_PHASE = "triggerExecution"
WORK_PHASE = "addBatch"
REST_PHASE = "other"
MOST_METRICS = 100  # of one batch that are shown
_LONGEST = 200  # characters of a value that is no number
OBSERVATION = "expectations"  # the name under which pipelines observe their expectations, two metrics each
_OWN = "_weir_"  # begins the names of what pipelines count for themselves
_METRIC = re.compile(r"(?P<name>.+?)_{1,2}(?P<outcome>passed|failed)", re.S)


@dataclass(frozen=True, slots=True)
class ExpectationTotal:
    """One expectation over all events looked at. None: no event says."""

    name: str
    passed: int | None
    failed: int | None
    last_failed_at: datetime | None

    @property
    def failed_share(self) -> float | None:
        if self.passed is None or self.failed is None or not self.passed + self.failed:
            return None
        return self.failed / (self.passed + self.failed)


def is_batch(progress: Progress) -> bool:
    """Whether the event tells of a micro-batch that ran; the others say that there was nothing to do."""
    return WORK_PHASE in progress.durations_ms or progress.num_input_rows > 0


def phases_ms(progress: Progress) -> dict[str, int]:
    """Duration by phase without the total; what no phase accounts for is `other`."""
    phases = {name: ms for name, ms in progress.durations_ms.items() if name != TOTAL_PHASE}
    total = progress.durations_ms.get(TOTAL_PHASE, progress.batch_duration_ms)
    rest = (total or 0) - sum(phases.values())
    return {**phases, REST_PHASE: rest} if rest > 0 else phases


def expectation_totals(events: Iterable[Progress], declared: Iterable[str] = ()) -> list[ExpectationTotal]:
    """Passed and failed rows per expectation, the declared ones first even where no event counts them."""
    totals = (
        ExpectationTotal(count.name, count.passed, count.failed, event.progressed_at if count.failed else None)
        for event in events
        for count in event.expectations
    )
    return merged_totals([totals], declared)


def merged_totals(parts: Iterable[Iterable[ExpectationTotal]], declared: Iterable[str] = ()) -> list[ExpectationTotal]:
    """The totals of several parts added up, the declared ones first."""
    by_name: dict[str, list[ExpectationTotal]] = {name: [] for name in declared}
    for total in chain.from_iterable(parts):
        by_name.setdefault(total.name, []).append(total)
    return [
        ExpectationTotal(
            name,
            sum_known(total.passed for total in totals),
            sum_known(total.failed for total in totals),
            max((total.last_failed_at for total in totals if total.last_failed_at), default=None),
        )
        for name, totals in by_name.items()
    ]


def sum_known(values: Iterable[int | None]) -> int | None:
    """Sum of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def versions_of(commits: Iterable[Commit]) -> dict[tuple[str, int], int]:
    """The version that each batch wrote; the first of several."""
    versions: dict[tuple[str, int], int] = {}
    for commit in sorted(commits, key=lambda commit: commit.version, reverse=True):
        origin = commit.origin
        if origin and origin.query_id and origin.batch_id is not None:
            versions[origin.query_id, origin.batch_id] = commit.version
    return versions


# Spark's JSON --------------------------------------------------------------------------------------------------------


def parse_progress(text: str) -> Progress:
    """Raises `StreamError` when the event does not say which query, batch and time it is about."""
    event = _object(text)
    sink = _mapping(event.get("sink"))
    operators = [_mapping(operator) for operator in _list(event.get("stateOperators"))]
    durations_ms, duration_ms = _durations(event), _count(event.get("batchDuration"))
    try:
        return Progress(
            stream=str(event.get("name") or ""),
            query_id=str(event["id"]),
            run_id=str(event["runId"]),
            batch_id=int(event["batchId"]),
            progressed_at=spark_time(event["timestamp"]),
            num_input_rows=_input_rows(event),
            input_rows_per_s=_number(event.get("inputRowsPerSecond")),
            processed_rows_per_s=_number(event.get("processedRowsPerSecond")),
            batch_duration_ms=durations_ms.get(TOTAL_PHASE) if duration_ms is None else duration_ms,
            durations_ms=durations_ms,
            watermark=_watermark(event),
            state_rows=_sum(operators, "numRowsTotal"),
            state_bytes=_sum(operators, "memoryUsedBytes"),
            rows_dropped_by_watermark=_sum(operators, "numRowsDroppedByWatermark"),
            output_rows=_count(sink.get("numOutputRows")),
            expectations=_expectations(event),
            raw_json=text,
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise StreamError(f"a progress event cannot be read: {type(exc).__name__}: {exc}") from exc


def _object(text: str) -> Mapping[str, Any]:
    try:
        event = json.loads(text, parse_constant=lambda _: None)  # NaN, Infinity, -Infinity
    except ValueError as exc:
        raise StreamError(f"a progress event is not JSON: {exc}") from exc
    if not isinstance(event, dict):
        raise StreamError("a progress event is not a JSON object")
    return event


def _input_rows(event: Mapping[str, Any]) -> int:
    total = _count(event.get("numInputRows"))
    if total is None:
        total = _sum([_mapping(source) for source in _list(event.get("sources"))], "numInputRows")
    return total or 0


def _durations(event: Mapping[str, Any]) -> dict[str, int]:
    durations = {phase: _count(value) for phase, value in _mapping(event.get("durationMs")).items()}
    return {phase: value for phase, value in durations.items() if value is not None}


def _watermark(event: Mapping[str, Any]) -> datetime | None:
    """Spark says 1970-01-01 until it has seen an event time."""
    try:
        watermark = spark_time(_mapping(event.get("eventTime")).get("watermark"))
    except (TypeError, ValueError):
        return None
    return watermark if watermark.timestamp() > 0 else None


def _expectations(event: Mapping[str, Any]) -> tuple[ExpectationCount, ...]:
    metrics = _mapping(_mapping(event.get("observedMetrics")).get(OBSERVATION))
    counts: dict[str, dict[str, int | None]] = {}
    for key, value in metrics.items():
        if metric := _METRIC.fullmatch(key):
            counts.setdefault(metric["name"], {})[metric["outcome"]] = _count(value)
    return tuple(ExpectationCount(name, of.get("passed"), of.get("failed")) for name, of in counts.items())


def observed_metrics(progress: Progress | None) -> tuple[ObservedMetric, ...]:
    """What the stream's function observed in that batch, as Spark's JSON has it; the first `MOST_METRICS`."""
    try:
        observed = _mapping(_object(progress.raw_json if progress else "{}").get("observedMetrics"))
    except StreamError:  # read without its JSON, or kept by a stranger
        return ()
    metrics = [
        ObservedMetric(observation, name, _observed(value))
        for observation, row in observed.items()
        for name, value in _mapping(row).items()
        if observation != OBSERVATION and not observation.startswith(_OWN)
    ]
    return tuple(metrics[:MOST_METRICS])


def _observed(value: Any) -> float | str | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and _number(value) is not None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if is_number or value is None else text[:_LONGEST]


def _sum(items: list[Mapping[str, Any]], key: str) -> int | None:
    return sum_known(_count(item.get(key)) for item in items)


def _number(value: Any) -> float | None:
    """A finite number; Spark may also write it as the text "NaN"."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _count(value: Any) -> int | None:
    number = None if isinstance(value, bool) else _number(value)
    return int(number) if number is not None and number >= 0 else None


def spark_time(value: Any) -> datetime:
    """Spark's timestamp, aware; raises `TypeError` or `ValueError`."""
    moment = datetime.fromisoformat(value)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
