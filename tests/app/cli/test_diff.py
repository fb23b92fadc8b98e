"""`weir diff` and `weir changes`: here, with Ctrl-C amid it, and on a host; `weir jobs` and `weir cancel`."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from app.cli import INTERRUPTED
from app.cli.diff import here
from backend.access import Actor
from backend.changes.cache import Differences
from backend.changes.model import DiffMethod, Question, VersionDiff
from backend.errors import JobError
from backend.jobs.model import Job, JobEnd, JobKind, JobRequest
from backend.lake.lake import Lake
from backend.settings import load_settings
from backend.sql.export import FORMATS
from backend.sql.session import CancelToken
from backend.store.store import ControlStore
from backend.stream_model.stream import HostHeartbeat
from tests.worlds.lake import builders
from tests.worlds.lake.diffs import NOWHERE
from tests.worlds.processes import wait_until
from tests.worlds.terminal import Weir, answering

ALL = ("--from", "0", "--to", "4", "--key", "id")


@pytest.fixture
def plain(home: Path) -> Path:
    """No change feed: v0 one row · v1 another · v2 compaction."""
    path = builders.write(home / "lake" / "plain", {"id": [1], "v": [1.0]})
    builders.write(path, {"id": [2], "v": [2.0]})
    DeltaTable(path).optimize.compact()
    return path


def test_diff_counts_net_and_gross_and_marks_what_changed(weir: Weir, lake: Path) -> None:
    answer = weir("diff", "orders", "--from", "0", "--to", "latest", "--key", "id", "--json")
    document = answer.document
    assert answer.code == 10
    assert (document["from_version"], document["to_version"], document["method"]) == (0, 4, "change_feed")
    assert document["net"] == {"inserted": 1, "updated": 1, "deleted": 1, "unchanged": 1}
    assert document["exact"] is True
    assert [c["version"] for c in document["commits"]] == [4, 3, 2, 1]
    changes = {"inserted": 0, "updated": 1, "deleted": 0, "source": "change_feed"}
    assert document["commits"][2]["changes"] == changes
    out = weir("diff", "orders", *ALL).out
    assert "1 row inserted, 1 updated, 1 deleted" in out and "1.5 → 9.0" in out


@pytest.mark.parametrize(
    ("first", "last", "versions"),
    [
        ("-2", "-0", (2, 4)),
        ("latest", "1", (4, 1)),
        ("3", "3", (3, 3)),
        ("2126-11-20T10:00+14:00", "2126-11-20", (4, 4)),
    ],
)
def test_diff_names_versions_in_every_way(
    weir: Weir, lake: Path, first: str, last: str, versions: tuple[int, int]
) -> None:
    document = weir("diff", "orders", "--from", first, "--to", last, "--json").document
    assert (document["from_version"], document["to_version"]) == versions


@pytest.mark.parametrize(
    ("first", "code", "message"),
    [
        ("9" * 25, 3, "its versions end at 4"),
        ("2001-01-01T00:00-23:59", 3, "its log begins with v0"),
        ("latest2", 2, "not a version: 'latest2'"),
    ],
)
def test_a_version_that_is_none_is_refused_with_a_way_on(
    weir: Weir, lake: Path, first: str, code: int, message: str
) -> None:
    answer = weir("diff", "orders", f"--from={first}", "--to=latest")
    assert (answer.code, answer.out) == (code, "") and message in answer.err
    assert "hint: " in answer.err and "unexpected" not in answer.err


def test_a_file_holds_all_changed_rows_though_the_terminal_shows_few(
    weir: Weir, lake: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = weir("diff", "orders", *ALL, "--rows", "1", "--json").document
    assert (len(document["rows"]), document["truncated"]) == (1, True)
    monkeypatch.setenv("WEIR_LAKE__DIFF_ROWS", "1")
    shown = weir("diff", "orders", *ALL, "--output", "all.json")
    assert len(json.loads((home / "all.json").read_text())) == 3
    assert "all.json: 3 changed rows" in shown.out and "of more" not in shown.out
    assert len(weir("diff", "orders", *ALL, "--json").document["rows"]) == 1

    assert "few.csv: 2 changed rows of more" in weir("diff", "orders", *ALL, "--rows", "2", "--output", "few.csv").out
    assert len((home / "few.csv").read_text().splitlines()) == 3
    assert [path.name for path in home.glob(".*.part")] == []
    assert weir("diff", "orders", *ALL, "--output", "all.md").code == 10
    assert "1 row inserted, 1 updated, 1 deleted" in (home / "all.md").read_text()


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
    compaction = weir("diff", "plain", "--from", "1", "--to", "2", "--key", "id", "--json")
    assert (compaction.code, compaction.document["method"]) == (0, "key_join")
    assert compaction.document["files"]["added"] == 1
    assert compaction.document["net"] == {"inserted": 0, "updated": 0, "deleted": 0, "unchanged": 2}


def test_diff_where_the_data_is_gone_tells_the_rest_and_ends_with_1(weir: Weir, plain: Path) -> None:
    for file in plain.glob("*.parquet"):
        file.unlink()
    answer = weir("diff", "plain", "--from", "0", "--to", "1", "--json")
    assert answer.code == 1
    assert (answer.document["method"], answer.document["net"]["inserted"]) == ("log_only", None)
    assert answer.document["files"]["added"] == 1
    assert (
        answer.err.startswith("error: ")
        and "is gone" in answer.err
        and "delta.enableChangeDataFeed" in answer.err.partition("hint: ")[2]
    )


def test_diff_by_a_named_method_a_condition_and_with_another_table(weir: Weir, plain: Path, home: Path) -> None:
    asked = ("--from", "0", "--to", "2", "--json")
    some = weir("diff", "plain", *asked, "--method", "key_join", "--key", "id", "--where", "v > 5")
    assert (some.code, some.document["net"]["inserted"]) == (0, 0)
    builders.write(home / "lake" / "copy", {"id": [2, 3], "v": [2.0, 3.0], "only here": [1, 1]})
    other = weir("diff", "plain", "--with", "copy", "--from", "latest", "--to", "0", "--key", "id", "--json").document
    assert other["net"] == {"inserted": 1, "updated": 0, "deleted": 1, "unchanged": 1}
    assert other["against"]["name"] == "copy" and other["commits"] == []
    assert any("two tables share no change feed" in reason for reason in other["reasons"])
    near = weir("diff", "plain", *asked, "--key", "v", "--tolerance", "9")
    assert near.document["net"]["inserted"] == 1


def test_what_changed_rows_share_in_another_table_is_asked_by_an_option(weir: Weir, plain: Path, home: Path) -> None:
    builders.write(home / "lake" / "kinds", {"id": range(40), "kind": ["new" if n >= 20 else "old" for n in range(40)]})
    builders.write(plain, {"id": list(range(3, 20)), "v": [1.0] * 17})
    builders.write(plain, {"id": list(range(20, 40)), "v": [1.0] * 20})
    asked = ("diff", "plain", "--from", "3", "--to", "4", "--key", "id")
    look_in = weir(*asked, "--look-in", "kinds", "--json").document["explanation"]["look_in"]
    assert (look_in["table"], look_in["by"], look_in["of"], look_in["found"]) == ("kinds", "id", 20, 20)
    (common,) = look_in["common"]
    assert (common["of"], common["rows"], common["others"]) == (20, 20, 0) and look_in["population"]["rows"] == 19
    assert "All 20 inserted rows found there have `kinds.kind` = new; none of" in weir(*asked, "--look-in", "kinds").out
    refused = weir(*asked, "--look-in", "plain")
    assert refused.code == 1 and weir(*asked, "--json").document["explanation"]["look_in"] is None


def test_the_methods_and_formats_that_can_be_named_are_those_there_are(weir: Weir, plain: Path) -> None:
    answer = weir("diff", "plain", "--from", "0", "--to", "1", "--method", "magic")
    methods = [method.value for method in DiffMethod if method is not DiffMethod.SAME_VERSION]
    assert answer.code == 2 and ", ".join(map(repr, methods)) in answer.err
    answer = weir("export", "plain", "--format", "magic", "-o", "rows.csv")
    assert answer.code == 2 and ", ".join(map(repr, FORMATS)) in answer.err


# Ctrl-C ----------------------------------------------------------------------------------------------------------


def press_ctrl_c(token: CancelToken) -> None:
    """As the terminal sends it; returns when it was noticed."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    wait_until(lambda: token.ending() is not None, "the comparison was told to end", pause_s=0.001)


def compared(compute: Callable[[CancelToken], VersionDiff]) -> VersionDiff:
    """As the command has it computed."""
    differences = Differences(compute=lambda _lake, _question, token: compute(token))
    return here(differences, Lake(load_settings()), Question(NOWHERE, 0, 1))


def test_ctrl_c_is_an_interruption() -> None:
    def slow(token: CancelToken) -> VersionDiff:
        press_ctrl_c(token)
        token.check()
        raise AssertionError

    with pytest.raises(KeyboardInterrupt):
        compared(slow)


@pytest.fixture(scope="module")
def many_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a table whose versions take a second to compare."""
    home, keys = tmp_path_factory.mktemp("many"), np.random.default_rng(1)
    for _ in range(2):
        rows = pa.table({"id": keys.permutation(1_000_000), "v": keys.random(1_000_000)})
        builders.write(home / "lake" / "many", rows, mode="overwrite")
    return home


@pytest.mark.parametrize("presses", [1, 2], ids=["once", "twice"])
def test_ctrl_c_while_a_comparison_runs_is_no_abort(many_rows: Path, tmp_path: Path, presses: int) -> None:
    """A thread that comes back from native code while Python ends would abort the process (exit code -6)."""
    argv = [sys.executable, "-m", "app.cli", "diff", "many", "--from", "0", "--to", "1", "--key", "id", "--json"]
    env = {**os.environ, "WEIR_HOME": str(many_rows), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_until(lambda: list(tmp_path.glob("weir-diff-*")) != [], "the comparison's database")
    process.send_signal(signal.SIGINT)
    if presses == 2:
        wait_until(lambda: not _is_pending(signal.SIGINT, process.pid), "the first was taken")  # else both are one
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED, err
    assert err.endswith(b"error: interrupted\n")
    assert list(tmp_path.iterdir()) == []  # nor are its temporary files left behind


def _is_pending(number: signal.Signals, pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


# on a host -------------------------------------------------------------------------------------------------------

ON_HOST = ("diff", "orders", "--from", "0", "--to", "1", "--on", "host")


def seen(store: ControlStore, at: datetime) -> None:
    store.beat(HostHeartbeat("host-a", "machine", 1, at, at))


def test_without_a_store_there_is_no_host_and_no_job_and_none_is_made(weir: Weir, orders: Path, home: Path) -> None:
    answer = weir(*ON_HOST)
    assert (answer.code, answer.out) == (1, "")
    assert "there is no control store" in answer.err and "weir host" in answer.err
    assert weir("jobs", "--json").document == []
    assert weir("cancel", "j1", "--reason", "x").code != 0
    assert not (home / "store").exists()


def test_a_host_that_is_gone_is_not_waited_for(weir: Weir, orders: Path, empty_store: ControlStore) -> None:
    seen(empty_store, datetime.now(UTC) - timedelta(hours=2))
    answer = weir(*ON_HOST)
    assert answer.code == 1
    assert "no stream host is alive: the last one was seen at" in answer.err
    assert empty_store.jobs.unfinished() == empty_store.audit_entries() == []
    no_rows = ("diff", "orders", "--from", "1", "--to", "1", "--on", "host", "--json")
    assert weir(*no_rows).code == 0, "what needs no rows needs no host"


def test_a_failed_job_says_why(weir: Weir, orders: Path, empty_store: ControlStore) -> None:
    def fail(job: Job) -> JobEnd:
        raise JobError("the data file part-1 is gone", hint="compare newer versions")

    seen(empty_store, datetime.now(UTC))
    with answering(empty_store, fail) as host:
        answer = weir(*ON_HOST, "--json")
    assert answer.code == 1
    assert "error: the stream host could not compare: the data file part-1 is gone" in answer.err
    assert "hint: compare newer versions" in answer.err
    assert len(host.asked) == 1


def test_jobs_are_listed_and_one_is_cancelled_with_a_reason(weir: Weir, empty_store: ControlStore) -> None:
    assert "No jobs" in weir("jobs").out
    at = datetime.now(UTC) - timedelta(minutes=3)
    wanted = JobRequest(JobKind.DIFF, "orders", "f1", "{}", Actor("ann"), "incident 7", 60.0)
    waiting = empty_store.jobs.submit(wanted, now=at)
    empty_store.jobs.submit(replace(wanted, fingerprint="f2", reason="a look"), now=at + timedelta(minutes=1))

    shown = weir("jobs").out
    assert "Waiting for a stream host · asked for by ann" in shown and waiting.job_id in shown
    documents = weir("jobs", "--json").document
    assert [each["reason"] for each in documents] == ["a look", "incident 7"]
    assert {each["state"] for each in documents} == {"QUEUED"}

    assert weir("cancel", waiting.job_id).code != 0, "without a reason"
    assert weir("cancel", waiting.job_id, "--reason", "wrong table").out.strip() == f"{waiting.job_id}: CANCELLED"
    assert [each["state"] for each in weir("jobs", "--json").document] == ["QUEUED", "CANCELLED"]
    newest = empty_store.audit_entries()[0]
    assert (newest.action, newest.reason) == ("cancel diff job", "wrong table")
    refused = weir("cancel", "nonesuch", "--reason", "x")
    assert refused.code != 0 and "no job nonesuch" in refused.err
