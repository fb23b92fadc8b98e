"""What is read of tables: `weir tables|table|history|properties|files|find|versions|pin|profile|export`."""

import csv
import io
import json
import os
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.worlds.lake import builders
from tests.worlds.terminal import Weir


def test_tables_has_a_row_for_every_table_also_the_broken_one(weir: Weir, lake: Path) -> None:
    answer = weir("tables", "--json")
    good, bad = sorted(answer.document, key=lambda row: "reason" in row)
    assert answer.code == 0
    assert (good["name"], good["layer"], good["num_rows"]) == ("silver/orders", "silver", 3)
    assert isinstance(good["size_bytes"], int) and good["last_commit_at"].endswith("Z")
    assert "broken" in bad["name"]
    out = weir("tables").out
    assert "silver/orders" in out and "cannot be read" in out


def test_an_empty_lake_says_how_to_fill_it(weir: Weir) -> None:
    Path("lake").mkdir()
    assert weir("tables", "--json").document == []
    assert "weir up" in weir("tables").out


def test_table_describes_one_table_at_any_version(weir: Weir, lake: Path) -> None:
    document = weir("table", "orders", "--version", "0", "--json").document
    assert (document["version"], document["num_rows"], document["protocol"]["min_reader_version"]) == (0, 3, 1)
    assert [(f["path"], f["type"]) for f in document["schema"]] == [("id", "bigint"), ("amount", "double")]
    assert "amount" in weir("table", "orders").out


def test_table_says_what_its_columns_are_and_what_must_hold(weir: Weir, home: Path) -> None:
    action = builders.metadata(configuration={"delta.constraints.positive": "id > 0"})
    traits = {"delta.identity.start": 1, "delta.identity.step": 2, "delta.generationExpression": "id * 2"}
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": traits}]}
    action["metaData"]["schemaString"] = json.dumps(schema)
    builders.HandLog(home / "lake" / "t").commit(builders.protocol(), action)
    document = weir("table", "t", "--json").document
    assert document["constraints"] == [{"name": "positive", "expression": "id > 0"}]
    (column,) = document["schema"]
    assert column["generated_as"] == "id * 2" and (column["default"], column["type_changes"]) == (None, [])
    assert column["identity"] == {"start": 1, "step": 2, "high_water_mark": None, "allows_explicit": False}


def test_history_is_newest_first_limited_filtered_and_says_what_changed(weir: Weir, lake: Path) -> None:
    commits = weir("history", "silver/orders", "--json").document
    assert [c["version"] for c in commits] == [4, 3, 2, 1, 0]
    assert (commits[1]["operation"], commits[1]["metrics"]["rows_deleted"]) == ("DELETE", 1)
    assert len(weir("history", "orders", "--limit", "2", "--json").document) == 2
    assert "Older commits" in weir("history", "orders", "--limit", "2").out
    both = weir("history", "orders", "--operation", "UPDATE", "--operation", "DELETE", "--json").document
    assert [each["operation"] for each in both] == ["DELETE", "UPDATE"]
    assert weir("history", "orders", "--user", "nobody", "--limit", "5", "--json").document == []
    assert weir("history", "orders", "--until", "2020-01-01", "--json").document == []
    assert weir("history", "orders", "--since", "soon").code == 2

    DeltaTable(lake / "silver" / "orders").alter.set_table_properties({"delta.appendOnly": "false"})
    (commit,) = weir("history", "orders", "--operation", "SET TBLPROPERTIES", "--since", "1 h", "--json").document
    (change,) = commit["changes"]
    assert (change["kind"], change["subject"]) == ("property", "delta.appendOnly")
    assert (change["before"], change["after"]) == (None, "false")
    assert "+ delta.appendOnly = false" in weir("history", "orders").out


def test_properties_are_explained_at_a_version_and_against_another(weir: Weir, lake: Path) -> None:
    DeltaTable(lake / "silver" / "orders").alter.set_table_properties({"delta.appendOnly": "false"})
    latest = weir("properties", "orders", "--json").document
    first = weir("properties", "orders", "--at", "0", "--json").document
    rows = {row["key"]: row for row in latest["properties"]}
    feed = rows["delta.enableChangeDataFeed"]
    assert (feed["value"], feed["default"], feed["is_set"]) == ("true", "false", True) and feed["meaning"]
    assert "delta.enableChangeDataFeed" in weir("properties", "orders").out
    assert first["version"] == 0 and "compare" not in first
    before = {row["key"]: row["value"] for row in first["properties"]}["delta.appendOnly"]
    assert (before, rows["delta.appendOnly"]["value"]) == (None, "false")
    for asked in (("--at", "0", "--compare", "latest"), ("--compare", "0")):
        compare = weir("properties", "orders", *asked, "--json").document["compare"]
        assert (compare["from_version"], compare["to_version"]) == (0, latest["version"])
        (change,) = compare["changes"]
        assert (change["subject"], change["after"]) == ("delta.appendOnly", "false") and change["meaning"]
    compared = weir("properties", "orders", "--compare", "0").out.split()
    assert compared[compared.index("delta.appendOnly") :][:4] == ["delta.appendOnly", "added", "–", "false"]
    assert weir("properties", "orders", "--compare", "99").code == 3


def test_files_has_a_histogram_that_adds_up(weir: Weir, lake: Path) -> None:
    document = weir("files", "orders", "--version", "1", "--json").document
    assert (document["version"], document["num_files"]) == (1, 2)
    for of_bucket, whole in (("files", "num_files"), ("bytes", "size_bytes")):
        assert sum(bucket[of_bucket] for bucket in document["histogram"]) == document[whole]
    assert "target" in weir("files", "orders").out


def test_find_says_which_tables_hold_a_word_and_where(weir: Weir, home: Path) -> None:
    columns = {"order_id": "long", "customer_id": "string"}
    builders.HandLog(home / "lake" / "silver" / "ordérs").start(columns=columns)
    builders.HandLog(home / "lake" / "other").start()
    (table,) = weir("find", "CUSTOMER_id", "silver", "--json").document
    assert (table["name"], table["layer"]) == ("silver/ordérs", "silver")
    assert {"where": "column", "subject": "customer_id", "text": "string"} in table["matches"]
    lines = weir("find", "customer_id").out.splitlines()
    words = [["table", "where", "what"], ["silver/ordérs", "column", "customer_id", "string"]]
    assert [line.split() for line in lines] == words
    assert lines[0].index("where") == lines[1].index("column")
    assert "No table holds 'nowhere'" in weir("find", "nowhere").out
    assert weir("find", "nowhere", "--json").document == []


# versions --------------------------------------------------------------------------------------------------------


def test_versions_lists_what_can_be_reached(orders: Path, weir: Weir) -> None:
    document = weir("versions", "orders", "--json").document
    assert (document["first_listed"], document["latest"]) == (0, 3)
    assert document["spans"] == [{"from_version": 0, "to_version": 3}]
    reached = dict.fromkeys(("listed", "reconstructable", "in_retention", "change_feed"), True)
    assert document["runs"] == [{"from_version": 0, "to_version": 3, **reached, "data_files": "expected"}]
    retention = document["retention"]
    assert retention["deleted_file_retention"] == {
        "key": "delta.deletedFileRetentionDuration",
        "value": "interval 1 week",
        "is_set": False,
        "duration_s": 604_800,
    }
    assert retention["log_cleanup"] is True and retention["counted_from"] == "commit_file_time"
    out = weir("versions", "orders").out
    assert "0 – 3" in out and "7 days (the default)" in out
    DeltaTable(orders).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    checked = weir("versions", "orders", "--check", "--json").document["runs"]
    states = [run["data_files"] for run in checked for _ in range(run["from_version"], run["to_version"] + 1)]
    assert states == ["missing"] * 3 + ["present"] * 3


def test_one_version_says_until_when_and_why(orders: Path, weir: Weir) -> None:
    answer = weir("versions", "orders", "--at", "1", "--check", "--json").document["at"]
    travel = answer["time_travel"]
    written = datetime.fromtimestamp((orders / "_delta_log" / f"{1:020d}.json").stat().st_mtime).astimezone()
    until = datetime.fromisoformat(travel["until"])
    assert travel["answer"] == "yes" and travel["is_promise"] is True
    assert abs(until - written - timedelta(days=7)) < timedelta(seconds=1) and travel["until"].endswith("Z")
    assert travel["extend"]["key"] == "delta.deletedFileRetentionDuration"
    assert travel["extend"]["suggested_s"] == 14 * 86_400
    assert answer["change_feed"]["answer"] == "yes" and answer["restore"]["answer"] == "yes"
    assert answer["files"] == {"state": "present", "total": 2, "checked": 2, "missing": 0, "examples": []}
    out = weir("versions", "orders", "--at", "latest", "--check").out
    assert "Time travel: yes" in out and "never refused" in out and "no file of 2 is missing" in out


def test_when_it_was_committed_is_not_when_its_file_was_written(orders: Path, weir: Weir) -> None:
    """A lake that was copied has new files of old commits."""
    os.utime(orders / "_delta_log" / f"{1:020d}.json", (1_600_000_000, 1_600_000_000))
    answer = weir("versions", "orders", "--at", "1", "--json").document["at"]
    (commit,) = (each for each in weir("history", "orders", "--json").document if each["version"] == 1)
    assert answer["committed_at"] == commit["committed_at"]
    assert answer["log_written_at"].startswith("2020-09-13T12:26:40")
    assert "v1 · written to the log 2020-09-13 12:26:40" in weir("versions", "orders", "--at", "1").out


def test_the_versions_of_broken_tables_are_answers(home: Path, weir: Weir) -> None:
    lake = home / "lake"
    builders.HandLog(lake / "gap").start().commit(builders.commit_info(), version=2)
    builders.HandLog(lake / "rubbish").raw(f"{0:020d}.json", "rubbish")
    builders.HandLog(lake / "odd").start(configuration={"delta.deletedFileRetentionDuration": "banana"})
    gap = weir("versions", "gap", "--check", "--json").document
    assert gap["spans"] == [{"from_version": 0, "to_version": 0}] and gap["latest"] == 2
    assert [run["listed"] for run in gap["runs"]] == [True, False, True]
    rubbish = weir("versions", "rubbish", "--at", "0", "--check", "--json").document
    assert rubbish["spans"] == [] and rubbish["at"]["time_travel"]["answer"] == "no" and rubbish["problems"]
    assert weir("versions", "odd", "--json").document["retention"]["deleted_file_retention"]["duration_s"] is None
    assert weir("versions", "gap").code == 0 and "is missing" in weir("versions", "gap", "--at", "2").out


def test_a_version_is_pinned_listed_and_unpinned(orders: Path, weir: Weir) -> None:
    assert weir("versions", "orders", "--json").document["pins"] == []
    assert weir("pin", "orders", "1").code == 4 and weir("pin", "orders", "9", "--reason", "x").code == 3
    answer = weir("pin", "orders", "1", "--reason", "audit of May")
    assert answer.code == 0 and "orders: v1 is pinned by" in answer.out and ": audit of May." in answer.out
    assert "time travel: yes, until" in answer.out and "a pin does not change that" in answer.out
    again = weir("pin", "orders", "1", "--reason", "mine")
    assert again.code == 4 and "v1 of orders is pinned already" in again.err
    assert weir("pin", "orders", "latest", "--reason", "the end", "--json").document["version"] == 3

    pins = weir("versions", "orders", "--json").document["pins"]
    assert [(pin["version"], pin["reason"]) for pin in pins] == [(1, "audit of May"), (3, "the end")]
    assert "v1 is pinned by" in weir("versions", "orders").out
    assert weir("unpin", "orders", "1").code == 4, "a reason is required"
    assert weir("unpin", "orders", "1", "--reason", "audited").code == 0
    assert [pin["version"] for pin in weir("versions", "orders", "--json").document["pins"]] == [3]
    gone = weir("unpin", "orders", "1", "--reason", "audited")
    assert gone.code == 4 and "pinned: v3" in gone.err


def test_a_pins_name_means_its_version_in_every_command_and_in_sql(orders: Path, weir: Weir) -> None:
    assert "a pin's name" in weir("files", "orders", "--version", "trained").err, "nobody named it yet"
    named = "--name", "trained", "--until", "2999-12-31", "--reason", "the model"
    answer = weir("pin", "orders", "1", *named)
    assert answer.code == 0 and "v1 is pinned as trained by" in answer.out and ", until 2999-12-31 23:59" in answer.out
    assert weir("versions", "orders", "--json").document["pins"][0]["name"] == "trained"
    by_name = weir("files", "orders", "--version", "trained", "--json").document
    assert by_name == weir("files", "orders", "--version", "1", "--json").document
    counted = [
        weir("query", f"SELECT count(*) AS n FROM orders VERSION AS OF {version}", "--json").document["rows"]
        for version in ("'trained'", "1", "'latest'")
    ]
    assert counted[0] == counted[1] != counted[2]
    assert "'trained' names v1 of orders already" in weir("pin", "orders", "2", *named).err
    assert weir("pin", "orders", "2", "--name", "latest", "--reason", "x").code == 2
    assert weir("unpin", "orders", "trained", "--reason", "audited").code == 0


# rows ------------------------------------------------------------------------------------------------------------


def test_a_profile_holds_what_the_rows_say_and_people_get_the_same_in_words(orders: Path, weir: Weir) -> None:
    document = weir("profile", "orders", "--against", "0", "--json").document
    assert (document["version"], document["rows"], document["source"]) == (3, 4, "rows")
    columns = {column["column"]: column for column in document["columns"]}
    status = columns["status"]
    assert status["top"] == [{"value": "new", "rows": 3}, {"value": "paid", "rows": 1}]
    assert (status["nulls"], status["lowest"], status["highest"]) == (0, "new", "paid")
    assert sum(each["rows"] for each in columns["amount"]["bins"]) == 4
    assert document["against"]["version"] == 0 and "highest 30 → 50" in document["differences"]["amount"]
    out = weir("profile", "orders", "--against", "0").out
    assert "counted over 4 rows" in out and "new 75 %, paid 25 %" in out and "highest 30 → 50" in out


def test_a_profile_of_statistics_alone_opens_no_data_file(orders: Path, weir: Weir) -> None:
    for file in orders.glob("*.parquet"):
        file.unlink()
    document = weir("profile", "orders", "--version", "1", "--statistics", "--json").document
    assert document["source"] == "statistics" and [column["nulls"] for column in document["columns"]] == [0, 0, 0]
    failed = weir("profile", "orders")
    assert failed.code == 1 and "could not be read" in failed.err


def test_an_export_holds_the_version_the_filter_and_the_columns_in_the_format_that_is_named(
    orders: Path, home: Path, weir: Weir
) -> None:
    out = home / "some.parquet"
    asked = ("--version", "1", "--where", "amount > 15", "--columns", "order_id,amount")
    document = weir("export", "orders", *asked, "-o", str(out), "--json").document
    assert (document["version"], document["rows"], document["format"]) == (1, 4, "parquet")
    assert document["size_bytes"] == out.stat().st_size
    exported = sorted(tuple(row.values()) for row in pq.read_table(out).to_pylist())
    assert exported == [(2, 20.0), (3, 30.0), (4, 40.0), (5, 50.0)]

    answer = weir("export", "orders", "--format", "csv", "-o", str(home / "rows.txt"))
    rows = list(csv.DictReader(io.StringIO((home / "rows.txt").read_text("utf-8-sig"))))
    assert sorted(row["order_id"] for row in rows) == ["2", "3", "4", "5"]
    assert answer.out.startswith("4 rows of orders v3")


def test_an_export_that_fails_leaves_no_file_and_the_old_one_whole(orders: Path, home: Path, weir: Weir) -> None:
    out = home / "out" / "rows.csv"
    out.parent.mkdir()
    out.write_text("kept")
    for file in orders.glob("*.parquet"):
        file.unlink()
    failed = weir("export", "orders", "-o", str(out))
    assert failed.code == 1 and "is gone" in failed.err
    assert [file.name for file in out.parent.iterdir()] == ["rows.csv"] and out.read_text() == "kept"
