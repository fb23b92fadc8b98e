"""Repaired rows requeued: each is in the stream's table once, wherever the job is broken off, and nowhere twice."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from backend.errors import QueryError, StreamRefusedError
from backend.jobs.model import JobKind
from backend.stream_model.stream import StreamState
from backend.streams.requeue import RequeueAnswer, RequeueRequest, load_request
from pipelines import append, expect, history, table, upsert
from pipelines.declare.pipeline import declaration
from pipelines.jobs.stream_acts import StreamActs
from pipelines.specs.ends import Into, Sink
from tests.worlds.spark.act_host import ActHost, Killed, Phases, running_job
from tests.worlds.spark.declared import pipeline_of

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


class Shop(ActHost):
    """A stream with a quarantine."""

    def __init__(self, spark: SparkSession, home: Path, sink: Sink, also: Sequence[Into] = ()) -> None:
        self.spark, self.source = spark, str(home / "lake" / "bronze" / "orders")
        self.add(FIRST)
        about = {"sink": sink, "also": also, "trigger": "available now", "expectations": RULES}
        super().__init__(spark, home, *pipeline_of(table(self.source), name=NAME, **about).streams)

    def now_with(self, **changes: object) -> None:
        """The host runs another declaration of it."""
        self.serve(replace(self.streams[0], **changes))  # type: ignore[arg-type]

    def add(self, orders: list[Order]) -> None:
        rows = [(*order, {"n": order[3], "m": None}) for order in orders]
        self.spark.createDataFrame(rows, ORDER).coalesce(1).write.format("delta").mode("append").save(self.source)

    def asked(self, where: str = "amount < 0", *repairs: str) -> RequeueRequest:
        declared = declaration(self.registry, self.streams[0], self.settings)
        return load_request(self.reader(), declared, where, repairs or ("amount = abs(amount)",))

    def send(self, request: RequeueRequest, job_id: str = "job-1", dies_at: str = "") -> RequeueAnswer:
        job = running_job(JobKind.REQUEUE, NAME, request.text(), job_id, "prices had a sign")
        acts = StreamActs(self.settings, self.store, self.registry)
        return acts.requeue(job, self.spark.newSession(), Phases(dies_at))

    def table(self) -> list[Row]:
        return self.lake.rows("silver/silver_orders")

    def quarantined(self) -> list[Row]:
        return self.lake.rows("silver/silver_orders_quarantine")


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Callable[..., Shop]:
    """Whose stream has read the first orders: two are in its table, five in its quarantine."""

    def made(sink: Sink) -> Shop:
        opened = Shop(spark, tmp_path, sink)
        opened.lake.process(NAME)
        assert len(opened.quarantined()) == 5
        return opened

    return made


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
    states: set[tuple[object, ...]] = set()
    for key in {order[0] for order in orders}:
        mine = sorted({order for order in orders if order[0] == key}, key=lambda order: order[3])
        ends = [*(order[3] for order in mine[1:]), None]
        states |= {(key, o[2], o[3], end) for o, end in zip(mine, ends, strict=True) if o[1] != "d"}
    return sorted(states, key=str)


def rows_of(shop: Shop, sink: Sink) -> list[tuple[object, ...]]:
    if sink == UPSERT:
        return sorted((row.id, row.amount, row.lsn) for row in shop.table())
    if sink == HISTORY:
        return sorted(((row.id, row.amount, row.valid_from, row.valid_to) for row in shop.table()), key=str)
    return sorted((row.id, row.op, row.amount, row.lsn) for row in shop.table())


@pytest.mark.parametrize(
    ("sink", "ledger"),
    [
        pytest.param(append(), as_appended, id="append"),
        pytest.param(UPSERT, as_upserted, id="upsert", marks=pytest.mark.soak),
        pytest.param(HISTORY, as_history, id="history", marks=pytest.mark.soak),
    ],
)
def test_a_job_killed_between_its_steps_sends_each_row_once(
    shop: Callable[..., Shop], sink: Sink, ledger: Callable[[list[Order]], list[tuple[object, ...]]]
) -> None:
    orders = shop(sink)
    good = [order for order in FIRST if order[1] == "d" or (order[2] is not None and order[2] > 0)]
    assert rows_of(orders, sink) == ledger(good)
    request = orders.asked()
    orders.add(LATER)
    orders.lake.process(NAME)  # one more row is quarantined after the request

    with pytest.raises(Killed):
        orders.send(request, dies_at="taking them out")
    whole = ledger([*repaired(FIRST), LATER[1]])
    assert rows_of(orders, sink) == whole
    assert len(orders.quarantined()) == 6, "they are in both, as a host leaves them that dies now"

    answer = orders.send(request)
    assert (answer.chosen, answer.met, answer.warned) == (4, 4, {"small": 2})
    assert rows_of(orders, sink) == whole, "a replay changes nothing"
    assert {row.id for row in orders.quarantined()} == {"c", "e"}
    assert orders.send(request) == answer, "a third time, after its end was not noted"
    assert (rows_of(orders, sink), len(orders.quarantined())) == (whole, 2)


@pytest.mark.soak
def test_the_preview_counts_what_is_then_done(shop: Callable[..., Shop]) -> None:
    orders = shop(append())
    text = orders.asked("", "amount = CASE WHEN id = 'b' THEN 0 ELSE abs(amount) END", "ID = 'x' || id").text()
    preview = running_job(JobKind.REQUEUE_PREVIEW, NAME, text, "job-1")
    answer = RequeueAnswer.of(replace(preview, answer=orders.runner.run(preview).answer))

    assert (answer.chosen, answer.met, dict(answer.broken)) == (5, 2, {"priced": 3})
    goes = [sample for sample in answer.samples if sample.goes]
    assert {(str(sample.before["id"]), str(sample.after["id"])) for sample in goes} == {("a", "xa"), ("d", "xd")}
    assert all(sample.after["amount"] == abs(float(str(sample.before["amount"]))) for sample in goes)
    assert len(orders.table()) == 2 and len(orders.quarantined()) == 5, "nothing is done yet"

    ended = orders.runner.run(running_job(JobKind.REQUEUE, NAME, text, "job-2", "prices had a sign"))
    assert ended.detail == "2 of 5 rows requeued; 3 stay: 3 break priced"
    assert sorted(row.id for row in orders.table()) == ["a", "d", "xa", "xd"]
    stamps = [commit.get("userMetadata", "") for commit in orders.lake.history("silver/silver_orders")]
    (stamp,) = [json.loads(stamp) for stamp in stamps if "requeue" in stamp]
    assert stamp == {"stream": NAME, "requeue": "job-2", "by": "ana", "reason": "prices had a sign"}


@pytest.mark.ci
def test_which_rows_go_is_decided_once_and_what_stays_says_which_rules_it_breaks_today(
    shop: Callable[..., Shop],
) -> None:
    orders = shop(append())
    orders.now_with(expectations=(*RULES, expect("positioned", "lsn > 4", on_violation="fail")))
    answer = orders.send(orders.asked("lsn IN (1, 4)"), "job-0")
    assert (answer.chosen, answer.met, dict(answer.broken)) == (2, 0, {"priced": 1, "positioned": 2})
    left = {(row.id, row.amount): row.broken_expectations for row in orders.quarantined()}
    assert left[("a", -1.0)] == ["priced", "positioned"], "of the row as it lies there"
    assert left[("c", None)] == ["priced", "small", "positioned"], "a null meets no rule"
    assert {row.marks["n"] for row in orders.quarantined()} == {1, 3, 4, 5}

    orders.now_with(expectations=RULES)
    request = orders.asked()
    with pytest.raises(Killed):
        orders.send(request, dies_at="taking them out")
    orders.now_with(expectations=(expect("priced", "amount > 1e9", on_violation="quarantine"),))
    orders.send(request)  # by a host of another declaration
    assert [row.id for row in orders.quarantined()] == ["c"]
    assert as_appended(repaired(FIRST)) == rows_of(orders, append())


@pytest.mark.soak
def test_the_next_job_ends_one_that_never_came_back(shop: Callable[..., Shop]) -> None:
    orders = shop(append())
    for job_id, phase in (("job-1", "writing rows"), ("job-2", "taking them out")):
        with pytest.raises(Killed):
            orders.send(orders.asked("id = 'b'"), job_id, phase)
    assert len(orders.table()) == 4, "the first had written nothing, the second both rows"

    with pytest.raises(StreamRefusedError, match="job-2 had broken off: its rows have left the quarantine now"):
        orders.send(orders.asked("amount < 0"), "job-3")
    assert sorted(row.id for row in orders.quarantined()) == ["a", "c", "d"]
    assert orders.send(orders.asked("id = 'a'"), "job-4").met == 1
    assert sorted(row.id for row in orders.quarantined()) == ["c", "d"]
    assert sorted((row.id, row.lsn) for row in orders.table()) == [("a", 1), ("a", 2), ("b", 3), ("b", 3), ("d", 6)]


@pytest.mark.ci
def test_what_may_not_be_done_says_why(shop: Callable[..., Shop]) -> None:
    orders = shop(append())
    request = orders.asked()
    with pytest.raises(QueryError, match="Could not convert string"):
        orders.send(orders.asked("", "lsn = CAST(id AS BIGINT)"), "job-x")
    orders.see(NAME, StreamState.RUNNING)
    with pytest.raises(StreamRefusedError, match="is not stopped"):
        orders.send(request)
    orders.see(NAME, StreamState.STOPPED)
    quarantine = orders.lake.uri("silver/silver_orders_quarantine")
    orders.spark.sql(f"DELETE FROM delta.`{quarantine}` WHERE id = 'd'")
    with pytest.raises(StreamRefusedError, match="not what it was: DELETE in version"):
        orders.send(request, "job-2")
    assert len(orders.table()) == 2
