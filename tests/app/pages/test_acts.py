"""Acts on tables from their pages: the figures first, then a reason and the name; then the Acts page and the proof."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from deltalake import DeltaTable
from streamlit.testing.v1 import AppTest

from app import services
from app.ui import table_acts
from app.ui.view.acts import act_words
from backend import maintenance
from backend.access import Actor
from backend.jobs.model import Job, JobEnd, JobKind, JobState
from backend.maintenance.model import (
    ActResult,
    Alter,
    Clone,
    Drop,
    Optimize,
    Proof,
    Repair,
    Restore,
    Rewind,
    TableAct,
    Undrop,
)
from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import Observed, StreamState
from tests.worlds.lake import builders
from tests.worlds.pages.opened import again, click, forget_caches, keys, links, open_page, press, send, tick, words
from tests.worlds.store.policy_world import PolicyWorld, end, move_aside
from tests.worlds.streams.checkpoints import QUERY_ID
from tests.worlds.streams.rewindable import STREAM, write_rewindable
from tests.worlds.streams.rewindable import TABLE as REWOUND

TABLE = "bronze/clicks"
DONE = ActResult("34 files (40 kB) became 2 files (9 kB)", 12, proofs=(Proof("the same rows", True, "34 in, 34 out"),))


pytestmark = pytest.mark.usefixtures("clicks")


def asked(store: ControlStore) -> object:
    """What the newest job is asked to do."""
    return TableAct.parse(store.jobs.newest(1)[0].request).arguments


def newest(app: AppTest) -> "pd.Series[str]":
    """The first line of the list of acts."""
    return app.dataframe[0].value.iloc[0]


def ended(store, job: Job, how: JobEnd) -> None:
    end(store, job, how, now=datetime.now(UTC))


def test_an_act_says_what_it_will_do_asks_and_is_proven(store) -> None:
    app = open_page("health", table=TABLE)
    press(app, "optimize")
    assert "34 files (" in words(app) and "of 34 become 2 files, in 2 partitions" in words(app)
    app.selectbox(key="act_partition").set_value(app.selectbox(key="act_partition").options[1])
    again(app)
    assert "17 files (" in words(app) and "of 34 become 1 file, in 1 partition" in words(app)
    app.checkbox(key="act_prove_rows").check()
    again(app)
    assert "After it every row is read again" in words(app)
    send(app, "table_act", "readers are slow")

    (job,) = store.jobs.newest(5)
    act = TableAct.parse(job.request)
    assert (job.kind, job.subject, job.reason) == (JobKind.OPTIMIZE, TABLE, "readers are slow")
    assert isinstance(act.arguments, Optimize) and list(act.arguments.partition) == ["day"]
    assert act.arguments.prove_rows and act_words(act).endswith(", rows proven")
    assert "Its host does it next" in words(app)
    listed = newest(open_page("acts"))
    assert (listed["Act"], listed["Table or stream"], listed["By"]) == ("Optimize", TABLE, job.actor)
    assert "cancel_job" in keys(app.button), "how far it is stands where it was asked"

    ended(store, job, JobEnd(JobState.DONE, answer=DONE.text(), detail=DONE.sentence()))
    assert "The same rows: proven (34 in, 34 out)." in words(again(app)) and "asked " in words(app)
    app = open_page("acts")
    tick(app, "acts", 0)
    assert "34 files (40 kB) became 2 files (9 kB); the latest version is v12." in words(app)
    assert "The same rows: proven (34 in, 34 out)." in words(app)


def test_a_commit_leads_to_its_act_one_that_failed_says_why_and_one_that_is_gone_that(store, home: Path) -> None:
    press(app := open_page("health", table=TABLE), "optimize")
    send(app, "table_act", "readers are slow")
    (job,) = store.jobs.newest(5)
    stamp = json.dumps({"optimize": job.job_id, "by": "ana", "reason": "readers are slow"})
    builders.HandLog(home / "lake" / "stamped").commit(
        builders.protocol(), builders.metadata(), builders.commit_info("OPTIMIZE", userMetadata=stamp)
    )
    found = links(open_page("history", table="stamped", commit=0))
    assert found["Who asked for it, and the proof"] == f"act={job.job_id}"
    assert "readers are slow" in words(open_page("acts", act=job.job_id))
    assert "no longer kept" in words(open_page("acts", act="gone"))
    ended(store, job, JobEnd(JobState.FAILED, None, "it gave way to v35 MERGE", "try it later"))
    assert "it gave way to v35 MERGE try it later" in words(tick(open_page("acts"), "acts", 0))


def test_a_restore_needs_the_name(store) -> None:
    app = open_page("versions", table=TABLE, at=3)
    press(app, "restore")
    send(app, "table_act", "a bad load", typed="clicks")
    assert "the name are needed" in words(app) and not store.jobs.newest(5)
    app.text_input(key="table_act_name").set_value(TABLE)
    press(app, "table_act_send")
    assert asked(store) == Restore(3, keeps_properties=True)


def test_a_table_goes_back_with_the_stream_that_writes_it(home: Path, store) -> None:
    write_rewindable(home, store, datetime.now(UTC))
    app = open_page("versions", table=REWOUND, at=1)
    press(app, "rewind")
    said = words(app)
    assert "Silver/orders, now v3, becomes v1 again" in said or "The table, now v3, becomes v1 again" in said
    assert "silver_orders goes back to the end of batch 1: its next start reads again what batch 2 to 3 read" in said
    assert "(4 rows, 2 files" in said and "a reset of silver_orders that undoes the last one takes both back" in said
    send(app, "table_act", "cents as euros", typed=REWOUND)
    (job,) = store.jobs.newest(1)
    assert (job.kind, job.subject) == (JobKind.REWIND, "silver_orders")
    assert TableAct.parse(job.request).arguments == Rewind(1, "silver_orders")
    assert newest(open_page("acts"))["Table or stream"] == REWOUND
    store.request(STREAM, "stop", reason="it is mended", actor=Actor("ben"), now=datetime.now(UTC))
    app = open_page("acts", of="Streams")
    assert newest(app)[["Table or stream", "Act", "By"]].to_list() == [STREAM, "Stop", "ben"]
    assert "ben: it is mended" in words(tick(app, "acts", 0)) and app.query_params["act"]
    assert "rewind" not in keys(open_page("versions", table=TABLE, at=3).button)


def test_a_refusal_stops_the_stream_that_stands_against_the_act_and_goes_on(home: Path, store) -> None:
    write_rewindable(home, store, now := datetime.now(UTC))

    def observed(state: StreamState) -> None:
        lease = store.acquire(stream_resource(STREAM), "host-a", ttl_s=60)
        store.observe(Observed(STREAM, state, "host-a", 1, now, query_id=QUERY_ID), token=lease.token)
        store.release(lease)
        forget_caches()

    observed(StreamState.RUNNING)
    for page, button in (("versions", "rewind"), ("properties", "drop")):
        store.request(STREAM, "start", reason="again", actor=Actor("ben"), now=datetime.now(UTC))
        forget_caches()
        app = press(open_page(page, table=REWOUND, at=1), button)
        assert app.button(key="table_act_send").label == "Stop silver_orders" and "weir " not in words(app)
        send(app, "table_act", "it must not write meanwhile")
        assert store.desired()[STREAM].wants_stop and "Stopping silver_orders …" in words(app)
    observed(StreamState.STOPPED)
    again(app)
    send(app, "table_act", "nobody reads it", typed=REWOUND)
    assert asked(store) == Drop()


def test_every_refusal_of_an_act_has_a_control_that_leads_on(home: Path, store) -> None:
    sources = [path.read_text() for path in Path(maintenance.__file__).parent.glob("*.py")]
    verbs = {verb for source in sources for verb in re.findall(r'Lift\("(\w+)"', source)}
    assert verbs == {"stop", "cancel", *table_acts._LIFTED_ON}, "each has a control, and each control a refusal"
    lake = services.lake()
    clicks = lake.find(TABLE)
    store.pins.add(clicks, 1, actor=Actor("ann"), reason="trained on it", now=datetime.now(UTC))
    for page, button, key, leads_to in (
        ("properties", "drop", "lift_unpin", "Unpin…"),
        ("health", "vacuum", "act_close", "Vacuum…"),
        ("versions", "clone", "act_target", ""),
        ("changes", "repair", "lift_alter", "Edit properties…"),
    ):
        if page == "changes":
            DeltaTable(home / "lake" / TABLE).alter.set_table_properties({"delta.appendOnly": "true"})
            forget_caches()
        app = press(open_page(page, table=TABLE, at=3), button)
        if page == "versions":
            app.text_input(key=key).set_value(TABLE)
            assert "there is a table already" in words(again(app)) and "table_act_send" not in keys(app.button)
            continue
        if page == "changes":
            app.text_input(key="act_where").set_value("id = 1")
            app.checkbox(key="act_deletes").check()
            again(app)
        assert "table_act_send" not in keys(app.button) and "weir " not in words(app), words(app)
        assert any(leads_to in each.label for each in press(app, key).button), leads_to


def test_a_property_a_comment_a_column_and_a_constraint_are_set_and_what_is_wrong_is_said(store) -> None:
    press(app := open_page("properties", table=TABLE), "alter")
    for kind, key, wrong, why, right in (
        ("text_area", "act_set", "delta.apendOnly = true", "did you mean delta.appendOnly", "delta.appendOnly = true"),
        ("text_input", "act_column", "shop stringg", "'stringg' is no type", "shop string COMMENT 'where'"),
        ("text_input", "act_constraint", "first = id = 0", "rows violate first", "known = id >= 0"),
    ):
        getattr(app, kind)(key=key).set_value(wrong)
        again(app)
        assert why in words(app) and "table_act_send" not in keys(app.button)
        getattr(app, kind)(key=key).set_value(right)
        again(app)
    app.text_input(key="act_comment").set_value("clicks of *all* shops")
    again(app)
    assert "delta.appendOnly unset → true" in words(app)
    assert "A constraint raises the table's protocol for good" in words(app).replace("Risk: a", "A")
    send(app, "table_act", "a catalog")
    wanted = Alter(
        {"delta.appendOnly": "true"},
        comment="clicks of *all* shops",
        add_columns={"shop": "string"},
        column_comments={"shop": "where"},
        add_constraints={"known": "id >= 0"},
    )
    assert asked(store) == wanted
    listed = newest(open_page("acts"))["What"]
    assert listed.endswith("comment 'clicks of *all* shops', add column shop string, add constraint known: id >= 0")


def test_rows_are_repaired_from_what_changed_or_taken_from_a_former_version(store) -> None:
    app = open_page("changes", table=TABLE)
    press(app, "repair")
    app.text_input(key="act_where").set_value("id = 1")
    app.text_area(key="act_values").set_value("id = id + 1")
    again(app)
    assert "Such as id 1" in words(app) and "id becomes 2" in words(app)
    app.text_area(key="act_values").set_value("")
    again(app)
    assert "what to do with them" in words(app) and "Rows that are deleted" not in words(app)
    app.checkbox(key="act_deletes").check()
    again(app)
    assert "Rows that are deleted: 1." in words(app)
    send(app, "table_act", "a test load", typed=TABLE)
    assert asked(store) == Repair("id = 1")
    ended(store, store.jobs.newest(1)[0], JobEnd(JobState.DONE, answer=DONE.text()))
    press(app := open_page("changes", table=TABLE), "repair")
    app.text_input(key="act_where").set_value("id >= 0")
    app.text_input(key="act_from_version").set_value("1")
    again(app)
    assert "act_values" not in keys(app.text_area)
    assert "Rows that go: 68; rows of v1 that come: 4." in words(app)
    send(app, "table_act", "a double load", typed=TABLE)
    assert asked(store) == Repair("id >= 0", from_version=1)
    assert newest(open_page("acts"))["What"] == "replace where id >= 0 by v1"
    assert newest(open_page("acts", q="a test load"))["Act"] == "Repair rows"


def test_a_version_is_copied(store, home: Path) -> None:
    press(app := open_page("versions", table=TABLE, at=3), "clone")
    assert "Say where to" in words(app)
    app.text_input(key="act_target").set_value(TABLE)
    again(app)
    assert "there is a table already" in words(app)
    app.text_input(key="act_target").set_value("bronze/clicks_v3")
    app.checkbox(key="act_shallow").check()
    again(app)
    files = DeltaTable(home / "lake" / TABLE, version=3).get_add_actions()
    count = sum(files["num_records"].to_pylist())
    assert f"becomes a copy of v3: {count} rows; no file is written; it reads the {files.num_rows} files" in words(app)
    send(app, "table_act", "to try a fix")
    assert asked(store) == Clone(str(home / "lake" / "bronze" / "clicks_v3"), 3, shallow=True)
    listed = newest(open_page("acts"))
    assert (listed["Act"], listed["What"].endswith("clicks_v3, shallow")) == ("Copy", True)


def test_a_table_is_dropped_listed_and_asked_back(store, home: Path) -> None:
    """The host of this test does nothing: what a host moves is moved here by hand."""
    press(app := open_page("properties", table=TABLE), "drop")
    assert "is moved to" in words(app) and "Way back: an undrop" in words(app)
    send(app, "table_act", "nobody reads it", typed=TABLE)
    (job,) = store.jobs.newest(1)
    assert asked(store) == Drop()
    assert "Dropped tables" not in words(open_page("acts"))
    move_aside(home / "lake", TABLE, job)
    ended(store, job, JobEnd(JobState.DONE, None))
    forget_caches()

    app = open_page("acts")
    assert "Dropped tables" in words(app)
    listed = app.dataframe[1].value.iloc[0]
    assert (listed["Table"], listed["Reason"]) == (TABLE, "nobody reads it")
    click(app, "dropped", 0, "Table")
    press(app, "undrop")
    assert f"comes back to {home / 'lake' / TABLE}" in words(app)
    send(app, "table_act", "it is read after all")
    assert asked(store) == Undrop(job.job_id)


def test_without_a_host_nothing_can_be_asked_and_without_an_act_the_page_teaches(home: Path) -> None:
    app = press(open_page("health", table=TABLE), "optimize")
    assert "table_act_send" not in keys(app.button) and "host" in words(app)
    assert "Nobody has acted yet" in words(open_page("acts"))


def test_what_policies_do_next_stands_below_the_acts_and_one_that_rests_needs_attention(
    store, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_DEMO__POLICY", "false")
    assert "Planned by policies" not in [heading.value for heading in open_page("acts").subheader]
    policies = [
        {"tables": TABLE, "optimize": {"spares_files": 10}},
        {"tables": TABLE, "optimize": {"spares_files": 99}},
        {"tables": "bronze/*", "vacuum": {}, "window": "0 2 * * *"},
    ]
    monkeypatch.setenv("WEIR_POLICIES", json.dumps(policies))
    world = PolicyWorld(home, policies[0])
    world.pass_(hours=-3)
    for number in range(3):
        forget_caches()
        assert "rests after" not in words(open_page("overview"))
        world.fail(f"it gave way to v{number} MERGE")
        world.pass_(hours=1)
    world.store.close()
    forget_caches()
    app = open_page("overview")
    assert "rests after 3 failures in a row: it gave way to v2 MERGE" in words(app)
    assert "Open acts" in [link.label for link in app.main.page_link]

    app = open_page("acts")
    assert "Planned by policies" in [heading.value for heading in app.subheader]
    shown = app.dataframe[-1].value
    assert shown[["Table", "Act", "State"]].to_numpy().tolist() == [
        [TABLE, "Optimize", "✕ Resting"], [TABLE, "Optimize", "– Waiting"], [TABLE, "Vacuum", "– Waiting"]
    ]  # fmt: skip
    assert shown["Last"][0] == "✕ Failed · 1 h ago"
    assert shown["Why it waits"][1] == "32 files would be spared, the policy wants 99"
    # The third one depends on the hour of this run.
    assert shown["Why it waits"][2] in (f"next window opens {shown['Next'][2]}", "there is no file to delete")
