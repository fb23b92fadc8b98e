"""One stream: its figures, of now and over days, its end; start, stop, restart, reset and requeue from its page."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from streamlit.testing.v1 import AppTest

from app import services
from app.streams.page import stream_points
from app.streams.view import figures
from app.ui.view.figures import FigureLook
from backend.access import Actor
from backend.jobs.model import Job, JobEnd, JobKind, JobState
from backend.store.store import ControlStore
from backend.stream_model.backlog import Lag
from backend.stream_model.rollup import HOUR_S, Points
from backend.stream_model.stream import DesiredState, InputKind, Progress, StreamFailure, StreamInput, StreamState
from backend.streams import faults
from backend.streams.requeue import RequeueAnswer, RequeueRequest, Sample
from backend.streams.reset import ResetLevel, ResetRequest
from tests.worlds.lake import builders
from tests.worlds.pages.opened import (
    again,
    click,
    forget_caches,
    keys,
    links,
    metrics,
    open_page,
    param,
    plain,
    press,
    send,
    words,
)
from tests.worlds.store import stream_store
from tests.worlds.store.policy_world import end
from tests.worlds.streams.checkpoints import declare_anew, write_checkpoint

NAME = "silver_events"
EXPECTATIONS = ("event_type_not_null", "amount_positive", "never_counted")


def list_below(app: AppTest) -> pd.DataFrame:
    """The list chosen below the charts."""
    shown: pd.DataFrame = app.dataframe[-1].value
    return shown


def redeclare(store: ControlStore, now: datetime, **changes: object) -> None:
    """The stream is declared with other values."""
    declare_anew(store, replace(store.declarations()[NAME], **changes), now=now)  # type: ignore[arg-type]


def stop(store: ControlStore, now: datetime, name: str = NAME) -> None:
    """Ana stopped it, and it stands."""
    store.request(name, "stop", reason="a bad batch", actor=Actor("ana"), now=now)
    stream_store.observe(store, name, StreamState.STOPPED, now)


def write_batches(store: ControlStore, home: Path, *batch_ids: int | None) -> None:
    """The stream's table with a commit of each of these batches; None is a commit of somebody else."""
    table = home / "lake" / store.declarations()[NAME].sink_table
    for batch_id in batch_ids:
        origin = {"stream": NAME, "batch_id": batch_id, "query_id": f"query-{NAME}"}
        stamp = {"userMetadata": json.dumps(origin)} if batch_id else {}
        rows = pa.table({"id": pa.array([1], pa.int64())})
        write_deltalake(table, rows, mode="append", commit_properties=CommitProperties(custom_metadata=stamp))


@pytest.fixture
def flowing(store: ControlStore, now: datetime) -> ControlStore:
    """A store whose one stream runs and keeps up."""
    stream_store.flowing(store, NAME, now, expectations=EXPECTATIONS)
    return store


def test_a_flowing_stream_shows_its_last_batch_and_expectations_as_a_recount_of_the_store(flowing) -> None:
    batches = flowing.progress(NAME)
    app = open_page("stream", stream=NAME, view="Row expectations")
    shown, deltas = metrics(app), [metric.delta for metric in app.metric]
    assert "keeps up" in words(app)
    assert any(stream_store.HOST in plain(text.proto.help) for text in app.markdown), "on which host"
    newest = batches[-6:]  # one each 5 s, in 30 s
    assert shown["Input"] == f"{sum(batch.num_input_rows for batch in newest) / 30:.3g} rows/s"
    assert f"{batches[-1].num_input_rows} rows in batch 35" in deltas
    assert shown["Batch duration"] == f"{batches[-1].batch_duration_ms / 1000:.3g} s"
    assert len(shown) == 6 and shown["Row expectations"] == "1 of 3 broken"  # in each batch by two rows
    assert any(str(delta).startswith(f"{2 * 36} rows in ") for delta in deltas)
    assert f"{sum(batch.rows_dropped_by_watermark for batch in batches)} rows dropped as too late" in words(app)
    table = list_below(app).set_index("Expectation")
    counts = [count for batch in batches for count in batch.expectations if count.name == "event_type_not_null"]
    assert table.loc["event_type_not_null", "Failed"] == sum(count.failed for count in counts)
    assert table.loc["event_type_not_null", "Passed"] == sum(count.passed for count in counts)
    assert table.isna().loc["never_counted", "Passed"]
    assert links(app)["Quarantine: silver/silver_events_quarantine"] == "table=silver%2Fsilver_events_quarantine"


def test_a_stream_that_has_never_run_has_no_figures_and_no_error(home: Path, now: datetime) -> None:
    for asked in ({}, {"stream": "nobody"}):
        app = open_page("stream", **asked)
        assert "No stream is declared yet" in words(app) and "weir host" in words(app) and not app.error
    stream_store.declare(stream_store.open_store(home), NAME, now)
    forget_caches()
    app = open_page("stream", stream=NAME)
    assert set(metrics(app).values()) == {"–"} and "No batch in the last 15 min" in words(app)


def test_its_declaration_shows_source_options_trigger_and_a_sink_that_is_no_table(flowing, now: datetime) -> None:
    read = StreamInput(InputKind.FILES, "files in landing", "/landing", {"maxFilesPerTrigger": "10"})
    code = "@shop.streaming_table()\ndef silver_events(events):\n    return events.where('amount > 0')"
    outside = {"sink_uri": "", "sink_table": "", "sink": "postgresql", "outside": "public.orders at db/shop"}
    redeclare(flowing, now, inputs=(read,), code=code, **outside)
    app = open_page("stream", stream=NAME, view="Declaration")
    assert (app.code[1].value, app.code[1].language) == (code, "python")
    shown = app.code[0].value
    assert shown.splitlines()[:3] == [
        "source      files in landing/events",
        "options     files in landing: maxFilesPerTrigger=10",
        "trigger     5 seconds",
    ]
    assert words(app).count("Writes PostgreSQL table public.orders at db/shop.") == 1, "once, at its head"
    assert "sink        PostgreSQL table public.orders at db/shop" in shown


def test_what_feeds_it_and_what_it_feeds_are_links_with_their_verdicts(store, now: datetime) -> None:
    stream_store.failed(store, "bronze_events", now)
    stream_store.flowing(store, NAME, now, source_tables=("bronze/bronze_events", "bronze/rates"))
    stream_store.flowing(store, "gold_events", now, source_tables=(f"silver/{NAME}",))
    for name in (NAME, "gold_events"):
        stream_store.idle(store, name, now)
    app = open_page("stream", stream=NAME)
    shown = links(app)
    assert shown["bronze_events · ✕ Failed"] == "stream=bronze_events"
    assert shown["bronze/rates"] == "table=bronze%2Frates"
    assert shown["gold_events · ◌ Starved"] == "stream=gold_events"


def test_what_its_function_observed_is_a_list(flowing, now: datetime) -> None:
    assert "Its function observes nothing" in words(open_page("stream", stream=NAME, view="Metrics"))
    observed = {"rows": 1_204, "mean": 2.5, "worst": "<b>x</b>", "none": None}
    last = stream_store.batch(NAME, 1_000, now, run_id=f"{NAME}-run-2")
    flowing.add_progress([replace(last, raw_json=json.dumps({"observedMetrics": {"quality": observed}}))])
    forget_caches()
    rows = list_below(open_page("stream", stream=NAME, view="Metrics"))
    assert list(rows["Metric"]) == list(observed)
    assert list(rows["Value"]) == ["1204", "2.5", "<b>x</b>", "–"]
    assert set(rows["Observation"]) == {"quality"}


def test_runs_are_whole_whatever_the_window(flowing, now: datetime) -> None:
    before = now - timedelta(days=2)
    old = [stream_store.batch(NAME, i, before + i * timedelta(minutes=1), run_id=f"{NAME}-run-2") for i in range(5, 9)]
    flowing.add_progress(old)
    for window in ("15 min", "24 h"):
        runs = list_below(open_page("stream", stream=NAME, view="Runs", window=window))
        assert list(runs["Batches"]) == ["0–11", "5–35"]  # by their first batch
        assert sum(runs["Rows read"]) == sum(each.num_input_rows for each in flowing.progress(NAME))


def test_a_failed_stream_shows_class_message_and_batch_until_it_is_restarted(store, now: datetime) -> None:
    stream_store.failed(store, NAME, now)
    app = open_page("stream", stream=NAME, view="Failures")
    text = "\n".join(error.value for error in app.error).replace("\\", "")
    message = "division by zero in the transform of row 17"
    assert "ZeroDivisionError" in text and message in text and "batch 20" in text
    assert words(app).count(message) == 1, "and no more than once"
    assert re.search(r"failed [^:]* ago in batch 20[^:]*; it waits for a person to start it", words(app))
    assert list_below(app).iloc[0]["Class"] == "ZeroDivisionError"
    assert not app.button(key="one_start").disabled
    rows = list_below(open_page("stream", stream=NAME, view="Batches"))
    error = f"ZeroDivisionError: {message}"
    assert rows.iloc[0][["Batch", "Error"]].tolist() == [20, error] and pd.isna(rows["Commit"][0])
    assert list(rows["Batch"][1:3]) == [19, 18] and rows["Error"][1:].isna().all()
    store.add_progress([stream_store.batch(NAME, 20, now, run_id=f"{NAME}-run-2")])
    rows = list_below(open_page("stream", stream=NAME, view="Batches"))
    assert list(rows["Batch"][:2]) == [20, 19] and rows["Error"][0] == error and rows["Rows read"][0] == 100
    before = store.desired()[NAME].generation
    press(app, "one_restart")
    send(app, "act", "the transform is mended")
    assert store.desired()[NAME].generation == before + 1
    assert store.audit_entries()[0].action == "restart"


def break_checkpoint(store: ControlStore, home: Path, now: datetime) -> None:
    """Its last offsets are gone, and nothing else of the stream is looked at."""
    place = home / "checkpoints" / NAME
    write_checkpoint(place, {0: ["{}"], 1: ["{}"]})
    (place / "offsets" / "1").unlink()
    (place / "state/0/0").mkdir(parents=True)
    (place / "state/0/0/2.delta").touch()
    redeclare(store, now, checkpoint_location=str(place))


def test_preflight_is_a_list_and_the_dialog_of_a_start_says_what_stands_against_it(flowing, home: Path, now) -> None:
    break_checkpoint(flowing, home, now)
    text = words(open_page("stream", stream=NAME, view="Preflight"))
    assert f"{NAME} cannot go on: 1 check failed." in text
    assert ":red-badge[:material/error: Failed] **checkpoint** · offsets/1 is missing, and commits/1 is there" in text
    assert faults.OFFSETS_MISSING.remedy in text
    assert ":gray-badge[:material/help: Unknown] **sink**" in text
    assert ":green-badge[:material/check_circle: OK] **owner** · Host host-a holds the lease and is alive" in text
    assert text.index(":red-badge") < text.index(":gray-badge[:material/help: Unknown] **") < text.index("**owner**")
    app = open_page("stream", stream=NAME)
    press(app, "one_stop")
    assert "offsets/1 is missing" not in words(app), "a stop asks no preflight"
    press(app, "act_cancel")
    press(app, "one_restart")
    assert "As long as this stands, it fails again or loses rows" in "".join(error.value for error in app.error)
    assert "offsets/1 is missing" in words(app)
    send(app, "act", "I know")
    assert flowing.audit_entries()[0].action == "restart", "it forbids nothing"


def test_a_failed_check_stands_in_the_band_of_a_failure(store, home: Path, now: datetime) -> None:
    stream_store.declare(store, NAME, now)
    failure = StreamFailure("CONCURRENT_STREAM_LOG_UPDATE", "what Spark said", 4, now)
    stream_store.observe(store, NAME, StreamState.FAILED, now, failure=failure)
    break_checkpoint(store, home, now)
    (band,) = [each.value.replace("\\", "") for each in open_page("stream", stream=NAME).error]
    assert "offsets/1 is missing, and commits/1 is there" in band
    assert faults.OTHER_DRIVER.cause not in band, "the check says which of the two it was"
    assert band.index(faults.OFFSETS_MISSING.remedy) < band.index("CONCURRENT_STREAM") < band.index("what Spark said")


def test_the_stream_is_chosen_in_the_link_or_on_the_page(store, now: datetime) -> None:
    for name in (NAME, "gold_events"):
        stream_store.declare(store, name, now)
    assert "no stream is called" in words(open_page("stream", stream="silver_evnts")).lower()
    assert plain(open_page("stream").title[0].value) == "gold_events", "the first one"
    app = open_page("stream", stream=NAME, batch=3)
    switch = app.selectbox(key="stream_switch")
    assert (switch.options, switch.value) == (["gold_events", NAME], NAME)
    switch.set_value("gold_events")
    again(app)
    assert app.title[0].value == "gold_events" and param(app, "stream") == "gold_events"
    assert "batch" not in app.query_params


def test_the_live_region_has_the_same_parts_in_every_view_and_state(store, now: datetime) -> None:
    """Or a rerun beside it finds one less in the browser, which then shows nothing."""
    stream_store.flowing(store, NAME, now, expectations=EXPECTATIONS, source_tables=("bronze/bronze_events",))
    stream_store.failed(store, "bronze_events", now)
    stream_store.declare(store, "gold_events", now)
    shown = {
        (name, view): open_page("stream", stream=name, view=view).container(key="stream_live")
        for name in (NAME, "bronze_events", "gold_events")
        for view in ("Backlog", "Batches", "Declaration")
    }
    parts = {tuple(part.type for part in region.children.values()) for region in shown.values()}
    assert len(parts) == 1 and len(next(iter(parts))) > 8, parts


def test_stop_asks_for_a_reason_then_writes_desired_and_audit(flowing, now: datetime) -> None:
    app = open_page("stream", stream=NAME)
    assert app.button(key="one_start").disabled
    assert plain(app.button(key="one_start").help) == "It is running already."
    assert "It is running already" not in words(app)  # the tooltip alone
    press(app, "one_stop")
    press(app, "act_cancel")
    assert "act_reason" not in keys(app.text_area) and flowing.audit_entries() == []
    press(app, "one_stop")
    press(app, "act_send")
    assert "A reason is needed" in words(app)
    assert flowing.desired()[NAME].state is DesiredState.RUNNING and flowing.audit_entries() == []
    send(app, "act", "checking a duplicate")
    wanted, entry = flowing.desired()[NAME], flowing.audit_entries()[0]
    assert (wanted.state, wanted.reason) == (DesiredState.STOPPED, "checking a duplicate")
    assert (entry.action, entry.subject, entry.reason) == ("stop", NAME, "checking a duplicate")
    assert entry.actor == services.actor().name
    assert f"Stop: asked for {NAME}" in words(app) and "act_reason" not in keys(app.text_area)
    flowing.request(NAME, "start", reason="second", actor=Actor("bob"), now=now + timedelta(minutes=3))
    log = list_below(open_page("stream", stream=NAME, view="Operation log"))
    assert log[["Act", "Who", "Reason"]].to_numpy().tolist() == [
        ["start", "bob", "second"], ["stop", entry.actor, "checking a duplicate"],
    ]  # fmt: skip


def test_the_menu_calls_the_page_by_the_chosen_stream(home: Path) -> None:
    def script() -> None:
        import streamlit as st

        from app import navigation

        st.text([page.title for page in navigation.pages()["Operate"]])

    app = AppTest.from_function(script).run()
    assert app.text[0].value == "['Streams', 'Stream', 'Pipeline', 'Acts', 'Incidents', 'Access']"
    app.query_params["stream"] = NAME
    assert again(app).text[0].value == f"['Streams', '{NAME}', 'Pipeline', 'Acts', 'Incidents', 'Access']"


def test_a_restart_with_other_settings_shows_the_difference_first(flowing) -> None:
    app = open_page("stream", stream=NAME)
    assert "Not as declared" not in words(app)
    press(app, "one_restart")
    app.toggle(key="act_overrides").set_value(True)
    again(app)
    app.text_input(key="act_set_trigger").set_value("often")
    again(app)
    assert "is not understood" in "".join(each.value for each in app.error)
    assert app.button(key="act_send").disabled
    app.text_input(key="act_set_trigger").set_value("30 seconds")
    app.text_area(key="act_set_spark").set_value("spark.sql.shuffle.partitions=8")
    again(app)
    assert "- trigger: 5 seconds → **30 seconds**\n- spark.sql.shuffle.partitions: not set → **8**" in words(app)
    send(app, "act", "its batches are too small")
    assert flowing.desired()[NAME].overrides == {"trigger": "30 seconds", "spark.sql.shuffle.partitions": "8"}
    assert "Not as declared: trigger 30 seconds (declared: 5 seconds)" in words(again(app)).replace("\\", "")
    press(app, "one_restart")
    assert app.toggle(key="act_overrides").value, "they are still there"
    app.toggle(key="act_overrides").set_value(False)
    send(app, "act", "mended")
    assert flowing.desired()[NAME].overrides == {}


def test_a_stream_is_stopped_once_it_has_caught_up(flowing, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    # A host compares that with the store's clock.
    monkeypatch.setattr(services, "now", lambda: now + timedelta(hours=1))
    app = open_page("stream", stream=NAME)
    press(app, "one_stop")
    app.radio(key="act_how").set_value("Drain")
    send(app, "act", "a move")
    assert flowing.desired()[NAME].state is DesiredState.DRAINED
    assert abs(flowing.desired()[NAME].requested_at - flowing.now()) < timedelta(minutes=5)
    assert "it stops once it has read what was there " in words(app)
    assert ":gray-badge[:material/hourglass_bottom: Drained]" in words(app) and f"Draining: asked for {NAME}" in words(
        app
    )
    assert ":orange-badge[:material/hourglass_bottom: Draining]" in words(app), "what is observed"
    assert not app.button(key="one_stop").disabled, "nobody has to wait for it"


def test_a_stopped_stream_is_started_over_once_its_name_is_typed(flowing, now: datetime) -> None:
    stop(flowing, now)
    app = open_page("stream", stream=NAME)
    press(app, "one_reset")
    assert "Its checkpoint is set aside" in words(app) and "is there twice" in words(app)
    send(app, "reset", "a bad batch", typed="silver")
    assert "the name are needed" in words(app) and flowing.jobs.newest(5) == []
    app.text_input(key="reset_name").set_value(NAME)
    press(app, "reset_send")
    (job,) = flowing.jobs.newest(5)
    assert (job.kind.value, job.subject, job.reason) == ("reset", NAME, "a bad batch")
    assert flowing.audit_entries()[0].action == "reset job" and "its host does it next" in words(app)


def test_what_only_a_stopped_stream_allows_offers_the_stop(flowing) -> None:
    app = open_page("stream", stream=NAME)
    press(app, "one_reset")
    assert "It is running: stop it first." in words(app) and "reset_send" not in keys(app.button)
    assert app.button(key="stop_first").label.replace("\\", "") == f"Stop {NAME}…"
    press(app, "stop_first")
    assert "one_reset" in keys(app.button) and "reset_level" not in keys(app.segmented_control), "one dialog at a time"
    send(app, "act", "to begin again")
    assert flowing.desired()[NAME].state is DesiredState.STOPPED


def test_a_stream_is_begun_again_at_a_version(store, home: Path, now: datetime) -> None:
    source = home / "lake" / "bronze" / "numbers"
    for first in (0, 5, 7):
        builders.write(source, {"id": list(range(first, first + 3))})
    stream_store.flowing(store, NAME, now)
    read = StreamInput(InputKind.TABLE, "bronze/numbers", str(source))
    redeclare(store, now, inputs=(read,), checkpoint_location=str(home / "checkpoints" / NAME))
    stop(store, now)
    app = open_page("stream", stream=NAME)
    press(app, "one_reset")
    app.segmented_control(key="reset_level").set_value(ResetLevel.FROM)
    assert "Say where to begin" in words(again(app))
    for version, shown in (("9", "bronze/numbers has no version 9"), ("1", "Reads again: 6 rows, 2 files")):
        app.text_input(key="reset_from_bronze/numbers").set_value(version)
        assert shown in words(again(app))
    send(app, "reset", "a bad batch", typed=NAME)
    (job,) = store.jobs.newest(5)
    asked = ResetRequest(NAME, ResetLevel.FROM, {str(source): {"startingVersion": "1"}})
    assert ResetRequest.parse(job.request) == asked


def test_a_starved_stream_offers_the_start_of_its_cause(store, now: datetime) -> None:
    stream_store.flowing(store, "bronze_events", now)
    stream_store.flowing(store, NAME, now, source_tables=("bronze/bronze_events",))
    stop(store, now, "bronze_events")
    stream_store.idle(store, NAME, now)
    app = open_page("stream", stream=NAME)
    assert "is starved: bronze_events was stopped by ana" in words(app)
    press(app, "start_cause")
    send(app, "act", "repaired")
    assert store.desired()["bronze_events"].state is DesiredState.RUNNING


def test_a_stop_names_what_lies_downstream_and_drains_or_stops_it_too_where_asked(store, now: datetime) -> None:
    stream_store.flowing(store, "bronze_events", now)
    stream_store.flowing(store, NAME, now, source_tables=("bronze/bronze_events",))
    stream_store.flowing(store, "gold_events", now, source_tables=(f"silver/{NAME}",))
    app = open_page("stream", stream="bronze_events")
    press(app, "one_stop")
    assert f"Downstream, {NAME}, gold_events will have nothing new to read" in words(app).replace("\\", "")
    assert app.radio(key="act_how").options == ["Now", "Drain", "Drain the chain"]
    app.radio(key="act_how").set_value("Drain the chain")
    send(app, "act", "a move")
    assert {wanted.state for wanted in store.desired().values()} == {DesiredState.DRAINED_THROUGH}
    assert ":gray-badge[:material/hourglass_bottom: Chain drained]" in words(app)
    press(app, "one_stop")
    app.checkbox(key="act_downstream").check()
    send(app, "act", "the source is repaired")
    assert {wanted.state for wanted in store.desired().values()} == {DesiredState.STOPPED}


def test_a_batch_leads_to_the_commit_that_it_wrote(flowing, home: Path) -> None:
    write_batches(flowing, home, None, 33, 34)
    app = open_page("stream", stream=NAME, batch="34")
    listed = list_below(app)
    assert "Batch 34 read 128 rows" in words(app) and "and wrote v2." in words(app)
    (link,) = [link for link in app.main.page_link if link.label == "What it changed"]
    assert {"from=1", "to=2"} <= set(link.proto.query_string.split("&"))
    assert list(listed["Batch"][:3]) == [35, 34, 33]
    assert list(listed["Commit"].fillna(-1)[:4]) == [-1, 2, 1, -1] and "2 with a commit" in words(app)
    assert "The progress of batch 4711 is not kept any more." in words(open_page("stream", stream=NAME, batch="4711"))


def test_a_batch_that_was_clicked_stays_the_one_under_newer_ones(flowing, home: Path, now: datetime) -> None:
    write_batches(flowing, home, 34, 36)
    app = open_page("stream", stream=NAME, view="Batches")
    click(app, "batches", 0, "Batch")  # 35, which wrote no commit
    flowing.add_progress([stream_store.batch(NAME, 36, now, run_id=f"{NAME}-run-2")])
    again(app)
    again(app)
    assert list(list_below(app)["Batch"][:2]) == [36, 35] and app.query_params["stream"] == NAME
    click(app, "batches", 0, "Took")  # another cell in the same place: now it is 36
    assert app.query_params["to"] == "1"


# Rows of the quarantine, requeued: tried on the host first, then with a reason and the name --------------------------


ORDERS = "silver_orders"
SAMPLES = (
    Sample({"id": 1, "amount": -5.0}, {"id": 1, "amount": 5.0}, (), goes=True),
    Sample({"id": 2, "amount": None}, {"id": 2, "amount": None}, ("priced",), goes=False),
)
FOUND = RequeueAnswer(15, 12, {"priced": 3}, samples=SAMPLES)
FOUND_END = JobEnd(JobState.DONE, answer=FOUND.text())


@pytest.fixture
def quarantined(home: Path, store: ControlStore, now: datetime) -> ControlStore:
    """A stream that runs, with two rows in its quarantine."""
    rows = {"id": [1, 2], "amount": [-5.0, None], "broken_expectations": [["priced"]] * 2, "stream": [ORDERS] * 2}
    builders.write(home / "lake" / "silver" / f"{ORDERS}_quarantine", rows)
    stream_store.flowing(store, ORDERS, now, expectations=("priced",))
    return store


def asked(app):
    """The dialog, with a repair that was sent to the host."""
    press(app, "one_requeue")
    app.text_input(key="requeue_where").set_value("amount < 0")
    app.text_area(key="requeue_set").set_value("amount = abs(amount)\n\n")
    app.button(key="requeue_try").click()
    return again(app)


def answer(quarantined: ControlStore, job: Job, job_end: JobEnd = FOUND_END) -> None:
    """What a host would do."""
    end(quarantined, job, job_end, now=datetime.now(UTC))


def test_a_trial_can_be_cancelled_and_one_that_cannot_be_tried_says_why(quarantined) -> None:
    app = open_page("stream", stream=ORDERS)
    press(app, "one_requeue")
    app.text_input(key="requeue_where").set_value("amount <")
    press(app, "requeue_try")
    assert "Syntax error at or near" in words(app) and quarantined.jobs.newest(5) == [], "at once"
    app = asked(open_page("stream", stream=ORDERS))
    press(app, "cancel_job")
    assert quarantined.jobs.newest(1)[0].state is JobState.CANCELLED
    assert "Cancelled: nothing was tried." in words(app)
    app = asked(open_page("stream", stream=ORDERS))
    failed = JobEnd(JobState.FAILED, None, "Could not convert string 'x' to INT64.", "TRY_CAST gives null")
    answer(quarantined, quarantined.jobs.newest(1)[0], failed)
    assert "Could not convert string 'x' to INT64. TRY_CAST gives null" in words(again(app))


def test_rows_are_tried_then_requeued_as_they_were_tried(quarantined, now: datetime) -> None:
    quarantined.request(ORDERS, "stop", reason="a bad price list", actor=Actor("ana"), now=now)
    stream_store.observe(quarantined, ORDERS, StreamState.STOPPED, now)
    app = asked(open_page("stream", stream=ORDERS))
    (trial,) = quarantined.jobs.newest(5)
    request = RequeueRequest(ORDERS, 0, "amount < 0", {"amount": "abs(amount)"})
    assert (trial.kind, RequeueRequest.parse(trial.request)) == (JobKind.REQUEUE_PREVIEW, request)
    assert "requeue_send" not in keys(app.button), "nothing is sent before it was tried"

    answer(quarantined, trial)
    again(app)
    said = words(app)
    assert "Chosen: 15 rows of silver/silver_orders_quarantine, version 0" in said
    assert "Stay as they are: 3 rows; even repaired, 3 break priced" in said
    shown = next(each.value for each in app.dataframe if "Goes" in each.value)
    assert list(shown["amount"]) == ["-5.0 → 5.0", "null"]
    assert app.button(key="requeue_send").label == "Requeue 12 rows"

    send(app, "requeue", "prices had a sign", typed="silver")
    assert "the name are needed" in words(app)
    app.text_input(key="requeue_name").set_value(ORDERS)
    press(app, "requeue_send")

    act = quarantined.jobs.newest(1)[0]
    assert (act.kind, act.subject, act.reason) == (JobKind.REQUEUE, ORDERS, "prices had a sign")
    assert act.request == trial.request
    assert "its host does it next" in words(app)
    answer(quarantined, act, JobEnd(JobState.DONE, "/r", detail=FOUND.sentence()))
    log = open_page("stream", stream=ORDERS, view="Operation log").dataframe[-1].value
    assert log.iloc[0]["Act"] == "requeue done"
    assert log.iloc[0]["Detail"].endswith("12 of 15 rows requeued; 3 stay: 3 break priced")


# Over days: from sums kept per minute and hour, right without the batches, and small on the wire ----------------------

CHARTS = (
    figures.build_rate_figure,
    figures.build_duration_figure,
    figures.build_rows_figure,
    figures.build_watermark_figure,
    figures.build_state_figure,
)


@pytest.fixture
def month(store: ControlStore, now: datetime) -> list[Progress]:
    """Four batches a day for 29 days, nothing for ten of them, and no batch kept that is older than a week."""
    stream_store.flowing(store, NAME, now, expectations=EXPECTATIONS[:1])
    days = [*range(9), *range(19, 29)]
    found = [
        stream_store.batch(NAME, number, now - timedelta(days=day, hours=6 * part + 1), run_id="r", rows=100 + number)
        for number, (day, part) in enumerate((day, part) for day in reversed(days) for part in reversed(range(4)))
    ]
    store.add_progress(found)
    store.roll_up(store.not_rolled_up())
    store.prune_progress(before=now - timedelta(days=7), keep=1_000)
    return sorted([*found, *stream_store.batches(NAME, now)], key=lambda each: each.progressed_at)


def drawn(app: AppTest) -> dict[str, Any]:
    """The charts by the first word of their titles."""
    specs = [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]
    return {spec["layout"]["title"]["text"].split()[0].rstrip(":"): spec for spec in specs}


def since(month: list[Progress], first: datetime) -> list[Progress]:
    return [batch for batch in month if batch.progressed_at > first]


def test_thirty_days_are_there_though_their_batches_are_gone(store: ControlStore, month: list[Progress]) -> None:
    assert len(store.progress(NAME, limit=1_000)) < len(month)
    app = open_page("stream", stream=NAME, window="30 d", view="Row expectations")
    assert f"{len(month)} batches in the last 30 d. Each point is the mean of a batch over 2 h" in words(app)
    dropped = sum(batch.rows_dropped_by_watermark or 0 for batch in month)
    assert f"{dropped} rows dropped as too late." in words(app)
    (counted,) = app.dataframe[-1].value.set_index("Expectation").loc[[EXPECTATIONS[0]]].to_dict("records")
    counts = [count for batch in month for count in batch.expectations if count.name == EXPECTATIONS[0]]
    assert (counted["Passed"], counted["Failed"]) == (sum(c.passed for c in counts), sum(c.failed for c in counts))

    (read, *_) = drawn(app)["Rows"]["data"]
    by_point: dict[int, list[int]] = {}
    for batch in month:
        by_point.setdefault(int(batch.progressed_at.timestamp()) // 7_200, []).append(batch.num_input_rows)
    means = [round(fmean(by_point[place]), 3) for place in sorted(by_point)]
    assert [value for value in read["y"] if value is not None] == means and 0 not in read["y"]
    alone = [before is None or after is None for before, after in zip([None, *read["y"]], read["y"], strict=False)]
    assert sum(alone) > 2 * 70, "with six hours between two batches no line joins them"


def test_the_most_that_waited_is_drawn_with_the_gaps_of_the_others(
    store: ControlStore, now: datetime, month: list[Progress]
) -> None:
    later = [
        stream_store.batch(NAME, 500 + number, now - timedelta(hours=50 - number), run_id="r") for number in (0, 20)
    ]
    store.add_progress(later)
    lags = {each.ended_at: Lag(each.ended_at, None, rows) for each, rows in zip(later, (1_700, 40), strict=True)}
    store.roll_up(store.not_rolled_up(), {NAME: lags})
    app = open_page("stream", stream=NAME, window="30 d")
    assert "The backlog is the most that waited after a batch." in words(app)
    chart = drawn(app)["Backlog"]
    assert chart["layout"]["title"]["text"] == "Backlog: at most 1,700 rows waited"
    assert [value for value in chart["data"][0]["y"] if value is not None] == [1_700, 40]
    assert "the most after each of" in chart["data"][0]["hovertemplate"]


def test_seven_days_are_drawn_by_the_hour_once_for_all_who_look(
    store: ControlStore, now: datetime, month: list[Progress], monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []

    def build(points: Points, look: FigureLook) -> dict[str, Any] | None:
        built.append(look)
        return build_rate_figure(points, look)

    build_rate_figure = figures.build_rate_figure
    monkeypatch.setattr(figures, "build_rate_figure", build)
    monkeypatch.setattr(services, "now", lambda: now)
    app, other = (open_page("stream", stream=NAME, window="7 d") for _ in range(2))
    assert drawn(app) == drawn(other) and len(built) == 1
    week = since(month, now - timedelta(days=7))
    assert f"{len(week)} batches in the last 7 d. Each point is the mean of a batch over 1 h" in words(app)
    longest = max(batch.batch_duration_ms or 0 for batch in week)
    assert f"up to {longest / 1_000:.3g} s" in drawn(app)["Batch"]["layout"]["title"]["text"]
    assert drawn(open_page("stream", stream=NAME, window="30 d")) != drawn(app) and len(built) == 2


def test_a_day_is_whole_by_the_minute_where_its_batches_are_gone_or_too_many_to_keep(
    store: ControlStore, now: datetime, month: list[Progress], monkeypatch: pytest.MonkeyPatch
) -> None:
    day = since(month, now - timedelta(days=1))
    text = f"{len(day)} batches in the last 24 h. Each point is the mean of a batch over 5 min"
    store.roll_up(store.not_rolled_up())
    store.prune_progress(before=now - timedelta(days=7), keep=3)
    assert 0 < len(store.progress(NAME, since=now - timedelta(days=1))) < len(day)
    assert text in words(open_page("stream", stream=NAME, window="24 h"))
    store.prune_progress(before=now - timedelta(hours=6), keep=1_000)
    monkeypatch.setenv("WEIR_STORE__PROGRESS_RETENTION_DAYS", "0.25")
    forget_caches()
    shown = words(open_page("stream", stream=NAME, window="24 h"))
    assert text in shown and "from sums kept per minute." in shown


def test_a_long_window_is_drawn_from_few_points(store: ControlStore, home: Path, now: datetime) -> None:
    """A batch every ten seconds, for a month. How quick that is, `make bench SUITE=ui` measures."""
    stream_store.declare(store, NAME, now)
    stream_store.long_history(home, NAME, now, HOUR_S, days=30, pause=range(100, 130))
    for window_s in (7 * 86_400, 30 * 86_400):
        points = stream_points(store.declarations()[NAME], window_s)
        assert points.batches > 0.9 * (window_s - 30 * 3_600) / 10
        assert [point.goes_on for point in points.bins].count(False) == 1
        assert sum(len(json.dumps(build(points, figures.FigureLook()))) for build in CHARTS) < 400_000
