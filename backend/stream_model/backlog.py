"""How far a stream is behind its sources, until when that is safe, and the words for both.

Rule: pure. What is not known is None (in words "–") with the reason beside it; 0 is said only of what was counted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from statistics import median

from backend.format import UNKNOWN, bytes_text, span_text, things, utc_text
from backend.stream_model.stream import InputKind

LEAST = 4  # values that a trend needs
TAU = 0.5  # Kendall's, over ten values reached by chance once in forty


class Trend(StrEnum):
    GROWING = "growing"
    STEADY = "steady"
    SHRINKING = "shrinking"


def trend(values: Sequence[float], *, tolerance: float) -> Trend | None:
    """Whether values go up or down for certain (Mann-Kendall), and by more than `tolerance`; None for too few."""
    if len(values) < LEAST:
        return None
    pairs = [(a, b) for place, a in enumerate(values) for b in values[place + 1 :]]
    tau = sum((b > a) - (b < a) for a, b in pairs) / len(pairs)
    half = len(values) // 2
    before, after = median(values[:half]), median(values[-half:])
    if abs(tau) < TAU or abs(after - before) < max(tolerance, 0.25 * min(before, after)):
        return Trend.STEADY
    return Trend.GROWING if after > before else Trend.SHRINKING


@dataclass(frozen=True, slots=True)
class DataLoss:
    """The first moment at which unread input may be deleted, what of it, and the setting that moves the moment."""

    at: datetime
    what: str
    setting: str


@dataclass(frozen=True, slots=True)
class SourceBacklog:
    """What one source holds that the stream has not finished reading.

    `versions` of a table, `rows` also for records of a topic. `lost`: versions or records that were deleted before they
    were read. `unknown` says why a figure is None; `detail` what the figures do not say. `is_first_read`: what waits is
    part of the snapshot that a stream reads before any change.
    """

    name: str
    kind: str
    versions: int | None = None
    files: int | None = None
    size_bytes: int | None = None
    rows: int | None = None
    oldest_unread_at: datetime | None = None
    lost: int = 0
    data_loss: DataLoss | None = None
    unknown: str = ""
    detail: str = ""
    is_first_read: bool = False
    asked_at: datetime | None = None  # when a host asked the source; None where the reader itself looked

    @property
    def is_caught_up(self) -> bool | None:
        """Whether nothing waits; None where nobody knows."""
        counted = [count for count in (self.rows, self.files, self.versions) if count is not None]
        if not counted:
            return None
        return counted[0] == 0 if self.rows is not None or self.files is not None else not any(counted)

    def read_until(self, seen_at: datetime) -> datetime | None:
        """What it took in before this moment has been read. Records of a topic are not in the order of their times."""
        if self.is_caught_up:
            return self.asked_at or seen_at
        return None if self.asked_at else self.oldest_unread_at


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind a stream was when a batch had ended: the age of the oldest unread input, and the unread rows.

    Each is None where its sources do not tell.
    """

    at: datetime
    behind_s: float | None
    rows: int | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """All sources of one stream. Each total is None as soon as one source's part is.

    `lags` are those of recent batches, oldest first; empty where its sources keep no times. `has_planned`: whether the
    checkpoint has a batch that has not ended; None where nobody could look.
    """

    sources: tuple[SourceBacklog, ...]
    seen_at: datetime
    lags: tuple[Lag, ...] = ()
    has_planned: bool | None = None

    @property
    def versions(self) -> int | None:
        return self._total(lambda source: source.versions)

    @property
    def files(self) -> int | None:
        return self._total(lambda source: source.files)

    @property
    def size_bytes(self) -> int | None:
        return self._total(lambda source: source.size_bytes)

    @property
    def rows(self) -> int | None:
        return self._total(lambda source: source.rows)

    @property
    def oldest_unread_at(self) -> datetime | None:
        return min((source.oldest_unread_at for source in self.sources if source.oldest_unread_at), default=None)

    @property
    def data_loss(self) -> DataLoss | None:
        return min(
            (source.data_loss for source in self.sources if source.data_loss), key=lambda loss: loss.at, default=None
        )

    @property
    def lost(self) -> int:
        return sum(source.lost for source in self.sources)

    @property
    def is_caught_up(self) -> bool | None:
        """Whether nothing waits in any source; None where nobody knows."""
        answers = [source.is_caught_up for source in self.sources]
        return False if False in answers else None if None in answers or not answers else True

    @property
    def read_until(self) -> datetime | None:
        """What its sources took in before this moment, by their own times, has been read; None where nobody knows."""
        moments = [source.read_until(self.seen_at) for source in self.sources]
        known = [moment for moment in moments if moment is not None]
        return min(known, default=self.seen_at) if len(known) == len(moments) else None

    @property
    def is_first_read(self) -> bool:
        return any(source.is_first_read for source in self.sources)

    @property
    def drain_s(self) -> float | None:
        """Seconds until nothing waits, if the backlog goes on shrinking as over the recent batches. None where it does
        not shrink for certain: that of a stream that keeps up goes up and down as well."""
        if self.is_caught_up:
            return 0.0
        shrinks = trend([lag.rows for lag in self.lags if lag.rows is not None], tolerance=1) is Trend.SHRINKING
        if self.rows is None or not shrinks:
            return None
        first, last = self.lags[0], self.lags[-1]
        elapsed_s = (last.at - first.at).total_seconds()
        if first.rows is None or last.rows is None or elapsed_s <= 0 or last.rows >= first.rows:
            return None
        return self.rows * elapsed_s / (first.rows - last.rows)

    @property
    def behind_s(self) -> float | None:
        """Age of the oldest unread input when it was looked at; 0 when caught up, None where nobody knows."""
        if self.is_caught_up:
            return 0.0
        oldest = self.oldest_unread_at
        return max(0.0, (self.seen_at - oldest).total_seconds()) if oldest else None

    def lags_until(self, lags: Sequence[Lag]) -> tuple[Lag, ...]:
        """Those before this look, then what it saw: a chart ends with the figure that stands beside it."""
        if not lags or (self.rows is None and self.behind_s is None):
            return tuple(lags)
        return (*(lag for lag in lags if lag.at < self.seen_at), Lag(self.seen_at, self.behind_s, self.rows))

    @property
    def unknown(self) -> str:
        """Why a figure is not known; empty where all are."""
        return "; ".join(dict.fromkeys(source.unknown for source in self.sources if source.unknown))

    def _total(self, of: Callable[[SourceBacklog], int | None]) -> int | None:
        return known_sum([of(source) for source in self.sources])


def waiting(value: Backlog | SourceBacklog) -> dict[str, int | None]:
    """What waits, by unit. Zeros where it is caught up, also for what its kind of source does not count."""
    counts = {"versions": value.versions, "files": value.files, "bytes": value.size_bytes, "rows": value.rows}
    unknown = 0 if value.is_caught_up else None
    return {name: unknown if count is None else count for name, count in counts.items()}


def known_sum(values: Sequence[int | None]) -> int | None:
    """The sum; None when there is nothing to add or one of them is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def behind_text(backlog: Backlog | None) -> str:
    """ "12 min", "caught up", or "–" where nobody knows."""
    if backlog is None or backlog.is_caught_up is None:
        return UNKNOWN
    if backlog.is_caught_up:
        return "caught up"
    return UNKNOWN if backlog.behind_s is None else span_text(backlog.behind_s)


def backlog_text(backlog: Backlog | None) -> str:
    """ "12 min · 4,000 rows · caught up in 5 min": what is known of it; empty where nobody knows."""
    if backlog is None or backlog.is_caught_up is None:
        return ""
    parts = [behind_text(backlog)]
    parts += [things(backlog.rows, "row")] if backlog.rows else []
    parts += [f"caught up in {span_text(backlog.drain_s)}"] if backlog.drain_s else []
    return " · ".join(part for part in parts if part != UNKNOWN)


def waiting_text(backlog: Backlog | SourceBacklog, *, now: datetime) -> str:
    """What waits: "12 versions, 4,000 rows, 3.1 MB, the oldest 38 min old"."""
    counts = ((backlog.versions, "version"), (backlog.files, "file"), (backlog.rows, "row"))
    parts = [things(count, name) for count, name in counts if count]
    parts += [bytes_text(backlog.size_bytes)] if backlog.size_bytes else []
    if backlog.oldest_unread_at and not backlog.is_caught_up:
        parts.append(f"the oldest {span_text((now - backlog.oldest_unread_at).total_seconds())} old")
    return ", ".join(parts) or "nothing"


def source_sentence(source: SourceBacklog, *, now: datetime) -> str:
    """All that is known of one source: what waits, what was lost, and why a figure is missing."""
    waits = {True: "caught up", False: waiting_text(source, now=now), None: ""}[source.is_caught_up]
    return "; ".join(part for part in (waits, source.detail, source.unknown) if part)


def lost_text(backlog: Backlog) -> str:
    """ "2 versions", "4 records" of what was deleted before it was read."""
    nouns = {source.name: "record" if source.kind == InputKind.KAFKA else "version" for source in backlog.sources}
    return " and ".join(things(each.lost, nouns[each.name]) for each in backlog.sources if each.lost)


def data_loss_sentence(loss: DataLoss, *, now: datetime) -> str:
    """ "unread input may be deleted from 2026-11-30 06:53 UTC on (in 6 d): the log entry of v12; … moves that"."""
    when = f"in {span_text((loss.at - now).total_seconds())}" if loss.at > now else "now"
    return f"unread input may be deleted from {utc_text(loss.at)} on ({when}): {loss.what}; {loss.setting} moves that"
