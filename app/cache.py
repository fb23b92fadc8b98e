"""Everything that pages remember for all viewers, with one table of how old each kind of reading may be.

Rule: what is read at a fixed version never changes, so it has no ttl. A failed reading is never cached. Nothing big is
pickled here: the lake has caches of its own for logs and snapshots.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import services, viewer
from app.services import once
from app.ui.lake import LakeReader, LakeReading
from backend.caches import LatestAnswer
from backend.errors import LakehouseError
from backend.expectations.model import Judgement, away
from backend.expectations.model import not_as_expected as addresses_not_as_expected
from backend.expectations.shown import as_shown
from backend.health.attention import CalmList, grouped
from backend.health.attention import attention as attention_items
from backend.health.health import (
    JudgedTable,
    LakeJudge,
    NoticedSoFar,
    NoticeWatch,
    health_judge,
    table_evidence,
)
from backend.health.model import AttentionGroup, HealthEvidence
from backend.jobs.model import Job, RestingPolicy, resting
from backend.lake.files import stats
from backend.lake.files.file_sizes import FileDistribution, distribute
from backend.lake.find import FoundTable, LakeFinder
from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableCard, TableRef
from backend.maintenance.model import ActPreview, TableAct
from backend.search.notice import Key, Notice
from backend.store.audit import NO_ROWS, TrailHead
from backend.store.notices import KeptAnswer, NoticeTopic
from backend.stream_model.stream import HostHeartbeat
from backend.streams.backlog import BacklogReader
from backend.streams.checkpoint import pinned_by
from backend.streams.latency import LayerLatency, Trails, pipeline_latencies, read_trails
from backend.streams.status import Newest, query_names, statuses
from backend.streams.verdict import StreamStatus

if TYPE_CHECKING:  # what one page asks for, no other page loads
    from backend.changes.cache import Differences
    from backend.maintenance.policies import PolicyPlan, PolicyPlans
    from backend.streams.checkpoint import Starts
    from backend.streams.faults import Preflight
    from backend.streams.reset import ResetLevel, ResetPreview

STREAMS_TTL_S = 1.0  # hosts write about once a second
SCRAPE_PATIENCE_S = 0.5  # a store that is away answers after its time-outs
PREFLIGHT_TTL_S = 5.0  # logs and leases change, and a live page asks for it every two seconds
POLICIES_TTL_S = 10.0  # hosts look every fifteen seconds
RECENT_TTL_S = 5.0  # rates over minutes change slowly
WINDOWS_KEPT = 16  # of 360 points or fewer
FIXED_ENTRIES = 64  # results at a fixed version: bounded by number, not by age
BY_URI: dict[str | type[Any], Callable[[Any], Any]] = {
    TableRef: lambda ref: ref.uri,
    Lake: lambda lake: str(lake.opened and sorted(lake.opened)),
}
# The lake's listing: `lake.refresh_s` of the settings.


@dataclass(frozen=True, slots=True, eq=False)
class StreamsReading:
    """What the store last had of streams, hosts, tables and notices, or the `problem` why there is nothing. Each
    reading is a value of its own, whatever it holds."""

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
    audit_head: TrailHead = NO_ROWS


def lake_reading() -> LakeReading:
    """Every table as far as it is read; never waits for a big lake. Raises `LakehouseError` when settings fail."""
    return lake_reader().reading()


@once
def lake_reader() -> LakeReader:
    """The one reading in the background that all viewers share."""
    return LakeReader(services.lake(), refresh_s=services.settings().lake.refresh_s, now=services.now)


def judged(reading: LakeReading) -> dict[str, JudgedTable]:
    """The health of the tables read so far as it comes, by address; never waits for a big lake."""
    return _lake_judge().judged([table for table in reading.tables if isinstance(table, TableCard)])


def attention(reading: LakeReading | None, streams: StreamsReading) -> tuple[AttentionGroup, ...]:
    """What needs a person as these readings tell it, by cause and most urgent first: made once for all viewers."""
    return _attention(reading, streams, noticed(streams), viewer.lake())


@lru_cache(16)  # for viewers who may see the same
def _attention(
    reading: LakeReading | None, streams: StreamsReading, found: NoticedSoFar, lake: Lake
) -> tuple[AttentionGroup, ...]:
    tables, judged = reading.tables if reading else (), as_shown(streams.judgements, lake.hidden_at)
    items = attention_items(
        tables, streams.streams, streams.hosts, judgements=judged, resting=streams.resting,
        notices=found.notices, are_notices_current=found.is_current, webhook_error=streams.webhook_error,
        now=streams.read_at, settings=services.settings(),
    )  # fmt: skip
    return grouped(_calm_list().listed(items, streams.read_at))


_calm_list = once(CalmList)


def judgements() -> tuple[Judgement, ...]:
    """What hosts found of expectations, as this viewer is shown it."""
    return as_shown(streams_reading().judgements, viewer.lake().hidden_at)


def hosts_up(streams: StreamsReading) -> int:
    """How many stream hosts live."""
    return len(_living(streams))


def _living(streams: StreamsReading) -> list[HostHeartbeat]:
    now, stale_s = services.now(), services.settings().host.heartbeat_stale_s
    return [host for host in streams.hosts if host.is_alive(now, stale_s)]


def noticed(streams: StreamsReading, opened: str = "") -> NoticedSoFar:
    """What commits did that somebody has to look at, as hosts noticed it; where none lives, as it is found here, first
    at the table whose page is `opened`. Without values that this viewer may not see."""
    found = _noticed(streams, opened)
    return replace(found, notices=as_shown(found.notices, viewer.lake().hidden_at))


def kept(notices: Collection[Notice]) -> list[Notice]:
    """What was noticed, whole, for an act on what this viewer is shown of it."""
    found = _noticed(streams_reading(), "").notices
    parts = zip(found, as_shown(found, viewer.lake().hidden_at), strict=True)
    return [whole for whole, part in parts if part in notices]


def _noticed(streams: StreamsReading, opened: str) -> NoticedSoFar:
    if hosts := _living(streams):
        seen, found = max(((host.tables_looked_at, host.tables_found) for host in hosts), key=lambda each: each[1])
        return NoticedSoFar(streams.notices, seen, found, found, is_current=seen == found, by_host=True)
    try:
        reading = lake_reading()
    except LakehouseError:  # it is told where tables are shown
        reading = None
    if reading is None or not (reading.is_complete or _notice_watch.made):  # to read the lake comes first
        return NoticedSoFar(streams.notices)
    cards, names = [table for table in reading.tables if isinstance(table, TableCard)], query_names(streams.streams)
    return _notice_watch().found(cards, streams.notices, streams.notices_seen, names, opened)


_notice_watch = once(lambda: NoticeWatch(Lake(services.settings()), services.now))


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
    return away(judgements(), reading.hosts, now=services.now(), stale_s=stale_s)


def not_as_expected() -> frozenset[str]:
    """Addresses of tables with an expectation that is not met."""
    return addresses_not_as_expected(judgements(), silent_judgements())


def known_streams() -> StreamsReading | None:
    """The same for a scrape: at once, or the reading before; None until there was one."""
    return _kept_streams().latest()


_kept_streams = once(lambda: LatestAnswer(streams_reading, patience_s=SCRAPE_PATIENCE_S))


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
    streams = statuses(store, backlogs(), now=store.now(), heartbeat_stale_s=stale_s, newest=_newest())
    hosts, judgements = tuple(store.hosts(now=now)), tuple(store.judgements())
    policies = services.settings().table_policies
    rests = tuple(resting(policies, store.jobs.acts_on_tables())) if policies else ()
    left_out = len(store.unreadable())
    reading = StreamsReading(
        tuple(streams), hosts, now, judgements=judgements, resting=rests, notices=tuple(store.noticed.open()),
        webhook_error=store.told.error(now=now), rows_left_out=left_out, audit_head=store.audit_head(),
    )  # fmt: skip
    return reading if hosts_up(reading) else replace(reading, notices_seen=store.noticed.seen_keys())


@once
def backlogs() -> BacklogReader:
    """The one reader of how far streams are behind."""
    return BacklogReader(services.settings(), services.lake())


_newest = once(Newest)


def stream_names() -> dict[str, str]:
    """The stream of each query id that hosts last saw."""
    return query_names(streams_reading().streams)


def known_latencies() -> list[tuple[str, LayerLatency]]:
    """Of every pipeline for a scrape: at once, or those before; none at first. Raises `LakehouseError`."""
    return _kept_latencies().latest() or []


@once
def _kept_latencies() -> LatestAnswer[list[tuple[str, LayerLatency]]]:
    return LatestAnswer(lambda: pipeline_latencies(streams_reading().streams, trails()), patience_s=SCRAPE_PATIENCE_S)


@st.cache_resource(show_spinner=False, ttl=RECENT_TTL_S, max_entries=1)
def trails() -> Trails:
    """What landed and what streams read of it, of the last half hour."""
    return read_trails(services.store(), backlogs(), streams_reading().streams, now=services.store().now())


@st.cache_resource(show_spinner=False, ttl=POLICIES_TTL_S, max_entries=1)
def acts() -> list[Job]:
    """The newest acts on tables; raises `StoreError`."""
    return services.store().jobs.acts_on_tables()


@st.cache_data(show_spinner=False, ttl=PREFLIGHT_TTL_S, max_entries=FIXED_ENTRIES)
def preflight(name: str) -> "Preflight":
    """Whether a stream can go on; raises `StreamNotFoundError` or `StoreError`."""
    from backend.streams.preflight import preflight

    return preflight(services.settings(), services.lake(), services.store(), name, now=services.store().now())


@st.cache_data(show_spinner="Counting what would be read again …", ttl=PREFLIGHT_TTL_S, max_entries=FIXED_ENTRIES)
def reset_preview(name: str, level: "ResetLevel", starts: "Starts") -> "ResetPreview":
    """What a reset of a stream would do; raises `StreamNotFoundError` or `StoreError`."""
    from backend.streams.reset import load_preview

    statuses = streams_reading().streams
    settings, lake, store = services.settings(), services.lake(), services.store()
    return load_preview(settings, lake, store, statuses, name=name, level=level, now=services.now(), starts=starts)


@st.cache_data(show_spinner=False, ttl=PREFLIGHT_TTL_S, max_entries=FIXED_ENTRIES)
def pinned_conf(name: str) -> Mapping[str, str]:
    """Spark's settings that a start of the stream goes on with, whatever it is told; raises `StoreError`."""
    return dict(pinned_by(services.settings(), services.store().declarations()[name]))


@st.cache_data(
    show_spinner="Counting what it would do …", ttl=PREFLIGHT_TTL_S, max_entries=FIXED_ENTRIES,
    hash_funcs={TableAct: TableAct.text, **BY_URI},
)  # fmt: skip
def act_preview(lake: Lake, act: TableAct) -> ActPreview:
    """What an act on a table would do, with rows as a lake shows them; raises `LakehouseError`."""
    from backend.maintenance import plan

    settings, store = services.settings(), services.existing_store()
    return plan.load_preview(settings, lake, store, act.uri, act.arguments, now=services.now())


@st.cache_resource(show_spinner="Looking at what policies do next …", ttl=POLICIES_TTL_S, max_entries=1)
def policy_plans() -> "list[PolicyPlan]":
    """What policies do next, and why they wait; raises `LakehouseError`."""
    return _policies().plans(services.existing_store(), now=services.now())


@once
def _policies() -> "PolicyPlans":
    from backend.maintenance.policies import PolicyPlans

    return PolicyPlans(services.settings(), services.lake())


def forget_streams() -> None:
    """After an act: the next reading sees it."""
    act_preview.clear()
    policy_plans.clear()
    _streams_reading.clear()
    preflight.clear()
    reset_preview.clear()


# A snapshot is too big to hash.
BY_VERSION: dict[str | type[Any], Callable[[Any], Any]] = {
    Snapshot: lambda snapshot: f"{snapshot.ref.uri}|{snapshot.metadata.id}|{snapshot.version}|{snapshot.hidden}"
}


@st.cache_data(show_spinner="Counting files …", max_entries=FIXED_ENTRIES, hash_funcs=BY_VERSION)
def distribution(snapshot: Snapshot, *, with_rows: bool = False) -> FileDistribution:
    """The file-size distribution of a snapshot; rows per partition only where asked for."""
    health, target = services.settings().health, services.lake().target_bytes(snapshot)
    return distribute(snapshot, target, ratio=health.small_file_ratio, min_files=health.min_files, with_rows=with_rows)


@st.cache_data(show_spinner="Reading statistics …", show_time=True, max_entries=FIXED_ENTRIES, hash_funcs=BY_VERSION)
def column_totals(snapshot: Snapshot, columns: tuple[str, ...]) -> tuple[stats.ColumnTotals, ...]:
    """What the statistics of a snapshot's files say of some columns; raises what `column_stats` raises."""
    return stats.column_totals(snapshot, columns)


@once
def differences() -> "Differences":
    """Differences of versions, found or being found."""
    from backend.changes.cache import Differences
    from backend.changes.key import key_memory

    settings = services.settings()
    return Differences(settings.lake.diff_time_limit_s, learn=key_memory(settings.home).learn)
