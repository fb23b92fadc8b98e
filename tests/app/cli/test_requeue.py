"""`weir requeue` with a host that answers without Spark: what is asked of it, and what is said."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from backend.access import Actor
from backend.jobs.model import Job, JobEnd, JobKind, JobState
from backend.settings import Settings, load_settings
from backend.store.store import ControlStore
from backend.stream_model.stream import StreamState
from backend.streams.requeue import RequeueAnswer, RequeueRequest, Sample
from pipelines.host.job_host import JobHost
from tests.app.cli.test_commands import Weir, home, weir
from tests.pipelines.host.test_job_host import Runner
from tests.worlds.store import stream_store

__all__ = ["home", "weir"]
NAME = "silver_orders"
FOUND = RequeueAnswer(
    3, 2, {"priced": 1}, samples=(Sample({"id": 1, "amount": -5.0}, {"id": 1, "amount": 5.0}, (), goes=True),)
)


@dataclass
class Answering(Runner):
    settings: Settings = field(default_factory=load_settings)
    asked: list[Job] = field(default_factory=list)

    def run(self, job: Job) -> JobEnd:
        self.asked.append(job)
        return JobEnd(JobState.DONE, answer=FOUND.text(), detail=FOUND.sentence() if job.kind.is_act else "")


@pytest.fixture
def store(home: Path) -> Iterator[ControlStore]:
    opened = ControlStore.open(load_settings())
    now = datetime.now(UTC)
    stream_store.beat(opened, now)
    stream_store.declare(opened, NAME, now, expectations=("priced",))
    opened.request(NAME, "stop", reason="a bad price list", actor=Actor("ana"), now=now)
    stream_store.observe(opened, NAME, StreamState.STOPPED, now)
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def quarantine(home: Path) -> None:
    rows = pa.table({"id": [1], "amount": [-5.0], "broken_expectations": [["priced"]], "stream": [NAME]})
    (home / "lake" / "silver").mkdir(parents=True)
    write_deltalake(home / "lake" / "silver" / f"{NAME}_quarantine", rows)


@contextmanager
def hosted(store: ControlStore) -> Iterator[Answering]:
    runner = Answering()
    host = JobHost(load_settings(), store, runner, "host-a", poll_s=0.02)
    host.start()
    try:
        yield runner
    finally:
        host.stop(2)


REPAIR = ("--where", "amount < 0", "--set", "AMOUNT = abs(amount)")


def test_a_preview_asks_the_host_and_changes_nothing(weir: Weir, store: ControlStore) -> None:
    with hosted(store) as host:
        printed = weir("requeue", NAME, *REPAIR, "--dry-run", "--json").out
        told = weir("requeue", NAME, *REPAIR, "--dry-run")
    shown = json.loads(printed[printed.index("\n{") :])  # the host of this process logs to the same terminal
    assert [job.kind for job in host.asked] == [JobKind.REQUEUE_PREVIEW] * 2
    assert RequeueRequest.parse(host.asked[0].request) == RequeueRequest(
        NAME, 0, "amount < 0", {"amount": "abs(amount)"}
    )
    assert {name: shown[name] for name in ("quarantine", "version", "chosen", "met", "left", "broken", "refused")} == {
        "quarantine": f"silver/{NAME}_quarantine", "version": 0, "chosen": 3, "met": 2, "left": 1,
        "broken": {"priced": 1}, "refused": None,
    }  # fmt: skip
    assert shown["samples"][0]["after"] == {"id": 1, "amount": 5.0}
    assert "Go to silver/silver_orders: 2 rows" in told.out and "-5.0 → 5.0" in told.out


def test_rows_go_once_the_name_is_typed_and_a_reason_given(weir: Weir, store: ControlStore) -> None:
    with hosted(store) as host:
        unsure = weir("requeue", NAME, *REPAIR, "--reason", "prices had a sign")
        assert (unsure.code, "Stay as they are: 1 row" in unsure.out) == (4, True)
        assert f"--confirm {NAME}" in unsure.err
        assert weir("requeue", NAME, *REPAIR, "--confirm", NAME).code == 4, "without a reason"
        assert [job.kind for job in host.asked] == [JobKind.REQUEUE_PREVIEW]
        done = weir("requeue", NAME, *REPAIR, "--reason", "prices had a sign", "--confirm", NAME)
    assert (done.code, "2 of 3 rows requeued; 1 stays: 1 breaks priced." in done.out) == (0, True)
    ended, asked = store.audit_entries(subject=NAME)[:2]
    assert (asked.action, ended.action, ended.reason) == ("requeue job", "requeue done", "prices had a sign")
    assert ended.detail.endswith(": 2 of 3 rows requeued; 1 stays: 1 breaks priced")


def test_without_the_name_a_script_gets_the_document_and_nothing_is_done(weir: Weir, store: ControlStore) -> None:
    with hosted(store) as host:
        unsure = weir("requeue", NAME, *REPAIR, "--reason", "prices had a sign", "--json")
    document = json.loads(unsure.out[unsure.out.index("\n{") :])
    assert (unsure.code, document["chosen"], "job_id" in document) == (4, 3, False)
    assert [job.kind for job in host.asked] == [JobKind.REQUEUE_PREVIEW]


def test_what_cannot_be_is_refused_before_a_job_is_asked_for(weir: Weir, store: ControlStore) -> None:
    for arguments, code, said in (
        (("nobody", "--dry-run"), 3, "no stream 'nobody'"),
        ((NAME, "--set", "amount", "--dry-run"), 2, "is no repair"),
        ((NAME, "--where", "id IN (SELECT 1)", "--dry-run"), 2, "a subquery is not allowed"),
    ):
        answer = weir("requeue", *arguments)
        assert (answer.code, said in answer.err) == (code, True), answer.err
    stream_store.observe(store, NAME, StreamState.RUNNING, datetime.now(UTC))
    running = weir("requeue", NAME, "--reason", "x", "--confirm", NAME)
    assert (running.code, "it is running: stop it first" in running.err) == (4, True)
    plain = replace(store.declarations()[NAME], side_tables=())
    store.declare([plain], now=datetime.now(UTC))
    assert "no expectation of it quarantines rows" in weir("requeue", NAME, "--dry-run").err
    assert store.jobs.newest(5) == []
