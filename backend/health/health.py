"""The health of one table; and every table of the lake looked at one after the other in the background, for all
viewers: its health, and where no stream host lives what its commits did that none before them did.

Rule: gathers through the lake, judges and advises through `rules` and the judge of hosts, and writes nothing; the clock
is a parameter. Nobody waits for a big lake: a judgement holds as long as the card that it was made for, and ages in it
are told anew by whoever shows it. Of notices the tables written last come first, and after every few versions it rests:
pages need the interpreter too. It ends when nobody looks any more.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Generic, TypeVar

from backend.errors import LakehouseError
from backend.health.model import HealthEvidence, LogHealth, Offender, Recommendation, Severity, TableHealth
from backend.health.rules import (
    last_run,
    merge_gain,
    partition_offenders,
    recommend,
    small_file_rule,
    trend,
    writer_offenders,
)
from backend.lake.files.file_sizes import distribute
from backend.lake.lake import Lake
from backend.lake.model import Commit, Snapshot, TableCard, TableRef, Timeline
from backend.lake.table.properties import parse_interval
from backend.search.notice import Key, Notice
from backend.search.notices import NoticeLooks
from backend.settings import HealthSettings

HISTORY = 1_000  # commits looked through for maintenance and for who writes small files
_WEEK = timedelta(weeks=1)
PATIENCE_S = 1.5  # a small lake is waited for, so that its page is whole at once
SMALL_LAKE = 100  # tables
NOBODY_LOOKS_S = 10.0  # the page looks each second while judgements come
MOST_REST_S = 0.02
RETRY_S = 60.0  # a table that could not be judged is tried again
Judged = TypeVar("Judged")


def table_health(
    lake: Lake,
    ref: TableRef,
    *,
    now: datetime,
    settings: HealthSettings,
    stream_names: Mapping[str, str] | None = None,
) -> TableHealth:
    """What should be maintained, why, and what it would gain; raises what reading the table raises.

    `stream_names` (query id → stream) lets streams be named whose commits carry only their query id.
    """
    timeline = lake.timeline(ref)
    evidence = table_evidence(lake, ref, now=now, settings=settings, written=(timeline, stream_names or {}))
    return TableHealth(
        ref=ref,
        version=evidence.log.latest_version,
        evidence=evidence,
        trend=trend(timeline),
        trend_truncated=timeline.truncated,
        recommendations=recommend(evidence),
    )


def table_evidence(
    lake: Lake,
    ref: TableRef,
    *,
    now: datetime,
    settings: HealthSettings,
    written: tuple[Timeline, Mapping[str, str]] | None = None,
) -> HealthEvidence:
    """What a table is judged by. `written`: totals of past versions and the names of streams, which tell who wrote the
    small files; a list of tables does without, as they take most of the time. Raises what reading the table raises."""
    snapshot = lake.snapshot(ref)
    target = lake.target_bytes(snapshot)
    commits = lake.history(ref, limit=HISTORY, ending_version=snapshot.version)
    files = distribute(snapshot, target, ratio=settings.small_file_ratio, min_files=settings.min_files, with_rows=False)
    rule = small_file_rule(target, settings)
    offenders: tuple[Offender, ...] = ()
    if written is not None:
        writers = writer_offenders(commits, *written, small_limit_bytes=rule.small_limit_bytes)
        offenders = (*writers, *partition_offenders(files.partitions))
    rows, unknown = snapshot.file_set.total("num_records")
    last_vacuum = last_run(commits, "VACUUM")
    since = last_vacuum.version if last_vacuum else -1
    removed = [commit for commit in commits if commit.version > since and commit.metrics.files_removed]
    retention = parse_interval(snapshot.metadata.configuration.get("delta.deletedFileRetentionDuration", ""))
    return HealthEvidence(
        now=now,
        num_files=snapshot.num_files,
        size_bytes=snapshot.size_bytes,
        small_files=files.small_files,
        small_bytes=sum(part.small_bytes for part in files.partitions if part.small_files > 1),
        files_after_merge=files.files_after_merge,
        small_partitions=files.small_partitions,
        large_files=files.large_files,
        rule=rule,
        partition_columns=snapshot.metadata.partition_columns,
        num_partitions=len(files.partitions),
        deleted_rows=snapshot.deleted_rows,
        physical_rows=rows if unknown < snapshot.num_files else None,
        files_without_stats=unknown,
        offenders=offenders,
        last_optimize=last_run(commits, "OPTIMIZE"),
        last_vacuum=last_vacuum,
        files_removed=sum(commit.metrics.files_removed or 0 for commit in removed),
        oldest_removal_at=min((c.committed_at for c in removed if c.committed_at), default=None),
        retention_s=(_WEEK if retention is None else retention).total_seconds(),
        log=_log_state(lake, snapshot, commits),
    )


def _log_state(lake: Lake, snapshot: Snapshot, commits: Sequence[Commit]) -> LogHealth:
    ref, times = snapshot.ref, {commit.version: commit.committed_at for commit in commits}
    first, checkpoint = lake.versions(ref)[-1][0], lake.last_checkpoint(ref)
    for version in (first, checkpoint):
        if version is None or version in times:
            continue
        old = lake.history(ref, starting_version=version, ending_version=version)
        times |= {commit.version: commit.committed_at for commit in old}
    interval = snapshot.metadata.configuration.get("delta.checkpointInterval", "")
    return LogHealth(
        first_version=first,
        latest_version=snapshot.version,
        oldest_commit_at=times.get(first),
        checkpoint_version=checkpoint,
        checkpoint_at=times.get(checkpoint) if checkpoint is not None else None,
        checkpoint_interval=int(interval) if interval.isdecimal() and int(interval) > 0 else 10,
        feed_bytes=sum(commit.metrics.change_bytes or 0 for commit in commits),
        feed_commits=len(commits),
    )


# every table of the lake ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JudgedTable:
    """A table's evidence and how urgent it was when it was judged; without evidence `problem` says why."""

    card: TableCard
    evidence: HealthEvidence | None
    severity: Severity
    problem: str = ""
    judged_at_s: float = 0.0

    def recommendations(self, now: datetime) -> tuple[Recommendation, ...]:
        """Recommendations with the ages of now; empty where the table could not be judged."""
        return recommend(replace(self.evidence, now=now)) if self.evidence else ()

    def holds(self, card: TableCard) -> bool:
        is_old = self.evidence is None and time.monotonic() - self.judged_at_s > RETRY_S
        return self.card is card and not is_old


def _judged_health(read: Callable[[TableRef], HealthEvidence], card: TableCard) -> JudgedTable:
    try:
        evidence = read(card.ref)
        urgent = min((recommendation.severity for recommendation in recommend(evidence)), key=list(Severity).index)
        return JudgedTable(card, evidence, urgent, judged_at_s=time.monotonic())
    except LakehouseError as exc:
        problem = exc.message
    except Exception as exc:  # noqa: BLE001 - one table's boundary: whatever it holds hides no other
        problem = f"Weir failed on it: {type(exc).__name__}"
    return JudgedTable(card, None, Severity.FINE, problem, time.monotonic())


class LakeJudge(Generic[Judged]):
    """Thread-safe. `judge` is asked of one table after the other, the first by `rank` first, and raises nothing;
    `holds`: whether what it gave is still of this card."""

    def __init__(
        self,
        judge: Callable[[TableCard], Judged],
        holds: Callable[[Judged, TableCard], bool],
        rank: Callable[[TableCard], Any],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._judge, self._holds, self._rank, self._patience_s = judge, holds, rank, patience_s
        self._changed = threading.Condition()
        self._judged: dict[str, Judged] = {}
        self._wanted: list[TableCard] = []
        self._under_way: TableCard | None = None
        self._running = False
        self._looked_s = 0.0

    def judged(self, cards: Sequence[TableCard]) -> dict[str, Judged]:
        """What is judged of all the lake's cards, by address; the rest follows, the first by rank first."""
        with self._changed:
            self._looked_s = time.monotonic()
            before = self._judged
            self._judged = {c.ref.uri: old for c in cards if (old := before.get(c.ref.uri)) and self._holds(old, c)}
            self._wanted = [c for c in cards if c.ref.uri not in self._judged and c is not self._under_way]
            self._wanted.sort(key=self._rank, reverse=True)  # taken from the end
            if self._wanted and not self._running:
                self._running = True
                threading.Thread(target=self._judge_all, name="lake-judge", daemon=True).start()
            if len(cards) <= SMALL_LAKE:
                self._changed.wait_for(lambda: not self._running, self._patience_s)
            return dict(self._judged)

    def _judge_all(self) -> None:
        while (card := self._next()) is not None:
            started_s = time.monotonic()
            judged = self._judge(card)
            with self._changed:
                self._judged[card.ref.uri] = judged
                leave_room = len(self._wanted) > SMALL_LAKE
            if leave_room:
                time.sleep(min(MOST_REST_S, time.monotonic() - started_s))  # pages need the interpreter too

    def _next(self) -> TableCard | None:
        with self._changed:
            self._under_way = None
            if self._wanted and time.monotonic() - self._looked_s < NOBODY_LOOKS_S:
                self._under_way = self._wanted.pop()
                return self._under_way
            self._running = False
            self._changed.notify_all()
            return None


def health_judge(read: Callable[[TableRef], HealthEvidence]) -> LakeJudge[JudgedTable]:
    """The most to merge first. `read` gives the evidence of one table or raises `LakehouseError`."""
    return LakeJudge(
        partial(_judged_health, read), JudgedTable.holds, lambda card: (-merge_gain(card).spared, card.ref.name)
    )


# what is noticed of commits ---------------------------------------------------------------------------------------

MOST_TABLES = 1_000  # a host looks at all
BACK, SILENT_BACK = timedelta(days=7), timedelta(hours=1)  # at first, and for what fell silent since
SILENCES_EVERY_S = 300.0  # silence is told after an hour
PAUSE, MOST_PAUSE_S = 1.0, 2.0  # times what a step took
_EARLIEST = datetime.min.replace(tzinfo=UTC)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NoticedSoFar:
    """`notices`: that somebody has to look at, newest first; found at `num_seen` of the `num_wanted` tables written
    last, of `num_tables`. `is_current`: every table's newest versions are looked at. `by_host`: else by this server."""

    notices: tuple[Notice, ...]
    num_seen: int = 0
    num_wanted: int = 0
    num_tables: int = 0
    is_current: bool = False
    by_host: bool = False

    @property
    def is_partial(self) -> bool:
        return self.num_seen < self.num_wanted

    def of(self, uri: str) -> list[Notice]:
        """Those of one table."""
        return [notice for notice in self.notices if notice.uri == uri]


class NoticeWatch:
    """Thread-safe. `lake`: of its own, since it passes by every table."""

    def __init__(self, lake: Lake, now: Callable[[], datetime], sleep: Callable[[float], object] = time.sleep) -> None:
        self._now, self._since = now, now() - BACK
        self._opened = ""  # the table that somebody looks at: the next one
        self._streams: Mapping[str, str] = {}
        self._looks = NoticeLooks(lake, lambda: self._streams, lambda took_s: sleep(min(MOST_PAUSE_S, PAUSE * took_s)))
        self._found: dict[str, Mapping[Key, Notice]] = {}  # by table; each is replaced as a whole
        self._judge = LakeJudge(
            self._look,
            lambda looked, card: looked[0] is card and time.monotonic() - looked[1] < SILENCES_EVERY_S,
            self._rank,
            patience_s=0.0,
        )

    def found(
        self, cards: Sequence[TableCard], known: Iterable[Notice], seen: frozenset[Key], streams: Mapping[str, str],
        opened: str = "",
    ) -> NoticedSoFar:  # fmt: skip
        """What is found so far at the tables of these cards; the rest follows, first the one that is `opened`. `known`:
        what hosts noticed while they lived; `seen`: what nobody has to look at; `streams`: as `NoticeLooks` has
        them."""
        self._streams, self._opened = streams, opened or self._opened
        wanted = sorted(cards, key=self._rank)[:MOST_TABLES]
        self._judge.judged(wanted)
        notices = {notice.key: notice for notice in known}
        for card in cards:
            notices |= self._found.get(card.ref.uri, {})
        open_ones = [notice for key, notice in notices.items() if notice.is_open and key not in seen]
        open_ones.sort(key=lambda notice: notice.committed_at or _EARLIEST, reverse=True)
        num_seen = sum(card.ref.uri in self._found for card in wanted)
        return NoticedSoFar(tuple(open_ones), num_seen, len(wanted), len(cards), num_seen == len(cards))

    def _rank(self, card: TableCard) -> tuple[bool, float]:
        return card.ref.uri != self._opened, -_written_at(card).timestamp()

    def _look(self, card: TableCard) -> tuple[TableCard, float]:
        ref, now, before = card.ref, self._now(), self._found.get(card.ref.uri)
        notices = list[Notice]()
        try:
            notices += self._looks.silences(ref, self._since if before is None else now - SILENT_BACK, now)
            if _written_at(card) >= self._since:
                notices += self._looks.look(ref, self._since, now)
        except Exception as exc:  # noqa: BLE001 - one table's boundary: whatever it holds hides no other
            _log.warning("what commits of %s did is not known: %r", ref.name, exc)
        self._found[ref.uri] = {**(before or {}), **{notice.key: notice for notice in notices}}
        return card, time.monotonic()


def _written_at(card: TableCard) -> datetime:
    return card.last_commit_at or _EARLIEST
