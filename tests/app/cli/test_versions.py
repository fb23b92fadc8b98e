"""`weir versions`: one document, an answer for one version, and no traceback on any table."""

import os
from datetime import datetime, timedelta
from pathlib import Path

from deltalake import DeltaTable

from tests.app.cli.test_commands import Weir, home, weir
from tests.worlds.lake import builders

__all__ = ["home", "weir"]


def test_the_document_lists_what_can_be_reached(home: Path, weir: Weir) -> None:
    path = builders.orders_table(home / "lake" / "orders")
    document = weir("versions", "orders", "--json").document
    assert (document["first_listed"], document["latest"]) == (0, 3)
    assert document["spans"] == [{"from_version": 0, "to_version": 3}]
    assert document["runs"] == [
        {
            "from_version": 0,
            "to_version": 3,
            "listed": True,
            "reconstructable": True,
            "in_retention": True,
            "change_feed": True,
            "data_files": "expected",
        }
    ]
    retention = document["retention"]
    assert retention["deleted_file_retention"] == {
        "key": "delta.deletedFileRetentionDuration",
        "value": "interval 1 week",
        "is_set": False,
        "duration_s": 604_800,
    }
    assert retention["log_cleanup"] is True and retention["counted_from"] == "commit_file_time"
    DeltaTable(str(path)).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    checked = weir("versions", "orders", "--check", "--json").document["runs"]
    states = [run["data_files"] for run in checked for _ in range(run["from_version"], run["to_version"] + 1)]
    assert states == ["missing"] * 3 + ["present"] * 3


def test_one_version_says_until_when_and_why(home: Path, weir: Weir) -> None:
    path = builders.orders_table(home / "lake" / "orders")
    answer = weir("versions", "orders", "--at", "1", "--check", "--json").document["at"]
    travel = answer["time_travel"]
    written = datetime.fromtimestamp((path / "_delta_log" / f"{1:020d}.json").stat().st_mtime).astimezone()
    until = datetime.fromisoformat(travel["until"])
    assert travel["answer"] == "yes" and travel["is_promise"] is True
    assert abs(until - written - timedelta(days=7)) < timedelta(seconds=1) and travel["until"].endswith("Z")
    assert travel["extend"]["key"] == "delta.deletedFileRetentionDuration"
    assert travel["extend"]["suggested_s"] == 14 * 86_400
    assert answer["change_feed"]["answer"] == "yes" and answer["restore"]["answer"] == "yes"
    assert answer["files"] == {"state": "present", "total": 2, "checked": 2, "missing": 0, "examples": []}


def test_when_it_was_committed_is_not_when_its_file_was_written(home: Path, weir: Weir) -> None:
    """A lake that was copied has new files of old commits."""
    path = builders.orders_table(home / "lake" / "orders")
    os.utime(path / "_delta_log" / f"{1:020d}.json", (1_600_000_000, 1_600_000_000))
    answer = weir("versions", "orders", "--at", "1", "--json").document["at"]
    (commit,) = (each for each in weir("history", "orders", "--json").document if each["version"] == 1)
    assert answer["committed_at"] == commit["committed_at"]
    assert answer["log_written_at"].startswith("2020-09-13T12:26:40")
    assert "v1 · written to the log 2020-09-13 12:26:40" in weir("versions", "orders", "--at", "1").out


def test_people_get_the_same_in_words(home: Path, weir: Weir) -> None:
    builders.orders_table(home / "lake" / "orders")
    out = weir("versions", "orders").out
    assert "0 – 3" in out and "7 days (the default)" in out
    out = weir("versions", "orders", "--at", "latest", "--check").out
    assert "time travel: yes" in out and "never refused" in out and "no file of 2 is missing" in out


def test_broken_tables_are_answers(home: Path, weir: Weir) -> None:
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


def test_wrong_use_has_its_codes(home: Path, weir: Weir) -> None:
    builders.write(home / "lake" / "one", {"id": [1]})
    for args, code in (("nowhere",), 3), (("one", "--at", "9"), 3), (("one", "--at", "x"), 2):
        answer = weir("versions", *args)
        assert answer.code == code and answer.err.startswith("error: ")


def test_a_version_is_pinned_listed_and_unpinned(home: Path, weir: Weir) -> None:
    builders.orders_table(home / "lake" / "orders")
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


def test_a_pins_name_means_its_version_in_every_command_and_in_sql(home: Path, weir: Weir) -> None:
    builders.orders_table(home / "lake" / "orders")
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
