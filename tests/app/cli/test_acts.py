"""The acts on tables and their policies, with a host that needs no Spark: what is asked, refused and written."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backend.access import Actor
from backend.jobs.model import JobEnd, JobState
from backend.maintenance.model import ActResult, Alter, Clone, Drop, Optimize, Proof, Purge, Repair, Restore, TableAct
from backend.store.store import ControlStore
from tests.worlds.lake import builders
from tests.worlds.store import stream_store
from tests.worlds.store.policy_world import move_aside
from tests.worlds.streams.rewindable import STREAM, write_rewindable
from tests.worlds.streams.rewindable import TABLE as REWOUND
from tests.worlds.terminal import Answering, Copied, Weir, answering

TABLE = "bronze/clicks"
MAPPED = "delta.columnMapping.mode=name"
DONE = ActResult("it is done", 7, {"files_in": 34}, (Proof("the same rows", True, "34 live rows in, 34 out"),))


@pytest.fixture
def clicks(home: Path, copied: Copied) -> Path:
    return copied("clicks", home / "lake" / "bronze" / "clicks")


@pytest.fixture
def runner(clicks: Path, empty_store: ControlStore) -> Iterator[Answering]:
    stream_store.beat(empty_store, datetime.now(UTC))
    end = JobEnd(JobState.DONE, answer=DONE.text(), detail=DONE.sentence())
    with answering(empty_store, lambda _: end) as host:
        yield host


def test_a_dry_run_asks_nobody_and_an_act_a_host_whose_proof_is_said(weir: Weir, runner: Answering) -> None:
    document = weir("optimize", TABLE, "--dry-run", "--json").document
    assert (document["figures"]["files_in"], document["act"]["table"], document["needs_name"]) == (34, TABLE, False)
    shown = weir("restore", TABLE, "--to", "0", "--dry-run").out
    assert "The table, now v" in shown and "Way back: RESTORE to v" in shown and runner.asked == []
    typed = ("optimize", TABLE, "--partition", "day=2026-01-01", "--prove-rows")
    answer = weir(*typed, "--reason", "slow readers")
    assert answer.code == 0 and "The same rows: proven (34 live rows in, 34 out)." in answer.out
    (job,) = runner.asked
    asked = TableAct.parse(job.request).arguments
    assert isinstance(asked, Optimize) and asked.partition == {"day": "2026-01-01"} and job.reason == "slow readers"
    assert asked.prove_rows and "every row is read again" in weir(*typed, "--dry-run").out
    printed = weir("alter", TABLE, "--set", "catalog.team_name=blue", "--reason", "owner", "--json").last_document
    assert printed["result"]["proofs"][0]["holds"] is True and printed["job_id"] == runner.asked[1].job_id
    assert TableAct.parse(runner.asked[1].request).arguments == Alter({"catalog.team_name": "blue"})


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("optimize", TABLE), 4, "a reason is required"),
        (("optimize", TABLE, "--partition", "daz=1", "--reason", "x"), 2, "no partition column 'daz'"),
        (("optimize", TABLE, "--zorder", "day", "--reason", "x"), 2, "'day': the table is partitioned by it"),
        (("optimize", TABLE, "--zorder", "day", "--reason", "x"), 2, "the other columns are id\n"),
        (("repair", TABLE, "--where", "id = 1", "--dry-run"), 2, "or --delete alone"),
        (("repair", TABLE, "--where", "id = 1", "--delete", "--set", "id=2", "--dry-run"), 2, "or --delete alone"),
        (("repair", TABLE, "--of-commit", "1", "--delete", "--dry-run"), 2, "or --delete alone"),
        (("repair", TABLE, "--delete", "--dry-run"), 2, "a repair needs a condition"),
        (("restore", TABLE, "--to", "0", "--reason", "x"), 4, "say --confirm bronze/clicks"),
        (("restore", TABLE, "--to", "999", "--reason", "x"), 3, "no version 999"),
        (("alter", TABLE, "--reason", "x"), 2, "say --set KEY=VALUE"),
        (("alter", TABLE, "--drop-column", "id`; DROP", "--reason", "x"), 2, "is no name"),
        (("alter", TABLE, "--drop-column", "`id``; DROP`", "--reason", "x"), 2, "there is no column 'id`; DROP'"),
        (("alter", TABLE, "--rename-column", "id=a b", "--reason", "x"), 2, "'a b' is no name"),
        (("alter", TABLE, "--set", MAPPED, "--drop-column", "id", "--reason", "x"), 4, f"say --confirm {TABLE}"),
        (("alter", TABLE, "--rename-column", "id", "--reason", "x"), 2, "says no value for 'id'"),
    ],
)
def test_what_is_refused_says_why(weir: Weir, runner: Answering, words: tuple[str, ...], code: int, why: str) -> None:
    answer = weir(*words)
    assert (answer.code, why in answer.err) == (code, True), answer.err
    assert runner.asked == []


def test_a_table_is_rewound_with_its_stream(
    weir: Weir, runner: Answering, home: Path, empty_store: ControlStore
) -> None:
    write_rewindable(home, empty_store, datetime.now(UTC))
    planned = weir("rewind", REWOUND, "--to", "1", "--dry-run", "--json").document
    assert (planned["figures"]["batch"], planned["figures"]["rows_again"], planned["refused"]) == (1, 4, None)
    assert planned["act"]["arguments"] == {"kind": "rewind", "to_version": 1, "stream": STREAM}
    assert planned["needs_name"] is True
    assert weir("rewind", REWOUND, "--to", "1", "--reason", "x").code == 4
    assert weir("rewind", REWOUND, "--to", "1", "--reason", "cents", "--confirm", REWOUND).code == 0
    assert [(job.subject, job.reason) for job in runner.asked] == [(STREAM, "cents")]
    for name in ("2", "3"):  # Spark keeps the newest alone
        (home / "checkpoints" / STREAM / "offsets" / name).replace(home / name)
    again = weir("rewind", REWOUND, "--to", "2", "--reason", "x", "--confirm", REWOUND)
    assert again.code == 4 and f"{STREAM} no longer keeps batch 2" in again.err


def test_columns_are_changed_as_they_were_typed(weir: Weir, runner: Answering, tmp_path: Path) -> None:
    hostile = "x'); DROP TABLE t; -- \\ \" `\nü"
    typed = ("--set", MAPPED, "--comment", hostile, "--add-column", "`a ``b` int COMMENT 'it''s'")
    typed += ("--rename-column", "ID=`new ``\n=`", "--add-constraint", "Small=day <> 'a  b'")
    file = tmp_path / "intent.yaml"
    assert weir("alter", TABLE, *typed, "--reason", "tidy", "--intent", str(file)).code == 0
    assert weir("apply", str(file)).code == 0
    (job,) = runner.asked
    assert TableAct.parse(job.request).arguments == Alter(
        {"delta.columnMapping.mode": "name"},
        comment=hostile,
        add_columns={"a `b": "int"},
        column_comments={"a `b": "it's"},
        rename_columns={"id": "new `\n="},
        add_constraints={"small": "day <> 'a  b'"},
    )


def test_rows_are_taken_from_a_version_and_from_another_table(weir: Weir, runner: Answering, clicks: Path) -> None:
    latest = DeltaTable(clicks).version()
    DeltaTable(clicks).delete("id >= 0")
    other = clicks.parent / "it's other"
    write_deltalake(other, DeltaTable(clicks, version=latest).to_pyarrow_table().slice(0, 3))
    where = ("--where", "id >= 0", "--from-version", str(latest))
    figures = weir("repair", TABLE, *where, "--dry-run", "--json").document["figures"]
    assert (figures["rows"], figures["rows_in"]) == (0, DeltaTable(clicks, version=latest).to_pyarrow_table().num_rows)
    assert weir("repair", TABLE, *where, "--reason", "x").code == 4, "the name is missing"
    assert weir("repair", TABLE, *where, "--reason", "x", "--confirm", TABLE).code == 0
    typed = ("--where", "id >= 0", "--from-table", "it's other", "--reason", "x", "--confirm", TABLE)
    assert weir("repair", TABLE, *typed).code == 0
    typed = ("--where", "id >= 0", "--delete", "--reason", "x", "--confirm", "bronze/it's other")
    assert weir("repair", "it's other", *typed).code == 0
    back = weir("repair", TABLE, "--of-commit", str(latest + 1), "--reason", "x", "--confirm", TABLE)
    assert back.code == 0, back.err
    one, two, gone, of_commit = (TableAct.parse(job.request).arguments for job in runner.asked)
    assert of_commit == Repair("", of_commit=latest + 1), "what the DELETE took away comes"
    assert one == Repair("id >= 0", from_version=latest)
    assert two == Repair("id >= 0", from_version=0, from_table=str(other))
    assert gone == Repair("id >= 0")
    refused = weir("repair", TABLE, "--where", "id >= 0", "--from-version", "-0", "--set", "id=1", "--dry-run")
    assert refused.code == 2 and "come as they are" in refused.err
    assert weir("repair", TABLE, "--where", "id >= 0", "--from-version", "99", "--dry-run").code == 3
    assert weir("repair", TABLE, "--where", "id >= 0", "--from-table", "../../etc", "--dry-run").code == 4


def test_a_copy_goes_only_where_nothing_is(
    weir: Weir, runner: Answering, clicks: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_LAKE__READ_ONLY_ROOTS", json.dumps([str(home / "lake" / "gold")]))
    table = clicks.parent / "taken"
    write_deltalake(table, pa.table({"id": [1]}))
    (clicks.parent / "full").mkdir()
    (clicks.parent / "full" / "note.txt").write_text("mine")
    refused = {
        "bronze/taken": "there is a table already",
        "bronze/taken/inner/deep": f"it lies within the table {table}",
        "bronze/full": "is not empty",
        "bronze/_hidden": "is no place for a table",
        "bronze/.hidden/x": "is no place for a table",
        ".": "is no place for a table",
        "../outside": "outside every allowed root",
        "/etc/weir": "outside every allowed root",
        "s3://bucket/x": "outside every allowed root",
        "gold/clicks": "is read-only",
    }
    for target, why in refused.items():
        answer = weir("clone", TABLE, target, "--reason", "x")
        assert (answer.code, why in answer.err) == (4, True), (target, answer.err)
    assert runner.asked == []
    hostile = "it's `a copy`; DROP \\ 100 %"
    document = weir("clone", TABLE, hostile, "--version", "3", "--dry-run", "--json").document
    files = DeltaTable(clicks, version=3).get_add_actions()
    assert document["figures"] == {
        "rows": sum(files["num_records"].to_pylist()),
        "files": files.num_rows,
        "bytes_written": sum(files["size_bytes"].to_pylist()),
    }
    assert weir("clone", TABLE, hostile, "--version", "3", "--shallow", "--reason", "to try a fix").code == 0
    (job,) = runner.asked
    assert TableAct.parse(job.request).arguments == Clone(str(home / "lake" / hostile), 3, shallow=True)


def test_a_table_is_dropped_and_asked_back_or_purged_after_a_review(
    weir: Weir, runner: Answering, clicks: Path, home: Path
) -> None:
    """The host of this test does nothing: what a host moves is moved here by hand."""
    latest = DeltaTable(clicks)
    rows, version = latest.to_pyarrow_table().num_rows, latest.version()
    assert weir("dropped").out.strip() == "No table was dropped that could be brought back."
    assert weir("drop", TABLE, "--reason", "x").code == 4 and runner.asked == []
    assert weir("drop", TABLE, "--reason", "nobody reads it", "--confirm", TABLE).code == 0
    (job,) = runner.asked
    assert TableAct.parse(job.request).arguments == Drop() and job.reason == "nobody reads it"
    folder = move_aside(home / "lake", TABLE, job)
    (home / "lake" / ".dropped" / "strange").mkdir()
    (home / "lake" / ".dropped" / "outside").symlink_to("/etc")
    (home / "lake" / ".dropped" / "cut" / "table" / "_delta_log").mkdir(parents=True)
    (home / "lake" / ".dropped" / "cut" / "dropped.json").write_text("{")

    (listed,) = weir("dropped", "--json").document
    assert (listed["name"], listed["num_rows"], listed["version"]) == (TABLE, rows, version)
    assert TABLE in weir("dropped").out and weir("files", TABLE).code == 3
    for name in (TABLE, "clicks", str(clicks), job.job_id):
        document = weir("undrop", name, "--dry-run", "--json").document
        assert document["act"]["arguments"] == {"kind": "undrop", "dropped": job.job_id}, name
        assert (document["act"]["uri"], document["refused"], document["needs_name"]) == (str(clicks), None, False)
    assert weir("purge", "clicks", "--reason", "x").code == 4 and len(runner.asked) == 1
    file = home / "intent.yaml"
    assert weir("purge", "clicks", "--reason", "reviewed", "--intent", str(file)).code == 0 and len(runner.asked) == 1
    assert ": nobody reads it" in file.read_text() and weir("apply", str(file), "--confirm", TABLE).code == 0
    purge = runner.asked[1]
    assert (TableAct.parse(purge.request).arguments, purge.reason) == (Purge(job.job_id), "reviewed")
    assert weir("undrop", "clacks", "--reason", "x").code == 3
    clicks.mkdir()
    (clicks / "mine.txt").write_text("mine")
    assert "it is not empty" in weir("undrop", TABLE, "--reason", "x").err
    note = json.loads((folder / "dropped.json").read_text())
    (folder / "dropped.json").write_text(json.dumps({**note, "uri": "/etc/elsewhere"}))
    assert weir("dropped", "--json").document == []
    folder.rename(home / "purged")
    assert weir("apply", str(file), "--confirm", TABLE).code == 3


def test_who_uses_a_table_keeps_it_from_being_dropped(
    weir: Weir, runner: Answering, home: Path, empty_store: ControlStore
) -> None:
    assert weir("pin", TABLE, "2", "--reason", "audit").code == 0
    answer = weir("drop", TABLE, "--reason", "x", "--confirm", TABLE)
    assert (answer.code, "v2 is pinned" in answer.err, "weir unpin" in answer.err) == (4, True, True)
    write_rewindable(home, empty_store, datetime.now(UTC))
    planned = weir("drop", REWOUND, "--dry-run", "--json").document
    assert planned["refused"] is None and f"{STREAM} writes it: its next start makes a new" in planned["risks"][0]
    empty_store.request_all([STREAM], "start", reason="x", actor=Actor("ana"), now=datetime.now(UTC))
    answer = weir("drop", REWOUND, "--reason", "x", "--confirm", REWOUND)
    assert (answer.code, f"weir stop {STREAM}" in answer.err) == (4, True), answer.err
    assert runner.asked == []


def test_an_intent_is_done_while_it_would_do_the_same(
    weir: Weir, runner: Answering, clicks: Path, tmp_path: Path, empty_store: ControlStore
) -> None:
    file = tmp_path / "intent.yaml"
    answer = weir("restore", TABLE, "--to", "3", "--reason", "a bad load", "--intent", str(file))
    assert answer.code == 0 and runner.asked == []
    comments = [line for line in file.read_text().splitlines() if line.startswith("#")]
    assert comments[0].startswith("# restore of bronze/clicks at v") and any(
        "becomes v3 again" in line for line in comments
    )

    digest = answer.out.split("sha256:")[1].split(".")[0]
    assert weir("apply", str(file), "--approved-by", "bo").code == 4, "the name is missing"
    assert weir("apply", str(file), "--approved-by", "bo", "--confirm", TABLE).code == 0
    (job,) = runner.asked
    assert (job.reason, TableAct.parse(job.request).arguments) == ("a bad load", Restore(3))
    (entry,) = [entry for entry in empty_store.audit_entries(limit=9, subject=TABLE) if entry.action == "restore job"]
    assert f"intent: sha256:{digest}" in entry.detail and "approved by: bo" in entry.detail

    rows = DeltaTable(clicks).to_pyarrow_table().slice(0, 1)
    write_deltalake(clicks, rows, mode="append")
    moved = weir("apply", str(file), "--confirm", TABLE)
    assert moved.code == 4 and "would do something else now: commits_undone was" in moved.err
    file.write_text("rubbish")
    assert weir("apply", str(file)).code == 2
    assert len(runner.asked) == 1


def test_policies_say_what_ran_what_is_next_and_why_they_wait(
    weir: Weir, clicks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert weir("policies", "--json").document == [], "nobody wrote the demo's down, and its table is not there"
    builders.write(clicks.with_name("bronze_orders"), {"id": [1]})
    assert weir("policies", "--json").document[0]["why_not"] == "nothing is to be merged"
    monkeypatch.setenv("WEIR_DEMO__POLICY", "false")
    assert "No policies" in weir("policies").out and weir("policies", "--json").document == []
    policies = [
        {"tables": TABLE, "optimize": {"spares_files": 32}},
        {"tables": TABLE, "optimize": {"spares_files": 33}},
    ]
    monkeypatch.setenv("WEIR_POLICIES", json.dumps(policies))
    due, waits = weir("policies", "--json").document
    figures = weir("optimize", TABLE, "--dry-run", "--json").document["figures"]
    assert due == {
        "kind": "optimize", "table": TABLE, "uri": str(clicks), "state": "due", "why_not": None, "next_at": None,
        "policy": f"optimize {TABLE}: spares_files 32", "failures": 0, "last_job_id": None, "last_state": None,
        "last_at": None, "last_error": None, "figures": figures,
    }  # fmt: skip
    assert (waits["state"], waits["why_not"]) == ("waiting", "32 files would be spared, the policy wants 33")
    out = weir("policies").out
    assert "32 files would be spared, the policy wants 33" in out and "Optimize" in out
