"""Every command of `weir`: its document, its human form, its exit code, its words on wrong input."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from app import services
from app.cli import main
from app.cli.output import NARROWEST, table_lines
from backend.access import Actor
from backend.changes.model import DiffMethod
from backend.expectations.model import ExpectationKind, Finding, Judgement, State, TableExpectation
from backend.settings import load_settings
from backend.sql.export import FORMATS
from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import (
    ATTACHED,
    DesiredState,
    HostHeartbeat,
    InputKind,
    Observed,
    Progress,
    StreamDeclaration,
    StreamFailure,
    StreamInput,
    StreamState,
)
from tests.worlds.lake import builders
from tests.worlds.processes import wait_until
from tests.worlds.streams.checkpoints import declare_anew, write_checkpoint

SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "tables"


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out, parse_constant=_no_constant)


def _no_constant(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


Weir = Callable[..., Answer]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty WEIR_HOME, and no setting of the person who runs the tests."""
    for name in list(os.environ):
        if name.startswith("WEIR_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    services.forget()
    yield tmp_path
    services.forget()


@pytest.fixture
def weir(home: Path, capsys: pytest.CaptureFixture[str]) -> Weir:
    def run(*args: str) -> Answer:
        services.forget()
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main(args)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Answer(int(left.value.code or 0), out, err)

    return run


@pytest.fixture
def lake(home: Path) -> Path:
    """`silver/orders` with a feed and five commits, `bronze/broken` that cannot be read."""
    path = home / "lake" / "silver" / "orders"
    path.parent.mkdir(parents=True)
    rows = pa.table({"id": [1, 2, 3], "amount": [1.5, float("nan"), None]})
    write_deltalake(path, rows, configuration={"delta.enableChangeDataFeed": "true"})
    write_deltalake(path, pa.table({"id": [4], "amount": [4.0]}), mode="append")
    DeltaTable(path).update(updates={"amount": "9.0"}, predicate="id = 1")
    DeltaTable(path).delete("id = 3")
    DeltaTable(path).optimize.compact()
    broken = home / "lake" / "bronze" / "broken" / "_delta_log"
    broken.mkdir(parents=True)
    (broken / f"{0:020d}.json").write_text("{not json\n")
    return home / "lake"


NOW = datetime.now(UTC)
ERROR = StreamFailure("ValueError", "poisoned\nby a test", 7, NOW)


def declaration(name: str) -> StreamDeclaration:
    return StreamDeclaration(name, f"{name} of a test", "files", f"/lake/{name}", name, (), "bronze", 5_000, "/cp")


@pytest.fixture
def store(home: Path) -> Iterator[ControlStore]:
    """`flows` runs with progress, `fails` has failed, `waits` was only declared; one live host."""
    (home / "store").mkdir()
    store = ControlStore.open(load_settings())
    now = datetime.now(UTC)
    store.declare([declaration(name) for name in ("flows", "fails", "waits")], now=now)
    store.beat(HostHeartbeat("host-1", "box", 1, now - timedelta(hours=1), now))
    states = {"flows": (StreamState.RUNNING, ()), "fails": (StreamState.FAILED, (ERROR,))}
    for name, (state, failures) in states.items():
        lease = store.acquire(stream_resource(name), "host-1", ttl_s=60)
        assert lease is not None
        store.ensure_desired(name, DesiredState.RUNNING, now=now)
        seen = Observed(name, state, "host-1", 1, now, query_id="q-1", run_id="r-1", started_at=now, failures=failures)
        store.observe(seen, token=lease.token)
    store.add_progress([Progress("flows", "q-1", "r-1", 3, now, 10, 2.5, None, 100)])
    yield store
    store.close()


# -- reads of the lake ------------------------------------------------------------------------------------------------


def test_tables_has_a_row_for_every_table_also_the_broken_one(weir: Weir, lake: Path) -> None:
    answer = weir("tables", "--json")
    good, bad = sorted(answer.document, key=lambda row: "reason" in row)
    assert answer.code == 0
    assert (good["name"], good["layer"], good["num_rows"]) == ("silver/orders", "silver", 3)
    assert isinstance(good["size_bytes"], int)
    assert good["last_commit_at"].endswith("Z")
    assert "broken" in bad["name"]


def test_tables_for_people(weir: Weir, lake: Path) -> None:
    answer = weir("tables")
    assert "silver/orders" in answer.out
    assert "cannot be read" in answer.out


def test_an_empty_lake_says_how_to_fill_it(weir: Weir) -> None:
    (Path.cwd() / "lake").mkdir()
    assert weir("tables", "--json").document == []
    assert "weir up" in weir("tables").out


def test_table_describes_one_table_at_any_version(weir: Weir, lake: Path) -> None:
    document = weir("table", "orders", "--version", "0", "--json").document
    assert (document["version"], document["num_rows"], document["protocol"]["min_reader_version"]) == (0, 3, 1)
    assert [(f["path"], f["type"]) for f in document["schema"]] == [("id", "bigint"), ("amount", "double")]
    assert "amount" in weir("table", "orders").out


def test_table_says_what_its_columns_are_and_what_must_hold(weir: Weir) -> None:
    action = builders.metadata(configuration={"delta.constraints.positive": "id > 0"})
    traits = {"delta.identity.start": 1, "delta.identity.step": 2, "delta.generationExpression": "id * 2"}
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": traits}]}
    action["metaData"]["schemaString"] = json.dumps(schema)
    builders.HandLog(Path.cwd() / "lake" / "t").commit(builders.protocol(), action)
    document = weir("table", "t", "--json").document
    assert document["constraints"] == [{"name": "positive", "expression": "id > 0"}]
    (column,) = document["schema"]
    assert column["generated_as"] == "id * 2" and (column["default"], column["type_changes"]) == (None, [])
    assert column["identity"] == {"start": 1, "step": 2, "high_water_mark": None, "allows_explicit": False}


def test_history_is_newest_first_and_can_be_limited(weir: Weir, lake: Path) -> None:
    commits = weir("history", "silver/orders", "--json").document
    assert [c["version"] for c in commits] == [4, 3, 2, 1, 0]
    assert commits[1]["operation"] == "DELETE"
    assert commits[1]["metrics"]["rows_deleted"] == 1
    assert len(weir("history", "orders", "--limit", "2", "--json").document) == 2
    assert "Older commits" in weir("history", "orders", "--limit", "2").out


def test_history_is_filtered_and_says_what_changed(weir: Weir, lake: Path) -> None:
    DeltaTable(str(lake / "silver" / "orders")).alter.set_table_properties({"delta.appendOnly": "false"})
    (commit,) = weir("history", "orders", "--operation", "SET TBLPROPERTIES", "--since", "1 h", "--json").document
    (change,) = commit["changes"]
    assert (change["kind"], change["subject"]) == ("property", "delta.appendOnly")
    assert (change["before"], change["after"]) == (None, "false")
    assert "+ delta.appendOnly = false" in weir("history", "orders").out
    both = weir("history", "orders", "--operation", "UPDATE", "--operation", "DELETE", "--json").document
    assert [each["operation"] for each in both] == ["DELETE", "UPDATE"]
    assert weir("history", "orders", "--user", "nobody", "--limit", "5", "--json").document == []
    assert weir("history", "orders", "--until", "2020-01-01", "--json").document == []
    assert weir("history", "orders", "--since", "soon").code == 2


def test_properties_at_a_version_and_against_another(weir: Weir, lake: Path) -> None:
    DeltaTable(str(lake / "silver" / "orders")).alter.set_table_properties({"delta.appendOnly": "false"})
    latest = weir("properties", "orders", "--json").document
    first = weir("properties", "orders", "--at", "0", "--json").document
    assert first["version"] == 0 and "compare" not in first
    values = [{row["key"]: row["value"] for row in each["properties"]}["delta.appendOnly"] for each in (first, latest)]
    assert values == [None, "false"]
    for asked in (("--at", "0", "--compare", "latest"), ("--compare", "0")):
        found = weir("properties", "orders", *asked, "--json").document["compare"]
        assert (found["from_version"], found["to_version"]) == (0, latest["version"])
        (change,) = found["changes"]
        assert (change["subject"], change["after"]) == ("delta.appendOnly", "false") and change["meaning"]
    assert "+ delta.appendOnly = false" in weir("properties", "orders", "--compare", "0").out
    assert weir("properties", "orders", "--compare", "99").code == 3


def test_properties_explains_what_is_set(weir: Weir, lake: Path) -> None:
    document = weir("properties", "orders", "--json").document
    feed = next(row for row in document["properties"] if row["key"] == "delta.enableChangeDataFeed")
    assert (feed["value"], feed["default"], feed["is_set"]) == ("true", "false", True)
    assert feed["meaning"]
    assert "delta.enableChangeDataFeed" in weir("properties", "orders").out


def test_files_has_a_histogram_that_adds_up(weir: Weir, lake: Path) -> None:
    document = weir("files", "orders", "--version", "1", "--json").document
    assert (document["version"], document["num_files"]) == (1, 2)
    assert sum(bucket["files"] for bucket in document["histogram"]) == document["num_files"]
    assert sum(bucket["bytes"] for bucket in document["histogram"]) == document["size_bytes"]
    assert "target" in weir("files", "orders").out


# -- diff -------------------------------------------------------------------------------------------------------------


def test_diff_counts_net_and_gross(weir: Weir, lake: Path) -> None:
    answer = weir("diff", "orders", "--from", "0", "--to", "latest", "--key", "id", "--json")
    document = answer.document
    assert answer.code == 10
    assert (document["from_version"], document["to_version"], document["method"]) == (0, 4, "change_feed")
    assert document["net"] == {"inserted": 1, "updated": 1, "deleted": 1, "unchanged": 1}
    assert document["exact"] is True
    assert [c["version"] for c in document["commits"]] == [4, 3, 2, 1]
    changes = {"inserted": 0, "updated": 1, "deleted": 0, "source": "change_feed"}
    assert document["commits"][2]["changes"] == changes


@pytest.mark.parametrize(
    ("first", "last", "versions"), [("-2", "-0", (2, 4)), ("latest", "1", (4, 1)), ("3", "3", (3, 3))]
)
def test_diff_names_versions_in_every_way(
    weir: Weir, lake: Path, first: str, last: str, versions: tuple[int, int]
) -> None:
    document = weir("diff", "orders", "--from", first, "--to", last, "--json").document
    assert (document["from_version"], document["to_version"]) == versions


def test_diff_by_time(weir: Weir, lake: Path) -> None:
    at = weir("history", "orders", "--json").document[2]["committed_at"]
    assert weir("diff", "orders", "--from", at, "--to", "latest", "--json").document["from_version"] == 2


def test_diff_for_people_marks_what_changed(weir: Weir, lake: Path) -> None:
    out = weir("diff", "orders", "--from", "0", "--to", "4", "--key", "id").out
    assert "1 row inserted, 1 updated, 1 deleted" in out
    assert "1.5 → 9.0" in out


def test_diff_limits_rows_and_says_so(weir: Weir, lake: Path) -> None:
    document = weir("diff", "orders", "--from", "0", "--to", "4", "--rows", "1", "--json").document
    assert (len(document["rows"]), document["truncated"]) == (1, True)


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet", "md"])
def test_diff_writes_rows_to_a_file(weir: Weir, lake: Path, suffix: str, home: Path) -> None:
    assert weir("diff", "orders", "--from", "0", "--to", "4", "--output", f"out.{suffix}").code == 10
    assert (home / f"out.{suffix}").stat().st_size > 10


def test_a_file_holds_all_changed_rows_though_the_terminal_shows_few(
    weir: Weir, lake: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_LAKE__DIFF_ROWS", "1")
    asked = ("diff", "orders", "--from", "0", "--to", "4", "--key", "id")
    shown = weir(*asked, "--output", "all.json")
    assert len(json.loads((home / "all.json").read_text())) == 3
    assert "all.json: 3 changed rows" in shown.out and "of more" not in shown.out
    assert len(weir(*asked, "--json").document["rows"]) == 1

    assert "few.csv: 2 changed rows of more" in weir(*asked, "--rows", "2", "--output", "few.csv").out
    assert len((home / "few.csv").read_text().splitlines()) == 3
    assert [path.name for path in home.glob(".*.part")] == []


@pytest.fixture
def plain(home: Path) -> Path:
    """No change feed: v0 one row · v1 another · v2 compaction."""
    path = home / "lake" / "plain"
    path.parent.mkdir()
    write_deltalake(path, pa.table({"id": [1], "v": [1.0]}))
    write_deltalake(path, pa.table({"id": [2], "v": [2.0]}), mode="append")
    DeltaTable(path).optimize.compact()
    return path


def test_changes_lists_the_feed_as_it_is(weir: Weir, lake: Path, home: Path) -> None:
    document = weir("changes", "orders", "--from", "0", "--to", "latest", "--raw", "--json").document
    assert (document["from_version"], document["to_version"], document["truncated"]) == (0, 4, False)
    listed = [(row["_commit_version"], row["_change_type"], row["id"], row["amount"]) for row in document["rows"]]
    assert listed[0] == (1, "insert", 4, 4.0)
    assert sorted(listed[1:], key=str) == [
        (2, "update_postimage", 1, 9.0),
        (2, "update_preimage", 1, 1.5),
        (3, "delete", 3, None),
    ]
    assert all(datetime.fromisoformat(row["_commit_timestamp"]) for row in document["rows"])
    few = weir("changes", "orders", "--from", "0", "--to", "4", "--rows", "1", "--output", str(home / "all.json"))
    assert few.out.splitlines()[1].split()[0] == "1" and "There are more rows" in few.out
    assert len(json.loads((home / "all.json").read_text())) == 4 and "4 rows of the change feed" in few.err
    refused = weir("changes", "orders", "--from", "0", "--to", "4", "--output", "x.md")
    assert refused.code == 2 and not Path("x.md").exists()


def test_diff_without_feed_compares_the_files_that_differ(weir: Weir, plain: Path) -> None:
    answer = weir("diff", "plain", "--from", "0", "--to", "1", "--json")
    assert (answer.code, answer.document["method"]) == (10, "multiset")
    assert answer.document["net"] == {"inserted": 1, "updated": 0, "deleted": 0, "unchanged": 1}
    assert answer.document["commits"][0]["changes"]["source"] == "writer"


def test_diff_of_a_compaction_ends_with_0(weir: Weir, plain: Path) -> None:
    answer = weir("diff", "plain", "--from", "1", "--to", "2", "--key", "id", "--json")
    assert (answer.code, answer.document["method"], answer.document["files"]["added"]) == (0, "key_join", 1)
    assert answer.document["net"] == {"inserted": 0, "updated": 0, "deleted": 0, "unchanged": 2}


def test_diff_where_the_data_is_gone_tells_the_rest_and_ends_with_1(weir: Weir, plain: Path) -> None:
    for file in plain.glob("*.parquet"):
        file.unlink()
    answer = weir("diff", "plain", "--from", "0", "--to", "1", "--json")
    assert answer.code == 1
    assert (answer.document["method"], answer.document["net"]["inserted"]) == ("log_only", None)
    assert answer.document["files"]["added"] == 1
    assert answer.err.startswith("error: ") and "is gone" in answer.err
    assert "hint: " in answer.err


def test_diff_by_a_named_method_a_condition_and_with_another_table(weir: Weir, plain: Path, home: Path) -> None:
    some = weir(
        "diff", "plain", "--from", "0", "--to", "2", "--method", "key_join", "--key", "id", "--where", "v > 5", "--json"
    )
    assert (some.code, some.document["net"]["inserted"]) == (0, 0)
    write_deltalake(home / "lake" / "copy", pa.table({"id": [2, 3], "v": [2.0, 3.0]}))
    other = weir("diff", "plain", "--with", "copy", "--from", "latest", "--to", "0", "--key", "id", "--json").document
    assert other["net"] == {"inserted": 1, "updated": 0, "deleted": 1, "unchanged": 1}
    assert other["against"]["name"] == "copy"
    near = weir("diff", "plain", "--from", "0", "--to", "2", "--key", "v", "--tolerance", "9", "--json")
    assert near.document["net"]["inserted"] == 1


def test_the_methods_and_formats_that_can_be_named_are_those_there_are(weir: Weir, plain: Path) -> None:
    answer = weir("diff", "plain", "--from", "0", "--to", "1", "--method", "magic")
    methods = [method.value for method in DiffMethod if method is not DiffMethod.SAME_VERSION]
    assert answer.code == 2 and ", ".join(map(repr, methods)) in answer.err
    answer = weir("export", "plain", "--format", "magic", "-o", "rows.csv")
    assert answer.code == 2 and ", ".join(map(repr, FORMATS)) in answer.err


# -- expectations on tables -------------------------------------------------------------------------------------------


def test_expectations_on_tables_are_told_with_their_figures(weir: Weir, lake: Path, store: ControlStore) -> None:
    assert weir("expectations", "--json").document == []
    assert "Nothing is expected of any table" in weir("expectations").out
    orders = TableExpectation(str(lake / "silver/orders"), "orders", ExpectationKind.UNIQUE, "shop", columns=("id",))
    broken = Finding(State.BROKEN, version=4, broken_keys=2, broken_rows=5, examples=("1", "2"))
    store.note_judgement(Judgement(orders, broken, "host-1", NOW, NOW - timedelta(hours=1)))
    theirs = TableExpectation("s3://others/x", "s3://others/x", ExpectationKind.FRESH, "shop", within_s=900)
    store.note_judgement(Judgement(theirs, Finding(State.MET, last_data_at=NOW), "host-gone", NOW))
    whole = weir("expectations", "--json")
    first, second = whole.document
    assert (whole.code, first["table"], first["expectation"]) == (1, "silver/orders", "unique(id)")
    assert (first["state"], first["broken_keys"], first["broken_rows"], first["examples"]) == (
        "broken",
        2,
        5,
        ["1", "2"],
    )
    assert (first["is_stale"], second["is_stale"], second["table"]) == (False, True, "s3://others/x")
    assert (second["within_s"], second["usual_rows"], second["broken_since"]) == (900, None, None)
    one = weir("expectations", "orders")
    assert one.code == 1 and "id is unique" in one.out and "2 keys are repeated, in 5 rows: 1 · 2" in one.out
    assert "s3://others/x" not in one.out and "No living host" not in one.out
    assert "No living host judges 1 table expectation" in weir("expectations").out
    assert weir("expectations", "nothing").code == 3
    causes = {each["cause"] for each in weir("health", "--json").document["attention"]}
    assert {"broken_expectation", "unknown_expectation"} <= causes


def test_a_person_expects_a_condition_and_takes_it_back(weir: Weir, lake: Path, store: ControlStore) -> None:
    uri = str(lake / "silver" / "orders")
    said = weir("expect", "silver/orders", " id >= 0 ", "--reason", "ids once were negative")
    assert said.code == 0 and "orders: id >= 0 is expected from now on" in said.out and "No host" not in said.out
    (kept,) = store.judgements()
    assert (kept.expectation.uri, kept.expectation.condition, kept.state) == (uri, "id >= 0", State.UNKNOWN)
    assert kept.expectation.why == "ids once were negative"
    (line,) = weir("expectations", "silver/orders", "--json").document
    assert (line["condition"], line["why"], line["reason"]) == ("id >= 0", kept.expectation.why, kept.finding.reason)

    assert weir("expect", "orders", "amount >= 0").code == 4, "no reason"
    assert weir("expect", "orders", "nothing >= 0", "--reason", "x").code == 2
    assert weir("expect", "nowhere", "id >= 0", "--reason", "x").code == 3
    assert weir("expect", "orders", "id >= 1", "--no-more", "--reason", "x").code == 4, "nobody expects it"
    assert [each.expectation.condition for each in store.judgements()] == ["id >= 0"]

    gone = weir("expect", "orders", "id >= 0", "--no-more", "--reason", "returns are negative", "--json")
    assert gone.code == 0 and gone.document["is_expected"] is False and gone.document["uri"] == uri
    assert store.judgements() == []
    acts = [entry for entry in store.audit_entries(limit=99) if entry.action in ("expect", "expect no more")]
    why = {entry.action: entry.reason for entry in acts}
    assert why == {"expect": "ids once were negative", "expect no more": "returns are negative"} and len(acts) == 2
    assert {entry.actor for entry in acts} == {kept.expectation.by}


# -- health -----------------------------------------------------------------------------------------------------------


def test_health_of_one_table_and_of_all(weir: Weir, lake: Path) -> None:
    document = weir("health", "orders", "--json").document
    assert document["last_optimize"]["version"] == 4
    assert [point["version"] for point in document["trend"]] == [0, 1, 2, 3, 4]
    whole = weir("health", "--json").document
    assert [table["name"] for table in whole["tables"]] == ["silver/orders"]
    assert any("broken" in item["subject"] and item["next_step"] for item in whole["attention"])
    (group,) = (group for group in whole["attention_groups"] if group["cause"] == "unreadable")
    assert (group["severity"], group["kind"], len(group["subjects"])) == ("critical", "table", 1)
    assert "small" in weir("health", "orders").out
    assert "critical" in weir("health").out


def test_health_knows_what_streams_have_not_read(weir: Weir, home: Path, lake: Path, store: ControlStore) -> None:
    """As Overview does: a drain that ended early left a file that was there before."""
    landing = home / "landing"
    landing.mkdir()
    (landing / "1.json").write_text("{}")
    os.utime(landing / "1.json", (NOW.timestamp() - 900, NOW.timestamp() - 900))
    reads = replace(declaration("flows"), inputs=(StreamInput(InputKind.FILES, "files in landing", str(landing)),))
    declare_anew(store, replace(reads, checkpoint_location=str(home / "checkpoints" / "flows")), now=NOW)
    store.request("flows", "drain", reason="deploy", actor=Actor("ana"), now=NOW)
    lease = store.acquire(stream_resource("flows"), "host-1", ttl_s=60)
    assert lease is not None
    store.observe(replace(store.observed()["flows"], state=StreamState.STOPPED), token=lease.token)
    attention = weir("health", "--json").document["attention"]
    (item,) = (item for item in attention if item["subject"] == "flows")
    assert item["what"] == "flows was stopped by ana: deploy (its drain ended early: what is unread is older)"
    assert "its drain ended early" in weir("stream", "flows", "--json").document["because"]


def test_attention_is_told_by_cause(weir: Weir, home: Path) -> None:
    for number in range(12):
        log = builders.HandLog(home / "lake" / f"ahead{number}")
        log.commit(builders.protocol(3, 7, ["fancyFeature"]), builders.metadata(), builders.commit_info())
    out = weir("health").out
    assert "critical: 12 tables cannot be read: reader feature fancyFeature." in out and "ahead7" not in out


# -- find -------------------------------------------------------------------------------------------------------------


def test_find_says_which_tables_hold_a_word_and_where(weir: Weir, home: Path) -> None:
    columns = {"order_id": "long", "customer_id": "string"}
    builders.HandLog(home / "lake" / "silver" / "ordérs").start(columns=columns)
    builders.HandLog(home / "lake" / "other").start()
    (found,) = weir("find", "CUSTOMER_id", "silver", "--json").document
    assert (found["name"], found["layer"]) == ("silver/ordérs", "silver")
    assert {"where": "column", "subject": "customer_id", "text": "string"} in found["matches"]
    lines = weir("find", "customer_id").out.splitlines()
    assert [line.split() for line in lines] == [
        ["table", "where", "what"],
        ["silver/ordérs", "column", "customer_id", "string"],
    ]
    assert lines[0].index("where") == lines[1].index("column")
    assert (
        "No table holds 'nowhere'" in weir("find", "nowhere").out and weir("find", "nowhere", "--json").document == []
    )


# -- streams ----------------------------------------------------------------------------------------------------------


def test_streams_shows_desired_and_observed_apart(weir: Weir, store: ControlStore) -> None:
    document = {row["name"]: row for row in weir("streams", "--json").document}
    flows, fails, waits = document["flows"], document["fails"], document["waits"]
    assert (flows["desired"], flows["state"], flows["batch_id"], flows["input_rows_per_s"]) == (
        "RUNNING",
        "RUNNING",
        3,
        10.0,
    )
    assert flows["error"] is None
    assert (fails["state"], fails["error"]) == ("FAILED", "ValueError: poisoned\nby a test")
    assert (waits["query_id"], waits["batch_id"]) == (None, None)
    assert "flows" in weir("streams").out


def test_stream_shows_one(weir: Weir, store: ControlStore) -> None:
    document = weir("stream", "fails", "--json").document
    assert document["failures"][0]["batch_id"] == 7
    assert document["checkpoint_location"] == "/cp"
    out = weir("stream", "fails").out
    assert "poisoned by a test" in out
    assert ["host", document["host_id"]] in [line.split() for line in out.splitlines()]


def test_a_failure_of_a_known_kind_says_cause_and_remedy(weir: Weir, store: ControlStore) -> None:
    assert weir("stream", "fails", "--json").document["failures"][0]["faults"] == [], "nobody knows this one"
    seen = store.observed()["fails"]
    lease = store.acquire(stream_resource("fails"), seen.host_id, ttl_s=60)
    known = replace(ERROR, error_class="DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE")
    store.observe(replace(seen, failures=(known,)), token=lease.token)
    (fault,) = weir("stream", "fails", "--json").document["failures"][0]["faults"]
    assert fault["name"] == "The source table was made anew"
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


def test_a_stream_that_does_not_run_has_no_rate(weir: Weir, store: ControlStore) -> None:
    seen = store.observed()["flows"]
    lease = store.acquire(stream_resource("flows"), seen.host_id, ttl_s=60)
    assert "in 10 rows/s" in weir("stream", "flows").out
    store.observe(replace(seen, state=StreamState.STOPPED), token=lease.token)
    assert weir("stream", "flows", "--json").document["input_rows_per_s"] is None
    assert "in –, out –\n" in weir("stream", "flows").out
    assert "rows/s" not in weir("streams").out


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
    assert "✕ failed   checkpoint: metadata is missing" in people.out
    assert "flows cannot go on: 1 check failed" in people.out

    started = weir("restart", "flows", "--reason", "a test")
    assert (started.code, store.desired()["flows"].reason) == (0, "a test"), "a preflight forbids nothing"
    assert "✕ failed   checkpoint: metadata is missing" in started.out
    assert "As long as this stands, it fails again or loses rows" in started.out
    assert weir("restart", "flows", "--reason", "b", "--json").document["preflight"]["ok"] is False
    assert weir("stop", "flows", "--reason", "c", "--json").document["preflight"] is None


# -- wrong input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["table", "nope"], 3, "nope"),
        (["history", "/etc"], 4, ""),
        (["table", "orders", "--version", "99"], 3, "99"),
        (["table", "orders", "--version", "banana"], 2, "banana"),
        (["table", "broken"], 1, ""),
        (["diff", "orders", "--from", "0"], 2, "--to"),
        (["diff", "orders", "--from", "0", "--to", "1", "--key", "nope"], 3, "nope"),
        (["diff", "orders", "--from", "0", "--to", "1", "--columns", "nope"], 3, "nope"),
        (["diff", "orders", "--from", "0", "--to", "1", "--output", "x.xls"], 2, "x.xls"),
        (["diff", "orders", "--from", "0", "--to", "1", "--on", "moon"], 2, "'here', 'host'"),
        (["diff", "orders", "--from", "0", "--to", "1", "--output", "no/such/folder.csv"], 1, "folder.csv"),
        (["export", "orders", "-o", "x.xls"], 2, "x.xls"),
        (["export", "orders", "-o", "x"], 2, "csv, parquet, arrow"),
        (["export", "orders", "-o", "no/such/folder.csv"], 1, "folder.csv"),
        (["history", "orders", "--limit", "0"], 2, "limit"),
        (["history", "orders", "--limit", "many"], 2, "--limit"),
        (["tables", "--nope"], 2, "--nope"),
        (["nope"], 2, "nope"),
        (["table"], 2, ""),
        (["stream", "nope"], 3, "nope"),
        (["preflight", "nope"], 3, "nope"),
        (["stop", "nope", "--reason", "x"], 3, "nope"),
        (["stop", "flows"], 2, "--reason"),
        (["stop", "flows", "--reason", "  "], 4, "reason"),
        (["stop", "--reason", "x"], 2, "--all"),
        (["stop", "flows", "--all", "--reason", "x"], 2, "one way"),
        (["stop", "--all", "--downstream", "--reason", "x"], 2, "one way"),
        (["stop", "--layer", "platinum", "--dry-run"], 3, "platinum"),
        (["stop", "--tag", "team=x", "--reason", "x"], 3, "team=x"),
        (["start", "--upstream-of", "nope", "--reason", "x"], 3, "nope"),
    ],
)
def test_wrong_input_ends_with_words_and_a_code(
    weir: Weir, lake: Path, store: ControlStore, args: Sequence[str], code: int, words: str
) -> None:
    answer = weir(*args)
    assert answer.code == code
    assert answer.err.startswith("error: ")
    assert "\nhint: " in answer.err
    assert words in answer.err
    assert answer.out == ""


def test_what_is_typed_in_another_encoding_is_a_usage_error(weir: Weir, store: ControlStore) -> None:
    before = store.desired()
    for args in (("stop", "flows", "--reason", "\udcff"), ("cancel", "\udcff", "--reason", "x")):
        answer = weir(*args)
        assert (answer.code, answer.out) == (2, "") and answer.err.startswith("error: what was typed is not UTF-8\n")
    assert store.desired() == before


def test_wrong_settings_are_a_usage_error(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_HEALTH__MIN_FILES", "many")
    answer = weir("tables")
    assert (answer.code, "health.min_files" in answer.err) == (2, True)


def test_a_store_that_does_not_answer_is_told_without_its_password(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_STORE__URL", "postgresql+psycopg://me:s3cret@127.0.0.1:1/none")
    answer = weir("streams")
    assert answer.code == 1
    assert answer.err.startswith("error: ")
    assert "s3cret" not in answer.err + answer.out


def test_texts_of_others_cannot_rewrite_the_terminal(weir: Weir, home: Path) -> None:
    path = home / "lake" / "t"
    path.parent.mkdir()
    write_deltalake(path, pa.table({"id": [1]}), description="\x1b[2J[bold]gone[/bold] :cat:")
    out = weir("table", "t").out
    assert "\x1b" not in out
    assert "[bold]gone[/bold] :cat:" in out


RED, HOSTILE = "\x1b[31mred", "\x1b]0;pwned\x07\x1b[2J\x9b2Jcol"


@pytest.mark.parametrize(
    "args",
    [
        ("tables",),
        ("table", "t"),
        ("table", "t", "--json"),
        ("table", RED),
        ("files", RED),
        ("versions", RED),
        ("health", RED),
        ("profile", "t"),
        ("diff", "t", "--from", "0", "--to", "1"),
        ("diff", RED, "--from", "0", "--to", "1"),
        ("diff", "t", "--from", "0", "--to", "1", "--key", "nope"),
        ("export", "t", "--columns", "nope", "-o", "some.csv"),
        ("export", RED, "-o", "all.csv"),
    ],
)
def test_names_of_columns_and_folders_cannot_drive_the_terminal(weir: Weir, home: Path, args: Sequence[str]) -> None:
    path = builders.write(home / "lake" / "t", {"id": [1], HOSTILE: ["a"]})
    builders.write(path, {"id": [2], HOSTILE: ["b"]})
    shutil.copytree(path, path.with_name(RED))
    answer = weir(*args)
    said = answer.out + answer.err
    assert "�" in said or "\\u009b2Jcol" in said, "else this test would say nothing"
    assert [c for c in said if not c.isprintable() and c != "\n"] == []


def test_help_lists_every_command(weir: Weir) -> None:
    answer = weir("--help")
    assert answer.code == 0
    for command in ("up", "ui", "host", "demo", "tables", "diff", "streams", "start", "stop", "restart", "health"):
        assert command in answer.out
    headings = [line for line in answer.out.splitlines() if line.endswith(":")]
    assert headings == ["Options:", "Read:", "Act:", "Run:"]
    assert weir("--version").out.startswith("weir ")


# -- as a process -----------------------------------------------------------------------------------------------------

WEIR = [sys.executable, "-m", "app.cli"]


def test_a_reader_that_leaves_early_makes_no_noise(home: Path, lake: Path) -> None:
    process = subprocess.Popen([*WEIR, "history", "orders", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, b"")


@pytest.mark.parametrize(
    ("command", "code"),
    [("history orders --json >&-", 0), ("table nope 2>&-", 3), ("tables <&- >&- 2>&-", 0)],
)
def test_closed_streams_change_no_exit_code_and_make_no_noise(home: Path, lake: Path, command: str, code: int) -> None:
    ended = subprocess.run(["sh", "-c", f"{shlex.join(WEIR)} {command}"], capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, b"", b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["tables", "history orders --json", "--help"])
def test_a_full_disk_under_the_output_is_said_once(
    home: Path, lake: Path, monkeypatch: pytest.MonkeyPatch, command: str, unbuffered: str
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    ended = subprocess.run(
        ["sh", "-c", f"{shlex.join(WEIR)} {command} >/dev/full"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = "error: standard output cannot be written: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (1, said)


def test_ctrl_c_ends_without_a_traceback(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that accepts and never answers holds the command inside its work."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setenv("WEIR_STORE__URL", f"postgresql+psycopg://me@127.0.0.1:{port}/none?sslmode=disable")
        process = subprocess.Popen([*WEIR, "streams"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        silent.settimeout(60)
        with silent.accept()[0]:
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.strip() == b"error: interrupted"


def test_demo_becomes_the_generator_and_ends_with_it(home: Path) -> None:
    process = subprocess.Popen([*WEIR, "demo"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        landed = (home / "landing").rglob
        wait_until(lambda: any(landed("*.jsonl")) or process.poll() is not None, "a file is landed")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)  # one process: a child left behind would not see it
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, b"Traceback" in err) == (0, False), err


@pytest.mark.parametrize("command", ["up", "ui", "host", "demo"])
def test_processes_refuse_wrong_settings_before_they_start(
    weir: Weir, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("WEIR_PORT", "0")
    answer = weir(command)
    assert (answer.code, "port" in answer.err) == (2, True)


def test_reading_commands_import_neither_pandas_nor_a_browser_front_end(home: Path, lake: Path) -> None:
    code = (
        "import sys; sys.argv = ['weir', 'tables', '--json']\nfrom app.cli import main\n"
        "try: main()\nexcept SystemExit as left: assert not left.code\n"
        "bad = {'pandas', 'streamlit', 'plotly', 'pyspark', 'duckdb', 'sqlalchemy'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_downstream_streams_are_asked_as_well(weir: Weir, store: ControlStore) -> None:
    fed = replace(declaration("fed"), source_tables=("flows",), sink_table="fed")
    store.declare([fed, replace(declaration("last"), source_tables=("fed",))], now=NOW)
    for name in ("fed", "last"):
        store.ensure_desired(name, DesiredState.RUNNING, now=NOW)
    answer = weir("stop", "flows", "--downstream", "--reason", "repair", "--json")
    assert [each["name"] for each in answer.document] == ["flows", "fed", "last"]
    wanted = {name: each.state for name, each in store.desired().items()}
    assert wanted["last"] is DesiredState.STOPPED and wanted["fails"] is DesiredState.RUNNING
    assert weir("restart", "flows", "--downstream", "--reason", "again", "--json").document[0]["name"] == "flows"
    assert store.desired()["last"].state is DesiredState.STOPPED, "none that a person stopped is restarted"


def test_many_streams_are_chosen_by_a_rule_sources_first_and_who_is_left_out_is_named(
    weir: Weir, store: ControlStore
) -> None:
    fed = replace(declaration("fed"), source_tables=("flows",), layer="silver", tags={"team": "orders"})
    store.declare([fed, replace(declaration("theirs"), kind=ATTACHED, pipeline="nightly")], now=NOW)
    store.ensure_desired("fed", DesiredState.RUNNING, now=NOW)
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

    for chosen in (["--tag", "team=orders"], ["--layer", "silver"], ["--downstream-of", "flows"]):
        told = weir("stop", *chosen, "--dry-run", "--json").document
        assert [each["name"] for each in told] == ["fed"]
    assert [each["name"] for each in weir("stop", "--upstream-of", "fed", "--dry-run", "--json").document] == ["flows"]

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


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared tables are not here")
def test_tables_that_others_wrote(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_LAKE__ROOTS", json.dumps([str(SHARED)]))
    rows = {row["name"]: row for row in weir("tables", "--json").document}
    assert rows["covid_nyt"]["num_rows"] == 1_111_930
    assert rows["covid_nyt"]["num_files"] == 8
    net = weir("diff", "cdf_table", "--from", "0", "--to", "3", "--json").document["net"]
    assert net == {"inserted": 0, "updated": 5, "deleted": 1, "unchanged": 4}


def test_a_table_is_aligned_and_folded_where_the_terminal_is_narrow() -> None:
    rows = [("table", "rows"), ("日本", "7"), ("a" * 30, "1,204")]
    whole = table_lines(rows, [False, True], None)
    assert whole == [
        ["table".ljust(30) + "   rows"],
        ["日本" + " " * 26 + "      7"],
        ["a" * 30 + "  1,204"],
    ]
    assert table_lines(rows, [False, True], 22)[2] == ["a" * 15 + "  1,204", "a" * 15]
    words = [("why",), ("stopped two minutes ago",)]
    assert table_lines(words, [False], 12) == [["why"], ["stopped two", "minutes ago"]]
    tiny = table_lines(rows, [False, True], 3)
    assert max(len(line) for lines in tiny for line in lines) == NARROWEST + 2 + 5, "no column is folded to nothing"
