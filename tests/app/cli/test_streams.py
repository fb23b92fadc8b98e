"""`weir streams|stream` and the acts on streams: start, stop, drain, restart, reset, preflight, requeue."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app import services
from backend.access import Actor
from backend.jobs.model import Job, JobEnd, JobKind, JobState
from backend.store.store import ControlStore
from backend.stream_model.stream import ATTACHED, DesiredState, HostHeartbeat, StreamInput, StreamState
from backend.streams.requeue import RequeueAnswer, RequeueRequest, Sample
from tests.worlds.lake import builders
from tests.worlds.store import stream_store
from tests.worlds.streams.checkpoints import declare_anew, write_checkpoint
from tests.worlds.terminal import Answering, Weir, answering, declaration, observe

NOW = datetime.now(UTC)


def test_streams_shows_desired_and_observed_apart(weir: Weir, store: ControlStore) -> None:
    document = {row["name"]: row for row in weir("streams", "--json").document}
    flows, fails, waits = document["flows"], document["fails"], document["waits"]
    assert (flows["desired"], flows["state"]) == ("RUNNING", "RUNNING")
    assert (flows["batch_id"], flows["input_rows_per_s"]) == (3, 10.0)
    assert flows["error"] is None
    assert (fails["state"], fails["error"]) == ("FAILED", "ValueError: poisoned\nby a test")
    assert (waits["query_id"], waits["batch_id"]) == (None, None)
    assert "flows" in weir("streams").out


def test_stream_shows_one_and_of_a_failure_of_a_known_kind_cause_and_remedy(weir: Weir, store: ControlStore) -> None:
    document = weir("stream", "fails", "--json").document
    assert document["failures"][0]["batch_id"] == 7
    assert document["failures"][0]["faults"] == [], "nobody knows this one"
    assert document["checkpoint_location"] == "/cp"
    out = weir("stream", "fails").out
    assert "poisoned by a test" in out
    assert ["host", document["host_id"]] in [line.split() for line in out.splitlines()]
    seen = store.observed()["fails"]
    known = replace(seen.failures[0], error_class="DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE")
    observe(store, replace(seen, failures=(known,)))
    (fault,) = weir("stream", "fails", "--json").document["failures"][0]["faults"]
    assert fault["name"] == "The source table was re-created"
    out = weir("stream", "fails").out
    assert "DIFFERENT_DELTA_TABLE" in out
    assert fault["cause"] in out
    assert f"→ {fault['remedy']}" in out
    assert "`weir preflight fails` shows what stands against a restart" in out


def test_every_source_that_waits_and_every_figure_of_the_function_has_its_line(weir: Weir, store: ControlStore) -> None:
    sources = tuple(StreamInput("other", f"source {number}") for number in range(3))
    store.declare([replace(declaration("flows"), inputs=sources)], now=NOW)
    observed = json.dumps({"observedMetrics": {"quality": {"rows": 7, "most": 2.5}}})
    last = store.progress("flows")[-1]
    store.add_progress([replace(last, batch_id=last.batch_id + 1, progressed_at=datetime.now(UTC), raw_json=observed)])
    lines = weir("stream", "flows").out.splitlines()
    begins = lines.index(next(line for line in lines if line.startswith("waits")))
    names = [line[12:].partition(":")[0] for line in lines[begins : begins + 3]]
    assert names == ["source 0", "source 1", "source 2"]
    assert [line.split() for line in lines if "quality." in line] == [
        ["observed", "quality.rows", "7"],
        ["quality.most", "2.5"],
    ]


def test_an_act_carries_who_and_why_into_the_audit_trail(
    weir: Weir, store: ControlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as clock:
        clock.setattr(services, "now", lambda: datetime.now(UTC) - timedelta(hours=1))
        answer = weir("stop", "flows", "--reason", "a test", "--json")
    assert datetime.now(UTC) - store.desired()["flows"].requested_at < timedelta(minutes=5), "by the store's clock"
    assert (answer.code, answer.document["desired"], answer.document["host_alive"]) == (0, "STOPPED", True)
    assert store.desired()["flows"].state is DesiredState.STOPPED
    entry = store.audit_entries(subject="flows")[0]
    assert (entry.action, entry.reason, entry.actor) == ("stop", "a test", answer.document["actor"])
    assert weir("start", "flows", "--reason", "again").code == 0
    assert store.desired()["flows"].state is DesiredState.RUNNING
    before = store.desired()["flows"].generation
    assert weir("restart", "flows", "--reason", "once more").code == 0
    assert store.desired()["flows"].generation > before


def test_a_restart_with_other_settings_says_what_changes_and_they_stay(weir: Weir, store: ControlStore) -> None:
    slower = ("--set", "trigger=30 seconds", "--set", "spark.sql.shuffle.partitions=8")
    row = {"key": "trigger", "declared": "5 seconds", "now": "5 seconds", "after": "30 seconds", "note": None}
    (told,) = weir("restart", "flows", *slower, "--dry-run", "--json").document
    assert (told["settings"][0], store.desired()["flows"].overrides) == (row, {})
    assert "30 seconds" in weir("restart", "flows", *slower, "--dry-run").out
    assert weir("restart", "flows", *slower, "--reason", "r", "--json").document["settings"][0] == row
    assert weir("stop", "flows", "--reason", "r").code == weir("start", "flows", "--reason", "r").code == 0
    assert store.desired()["flows"].overrides == {"trigger": "30 seconds", "spark.sql.shuffle.partitions": "8"}
    shown = weir("stream", "flows", "--json").document
    assert (shown["trigger_interval_ms"], shown["overrides"][0]["declared"]) == (30_000, "5 seconds")
    assert "trigger 30 seconds (declared: 5 seconds)" in weir("stream", "flows").out
    assert weir("restart", "flows", "--set", "trigger=1 minute", "--reason", "r").code == 0
    assert store.desired()["flows"].overrides == {"trigger": "1 minute", "spark.sql.shuffle.partitions": "8"}
    assert weir("restart", "flows", "--declared", "--reason", "r").code == 0
    assert store.desired()["flows"].overrides == {}
    assert weir("stream", "flows", "--json").document["overrides"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("restart", "flows", "--set", "trigger"), "is no setting"),
        (("restart", "flows", "--set", "trigger=often"), "is not understood"),
        (("restart", "flows", "--set", "maxFilesPerTrigger=1"), "cannot be set on flows"),
        (("restart", "--all", "--set", "trigger=1 minute"), "settings are those of one stream"),
        (("stop", "flows", "--set", "trigger=1 minute"), "settings are those of one stream"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    weir: Weir, store: ControlStore, words: tuple[str, ...], said: str
) -> None:
    before = store.desired()
    answer = weir(*words, "--reason", "r")
    assert (answer.code, store.desired()) == (2, before)
    assert said in " ".join(answer.err.replace("│", " ").split())


def test_an_act_without_a_live_host_says_so(weir: Weir, store: ControlStore) -> None:
    store.beat(HostHeartbeat("host-1", "box", 1, NOW, NOW - timedelta(hours=1)))
    assert "No host is alive" in weir("stop", "flows", "--reason", "a test").out
    assert "No host is alive" in weir("streams").out


def test_without_a_store_there_are_no_streams_and_none_is_made(weir: Weir, home: Path) -> None:
    assert weir("streams", "--json").document == []
    assert "weir up" in weir("streams").out
    because = ("--reason", "x")
    for args in (
        ("stream", "flows"), ("preflight", "flows"), ("requeue", "flows", "--dry-run"), ("stop", "flows", *because),
        ("reset", "flows", "--level", "full", "--dry-run"), ("start", "--all", "--dry-run"),
        ("cancel", "job-1", *because),
    ):  # fmt: skip
        answer = weir(*args)
        assert (answer.code, "`weir host`" in answer.err) == (3, True), args
    assert not (home / "store").exists()


def test_preflight_lists_checks_with_evidence_and_ends_with_1_where_one_failed(
    weir: Weir, store: ControlStore, home: Path
) -> None:
    checkpoint = home / "checkpoints" / "flows"
    declare_anew(store, replace(declaration("flows"), checkpoint_location=str(checkpoint)), now=NOW)
    assert weir("preflight", "flows").code == 0
    assert "flows can go on" in weir("preflight", "flows").out

    write_checkpoint(checkpoint, {0: ["{}"]})
    (checkpoint / "metadata").unlink()
    answer = weir("preflight", "flows", "--json")
    assert (answer.code, answer.document["ok"]) == (1, False)
    checks = {check["name"]: check for check in answer.document["checks"]}
    assert checks["checkpoint"]["outcome"] == "failed"
    assert checks["checkpoint"]["ok"] is False
    assert "metadata is missing" in checks["checkpoint"]["detail"]
    assert checks["sink"]["ok"] is None, "/lake/flows lies outside the roots: nobody looked"
    people = weir("preflight", "flows")
    assert people.code == 1
    assert "✕ Failed   checkpoint: metadata is missing" in people.out
    assert "flows cannot go on: 1 check failed" in people.out

    started = weir("restart", "flows", "--reason", "a test")
    assert (started.code, store.desired()["flows"].reason) == (0, "a test"), "a preflight forbids nothing"
    assert "✕ Failed   checkpoint: metadata is missing" in started.out
    assert "As long as this stands, it fails again or loses rows" in started.out
    assert weir("restart", "flows", "--reason", "b", "--json").document["preflight"]["ok"] is False
    assert weir("stop", "flows", "--reason", "c", "--json").document["preflight"] is None


def test_many_streams_are_chosen_by_a_rule_sources_first_and_who_is_left_out_is_named(
    weir: Weir, store: ControlStore
) -> None:
    fed = replace(declaration("fed"), source_tables=("flows",), layer="silver", tags={"team": "orders"})
    store.declare([fed, replace(declaration("theirs"), kind=ATTACHED, pipeline="nightly")], now=NOW)
    store.ensure_all_desired(["fed"], DesiredState.RUNNING, now=NOW)
    shown = weir("stop", "--all", "--dry-run", "--json").document
    assert [each["name"] for each in shown[:-1]][-1] == "fed", "after what feeds it"
    assert (shown[0]["asked"], shown[0]["would_ask"]) == (False, "stop")
    assert shown[-1] == {
        "name": "theirs",
        "asked": False,
        "left_out": "nightly, another Spark application, runs it: act there.",
    }
    assert "Nothing was asked" in weir("stop", "--all", "--dry-run").out
    assert not store.audit_entries()

    for chosen, names in (
        (["--tag", "team=orders"], ["fed"]),
        (["--layer", "silver"], ["fed"]),
        (["--downstream-of", "flows"], ["fed"]),
        (["--upstream-of", "fed"], ["flows"]),
        (["flows", "--downstream"], ["flows", "fed"]),
        (["fed", "flows"], ["flows", "fed"]),
    ):
        told = weir("stop", *chosen, "--dry-run", "--json").document
        assert [each["name"] for each in told if each.get("would_ask")] == names

    answer = weir("stop", "--all", "--reason", "power cut", "--json")
    assert answer.document[-1]["name"] == "theirs"
    assert {each.state for each in store.desired().values()} == {DesiredState.STOPPED}
    assert {(each.subject, each.reason) for each in store.audit_entries()} == {
        (name, "power cut") for name in ("flows", "fails", "waits", "fed")
    }
    again = weir("stop", "--all", "--reason", "power cut")
    assert "theirs" in again.out and "It is wanted stopped already" in again.out
    assert len(store.audit_entries()) == 4, "who stopped it first, and why, stays"


def test_streams_are_drained_until_all_of_it_is_through(weir: Weir, store: ControlStore) -> None:
    shown = weir("drain", "--all", "--through", "--dry-run", "--json").document
    assert shown[0]["would_ask"] == "drain through"
    assert weir("drain", "flows", "--through", "--reason", "a move", "--json").document["desired"] == "DRAINED_THROUGH"
    assert store.audit_entries()[0].action == "drain through"
    (found,) = [each for each in weir("streams", "--json").document if each["name"] == "flows"]
    assert found["because"].endswith("and what the streams that feed it bring until they have stopped")
    assert weir("stop", "flows", "--through", "--reason", "a move").code == 2


def test_a_stream_is_drained_and_says_so(weir: Weir, store: ControlStore) -> None:
    assert weir("drain", "flows", "--reason", "a move", "--json").document["desired"] == "DRAINED"
    assert store.desired()["flows"].state is DesiredState.DRAINED
    assert store.audit_entries()[0].action == "drain"
    told = weir("streams", "--json").document
    (found,) = [each for each in told if each["name"] == "flows"]
    assert (found["desired"], found["state"]) == ("DRAINED", "RUNNING")
    assert "; it stops once it has read what was there" in found["because"]
    assert found["because"].endswith(f"ago, when {store.desired()['flows'].actor} asked for it")
    left = weir("drain", "--all", "--dry-run", "--json").document
    assert {
        "name": "flows",
        "asked": False,
        "left_out": "It stops by itself once it has read what was there.",
    } in left


def test_a_reset_is_previewed_and_refused_until_the_stream_is_stopped(weir: Weir, store: ControlStore) -> None:
    shown = weir("reset", "flows", "--level", "full", "--dry-run", "--json").document
    assert shown["refused"] == "it is running: stop it first"
    assert weir("reset", "flows", "--level", "full", "--reason", "x", "--confirm", "flows").code == 4
    told = weir("reset", "fails", "--level", "reprocess", "--reason", "a bad batch")
    assert (told.code, "Risk: fails keeps its rows" in told.out) == (4, True)
    assert "--confirm fails" in told.err
    unconfirmed = weir("reset", "fails", "--level", "reprocess", "--reason", "a bad batch", "--json")
    assert (unconfirmed.code, unconfirmed.document["level"]) == (4, "reprocess")
    assert store.jobs.newest(5) == [], "nothing was asked of a host"
    assert weir("reset", "nobody", "--level", "undo", "--dry-run").code == 3
    for odd in ((), ("--level", "from"), ("--level", "full", "--from", "3")):
        assert "say --from WHERE, or --level" in weir("reset", "fails", *odd, "--dry-run").err
    assert "a view is computed from all rows" in weir("reset", "fails", "--from", "3", "--dry-run").out


# requeue -------------------------------------------------------------------------------------------------------

NAME = "silver_orders"
PREVIEW = RequeueAnswer(
    3, 2, {"priced": 1}, samples=(Sample({"id": 1, "amount": -5.0}, {"id": 1, "amount": 5.0}, (), goes=True),)
)


@pytest.fixture
def stopped(empty_store: ControlStore, home: Path) -> ControlStore:
    """A stream that was stopped for a bad price list, with one row in quarantine."""
    now = datetime.now(UTC)
    stream_store.beat(empty_store, now)
    stream_store.declare(empty_store, NAME, now, expectations=("priced",))
    empty_store.request(NAME, "stop", reason="a bad price list", actor=Actor("ana"), now=now)
    stream_store.observe(empty_store, NAME, StreamState.STOPPED, now)
    rows = {"id": [1], "amount": [-5.0], "broken_expectations": [["priced"]], "stream": [NAME]}
    builders.write(home / "lake" / "silver" / f"{NAME}_quarantine", rows)
    return empty_store


@contextmanager
def hosted(store: ControlStore) -> Iterator[Answering]:
    def ends(job: Job) -> JobEnd:
        return JobEnd(JobState.DONE, answer=PREVIEW.text(), detail=PREVIEW.sentence() if job.kind.is_act else "")

    with answering(store, ends) as host:
        yield host


REPAIR = ("--where", "amount < 0", "--set", "AMOUNT = abs(amount)")


def test_rows_are_tried_first_and_go_once_the_name_is_typed_and_a_reason_given(
    weir: Weir, stopped: ControlStore
) -> None:
    with hosted(stopped) as host:
        shown = weir("requeue", NAME, *REPAIR, "--dry-run", "--json").last_document
        told = weir("requeue", NAME, *REPAIR, "--dry-run")
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
    with hosted(stopped) as host:
        unsure = weir("requeue", NAME, *REPAIR, "--reason", "prices had a sign")
        assert (unsure.code, "Stay as they are: 1 row" in unsure.out) == (4, True)
        assert f"--confirm {NAME}" in unsure.err
        assert weir("requeue", NAME, *REPAIR, "--confirm", NAME).code == 4, "without a reason"
        document = weir("requeue", NAME, *REPAIR, "--reason", "prices had a sign", "--json").last_document
        assert (document["chosen"], "job_id" in document) == (3, False)
        assert {job.kind for job in host.asked} == {JobKind.REQUEUE_PREVIEW}
        done = weir("requeue", NAME, *REPAIR, "--reason", "prices had a sign", "--confirm", NAME)
    assert (done.code, "2 of 3 rows requeued; 1 stays: 1 breaks priced." in done.out) == (0, True)
    ended, asked = stopped.audit_entries(subject=NAME)[:2]
    assert (asked.action, ended.action, ended.reason) == ("requeue job", "requeue done", "prices had a sign")
    assert ended.detail.endswith(": 2 of 3 rows requeued; 1 stays: 1 breaks priced")


def test_a_requeue_that_cannot_be_is_refused_before_a_job_is_asked_for(weir: Weir, stopped: ControlStore) -> None:
    for arguments, code, said in (
        (("nobody", "--dry-run"), 3, "no stream 'nobody'"),
        ((NAME, "--set", "amount", "--dry-run"), 2, "is no repair"),
        ((NAME, "--where", "id IN (SELECT 1)", "--dry-run"), 2, "a subquery is not allowed"),
    ):
        answer = weir("requeue", *arguments)
        assert (answer.code, said in answer.err) == (code, True), answer.err
    stream_store.observe(stopped, NAME, StreamState.RUNNING, datetime.now(UTC))
    running = weir("requeue", NAME, "--reason", "x", "--confirm", NAME)
    assert (running.code, "it is running: stop it first" in running.err) == (4, True)
    plain = replace(stopped.declarations()[NAME], side_tables=())
    stopped.declare([plain], now=datetime.now(UTC))
    assert "none of its expectations quarantines rows" in weir("requeue", NAME, "--dry-run").err
    assert stopped.jobs.newest(5) == []
