"""Repaired rows requeued: each is in the stream's table once, wherever the job is broken off, and nowhere twice."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from backend.errors import QueryError, StreamRefusedError
from backend.jobs.model import Job, JobKind, JobState
from backend.lake.lake import Lake
from backend.settings import load_settings
from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import Observed, StreamState
from backend.streams.requeue import RequeueAnswer, RequeueRequest, load_request
from pipelines import append, complete, expect, history, table, update, upsert
from pipelines.declare.registry import declarations
from pipelines.jobs.runner import Acts, SparkJobs
from pipelines.specs.expectations import Expectation
from pipelines.specs.registry import Registry
from pipelines.specs.sinks import Into, Sink
from pipelines.specs.streams import StreamSpec
from tests.worlds.spark.declared import pipeline_of
from tests.worlds.spark.lakes import DemoLake, open_lake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NAME = "silver_orders"
ORDER = "id STRING, op STRING, amount DOUBLE, lsn BIGINT, marks MAP<STRING, INT>"
RULES = (
    expect("priced", "op = 'd' OR amount > 0", on_violation="quarantine"),
    expect("known", "id <> '?'", on_violation="drop"),
    expect("small", "amount < 100"),
)
Order = tuple[str, str, float | None, int]

FIRST: list[Order] = [
    ("a", "c", -1.0, 1),  # an older change than the next one of its key
    ("a", "u", 5.0, 2),
    ("b", "c", -200.0, 3),
    ("b", "c", -200.0, 3),  # the same row once more
    ("c", "c", None, 4),  # no repair of these tests mends it
    ("d", "c", -7.0, 5),
    ("d", "d", 0.0, 6),  # gone by now
]
LATER: list[Order] = [("e", "c", -9.0, 7), ("f", "c", 9.0, 8)]
UPSERT = upsert(keys=["id"], sequence="lsn", deleted="op = 'd'", except_columns=["op", "marks"])
HISTORY = history(keys=["id"], sequence="lsn", deleted="op = 'd'", except_columns=["op", "marks"])


class Killed(Exception):
    """The host is gone."""


@dataclass
class Watch:
    """Hears the phases; dies at one of them."""

    dies_at: str = ""
    heard: list[str] = field(default_factory=list)

    def tell(self, phase: str) -> None:
        self.heard.append(phase)
        if self.dies_at and phase.startswith(self.dies_at):
            raise Killed

    changes = tell


class Shop:
    """A stream with a quarantine, its store, and its host's jobs."""

    def __init__(
        self,
        spark: SparkSession,
        home: Path,
        sink: Sink,
        rules: Sequence[Expectation] = RULES,
        also: Sequence[Into] = (),
    ) -> None:
        self.spark, self.settings = spark, load_settings(home=home)
        self.source = str(home / "lake" / "bronze" / "orders")
        self.add(FIRST)
        about = {"sink": sink, "also": also, "trigger": "available now", "expectations": rules}
        orders = pipeline_of(table(self.source), name=NAME, **about)
        (home / "store").mkdir()
        self.store = ControlStore.open(self.settings)
        self.lake: DemoLake = open_lake(self.settings, *orders.streams)
        self.declared(orders.streams[0])
        self.see(StreamState.STOPPED)

    def declared(self, spec: StreamSpec) -> None:
        registry = Registry([spec])
        self.acts = Acts.of(self.settings, self.store, registry)
        (self.declaration,) = declarations(registry, self.settings)
        self.spec = spec

    def add(self, orders: list[Order]) -> None:
        rows = [(*order, {"n": order[3], "m": None}) for order in orders]
        self.spark.createDataFrame(rows, ORDER).coalesce(1).write.format("delta").mode("append").save(self.source)

    def see(self, state: StreamState) -> None:
        now = datetime.now(UTC)
        lease = self.store.acquire(stream_resource(NAME), "host", ttl_s=600)
        assert lease is not None
        self.store.observe(Observed(NAME, state, "host", 1, now), token=lease.token)
        self.store.release(lease)

    def asked(self, where: str = "amount < 0", *repairs: str) -> RequeueRequest:
        return load_request(Lake(self.settings), self.declaration, where, repairs or ("amount = abs(amount)",))

    def send(self, request: RequeueRequest, job_id: str = "job-1", watch: Watch | None = None) -> RequeueAnswer:
        job = a_job(request, job_id)
        return self.acts.requeues.run(job, self.spark.newSession(), watch or Watch())

    def table(self) -> list[Row]:
        return self.lake.rows("silver/silver_orders")

    def quarantined(self) -> list[Row]:
        return self.lake.rows("silver/silver_orders_quarantine")


def a_job(request: RequeueRequest, job_id: str, kind: JobKind = JobKind.REQUEUE) -> Job:
    now = datetime.now(UTC)
    return Job(
        job_id, kind, NAME, job_id, request.text(), "ana", "prices had a sign", 600, JobState.RUNNING, now, attempts=1
    )


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Callable[..., Shop]:
    return lambda sink: Shop(spark, tmp_path, sink)


def repaired(orders: list[Order]) -> list[Order]:
    """What would have come at first, had it been right: without what no repair mended."""
    mended = [(key, op, abs(amount) if amount is not None else None, at) for key, op, amount, at in orders]
    return [order for order in mended if order[1] == "d" or (order[2] is not None and order[2] > 0)]


def as_appended(orders: list[Order]) -> list[tuple[object, ...]]:
    return sorted((order[0], order[1], order[2], order[3]) for order in orders)


def as_upserted(orders: list[Order]) -> list[tuple[object, ...]]:
    last: dict[str, Order] = {}
    for order in sorted(orders, key=lambda order: order[3]):
        last[order[0]] = order
    return sorted((key, order[2], order[3]) for key, order in last.items() if order[1] != "d")


def as_history(orders: list[Order]) -> list[tuple[object, ...]]:
    found: set[tuple[object, ...]] = set()
    for key in {order[0] for order in orders}:
        mine = sorted({order for order in orders if order[0] == key}, key=lambda order: order[3])
        ends = [*(order[3] for order in mine[1:]), None]
        found |= {(key, o[2], o[3], end) for o, end in zip(mine, ends, strict=True) if o[1] != "d"}
    return sorted(found, key=str)


def rows_of(shop: Shop, sink: Sink) -> list[tuple[object, ...]]:
    if sink == UPSERT:
        return sorted((row.id, row.amount, row.lsn) for row in shop.table())
    if sink == HISTORY:
        return sorted(((row.id, row.amount, row.valid_from, row.valid_to) for row in shop.table()), key=str)
    return sorted((row.id, row.op, row.amount, row.lsn) for row in shop.table())


@pytest.mark.parametrize(
    ("sink", "ledger"),
    [
        pytest.param(append(), as_appended, id="append", marks=pytest.mark.ci),
        pytest.param(UPSERT, as_upserted, id="upsert"),
        pytest.param(HISTORY, as_history, id="history", marks=pytest.mark.ci),
    ],
)
def test_a_job_killed_between_its_steps_sends_each_row_once(
    shop: Callable[..., Shop], sink: Sink, ledger: Callable[[list[Order]], list[tuple[object, ...]]]
) -> None:
    orders = shop(sink)
    orders.lake.process(NAME)
    good = [order for order in FIRST if order[1] == "d" or (order[2] is not None and order[2] > 0)]
    assert rows_of(orders, sink) == ledger(good)
    assert len(orders.quarantined()) == 5
    request = orders.asked()
    orders.add(LATER)
    orders.lake.process(NAME)  # one more row is quarantined after the request

    killed = Watch(dies_at="taking them out")
    with pytest.raises(Killed):
        orders.send(request, watch=killed)
    assert killed.heard[-1] == "taking them out of the quarantine", "the fault fired between the two"
    whole = ledger([*repaired(FIRST), LATER[1]])
    assert rows_of(orders, sink) == whole
    assert len(orders.quarantined()) == 6, "they are in both, as a host leaves them that dies now"

    answer = orders.send(request)
    assert (answer.chosen, answer.met, answer.warned) == (4, 4, {"small": 2})
    assert rows_of(orders, sink) == whole, "a replay changes nothing"
    assert {row.id for row in orders.quarantined()} == {"c", "e"}
    assert orders.send(request) == answer, "a third time, after its end was not noted"
    assert (rows_of(orders, sink), len(orders.quarantined())) == (whole, 2)


@pytest.mark.ci
def test_the_preview_counts_what_is_then_done(shop: Callable[..., Shop]) -> None:
    orders = shop(append())
    orders.lake.process(NAME)
    runner = SparkJobs(orders.settings, lambda: orders.spark, "host-a", acts=orders.acts)
    request = orders.asked("", "amount = CASE WHEN id = 'b' THEN 0 ELSE abs(amount) END", "ID = 'x' || id")

    preview = a_job(request, "job-1", JobKind.REQUEUE_PREVIEW)
    found = RequeueAnswer.of(replace(preview, answer=runner.run(preview).answer))

    assert (found.chosen, found.met, dict(found.broken)) == (5, 2, {"priced": 3})
    goes = [each for each in found.samples if each.goes]
    assert {(str(each.before["id"]), str(each.after["id"])) for each in goes} == {("a", "xa"), ("d", "xd")}
    assert all(each.after["amount"] == abs(float(str(each.before["amount"]))) for each in goes)
    assert len(orders.table()) == 2 and len(orders.quarantined()) == 5, "nothing is done yet"

    ended = runner.run(a_job(request, "job-2"))
    assert ended.detail == "2 of 5 rows requeued; 3 stay: 3 break priced"
    assert sorted(row.id for row in orders.table()) == ["a", "d", "xa", "xd"]
    (commit,) = [
        each for each in orders.lake.history("silver/silver_orders") if "requeue" in each.get("userMetadata", "")
    ]
    said = {"stream": NAME, "requeue": "job-2", "by": "ana", "reason": "prices had a sign"}
    assert json.loads(commit["userMetadata"]) == said


@pytest.mark.ci
def test_what_stays_keeps_its_values_and_says_which_rules_it_breaks_today(shop: Callable[..., Shop]) -> None:
    orders = shop(append())
    orders.lake.process(NAME)
    stricter = (*RULES, expect("positioned", "lsn > 4", on_violation="fail"))
    orders.declared(replace(orders.spec, expectations=stricter))

    answer = orders.send(orders.asked("amount < 0 OR amount IS NULL", "amount = abs(amount)"))

    assert (answer.chosen, answer.met, dict(answer.broken)) == (5, 1, {"priced": 1, "positioned": 4})
    left = {(row.id, row.amount): row.broken_expectations for row in orders.quarantined()}
    assert left[("a", -1.0)] == ["priced", "positioned"], "of the row as it lies there"
    assert left[("c", None)] == ["priced", "small", "positioned"], "a null meets no rule"
    assert {row.marks["n"] for row in orders.quarantined()} == {1, 3, 4}


@pytest.mark.ci
def test_which_rows_go_is_decided_once(shop: Callable[..., Shop]) -> None:
    """A host of another declaration carries on what the first one began."""
    orders = shop(append())
    orders.lake.process(NAME)
    request = orders.asked()
    with pytest.raises(Killed):
        orders.send(request, watch=Watch(dies_at="taking them out"))
    orders.declared(replace(orders.spec, expectations=(expect("priced", "amount > 1e9", on_violation="quarantine"),)))

    orders.send(request)

    assert [row.id for row in orders.quarantined()] == ["c"]
    assert as_appended(repaired(FIRST)) == rows_of(orders, append())


@pytest.mark.ci
def test_the_next_job_ends_one_that_never_came_back(shop: Callable[..., Shop]) -> None:
    orders = shop(append())
    orders.lake.process(NAME)
    for job_id, phase in (("job-1", "writing rows"), ("job-2", "taking them out")):
        with pytest.raises(Killed):
            orders.send(orders.asked("id = 'b'"), job_id, Watch(dies_at=phase))
    assert len(orders.table()) == 4, "the first had written nothing, the second both rows"

    with pytest.raises(StreamRefusedError, match="job-2 had broken off: its rows have left the quarantine now"):
        orders.send(orders.asked("amount < 0"), "job-3")
    assert sorted(row.id for row in orders.quarantined()) == ["a", "c", "d"]
    assert orders.send(orders.asked("id = 'a'"), "job-4").met == 1

    assert sorted(row.id for row in orders.quarantined()) == ["c", "d"]
    assert sorted((row.id, row.lsn) for row in orders.table()) == [("a", 1), ("a", 2), ("b", 3), ("b", 3), ("d", 6)]


def test_what_may_not_be_done_says_why(shop: Callable[..., Shop]) -> None:
    orders = shop(append())
    orders.lake.process(NAME)
    request = orders.asked()
    for wrong in ("amount = max(amount)", "nothing = 1", "broken_expectations = NULL", "amount", "lsn = (SELECT 1)"):
        with pytest.raises(QueryError):
            orders.asked("", wrong)
    with pytest.raises(QueryError, match="Could not convert string"):
        orders.send(orders.asked("", "lsn = CAST(id AS BIGINT)"), "job-x")
    orders.see(StreamState.RUNNING)
    with pytest.raises(StreamRefusedError, match="is not stopped"):
        orders.send(request)
    orders.see(StreamState.STOPPED)
    quarantine = orders.lake.uri("silver/silver_orders_quarantine")
    orders.spark.sql(f"DELETE FROM delta.`{quarantine}` WHERE id = 'd'")
    with pytest.raises(StreamRefusedError, match="not what it was: DELETE in version"):
        orders.send(request, "job-2")
    for sink in (complete(), update(keys=["id"])):
        orders.declared(replace(orders.spec, sink=sink))
        with pytest.raises(StreamRefusedError):
            orders.asked()
        with pytest.raises(StreamRefusedError, match="can be requeued"):
            orders.send(request)
    assert len(orders.table()) == 2
