"""A question has one living job; whoever has its lease says what became of it, and opens nothing outside the roots."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backend.access import Actor
from backend.changes.model import Question
from backend.errors import (
    JobError,
    JobNotFoundError,
    JobResultMissingError,
    LakehouseError,
    PathRefusedError,
    StreamRefusedError,
)
from backend.jobs.documents import question_text
from backend.jobs.model import KEPT, POLICY, JobEnd, JobKind, JobProgress, JobState
from backend.jobs.results import read_result, results_lake
from backend.lake.model import TableRef
from backend.maintenance.model import ActResult
from backend.settings import Settings, load_settings
from backend.store.leases import job_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import DesiredState, Lease
from backend.streams.requeue import RequeueAnswer, RequeueRequest
from backend.streams.reset import ResetLevel, ResetRequest
from pipelines.jobs.runner import SparkJobs
from pipelines.jobs.stream_acts import StreamActs
from pipelines.sources.spark import table
from pipelines.specs.streams import Registry
from tests.worlds.lake.builders import HandLog, add, remove
from tests.worlds.spark.declared import pipeline_of
from tests.worlds.store.values import JOB, NOW, job_of, leased

DONE = JobEnd(JobState.DONE, "/results/x")


def job_lease(store: ControlStore, job_id: str, *, owner: str = "host-a", ttl_s: float = 15) -> Lease:
    return leased(store, job_resource(job_id), owner, ttl_s=ttl_s)


def test_a_job_is_audited_then_runs_and_ends(store: ControlStore) -> None:
    asked = store.jobs.submit(JOB, now=NOW)
    assert (asked.state, asked.request, asked.attempts) == (JobState.QUEUED, JOB.request, 0)
    entry = store.audit_entries(subject=JOB.subject)[0]
    assert (entry.actor, entry.action, entry.reason, entry.detail) == (
        "ann", "diff job", JOB.reason, f"job {asked.job_id}"
    )  # fmt: skip
    lease = job_lease(store, asked.job_id)
    begun = store.jobs.begin(lease, asked.job_id, now=NOW + timedelta(seconds=1))
    store.jobs.report(lease, asked.job_id, JobProgress("comparing rows", 3, 8))
    seen = store.jobs.get(asked.job_id)
    assert seen == replace(begun, progress=JobProgress("comparing rows", 3, 8))
    assert (seen.state, seen.host_id, seen.attempts) == (JobState.RUNNING, "host-a", 1)
    ended = store.jobs.end(lease, asked.job_id, DONE, now=NOW + timedelta(seconds=9))
    assert store.jobs.get(asked.job_id) == ended == store.jobs.find("f1")
    assert (ended.state, ended.result_uri, ended.ended_at) == (JobState.DONE, "/results/x", NOW + timedelta(seconds=9))
    assert store.jobs.unfinished() == []


def test_what_an_act_did_is_kept_with_its_job(store: ControlStore) -> None:
    asked = store.jobs.submit(JOB, now=NOW)
    with pytest.raises(JobError, match="has no answer: it is QUEUED"):
        asked.require_answer()
    lease = job_lease(store, asked.job_id)
    assert store.jobs.begin(lease, asked.job_id, now=NOW).attempts == 1
    assert store.jobs.requeue(lease, asked.job_id) == asked, "given back, its attempt does not count"
    assert store.jobs.unfinished() == [asked]
    store.jobs.begin(lease, asked.job_id, now=NOW)
    store.jobs.end(lease, asked.job_id, JobEnd(JobState.DONE, answer='{"a": "\\u0000é"}'), now=NOW)
    (kept,) = store.jobs.newest(1)
    assert (kept.require_answer(), kept.result_uri) == ('{"a": "\\u0000é"}', None)


def test_who_asks_the_same_gets_the_same_job(store: ControlStore) -> None:
    with ThreadPoolExecutor(8) as viewers:
        found = list(viewers.map(lambda _: store.jobs.submit(JOB, now=NOW).job_id, range(8)))
    assert len(set(found)) == len(store.jobs.unfinished()) == len(store.audit_entries()) == 1
    other = store.jobs.submit(replace(JOB, fingerprint="f2"), now=NOW)
    assert other.job_id != found[0]
    store.jobs.end(job_lease(store, found[0]), found[0], DONE, now=NOW)
    assert store.jobs.submit(JOB, now=NOW).job_id == found[0]
    anew = store.jobs.submit(JOB, now=NOW + timedelta(seconds=1), instead_of=found[0])  # its result is gone
    assert anew.job_id != found[0]
    assert store.jobs.submit(JOB, now=NOW + timedelta(seconds=1), instead_of=found[0]) == anew


def test_a_stream_s_tables_are_changed_by_one_job_at_a_time(store: ControlStore) -> None:
    reset, requeue = (
        replace(JOB, kind=kind, subject="silver", fingerprint=kind) for kind in (JobKind.RESET, JobKind.REQUEUE)
    )
    first = store.jobs.submit(requeue, now=NOW)
    for second in (reset, replace(requeue, fingerprint="again")):
        with pytest.raises(StreamRefusedError, match="a requeue of it is under way"):
            store.jobs.submit(second, now=NOW)
    store.jobs.submit(replace(reset, subject="gold", fingerprint="gold"), now=NOW)
    store.jobs.submit(replace(requeue, kind=JobKind.REQUEUE_PREVIEW, fingerprint="preview"), now=NOW)  # changes nothing
    failed = JobEnd(JobState.FAILED, None, "no space left", "make room")
    store.jobs.end(job_lease(store, first.job_id), first.job_id, failed, now=NOW + timedelta(seconds=9))
    (entry,) = (each for each in store.audit_entries() if each.action == "requeue failed")
    assert (entry.reason, entry.detail) == (JOB.reason, f"job {first.job_id}: no space left")
    assert store.jobs.submit(reset, now=NOW).state is JobState.QUEUED


def test_a_job_that_did_not_answer_may_be_asked_again(store: ControlStore) -> None:
    job = store.jobs.submit(JOB, now=NOW)
    for later, state in enumerate((JobState.FAILED, JobState.CANCELLED), start=1):
        store.jobs.end(job_lease(store, job.job_id), job.job_id, JobEnd(state, None, "boom", "mend it"), now=NOW)
        again = store.jobs.submit(JOB, now=NOW + timedelta(seconds=later))
        assert again.job_id != job.job_id and store.jobs.find("f1") == again
        job = again


def test_cancelling_ends_a_queued_job_and_asks_the_host_of_a_running_one(store: ControlStore) -> None:
    queued = store.jobs.submit(JOB, now=NOW)
    assert store.jobs.cancel(queued.job_id, actor=Actor("bob"), reason="typo", now=NOW).state is JobState.CANCELLED
    running = store.jobs.submit(JOB, now=NOW + timedelta(seconds=1))
    store.jobs.begin(job_lease(store, running.job_id), running.job_id, now=NOW)
    asked = store.jobs.cancel(running.job_id, actor=Actor("bob"), reason="typo", now=NOW)
    assert (asked.state, asked.cancel_requested) == (JobState.RUNNING, True)
    assert store.jobs.cancel(running.job_id, actor=Actor("eve"), reason="again", now=NOW) == asked
    assert [entry.actor for entry in store.audit_entries() if entry.action == "cancel diff job"] == ["bob", "bob"]
    assert store.jobs.submit(JOB, now=NOW + timedelta(seconds=2)).job_id != running.job_id


def test_a_former_owner_may_not_say_anything(store: ControlStore) -> None:
    asked = store.jobs.submit(JOB, now=NOW)
    former = job_lease(store, asked.job_id, ttl_s=-1)
    store.jobs.begin(former, asked.job_id, now=NOW)
    job_lease(store, asked.job_id, owner="host-b")
    for act in (
        lambda: store.jobs.begin(former, asked.job_id, now=NOW),
        lambda: store.jobs.report(former, asked.job_id, JobProgress("x", 1, 1)),
        lambda: store.jobs.requeue(former, asked.job_id),
        lambda: store.jobs.end(former, asked.job_id, DONE, now=NOW),
    ):
        with pytest.raises(StreamRefusedError, match="no longer current"):
            act()
    assert store.jobs.get(asked.job_id).state is JobState.RUNNING  # type: ignore[union-attr]
    other = store.jobs.submit(replace(JOB, fingerprint="f2"), now=NOW)
    own = job_lease(store, other.job_id)
    for forged in (own, replace(own, resource=job_resource(asked.job_id), token=99)):
        with pytest.raises(StreamRefusedError, match="no longer current"):
            store.jobs.end(forged, asked.job_id, DONE, now=NOW)


def test_the_newest_acts_of_each_kind_and_table_are_told_and_kept_where_policies_act(store: ControlStore) -> None:
    def done(kind: JobKind, table: str, number: int, actor: Actor = JOB.actor) -> str:
        at = NOW + timedelta(minutes=number)
        wanted = replace(JOB, kind=kind, subject=table, fingerprint=f"{kind} {table} {number}", actor=actor)
        job = store.jobs.submit(wanted, now=at)
        return store.jobs.end(job_lease(store, job.job_id), job.job_id, DONE, now=at).job_id

    by_policy = [done(JobKind.OPTIMIZE, "t", number, POLICY) for number in range(KEPT + 2)]
    by_hand = [done(JobKind.VACUUM, "t", 50), done(JobKind.OPTIMIZE, "u", 51), done(JobKind.DIFF, "t", 52)]
    newest = [by_hand[1], by_hand[0], *reversed(by_policy[2:])]
    assert [job.job_id for job in store.jobs.acts_on_tables()] == newest
    pruned = {job.job_id for job in store.jobs.prune(before=NOW + timedelta(days=1))}
    assert pruned == {*by_policy[:2], *by_hand}
    assert [job.job_id for job in store.jobs.acts_on_tables()] == newest[2:]


def test_old_jobs_are_forgotten_with_their_leases_and_no_younger_or_living_one(store: ControlStore) -> None:
    old, young, living = (store.jobs.submit(replace(JOB, fingerprint=f), now=NOW) for f in ("a", "b", "c"))
    store.jobs.end(job_lease(store, old.job_id), old.job_id, DONE, now=NOW)
    store.jobs.end(job_lease(store, young.job_id), young.job_id, DONE, now=NOW + timedelta(days=2))
    assert [job.job_id for job in store.jobs.prune(before=NOW + timedelta(days=1))] == [old.job_id]
    assert store.jobs.get(old.job_id) is None
    assert store.jobs.get(young.job_id) and store.jobs.get(living.job_id)
    assert job_resource(old.job_id) not in store.leases()
    with pytest.raises(JobNotFoundError):
        store.jobs.cancel(old.job_id, actor=Actor("ann"), reason="late", now=NOW)


def no_spark() -> SparkSession:
    raise AssertionError("Spark was asked")


def lake_of(home: Path) -> Settings:
    return load_settings(home=home, lake={"roots": [str(home / "lake")]})


def no_host(home: Path) -> SparkJobs:
    return SparkJobs(lake_of(home), no_spark, "host-a", ControlStore(f"sqlite:///{home}/weir.db"), Registry())


def refused(home: Path, folder: Path, first: int, second: int, against: Path | None = None) -> str:
    tables = [TableRef(str(path), "t", "") for path in (folder, against) if path]
    question = Question(tables[0], first, second, tables[1] if against else None, on_host=True)
    with pytest.raises(PathRefusedError) as caught:
        no_host(home).run(job_of(JobKind.DIFF, question_text(question)))
    return caught.value.message


@pytest.mark.parametrize("path", ["/etc/passwd", "../../secret.parquet", "file:///etc/passwd"])
def test_a_file_outside_is_refused_also_when_only_a_commit_in_between_names_it(tmp_path: Path, path: str) -> None:
    lake = tmp_path / "lake"
    HandLog(lake / "t").start().commit(add("a.parquet")).commit(add(path)).commit(remove(path))
    HandLog(lake / "u").start()
    for first, second, against in ((1, 3, None), (3, 1, None), (2, 0, lake / "u")):
        assert refused(tmp_path, lake / "t", first, second, against)
    assert "outside every allowed root" in refused(tmp_path, Path("/etc"), 0, 1)


@pytest.mark.parametrize(
    "garbage", ["", "{", "[]", "7", "null", '{"format": 1}', '{"ref": {"uri": "/etc"}}', "\0", "é"]
)
def test_a_question_that_is_garbage_is_refused_with_a_message(tmp_path: Path, garbage: str) -> None:
    for parse in (ResetRequest.parse, RequeueRequest.parse):
        with pytest.raises(LakehouseError, match="cannot be read"):
            parse(garbage)
    for read in (RequeueAnswer.of, ActResult.of):
        with pytest.raises(LakehouseError, match="cannot be read"):
            read(replace(job_of(JobKind.REQUEUE, "{}"), answer=garbage))
    with pytest.raises(LakehouseError) as caught:
        no_host(tmp_path).run(job_of(JobKind.DIFF, garbage))
    assert caught.value.message and "Spark was asked" not in caught.value.message


@pytest.mark.parametrize("uri", ["/etc", "file:///etc", "{results}/../lake/t", "s3://others/x", "{home}"])
def test_a_result_is_read_where_hosts_write_results_and_nowhere_else(tmp_path: Path, uri: str) -> None:
    settings = lake_of(tmp_path)
    HandLog(tmp_path / "lake" / "t").start()
    forged = uri.format(results=settings.results_uri, home=tmp_path)
    job = replace(job_of(JobKind.DIFF, "{}"), state=JobState.DONE, result_uri=forged)
    with pytest.raises(JobResultMissingError, match="outside every allowed root"):
        read_result(results_lake(settings), settings, job, ["detail"], again="compare again")


def test_an_act_is_on_the_stream_that_its_row_locks(tmp_path: Path) -> None:
    settings, store = lake_of(tmp_path), ControlStore(f"sqlite:///{tmp_path}/weir.db")
    streams = [pipeline_of(table("silver"), name=name).streams[0] for name in ("runs", "stopped")]
    store.ensure_all_desired(["runs"], DesiredState.RUNNING, now=datetime.now(UTC))
    request = ResetRequest("stopped", ResetLevel.REPROCESS).text()
    with pytest.raises(StreamRefusedError, match="runs: it is not stopped"):
        StreamActs(settings, store, Registry(streams)).reset(job_of(JobKind.RESET, request, "runs"), None)  # type: ignore[arg-type]
