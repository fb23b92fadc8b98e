"""`weir diff --on host` where nobody, or nobody who can, does the job."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backend.access import Actor
from backend.changes.host_job import job_request, question_of
from backend.errors import DiffError, JobError
from backend.jobs.model import JobKind, JobRequest
from backend.lake.lake import Lake
from backend.settings import load_settings
from backend.store.store import ControlStore
from backend.stream_model.stream import HostHeartbeat
from pipelines.host.job_host import JobHost
from tests.app.cli.test_commands import Weir, home, weir
from tests.pipelines.host.test_job_host import Runner
from tests.worlds.lake import builders
from tests.worlds.lake.diffs import prepare

__all__ = ["home", "weir"]
ON_HOST = ("diff", "orders", "--from", "0", "--to", "1", "--on", "host")


@pytest.fixture(autouse=True)
def orders(home: Path) -> None:
    builders.write(home / "lake" / "orders", {"id": [1]})
    builders.write(home / "lake" / "orders", {"id": [2]})


@pytest.fixture
def store(home: Path) -> Iterator[ControlStore]:
    opened = ControlStore.open(load_settings())
    yield opened
    opened.close()


def seen(store: ControlStore, at: datetime) -> None:
    store.beat(HostHeartbeat("host-a", "machine", 1, at, at))


def test_without_a_store_nothing_is_made(weir: Weir, home: Path) -> None:
    answer = weir(*ON_HOST)
    assert (answer.code, answer.out) == (1, "")
    assert "there is no control store" in answer.err and "weir host" in answer.err
    assert not (home / "store").exists()


def test_a_host_that_is_gone_is_not_waited_for(weir: Weir, store: ControlStore) -> None:
    seen(store, datetime.now(UTC) - timedelta(hours=2))
    answer = weir(*ON_HOST)
    assert answer.code == 1
    assert "no stream host is alive: the last one was seen at" in answer.err
    assert store.jobs.unfinished() == store.audit_entries() == []


def test_what_needs_no_rows_needs_no_host(weir: Weir, store: ControlStore) -> None:
    assert weir("diff", "orders", "--from", "1", "--to", "1", "--on", "host", "--json").code == 0


def test_a_failed_job_says_why(weir: Weir, store: ControlStore) -> None:
    seen(store, datetime.now(UTC))
    runner = Runner(problem=JobError("the data file part-1 is gone", hint="compare newer versions"))
    runner.release.set()
    host = JobHost(load_settings(), store, runner, "host-a")
    host.start()
    answer = weir(*ON_HOST, "--json")
    host.stop(2)
    assert answer.code == 1
    assert "error: the stream host could not compare: the data file part-1 is gone" in answer.err
    assert "hint: compare newer versions" in answer.err
    assert len(runner.started) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [(("--where", "id IN (SELECT 1)"), 2, "a subquery is not allowed"), (("--on", "moon"), 2, "'here', 'host'")],
)
def test_what_cannot_be_is_refused_before_a_job_is_asked_for(
    weir: Weir, store: ControlStore, arguments: tuple[str, ...], code: int, said: str
) -> None:
    seen(store, datetime.now(UTC))
    answer = weir(*ON_HOST, *arguments)
    assert answer.code == code and said in answer.err
    assert store.jobs.unfinished() == []


def test_a_condition_goes_with_the_question_and_another_one_is_another_job(home: Path) -> None:
    lake = Lake(load_settings())

    def asked(where: str | None) -> JobRequest:
        prepared = prepare(lake, lake.find("orders"), 0, 1, on_host=True, where=where)
        return job_request(prepared, actor=Actor("ann"), reason="", time_limit_s=60.0)

    assert question_of(asked("id > 1").request, str).where == "id > 1"
    assert asked("id > 1").fingerprint == asked("id > 1").fingerprint
    assert len({asked(each).fingerprint for each in (None, "id > 1", "id > 2")}) == 3


def test_a_question_of_another_format_is_not_misread(home: Path) -> None:
    lake = Lake(load_settings())
    wanted = prepare(lake, lake.find("orders"), 0, 1, on_host=True)
    text = job_request(wanted, actor=Actor("ann"), reason="", time_limit_s=60.0).request
    with pytest.raises(DiffError, match="by another version of Weir"):
        question_of(text.replace('"format":', '"format":1'), str)


def test_jobs_are_listed_and_one_is_cancelled_with_a_reason(weir: Weir, store: ControlStore) -> None:
    assert "No jobs" in weir("jobs").out
    at = datetime.now(UTC) - timedelta(minutes=3)
    wanted = JobRequest(JobKind.DIFF, "orders", "f1", "{}", Actor("ann"), "incident 7", 60.0)
    waiting = store.jobs.submit(wanted, now=at)
    store.jobs.submit(replace(wanted, fingerprint="f2", reason="a look"), now=at + timedelta(minutes=1))

    shown = weir("jobs").out
    assert "Waiting for a stream host · asked for by ann" in shown and waiting.job_id in shown
    documents = weir("jobs", "--json").document
    assert [each["reason"] for each in documents] == ["a look", "incident 7"]
    assert {each["state"] for each in documents} == {"QUEUED"}

    assert weir("cancel", waiting.job_id).code != 0, "without a reason"
    assert weir("cancel", waiting.job_id, "--reason", "wrong table").out.strip() == f"{waiting.job_id}: CANCELLED"
    assert [each["state"] for each in weir("jobs", "--json").document] == ["QUEUED", "CANCELLED"]
    newest = store.audit_entries()[0]
    assert (newest.action, newest.reason) == ("cancel diff job", "wrong table")
    refused = weir("cancel", "nonesuch", "--reason", "x")
    assert refused.code != 0 and "no job nonesuch" in refused.err


def test_jobs_of_no_store_are_none_and_make_none(weir: Weir, home: Path) -> None:
    assert weir("jobs", "--json").document == []
    assert weir("cancel", "j1", "--reason", "x").code != 0
    assert not (home / "store").exists()
