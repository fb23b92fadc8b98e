"""One stream: its figures, its end, and start, stop and restart from its page."""

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from streamlit.testing.v1 import AppTest

from app import services
from backend.access import Actor
from backend.format import utc_text
from backend.stream_model.stream import (
    DeclaredTable,
    DesiredState,
    InputKind,
    StreamFailure,
    StreamInput,
    StreamState,
)
from backend.streams import faults
from backend.streams.reset.plan import ResetLevel, ResetRequest
from tests.worlds.pages.opened import again, home, links, metrics, open_page, plain, press, send, words
from tests.worlds.store import stream_store
from tests.worlds.streams.attached import beat, progress, started
from tests.worlds.streams.checkpoints import declare_anew, write_checkpoint

__all__ = ["home"]
NAME = "silver_events"
EXPECTATIONS = ("event_type_not_null", "amount_positive", "never_counted")


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def store(home: Path, now: datetime):
    store = stream_store.open_store(home)
    stream_store.beat(store, now)
    yield store
    store.close()


def _list(app):
    """The list chosen below the charts."""
    return app.dataframe[-1].value


def test_a_flowing_stream_shows_its_last_batch(store, now: datetime) -> None:
    stream_store.flowing(store, NAME, now, expectations=EXPECTATIONS)
    last = store.progress(NAME)[-1]

    shown = metrics(app := open_page("stream", stream=NAME))

    assert "keeps up" in words(app)
    assert any(stream_store.HOST in plain(each.proto.help) for each in app.markdown), "on which host"
    newest = store.progress(NAME)[-6:]  # one each 5 s, in 30 s
    assert shown["Input"] == f"{sum(each.num_input_rows for each in newest) / 30:.3g} rows/s"
    assert f"{last.num_input_rows} rows in batch 35" in [each.delta for each in app.metric]
    assert shown["Batch duration"] == f"{last.batch_duration_ms / 1000:.3g} s"
    assert len(shown) == 6 and shown["Row expectations"] == "1 of 3 broken"  # in each batch by two rows
    assert any(str(each.delta).startswith(f"{2 * 36} rows, ") for each in app.metric)


def test_a_stream_without_a_table_names_what_it_writes(store, now: datetime) -> None:
    stream_store.flowing(store, NAME, now)
    declared = store.declarations()[NAME]
    outside = replace(declared, sink_uri="", sink_table="", sink="postgresql", outside="public.orders at db/shop")
    store.declare([outside], now=now)
    app = open_page("stream", stream=NAME, view="Declaration")
    assert not app.exception
    assert words(app).count("Writes PostgreSQL table public.orders at db/shop.") == 2
    assert "sink        PostgreSQL table public.orders at db/shop" in app.code[0].value


def test_its_declaration_shows_source_options_and_trigger(store, now: datetime) -> None:
    stream_store.flowing(store, NAME, now)
    read = StreamInput(InputKind.FILES, "files in landing", "/landing", {"maxFilesPerTrigger": "10"})
    code = "@shop.streaming_table()\ndef silver_events(events):\n    return events.where('amount > 0')"
    declare_anew(store, replace(store.declarations()[NAME], inputs=(read,), code=code), now=now)
    app = open_page("stream", stream=NAME, view="Declaration")
    assert (app.code[1].value, app.code[1].language) == (code, "python")
    shown = app.code[0].value.splitlines()
    assert shown[:3] == [
        "source      files in landing/events",
        "options     files in landing: maxFilesPerTrigger=10",
        "trigger     5 seconds",
    ]


def test_what_feeds_it_and_what_it_feeds_are_links_with_their_verdicts(store, now: datetime) -> None:
    stream_store.failed(store, "bronze_events", now)
    stream_store.flowing(store, NAME, now, source_tables=("bronze/bronze_events", "bronze/rates"))
    stream_store.flowing(store, "gold_events", now, source_tables=(f"silver/{NAME}",))
    for name in (NAME, "gold_events"):
        stream_store.idle(store, name, now)
    app = open_page("stream", stream=NAME)
    assert not app.exception
    shown = links(app)
    assert shown["bronze_events · ✕ Failed"] == "stream=bronze_events"
    assert shown["bronze/rates"] == "table=bronze%2Frates"
    assert shown["gold_events · ◌ Starved"] == "stream=gold_events"


def test_the_error_stands_beside_the_batch_that_failed(store, now: datetime) -> None:
    name = "gold_events_hourly"
    stream_store.failed(store, name, now)
    rows = _list(open_page("stream", stream=name, view="Batches"))
    error = "ZeroDivisionError: division by zero in the transform of row 17"
    assert rows.iloc[0][["Batch", "Commit", "Error"]].tolist() == [20, "–", error]
    assert list(rows["Batch"][1:3]) == [19, 18] and rows["Error"][1:].isna().all()
    store.add_progress([stream_store.batch(name, 20, now, run_id=f"{name}-run-2")])
    mended = _list(open_page("stream", stream=name, view="Batches"))
    assert list(mended["Batch"][:2]) == [20, 19] and mended["Error"][0] == error and mended["Rows read"][0] == 100


def test_the_quarantine_is_one_click_away(store, now: datetime) -> None:
    stream_store.flowing(store, NAME, now, expectations=EXPECTATIONS)

    app = open_page("stream", stream=NAME, view="Row expectations")

    table = "silver/silver_events_quarantine"
    assert links(app)[f"Quarantine: {table}"] == f"table={table.replace('/', '%2F')}"


def test_what_its_function_observed_is_a_list(store, now: datetime) -> None:
    stream_store.flowing(store, NAME, now)
    metrics = {"rows": 1_204, "mean": 2.5, "worst": "<b>x</b>", "none": None}
    last = stream_store.batch(NAME, 1_000, now, run_id=f"{NAME}-run-2")
    store.add_progress([replace(last, raw_json=json.dumps({"observedMetrics": {"quality": metrics}}))])
    app = open_page("stream", stream=NAME, view="Metrics")
    assert not app.exception
    rows = _list(app)
    assert list(rows["Metric"]) == list(metrics)
    assert list(rows["Value"]) == ["1204", "2.5", "<b>x</b>", "–"]
    assert set(rows["Observation"]) == {"quality"}


def test_a_declared_change_that_waits_is_told_and_an_operator_gives_the_word(store, home: Path, now: datetime) -> None:
    stream_store.flowing(store, NAME, now)
    events = home / "lake" / "silver" / "silver_events"
    write_deltalake(str(events), pa.table({"id": [1]}))
    feed = DeclaredTable("silver/silver_events", str(events), "Events", {"delta.enableChangeDataFeed": "true"})
    store.declare([replace(store.declarations()[NAME], tables=(feed,))], now=now)
    app = open_page("stream", stream=NAME, view="Preflight")
    assert not app.exception
    assert "A start sets comment of silver/silver_events: not set → Events" in words(app)
    assert "delta.enableChangeDataFeed of silver/silver_events: not set → true: it raises" in words(app)

    press(app, "one_restart")
    app.toggle(key="act_overrides").set_value(True)
    again(app)
    app.text_input(key="act_set_table_changes").set_value("delta.enableChangeDataFeed")
    again(app)
    send(app, "act", "silver reads the feed")
    assert store.desired()[NAME].overrides == {"table_changes": "delta.enableChangeDataFeed"}


def test_a_function_that_observes_nothing_is_said_to(store, now: datetime) -> None:
    stream_store.flowing(store, NAME, now)
    assert "Its function observes nothing" in words(open_page("stream", stream=NAME, view="Metrics"))


def test_counts_in_the_window_equal_a_recount_of_the_store(store, now: datetime) -> None:
    stream_store.flowing(store, NAME, now, expectations=EXPECTATIONS)
    events = store.progress(NAME)

    app = open_page("stream", stream=NAME, view="Row expectations")

    assert f"{sum(each.rows_dropped_by_watermark for each in events)} rows dropped as too late" in words(app)
    table = _list(app).set_index("Expectation")
    counted = [count for each in events for count in each.expectations if count.name == "event_type_not_null"]
    assert table.loc["event_type_not_null", "Failed"] == sum(count.failed for count in counted)
    assert table.loc["event_type_not_null", "Passed"] == sum(count.passed for count in counted)
    assert table.isna().loc["never_counted", "Passed"]


def test_runs_are_whole_whatever_the_window(store, now: datetime) -> None:
    stream_store.flowing(store, NAME, now)
    before = now - timedelta(days=2)
    old = [stream_store.batch(NAME, i, before + i * timedelta(minutes=1), run_id=f"{NAME}-run-2") for i in range(5, 9)]
    store.add_progress(old)

    for window in ("15 min", "24 h"):
        runs = _list(open_page("stream", stream=NAME, view="Runs", window=window))

        assert list(runs["Batches"]) == ["0–11", "5–35"]  # by their first batch
        assert sum(runs["Rows read"]) == sum(each.num_input_rows for each in store.progress(NAME))


def test_a_failed_stream_shows_class_message_and_batch(store, now: datetime) -> None:
    stream_store.failed(store, "gold_events_hourly", now)

    app = open_page("stream", stream="gold_events_hourly", view="Failures")

    text = "\n".join(each.value for each in app.error).replace("\\", "")
    assert "ZeroDivisionError" in text
    assert "division by zero in the transform of row 17" in text
    assert "batch 20" in text
    assert words(app).count("division by zero in the transform of row 17") == 1, "and no more than once"
    assert re.search(r"failed [^:]* ago in batch 20[^:]*; it waits for a person to start it", words(app))
    assert _list(app).iloc[0]["Class"] == "ZeroDivisionError"
    assert not app.button(key="one_start").disabled


def break_checkpoint(store, home: Path, now: datetime) -> None:
    """Its last offsets are gone, and nothing else of the stream is looked at."""
    place = home / "checkpoints" / NAME
    write_checkpoint(place, {0: ["{}"], 1: ["{}"]})
    (place / "offsets" / "1").unlink()
    (place / "state/0/0").mkdir(parents=True)
    (place / "state/0/0/2.delta").touch()
    declared = replace(store.declarations()[NAME], checkpoint_location=str(place))
    declare_anew(store, declared, now=now)


def test_preflight_is_a_list_with_signs_evidence_and_remedies(store, home: Path, now: datetime) -> None:
    stream_store.flowing(store, NAME, now)
    break_checkpoint(store, home, now)
    text = words(open_page("stream", stream=NAME, view="Preflight"))
    assert f"{NAME} cannot go on: 1 check failed." in text
    assert ":red-badge[:material/error: Failed] **checkpoint** · offsets/1 is missing, and commits/1 is there" in text
    assert faults.OFFSETS_MISSING.remedy in text
    assert ":gray-badge[:material/help: Unknown] **sink**" in text
    assert ":green-badge[:material/check_circle: OK] **owner** · Host host-a holds the lease and is alive" in text


def test_a_failed_check_stands_in_the_band_of_a_failure(store, home: Path, now: datetime) -> None:
    stream_store.declare(store, NAME, now)
    failure = StreamFailure("CONCURRENT_STREAM_LOG_UPDATE", "what Spark said", 4, now)
    stream_store.observe(store, NAME, StreamState.FAILED, now, failure=failure)
    break_checkpoint(store, home, now)
    (band,) = [each.value.replace("\\", "") for each in open_page("stream", stream=NAME).error]
    assert "offsets/1 is missing, and commits/1 is there" in band
    assert faults.OTHER_DRIVER.cause not in band, "the check says which of the two it was"
    assert band.index(faults.OFFSETS_MISSING.remedy) < band.index("CONCURRENT_STREAM") < band.index("what Spark said")


def test_the_dialog_of_a_start_says_what_stands_against_it_and_forbids_nothing(
    store, home: Path, now: datetime
) -> None:
    stream_store.flowing(store, NAME, now)
    break_checkpoint(store, home, now)
    app = open_page("stream", stream=NAME)
    press(app, "one_stop")
    assert "offsets/1 is missing" not in words(app), "a stop asks no preflight"
    press(app, "act_cancel")
    press(app, "one_restart")
    assert "As long as this stands, it fails again or loses rows" in "".join(each.value for each in app.error)
    assert "offsets/1 is missing" in words(app)
    send(app, "act", "I know")
    assert store.audit_entries()[0].action == "restart"


def test_after_the_host_is_gone_the_figures_stay_and_the_state_is_unknown(home: Path, now: datetime) -> None:
    store = stream_store.open_store(home)
    seen = now - timedelta(minutes=5)
    stream_store.beat(store, seen)
    stream_store.flowing(store, NAME, seen)

    app = open_page("stream", stream=NAME)

    assert f"the last one was seen at {utc_text(seen)}" in words(app)
    assert ":gray-badge[:material/help: Unknown]" in words(app)
    assert f"{store.progress(NAME)[-1].num_input_rows} rows in batch 35" in [each.delta for each in app.metric]


def test_a_stream_that_has_never_run_has_no_figures_and_no_error(home: Path, now: datetime) -> None:
    stream_store.declare(stream_store.open_store(home), NAME, now)

    shown = metrics(app := open_page("stream", stream=NAME))

    assert set(shown.values()) == {"–"}
    assert "No batch in the last 15 min" in words(app)


def test_an_unknown_stream_names_those_that_are_there(store, now: datetime) -> None:
    stream_store.flowing(store, NAME, now)

    text = words(open_page("stream", stream="silver_evnts"))

    assert "no stream is called" in text.lower()


def test_without_a_stream_in_the_link_the_first_one_is_shown(store, now: datetime) -> None:
    stream_store.flowing(store, NAME, now)
    stream_store.flowing(store, "bronze_events", now)

    assert plain(open_page("stream").title[0].value) == "bronze_events"


def test_stop_asks_for_a_reason_then_writes_desired_and_audit(store, now: datetime) -> None:
    stream_store.flowing(store, NAME, now)
    app = open_page("stream", stream=NAME)
    assert app.button(key="one_start").disabled and app.button(key="one_reset").disabled
    assert plain(app.button(key="one_start").help) == "It is running already."
    assert "It is running already" not in words(app)  # the tooltip alone

    press(app, "one_stop")
    press(app, "act_send")
    assert "A reason is needed" in words(app)
    assert store.desired()[NAME].state is DesiredState.RUNNING
    assert store.audit_entries() == []

    send(app, "act", "checking a duplicate")

    wanted, entry = store.desired()[NAME], store.audit_entries()[0]
    assert (wanted.state, wanted.reason) == (DesiredState.STOPPED, "checking a duplicate")
    assert (entry.action, entry.subject, entry.reason) == ("stop", NAME, "checking a duplicate")
    assert entry.actor == services.actor().name
    assert f"Stop asked for {NAME}" in words(app)
    assert not [each for each in app.text_area if each.key == "act_reason"]


def test_the_menu_calls_the_page_by_the_chosen_stream(home: Path) -> None:
    def script() -> None:
        import streamlit as st

        from app import navigation

        st.text([page.title for page in navigation.pages()["Operate"]])

    app = AppTest.from_function(script).run()
    assert app.text[0].value == "['Streams', 'Stream', 'Pipeline', 'Acts']"
    app.query_params["stream"] = NAME
    assert again(app).text[0].value == f"['Streams', '{NAME}', 'Pipeline', 'Acts']"


def test_cancel_leaves_the_dialog_and_writes_nothing(store, now: datetime) -> None:
    stream_store.flowing(store, NAME, now)
    app = open_page("stream", stream=NAME)
    press(app, "one_stop")

    press(app, "act_cancel")

    assert not [each for each in app.text_area if each.key == "act_reason"]
    assert store.audit_entries() == []


def test_where_no_stream_is_declared_the_page_says_what_declares_one_whatever_was_asked_for(home: Path) -> None:
    for asked in ({}, {"stream": "nobody"}):
        app = open_page("stream", **asked)
        assert "No stream is declared yet" in words(app) and "weir host" in words(app)
        assert not app.error


def test_a_restart_with_other_settings_shows_the_difference_first(store, now: datetime) -> None:
    stream_store.flowing(store, NAME, now)
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
    assert store.desired()[NAME].overrides == {"trigger": "30 seconds", "spark.sql.shuffle.partitions": "8"}
    assert "Not as declared: trigger 30 seconds (declared: 5 seconds)" in words(again(app)).replace("\\", "")
    press(app, "one_restart")
    assert app.toggle(key="act_overrides").value, "they are still there"
    app.toggle(key="act_overrides").set_value(False)
    send(app, "act", "mended")
    assert store.desired()[NAME].overrides == {}


def test_restart_of_a_failed_stream_grows_the_generation(store, now: datetime) -> None:
    stream_store.failed(store, NAME, now)
    before = store.desired()[NAME].generation
    app = open_page("stream", stream=NAME)

    press(app, "one_restart")
    send(app, "act", "the transform is mended")

    assert store.desired()[NAME].generation == before + 1
    assert store.audit_entries()[0].action == "restart"


def test_the_operation_log_shows_who_why_and_when(store, now: datetime) -> None:
    stream_store.flowing(store, NAME, now)
    store.request(NAME, "stop", reason="first", actor=Actor("ann"), now=now - timedelta(minutes=3))
    store.request(NAME, "start", reason="second", actor=Actor("bob"), now=now)

    log = _list(open_page("stream", stream=NAME, view="Operation log"))

    assert list(log["Act"]) == ["start", "stop"]
    assert list(log["Who"]) == ["bob", "ann"]
    assert list(log["Reason"]) == ["second", "first"]


def test_served_beyond_loopback_without_a_login_nobody_acts(store, now, monkeypatch: pytest.MonkeyPatch) -> None:
    stream_store.flowing(store, NAME, now)
    monkeypatch.setenv("WEIR_UI__ADDRESS", "0.0.0.0")

    app = open_page("stream", stream=NAME)

    assert all(app.button(key=f"one_{action}").disabled for action in ("start", "stop", "restart"))
    assert "read-only" in words(app)


def test_a_stream_is_stopped_once_it_has_caught_up(store, now: datetime, monkeypatch) -> None:
    stream_store.flowing(store, NAME, now)
    # A host compares that with the store's clock.
    monkeypatch.setattr(services, "now", lambda: now + timedelta(hours=1))
    app = open_page("stream", stream=NAME)
    press(app, "one_stop")
    app.checkbox(key="act_drain").check()
    send(app, "act", "a move")

    assert store.desired()[NAME].state is DesiredState.DRAINED
    assert abs(store.desired()[NAME].requested_at - store.now()) < timedelta(minutes=5)
    assert "it stops once it has read what was there " in words(app)
    assert ":gray-badge[:material/hourglass_bottom: Drained]" in words(app)
    assert not app.button(key="one_stop").disabled, "nobody has to wait for it"


def test_a_stopped_stream_is_started_over_once_its_name_is_typed(store, now: datetime) -> None:
    stream_store.flowing(store, NAME, now)
    store.request(NAME, "stop", reason="a bad batch", actor=Actor("ana"), now=now)
    stream_store.observe(store, NAME, StreamState.STOPPED, now)
    app = open_page("stream", stream=NAME)

    press(app, "one_reset")
    assert "Its checkpoint is set aside" in words(app)
    assert "is there twice" in words(app)
    send(app, "reset", "a bad batch", typed="silver")
    assert "the name are needed" in words(app)
    assert store.jobs.newest(5) == []
    app.text_input(key="reset_name").set_value(NAME)
    press(app, "reset_send")

    (job,) = store.jobs.newest(5)
    assert (job.kind.value, job.subject, job.reason) == ("reset", NAME, "a bad batch")
    assert [entry.action for entry in store.audit_entries()][:1] == ["reset job"]
    assert "its host does it next" in words(app)


def test_a_stream_is_begun_again_at_a_version(store, home: Path, now: datetime) -> None:
    source = home / "lake" / "bronze" / "numbers"
    for first in (0, 5, 7):
        write_deltalake(source, pa.table({"id": pa.array(range(first, first + 3), pa.int64())}), mode="append")
    stream_store.flowing(store, NAME, now)
    read = StreamInput(InputKind.TABLE, "bronze/numbers", str(source))
    checkpoint = str(home / "checkpoints" / NAME)
    declared = replace(store.declarations()[NAME], inputs=(read,), checkpoint_location=checkpoint)
    declare_anew(store, declared, now=now)
    store.request(NAME, "stop", reason="a bad batch", actor=Actor("ana"), now=now)
    stream_store.observe(store, NAME, StreamState.STOPPED, now)
    app = open_page("stream", stream=NAME)
    press(app, "one_reset")

    app.segmented_control(key="reset_level").set_value(ResetLevel.FROM)
    again(app)
    assert "Say where to begin" in words(app)
    app.text_input(key="reset_from_bronze/numbers").set_value("9")
    again(app)
    assert "bronze/numbers has no version 9" in words(app)
    app.text_input(key="reset_from_bronze/numbers").set_value("1")
    again(app)
    assert "Reads again: 6 rows, 2 files" in words(app)
    send(app, "reset", "a bad batch", typed=NAME)

    (job,) = store.jobs.newest(5)
    assert ResetRequest.parse(job.request) == ResetRequest(
        NAME, ResetLevel.FROM, {str(source): {"startingVersion": "1"}}
    )


def test_a_starved_stream_offers_the_start_of_its_cause(store, now: datetime) -> None:
    stream_store.flowing(store, "bronze_events", now)
    stream_store.flowing(store, NAME, now, source_tables=("bronze/bronze_events",))
    store.request("bronze_events", "stop", reason="repair", actor=Actor("ana"), now=now)
    stream_store.observe(store, "bronze_events", StreamState.STOPPED, now)
    stream_store.idle(store, NAME, now)
    app = open_page("stream", stream=NAME)

    assert "is starved: bronze_events was stopped by ana" in words(app)
    press(app, "start_cause")
    send(app, "act", "repaired")
    assert store.desired()["bronze_events"].state is DesiredState.RUNNING


def test_a_stop_names_what_lies_downstream_and_stops_it_too_where_asked(store, now: datetime) -> None:
    stream_store.flowing(store, "bronze_events", now)
    stream_store.flowing(store, NAME, now, source_tables=("bronze/bronze_events",))
    stream_store.flowing(store, "gold_events", now, source_tables=(f"silver/{NAME}",))
    app = open_page("stream", stream="bronze_events")

    press(app, "one_stop")
    said = words(app).replace("\\", "")
    assert f"Downstream, {NAME}, gold_events will have nothing new to read" in said
    app.checkbox(key="act_downstream").check()
    send(app, "act", "the source is repaired")

    assert {name for name, each in store.desired().items() if each.state is DesiredState.STOPPED} == {
        "bronze_events", NAME, "gold_events",
    }  # fmt: skip


def test_with_what_lies_downstream_it_is_drained_until_all_is_through(store, now: datetime) -> None:
    stream_store.flowing(store, "bronze_events", now)
    stream_store.flowing(store, NAME, now, source_tables=("bronze/bronze_events",))
    app = open_page("stream", stream="bronze_events")
    press(app, "one_stop")
    app.checkbox(key="act_downstream").check()
    app.checkbox(key="act_through").check()
    send(app, "act", "a move")
    assert {each.state for each in store.desired().values()} == {DesiredState.DRAINED_THROUGH}
    assert ":gray-badge[:material/hourglass_bottom: Drained through]" in words(app)


def test_a_stream_of_another_application_can_be_looked_at_alone(home: Path, now: datetime) -> None:
    store = stream_store.open_store(home)
    with closing(store), closing(sqlite3.connect(home / "store" / "weir.db")) as inbox, inbox:
        events = [(each.app_id, each.body) for each in (beat(), started(), progress())]
        inbox.executemany("INSERT INTO attached_event (app_id, body) VALUES (?, ?)", events)

    app = open_page("stream", stream="etl.orders")

    assert "The Spark application **etl** runs it" in words(app)
    assert not [button.label for button in app.button if button.label in ("Start", "Stop", "Restart", "Reset…")]
    assert "No stream host" not in words(app)
    assert [each.delta for each in app.metric if each.label == "Last batch"] == ["5 rows in batch 3"]


def test_a_batch_leads_to_the_commit_that_it_wrote(store, home: Path, now: datetime) -> None:
    stream_store.flowing(store, NAME, now)
    table = home / "lake" / store.declarations()[NAME].sink_table
    rows = pa.table({"id": pa.array([1], pa.int64())})
    for batch_id in (None, 33, 34):
        said = {"stream": NAME, "batch_id": batch_id, "query_id": f"query-{NAME}"}
        stamp = {"userMetadata": json.dumps(said)} if batch_id else {}
        write_deltalake(table, rows, mode="append", commit_properties=CommitProperties(custom_metadata=stamp))

    app = open_page("stream", stream=NAME, batch="34")
    listed = _list(app)

    assert "Batch 34 read 128 rows" in words(app)
    assert "and wrote v2." in words(app)
    (link,) = [each for each in app.main.page_link if each.label == "What it changed"]
    assert {"from=1", "to=2"} <= set(link.proto.query_string.split("&"))
    assert list(listed["Batch"][:3]) == [35, 34, 33]
    assert list(listed["Commit"][:4]) == ["–", "v2", "v1", "–"]
    assert "2 with a commit" in words(app)


def test_a_batch_that_was_clicked_stays_the_one_though_newer_ones_come_on_top(store, home: Path, now: datetime) -> None:
    stream_store.flowing(store, NAME, now)
    table = home / "lake" / store.declarations()[NAME].sink_table
    for batch_id in (34, 36):
        stamp = {"userMetadata": json.dumps({"stream": NAME, "batch_id": batch_id, "query_id": f"query-{NAME}"})}
        rows = pa.table({"id": pa.array([1], pa.int64())})
        write_deltalake(table, rows, mode="append", commit_properties=CommitProperties(custom_metadata=stamp))
    app = open_page("stream", stream=NAME, view="Batches")
    click(app, "Batch")  # 35, which wrote no commit
    store.add_progress([stream_store.batch(NAME, 36, now, run_id=f"{NAME}-run-2")])
    again(app)
    again(app)
    assert list(_list(app)["Batch"][:2]) == [36, 35] and app.query_params["stream"] == NAME

    click(app, "Took")  # another cell in the same place: now it is 36
    assert app.query_params["to"] == "1"


def click(app: AppTest, column: str) -> None:
    """Chooses a cell of the first row."""
    app.session_state["batches"] = {"selection": {"rows": [], "columns": [], "cells": [(0, column)]}}
    again(app)


def test_a_batch_that_is_not_kept_is_told(store, now: datetime) -> None:
    stream_store.flowing(store, NAME, now)

    assert "The progress of batch 4711 is not kept any more." in words(open_page("stream", stream=NAME, batch="4711"))


def test_another_stream_is_chosen_on_the_page(store, now: datetime) -> None:
    for name in (NAME, "gold_events"):
        stream_store.declare(store, name, now)
    app = open_page("stream", stream=NAME, batch=3)
    switch = app.selectbox(key="stream_switch")
    assert (switch.options, switch.value) == (["gold_events", NAME], NAME)
    switch.set_value("gold_events")
    again(app)
    assert app.title[0].value == "gold_events" and app.query_params.get("stream") in ("gold_events", ["gold_events"])
    assert "batch" not in app.query_params
