"""Everything that pages remember for all viewers, with one table of how old each kind of reading may be.

Rule: what is read at a fixed version never changes, so it has no ttl. A failed reading is never cached. Nothing big is
pickled here: the lake has caches of its own for logs and snapshots.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from threading import Lock
from typing import Any

import streamlit as st

from app import services
from app.services import once
from app.ui.lake import LakeReader, LakeReading
from backend.caches import LatestAnswer
from backend.changes.cache import Differences
from backend.changes.commits import FeedRows, feed_rows
from backend.changes.host_job import DiffJobs
from backend.changes.key import key_memory
from backend.changes.model import Question
from backend.errors import LakehouseError
from backend.expectations.model import Judgement, away
from backend.expectations.model import not_as_expected as addresses_not_as_expected
from backend.health.attention import CalmList, grouped
from backend.health.attention import attention as attention_items
from backend.health.health import (
    JudgedTable,
    LakeJudge,
    NoticedSoFar,
    NoticeWatch,
    health_judge,
    table_evidence,
    table_health,
)
from backend.health.model import AttentionGroup, HealthEvidence, TableHealth
from backend.jobs.model import Job, RestingPolicy, resting
from backend.lake.files import clustering, file_sizes, stats
from backend.lake.files.clustering import Overlap
from backend.lake.files.file_sizes import FileChoice, FileDistribution, FilePage, distribute
from backend.lake.files.stats import ColumnTotals
from backend.lake.find import FoundTable, LakeFinder
from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableCard, TableRef
from backend.maintenance import plan
from backend.maintenance.model import ActPreview, TableAct
from backend.maintenance.policies import PolicyPlan, PolicyPlans
from backend.query.tiles import Tiles, tiles_of
from backend.search.notice import Key, Notice
from backend.search.search import Bisects
from backend.search.suggest import held_numbers
from backend.sql import numbers
from backend.sql.export import Exports
from backend.store.notices import KeptAnswer, NoticeTopic
from backend.stream_model.backlog import Lag
from backend.stream_model.progress import versions_of
from backend.stream_model.rollup import DAY_S, MINUTE_S, MOST_POINTS, Points, plan_grain, points_of, points_over
from backend.stream_model.stream import HostHeartbeat, Progress, Run, StreamDeclaration
from backend.streams.backlog import BacklogReader
from backend.streams.checkpoint import Starts, pinned_by
from backend.streams.faults import Preflight
from backend.streams.latency import LayerLatency, Trails, layer_latencies, pipeline_latencies, read_trails
from backend.streams.preflight import preflight as load_preflight
from backend.streams.reset import ResetLevel, ResetPreview, load_preview
from backend.streams.status import Newest, RecentBatches, query_names, statuses
from backend.streams.verdict import StreamStatus

HEALTH_TTL_S = 30.0  # its sentences hold ages
STREAMS_TTL_S = 1.0  # hosts write about once a second
SCRAPE_PATIENCE_S = 0.5  # a store that is away answers after its time-outs
SCRAPED_LAKE_S = 60.0  # a pass over a big lake is dear, and nobody looks
RUNS_TTL_S = 10.0
LAGS_TTL_S = 5.0
PREFLIGHT_TTL_S = 5.0  # logs and leases change, and a live page asks for it every two seconds
POLICIES_TTL_S = 10.0  # hosts look every fifteen seconds
RECENT_TTL_S = 5.0  # rates over minutes change slowly
LONG_TTL_S = 60.0  # of charts over days
WINDOWS_KEPT = 16  # of 360 points or fewer
MOST_EVENTS = 20_000  # a day of five-second batches and some
COMMITS_SEEN = 400
FIXED_ENTRIES = 64  # results at a fixed version: bounded by number, not by age
_BY_URI: dict[str | type[Any], Callable[[Any], Any]] = {TableRef: lambda ref: ref.uri}
# The lake's listing: `lake.refresh_s` of the settings.


@dataclass(frozen=True, slots=True, eq=False)
class StreamsReading:
    """All streams, hosts, judgements of tables and notices as the store last had them. `problem` says why there are
    none.

    Each reading is a value of its own, whatever it holds.
    """

    streams: tuple[StreamStatus, ...]
    hosts: tuple[HostHeartbeat, ...]
    read_at: datetime
    problem: str | None = None
    judgements: tuple[Judgement, ...] = ()
    resting: tuple[RestingPolicy, ...] = ()
    notices: tuple[Notice, ...] = ()  # that are open
    notices_seen: frozenset[Key] = frozenset()  # where no host lives, which would know them
    webhook_error: str = ""
    rows_left_out: int = 0  # of the store, since they cannot be read


def lake_reading() -> LakeReading:
    """Every table as far as it is read; never waits for a big lake. Raises `LakehouseError` when settings fail."""
    return lake_reader().reading()


def known_lake() -> LakeReading:
    """Tables read so far; a pass begins where the last is older than `SCRAPED_LAKE_S`. For /metrics: never waits."""
    return lake_reader().known(refresh_after_s=SCRAPED_LAKE_S)


@once
def lake_reader() -> LakeReader:
    """The one reading in the background that all viewers share."""
    return LakeReader(services.lake(), refresh_s=services.settings().lake.refresh_s, now=services.now)


def judged(reading: LakeReading) -> dict[str, JudgedTable]:
    """The health of the tables read so far as it comes, by address; never waits for a big lake."""
    return _lake_judge().judged([table for table in reading.tables if isinstance(table, TableCard)])


def attention(reading: LakeReading | None, streams: StreamsReading) -> tuple[AttentionGroup, ...]:
    """What needs a person as these readings tell it, by cause and most urgent first: made once for all viewers."""
    return _attention(reading, streams, noticed(streams).notices)


@lru_cache(1)
def _attention(
    reading: LakeReading | None, streams: StreamsReading, notices: tuple[Notice, ...]
) -> tuple[AttentionGroup, ...]:
    tables = reading.tables if reading else ()
    items = attention_items(
        tables, streams.streams, streams.hosts, judgements=streams.judgements, resting=streams.resting,
        notices=notices, webhook_error=streams.webhook_error, now=streams.read_at, settings=services.settings(),
    )  # fmt: skip
    return grouped(_calm_list().listed(items, streams.read_at))


@once
def _calm_list() -> CalmList:
    return CalmList()


def hosts_up(streams: StreamsReading) -> int:
    """How many stream hosts live."""
    now, stale_s = services.now(), services.settings().host.heartbeat_stale_s
    return sum(host.silent_s(now) <= stale_s for host in streams.hosts)


def noticed(streams: StreamsReading) -> NoticedSoFar:
    """What commits did that somebody has to look at, as hosts noticed it; where none lives, as it is found here."""
    try:
        reading = None if hosts_up(streams) else lake_reading()
    except LakehouseError:  # it is told where tables are shown
        reading = None
    if reading is None or not (reading.is_complete or _notice_watch.made):  # to read the lake comes first
        return NoticedSoFar(streams.notices)
    cards, names = [table for table in reading.tables if isinstance(table, TableCard)], query_names(streams.streams)
    return _notice_watch().found(cards, streams.notices, streams.notices_seen, names)


@once
def _notice_watch() -> NoticeWatch:
    return NoticeWatch(Lake(services.settings()), services.now)


@once
def _lake_judge() -> LakeJudge[JudgedTable]:
    lake, settings = services.lake(), services.settings().health

    def evidence(ref: TableRef) -> HealthEvidence:
        with lake.at_one_moment(ref):
            return table_evidence(lake, ref, now=services.now(), settings=settings)

    return health_judge(evidence)


def find(words: str) -> list[FoundTable]:
    """Every table read so far that holds all the words, best first."""
    lock, finder = _finder()
    with lock:
        return finder.find(lake_reading().tables, words)


_finder = once(lambda: (Lock(), LakeFinder()))


def streams_reading() -> StreamsReading:
    """Every stream and host. A store that does not answer is a reading with a `problem`, not an error."""
    try:
        return _streams_reading()
    except LakehouseError as exc:
        return StreamsReading((), (), services.now(), exc.message)


def silent_judgements() -> list[Judgement]:
    """What no living host keeps up any more."""
    reading, stale_s = streams_reading(), services.settings().host.heartbeat_stale_s
    return away(reading.judgements, reading.hosts, now=services.now(), stale_s=stale_s)


def not_as_expected() -> frozenset[str]:
    """Addresses of tables with an expectation that is not met."""
    return addresses_not_as_expected(streams_reading().judgements, silent_judgements())


def known_streams() -> StreamsReading | None:
    """The same for a scrape: at once, or the reading before; None until there was one."""
    return _kept_streams().latest()


@once
def _kept_streams() -> LatestAnswer[StreamsReading]:
    return LatestAnswer(streams_reading, patience_s=SCRAPE_PATIENCE_S)


@st.cache_resource(show_spinner=False, ttl=STREAMS_TTL_S, max_entries=1, refresh_mode="background")
def _streams_reading() -> StreamsReading:
    return _kept_reading()()


@once
def _kept_reading() -> KeptAnswer[StreamsReading]:
    every_s = services.settings().host.heartbeat_stale_s / 3  # signs of life tell nobody, nor does what waits
    return KeptAnswer(services.store().notices, _read_streams, *NoticeTopic, every_s=every_s)


def _read_streams() -> StreamsReading:
    now, store = services.now(), services.store()
    store.take_in(services.settings().roots)
    stale_s = services.settings().host.heartbeat_stale_s
    streams = statuses(store, _backlogs(), now=store.now(), heartbeat_stale_s=stale_s, newest=_newest())
    hosts, judgements = tuple(store.hosts(now=now)), tuple(store.judgements())
    policies = services.settings().table_policies
    rests = tuple(resting(policies, store.jobs.acts_on_tables())) if policies else ()
    left_out = len(store.unreadable())
    reading = StreamsReading(
        tuple(streams), hosts, now, judgements=judgements, resting=rests, notices=tuple(store.noticed.open()),
        webhook_error=store.told.error(now=now), rows_left_out=left_out,
    )  # fmt: skip
    return reading if hosts_up(reading) else replace(reading, notices_seen=store.noticed.seen_keys())


@once
def _backlogs() -> BacklogReader:
    return BacklogReader(services.settings(), services.lake())


_newest = once(Newest)


def stream_names() -> dict[str, str]:
    """The stream of each query id that hosts last saw."""
    return query_names(streams_reading().streams)


def stream_points(stream: StreamDeclaration, window_s: int) -> Points:
    """The batches of a stream's last `window_s`, as points of its charts; no older than half a point is wide."""
    now, limits = services.now(), services.settings().store
    grain_s = plan_grain(
        window_s,
        batches_kept_s=limits.progress_retention_days * DAY_S,
        minutes_kept_s=limits.minutes_retention_days * DAY_S,
    )
    age = int(now.timestamp() / min(window_s / (2 * MOST_POINTS), LONG_TTL_S))
    return _stream_points(stream.name, window_s, grain_s, stream.trigger_interval_ms, age, now)


@st.cache_resource(show_spinner=False, max_entries=WINDOWS_KEPT)
def _stream_points(
    name: str, window_s: int, grain_s: int | None, trigger_interval_ms: int, age: int, _now: datetime
) -> Points:
    del age  # a part of the key alone
    since = _now - timedelta(seconds=window_s)
    if grain_s is None:
        events = services.store().progress(name, since=since, limit=MOST_EVENTS, raw=False)
        if len(events) < MOST_EVENTS and not _are_more(name, since, events[0].progressed_at if events else _now):
            return replace(points_of(events, trigger_interval_ms=trigger_interval_ms), since=since, until=_now)
        grain_s = MINUTE_S  # what was read is not all
    rollups = services.store().rollups(name, grain_s=grain_s, since=since)
    points = points_over(rollups, window_s=window_s, grain_s=grain_s, trigger_interval_ms=trigger_interval_ms)
    return replace(points, since=since, until=_now)


def _are_more(name: str, since: datetime, first_at: datetime) -> bool:
    """Whether batches of the window began before the first one that is kept: `store.progress_max_rows` has a limit."""
    if first_at - since < timedelta(seconds=MINUTE_S):
        return False
    return any(minute.first_at < first_at for minute in services.store().rollups(name, grain_s=MINUTE_S, since=since))


def stream_lags(stream: StreamDeclaration, points: Points, window_s: int) -> tuple[Lag, ...]:
    """How far behind a stream was over its last `window_s`, at most about `MOST_POINTS` batches of it, and now; () for
    a window that is not drawn from batches."""
    if points.grain_s is not None:
        return ()
    now = services.now()
    age = int(now.timestamp() / max(LAGS_TTL_S, window_s / MOST_POINTS))
    return _stream_lags(stream.name, window_s, age, points.batches // MOST_POINTS + 1, stream, now)


@st.cache_resource(show_spinner=False, max_entries=WINDOWS_KEPT)
def _stream_lags(
    name: str, window_s: int, age: int, every: int, _stream: StreamDeclaration, _now: datetime
) -> tuple[Lag, ...]:
    del age  # a part of the key alone
    since = _now - timedelta(seconds=window_s)
    batches = services.store().progress(name, since=since, limit=2 * MOST_POINTS, every=every)
    if not batches:
        batches = services.store().progress(name, limit=1)  # what has come since then
    return tuple(lag for lag in _backlogs().look(_stream, batches, now=_now).history() if lag.at >= since)


def batch_versions(stream: StreamDeclaration) -> dict[tuple[str, int], int]:
    """The versions that a stream's batches wrote, by query id and batch, among the newest `COMMITS_SEEN` commits."""
    try:
        ref = services.lake().find(stream.sink_table)
        return _batch_versions(ref, services.lake().latest_version(ref))
    except LakehouseError:
        return {}  # it writes elsewhere, or its table cannot be read: no commit is known


@st.cache_data(show_spinner=False, max_entries=FIXED_ENTRIES, hash_funcs=_BY_URI)
def _batch_versions(ref: TableRef, latest: int) -> dict[tuple[str, int], int]:
    return versions_of(services.lake().history(ref, limit=COMMITS_SEEN, ending_version=latest))


@st.cache_data(show_spinner=False, ttl=RUNS_TTL_S, max_entries=FIXED_ENTRIES)
def stream_runs(name: str) -> list[Run]:
    """The runs of a stream, newest first; its figures per hour are added up for it."""
    return services.store().runs(name)


@st.cache_resource(show_spinner=False, ttl=RECENT_TTL_S, max_entries=1)
def recent_batches() -> dict[str, list[Progress]]:
    """Each stream's batches of the graph's window."""
    declared = [status.declaration for status in streams_reading().streams]
    return _recent().read(services.store(), declared, now=services.now())


_recent = once(RecentBatches)


def latencies(streams: tuple[str, ...]) -> list[LayerLatency]:
    """How long data takes from where it lands to the layers of these streams; raises `StoreError`."""
    return _latencies(streams, _trails())


def known_latencies() -> list[tuple[str, LayerLatency]]:
    """Those of every pipeline for a scrape: at once, or the ones before; none until there were some.

    Raises `LakehouseError`.
    """
    return _kept_latencies().latest() or []


@once
def _kept_latencies() -> LatestAnswer[list[tuple[str, LayerLatency]]]:
    return LatestAnswer(lambda: pipeline_latencies(streams_reading().streams, _trails()), patience_s=SCRAPE_PATIENCE_S)


@st.cache_resource(
    show_spinner=False, max_entries=WINDOWS_KEPT, hash_funcs={Trails: lambda trails: str(trails.read_at)}
)
def _latencies(streams: tuple[str, ...], trails: Trails) -> list[LayerLatency]:
    statuses = [status for status in streams_reading().streams if status.declaration.name in streams]
    return layer_latencies(statuses, trails)


@st.cache_resource(show_spinner=False, ttl=RECENT_TTL_S, max_entries=1)
def _trails() -> Trails:
    return read_trails(services.store(), _backlogs(), streams_reading().streams, now=services.store().now())


@st.cache_resource(show_spinner=False, ttl=POLICIES_TTL_S, max_entries=1)
def acts() -> list[Job]:
    """The newest acts on tables; raises `StoreError`."""
    return services.store().jobs.acts_on_tables()


@st.cache_data(show_spinner=False, ttl=PREFLIGHT_TTL_S, max_entries=FIXED_ENTRIES)
def preflight(name: str) -> Preflight:
    """Whether a stream can go on; raises `StreamNotFoundError` or `StoreError`."""
    return load_preflight(services.settings(), services.lake(), services.store(), name, now=services.store().now())


@st.cache_data(show_spinner="Counting what would be read again …", ttl=PREFLIGHT_TTL_S, max_entries=FIXED_ENTRIES)
def reset_preview(name: str, level: ResetLevel, starts: Starts) -> ResetPreview:
    """What a reset of a stream would do; raises `StreamNotFoundError` or `StoreError`."""
    statuses = streams_reading().streams
    settings, lake, store = services.settings(), services.lake(), services.store()
    return load_preview(settings, lake, store, statuses, name=name, level=level, now=services.now(), starts=starts)


@st.cache_data(show_spinner=False, ttl=PREFLIGHT_TTL_S, max_entries=FIXED_ENTRIES)
def pinned_conf(name: str) -> Mapping[str, str]:
    """Spark's settings that a start of the stream goes on with, whatever it is told; raises `StoreError`."""
    return dict(pinned_by(services.settings(), services.store().declarations()[name]))


@st.cache_data(
    show_spinner="Counting what it would do …", ttl=PREFLIGHT_TTL_S, max_entries=FIXED_ENTRIES,
    hash_funcs={TableAct: TableAct.text},
)  # fmt: skip
def act_preview(act: TableAct) -> ActPreview:
    """What an act on a table would do; raises `LakehouseError`."""
    settings, lake, store = services.settings(), services.lake(), services.existing_store()
    return plan.load_preview(settings, lake, store, act.uri, act.arguments, now=services.now())


@st.cache_resource(show_spinner="Looking at what policies do next …", ttl=POLICIES_TTL_S, max_entries=1)
def policy_plans() -> list[PolicyPlan]:
    """What policies do next, and why they wait; raises `LakehouseError`."""
    return _policies().plans(services.existing_store(), now=services.now())


@once
def _policies() -> PolicyPlans:
    return PolicyPlans(services.settings(), services.lake())


def forget_streams() -> None:
    """After an act: the next reading sees it."""
    act_preview.clear()
    policy_plans.clear()
    _streams_reading.clear()
    preflight.clear()
    reset_preview.clear()


@st.cache_resource(show_spinner="Reading the change feed …", max_entries=FIXED_ENTRIES, hash_funcs={Question: repr})
def feed(question: Question, limit: int) -> FeedRows:
    """The first rows of the change feed between its versions; raises `DiffError` where it does not cover them."""
    low, high = sorted((question.from_version, question.to_version))
    return feed_rows(services.lake(), question.ref, (low, high), limit=limit)


# A snapshot is too big to hash.
_BY_VERSION: dict[str | type[Any], Callable[[Any], Any]] = {
    Snapshot: lambda snapshot: f"{snapshot.ref.uri}|{snapshot.metadata.id}|{snapshot.version}"
}


@st.cache_data(show_spinner="Counting files …", max_entries=FIXED_ENTRIES, hash_funcs=_BY_VERSION)
def distribution(snapshot: Snapshot, *, with_rows: bool = False) -> FileDistribution:
    """The file-size distribution of a snapshot; rows per partition only where asked for."""
    health, target = services.settings().health, services.lake().target_bytes(snapshot)
    return distribute(snapshot, target, ratio=health.small_file_ratio, min_files=health.min_files, with_rows=with_rows)


@st.cache_data(show_spinner=False, max_entries=FIXED_ENTRIES, hash_funcs=_BY_VERSION)
def file_page(snapshot: Snapshot, choice: FileChoice, start: int, length: int) -> FilePage:
    """A part of the chosen files of a snapshot, in their order."""
    return file_sizes.file_page(snapshot, choice, start=start, length=length)


@st.cache_data(
    show_spinner="Reading the column's statistics …", show_time=True, max_entries=FIXED_ENTRIES, hash_funcs=_BY_VERSION
)
def overlap(snapshot: Snapshot, column: str) -> Overlap:
    """How many files a look-up of one value of a column reads, at a fixed version."""
    return clustering.overlap(snapshot, column)


@st.cache_data(show_spinner="Reading statistics …", show_time=True, max_entries=FIXED_ENTRIES, hash_funcs=_BY_VERSION)
def column_totals(snapshot: Snapshot, columns: tuple[str, ...]) -> tuple[ColumnTotals, ...]:
    """What the statistics of a snapshot's files say of some columns; raises what `column_stats` raises."""
    return stats.column_totals(snapshot, columns)


@st.cache_data(show_spinner=False, ttl=HEALTH_TTL_S, max_entries=512, hash_funcs=_BY_URI)
def health(ref: TableRef, version: int) -> TableHealth:
    """The health of a table whose latest version is `version`; its ages are at most `HEALTH_TTL_S` old."""
    del version  # a part of the key alone
    return table_health(services.lake(), ref, now=services.now(), settings=services.settings().health)


@once
def tiles() -> Tiles:
    """The tiles of dashboards: each runs once for all viewers."""
    return tiles_of(services.world)


# answers that took long, by what was asked ----------------------------------------------------------------------


aggregates = once(numbers.aggregates)  # what SQL aggregates came to
column_numbers = once(numbers.column_numbers)  # what columns came to by their statistics
profiles = once(numbers.profiles)  # that were read from rows
bisects = once(Bisects)  # searches for first bad versions that ended
held_columns = once(held_numbers)  # what columns hold at versions, from which conditions are suggested


@once
def exports() -> Exports:
    """Files of rows that are offered, or on their way to a browser."""
    return Exports(per_viewer=services.settings().ui.exports_per_viewer)


@once
def differences() -> Differences:
    """Differences of versions, found or being found."""
    settings = services.settings()
    return Differences(settings.lake.diff_time_limit_s, learn=key_memory(settings.home).learn)


@once
def diff_jobs() -> DiffJobs:
    """Differences that stream hosts find."""
    return DiffJobs(services.settings(), services.lake())
