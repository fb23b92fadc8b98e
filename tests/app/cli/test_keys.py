"""The JSON of every command keeps its keys: `json_keys.txt` names them, a lake and a store with some of everything have
them."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.cli.output import encoded
from app.cli.streams import SHAPES
from backend.access import Actor
from backend.expectations.model import ExpectationKind, Finding, Judgement, State, TableExpectation
from backend.jobs.model import JobKind, JobRequest
from backend.maintenance.clone_and_drop import DroppedTable
from backend.search.notice import Measure, Notice
from backend.store.incidents import IncidentTable
from backend.store.store import ControlStore
from backend.stream_model.backlog import Backlog, DataLoss, SourceBacklog
from backend.stream_model.stream import ExpectationCount, InputKind, Output, Progress, StreamInput
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol
from tests.worlds.streams.checkpoints import declare_anew, delta_offset, write_checkpoint
from tests.worlds.terminal import Copied, Weir, declaration, observe

NOW = datetime.now(UTC)
PINNED = Path(__file__).with_name("json_keys.txt")
Keys = dict[str, set[str]]


def pinned() -> Iterator[tuple[str, Keys]]:
    for block in PINNED.read_text().split("\n\n")[1:]:
        command, *lines = block.strip().splitlines()
        objects = (line.strip().split(": ") for line in lines)
        yield command, {place: set(keys.split()) for place, keys in objects}


def keys_of(value: Any, place: str = "", found: Keys | None = None) -> Keys:
    """The keys of every object of a document by its place, those of a list's objects together."""
    found = {} if found is None else found
    if isinstance(value, Mapping):
        found.setdefault(place or ".", set()).update(value)
        for key, item in value.items():
            keys_of(item, f"{place}.{key}".lstrip("."), found)
    for item in value if isinstance(value, list) else ():
        keys_of(item, f"{place}[]", found)
    return found


@pytest.fixture
def world(home: Path, lake: Path, copied: Copied, store: ControlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lake and the store of the other tests, and what the documents hold beside that."""
    monkeypatch.setenv("WEIR_POLICIES", json.dumps([{"tables": "silver/orders", "optimize": {}}]))
    typed_table(lake / "typed")
    orders = lake / "silver" / "orders"
    first = (orders / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    table_id = next(json.loads(line)["metaData"]["id"] for line in first if "metaData" in line)
    checkpoint = write_checkpoint(home / "checkpoints" / "flows", {3: [delta_offset(table_id, 1)]})
    reads = replace(
        declaration("flows"),
        pipeline="shop",
        source_tables=("silver/orders",),
        inputs=(StreamInput(InputKind.TABLE, "silver/orders", str(orders)),),
        also=(Output("gold/more", "/lake/gold/more", "append"),),
        checkpoint_location=str(checkpoint),
    )
    declare_anew(store, reads, now=NOW)
    slower = {"flows": {"trigger": "1 minute"}}
    store.request_all(["flows"], "restart", reason="slower", actor=Actor("ana"), now=NOW, overrides=slower)
    counts = (ExpectationCount("priced", 9, 1),)
    last = Progress("flows", "q-1", "r-1", 4, datetime.now(UTC), 10, 2.5, None, 100, expectations=counts)
    store.add_progress([replace(last, raw_json='{"observedMetrics": {"quality": {"rows": 10}}}')])
    seen = store.observed()["fails"]
    explained = replace(seen.failures[0], error_class="DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE")
    observe(store, replace(seen, failures=(explained,)))
    unique = TableExpectation(str(orders), "orders", ExpectationKind.UNIQUE, "shop", columns=("id",))
    store.note_judgement(Judgement(unique, Finding(State.BROKEN, version=4), "host-1", NOW, NOW))
    gone = DroppedTable("job-7", "", str(lake / "gone"), "gone", 4, 10, 2, 100, "ana", "unread", NOW.isoformat())
    (lake / ".dropped" / "job-7" / "table" / "_delta_log").mkdir(parents=True)
    (lake / ".dropped" / "job-7" / "table" / "_delta_log" / f"{4:020d}.json").write_text("")
    (lake / ".dropped" / "job-7" / "dropped.json").write_text(gone.text())
    copied("risen", lake / "risen")
    hurt, at = IncidentTable(str(orders), "silver/orders", 3, 4, NOW - timedelta(hours=1)), NOW
    jump = Notice(str(orders), "silver/orders", 4, Measure.ROWS, "", "1", "9", "", "WRITE", hurt.since)
    about = {"title": "cents", "table": hurt, "notices": [jump], "pins": False, "actor": Actor("ana"), "now": at}
    store.incidents.act("open incident", "a bad batch", **about)
    store.jobs.submit(JobRequest(JobKind.DIFF, "orders", "orders 0 4", "{}", Actor("ana"), "a look", 60.0), now=NOW)


def typed_table(path: Path) -> None:
    """A table of one column with every trait, an entry of VACUUM and a commit of a stream."""
    traits = {"delta.identity.start": 1, "delta.identity.step": 2, "delta.typeChanges": [
        {"fromType": "integer", "toType": "long", "tableVersion": 0}
    ]}  # fmt: skip
    wide = metadata(configuration={"delta.constraints.positive": "customer > 0"})
    column = {"name": "customer", "type": "long", "nullable": True, "metadata": traits}
    wide["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": [column]})
    tagged = {"metaData": wide["metaData"] | {"configuration": {"catalog.team_name": "orders"}}}
    stamp = json.dumps({"stream": "flows", "query_id": "q-1", "run_id": "r-1", "batch_id": 3})
    millis = round((NOW - timedelta(hours=1)).timestamp() * 1_000)
    log = HandLog(path).commit(protocol(), wide, commit_info("CREATE TABLE", timestamp=millis))
    log.commit(add("a.parquet"), commit_info(timestamp=millis + 1, userMetadata=stamp))
    log.commit(commit_info("VACUUM END", timestamp=millis + 2, operationMetrics={"numDeletedFiles": "1"}))
    log.commit(tagged, commit_info("SET TBLPROPERTIES", timestamp=millis + 3))


def test_every_key_that_scripts_read_is_there(weir: Weir, world: None) -> None:
    for command, keys in pinned():
        there = keys_of(weir(*command.split(), "--json").document)
        missing = {place: names - there.get(place, set()) for place, names in keys.items()}
        assert {place: names for place, names in missing.items() if names} == {}, command


def test_a_deadline_of_a_source_has_its_keys() -> None:
    """Retention is counted in days: no table of a test is old enough."""
    source = SourceBacklog("orders", "table", data_loss=DataLoss(NOW, "2 files", "delta.logRetentionDuration"))
    (document,) = encoded(Backlog((source,), NOW).sources, SHAPES)
    assert document["data_loss"].keys() == {"at", "what", "setting"}


def test_every_command_that_prints_json_is_pinned(weir: Weir) -> None:
    commands = set(re.findall(r"^  ([a-z]+) ", weir("--help").out, re.MULTILINE))
    named = {command.split()[0] for command, _ in pinned()}
    without = {"up", "ui", "host", "demo"}  # they run
    # As restart and drain; as jobs; a host has to answer, see its tests; as what it carries out; as pin; as undrop;
    # says a line.
    same = {"start", "stop", "cancel", "requeue", "apply", "unpin", "purge", "seen"}
    assert commands - without - same == named


def test_what_cannot_be_read_of_the_store_is_named_beside_the_document(
    home: Path, world: None, store: ControlStore
) -> None:
    forged = JobRequest(JobKind.DIFF, "orders", "another", "{}", Actor("ana"), "a look", 60.0)
    store.jobs.submit(forged, now=NOW)
    with sa.create_engine(store.shown_url).begin() as connection:
        connection.execute(sa.text("UPDATE job SET kind = 'unheard of' WHERE fingerprint = 'another'"))
        connection.execute(sa.text("INSERT INTO attached_event (app_id, body, at) VALUES ('app', 'no JSON', 0)"))
    for command, named in (("jobs", "job '"), ("streams", "1 events of attached applications")):
        ended = subprocess.run(
            [sys.executable, "-m", "app.cli", command, "--json"], capture_output=True, text=True, check=True
        )
        assert forged.fingerprint not in ended.stdout and json.loads(ended.stdout)
        assert "cannot be read" in ended.stderr and named in ended.stderr
