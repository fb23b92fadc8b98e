"""What is right and what is not: `weir health|expectations|expect|notices|seen`."""

import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backend.access import Actor
from backend.expectations.model import ExpectationKind, Finding, Judgement, State, TableExpectation
from backend.lake.lake import Lake
from backend.search.notices import NoticeLooks
from backend.settings import load_settings
from backend.store.store import ControlStore
from backend.stream_model.stream import InputKind, StreamInput, StreamState
from tests.worlds.lake import builders
from tests.worlds.streams.checkpoints import declare_anew
from tests.worlds.terminal import Copied, Weir, declaration, observe

NOW = datetime.now(UTC)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def test_health_of_one_table_and_of_all(weir: Weir, lake: Path) -> None:
    document = weir("health", "orders", "--json").document
    assert document["last_optimize"]["version"] == 4
    assert [point["version"] for point in document["trend"]] == [0, 1, 2, 3, 4]
    feed = sum(file.stat().st_size for file in (lake / "silver" / "orders" / "_change_data").iterdir())
    assert (document["log"]["feed_bytes"], document["log"]["feed_commits"]) == (feed, 5) and feed
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
    observe(store, replace(store.observed()["flows"], state=StreamState.STOPPED))
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


# expectations on tables ------------------------------------------------------------------------------------------


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
    assert (first["state"], first["broken_keys"], first["broken_rows"]) == ("broken", 2, 5)
    assert (first["examples"], first["is_stale"]) == (["1", "2"], False)
    assert (second["table"], second["is_stale"]) == ("s3://others/x", True)
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
    answer = weir("expect", "silver/orders", " id >= 0 ", "--reason", "ids once were negative")
    assert answer.code == 0 and "orders: id >= 0 is expected from now on" in answer.out and "No host" not in answer.out
    assert "✓ OK now: " in answer.out and "A host judges it every 5 min" in answer.out, "judged at once"
    told = weir("expect", "silver/orders", "id >= 0", "--reason", "ids once were negative", "--json").document
    assert (told["state"], told["is_expected"]) == ("met", True) and told["found"] and told["version"] is not None
    (kept,) = store.judgements()
    assert (kept.expectation.uri, kept.expectation.condition, kept.state) == (uri, "id >= 0", State.UNKNOWN)
    assert kept.expectation.why == "ids once were negative"
    (line,) = weir("expectations", "silver/orders", "--json").document
    assert (line["condition"], line["why"], line["reason"]) == ("id >= 0", kept.expectation.why, kept.finding.reason)

    assert (told["past"]["fired"], told["past"]["judged"], told["past"]["versions"]) == (0, 5, 5)
    tried = weir("expect", "orders", "id < 4", "--dry-run")
    assert "id < 4 would be expected from now on" in tried.out and "Would have fired once in " in tried.out
    assert "would be no longer" in weir("expect", "orders", "id >= 0", "--no-more", "--dry-run").out
    assert [each.expectation.condition for each in store.judgements()] == ["id >= 0"], "nothing was done"
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
    assert why == {"expect": "ids once were negative", "expect no more": "returns are negative"} and len(acts) == 3
    assert {entry.actor for entry in acts} == {kept.expectation.by}


# notices ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def risen(home: Path, copied: Copied) -> Path:
    return copied("risen", home / "lake" / "orders")


def test_the_past_is_told_as_it_would_have_been_then(weir: Weir, home: Path, risen: Path) -> None:
    builders.HandLog(home / "lake" / "broken").raw(f"{0:020d}.json", "{")
    (notice,) = weir("notices", "--since", "1 h", "--json").document
    assert (notice["table"], notice["version"], notice["after"], notice["mended_at"]) == ("orders", 8, "47,189", None)
    answer = weir("notices", "--since", "1 h")
    assert "→ 47,189 at v8" in answer.out and "broken: cannot be judged: line 1 of" in answer.err
    builders.write(home / "lake" / "sales", {"amount": [1.5, 47_189.0, 47_189.0]})
    elsewhere = weir("notices", "orders", "--elsewhere").out
    assert "sales: 2 rows of v0 carry it, by amount" in elsewhere and "1 table with this column looked at" in elsewhere
    assert weir("notices", "broken").code != 0
    assert weir("notices", "--since", "tomorrow-ish").code == 2
    shutil.rmtree(home / "lake")
    (home / "lake").mkdir()
    assert "No commit since" in weir("notices", "--since", "2000-01-01").out


def test_what_was_seen_is_told_no_more(weir: Weir, risen: Path) -> None:
    assert weir("seen", "orders", "8", "--reason", "x").code != 0, "there is no store to keep it"
    settings = load_settings()
    lake, store = Lake(settings), ControlStore.open(settings)
    store.noticed.keep(NoticeLooks(lake).look(lake.find("orders"), LONG_AGO, NOW), now=NOW)
    (item,) = [each for each in weir("health", "--json").document["attention"] if each["cause"] == "unusual_commit"]
    assert item["subject"] == "orders" and "at v8, WRITE" in item["what"]
    store.told.failed("the webhook answers HTTP 500", now=store.now())
    assert "warning: webhook notify.webhook: The webhook cannot be reached: the webhook" in weir("health").out
    assert weir("seen", "orders", "8").code == 4
    assert weir("seen", "orders", "8", "--finding", "rows that are there twice", "--reason", "agreed").code == 4
    assert (
        "Told no more: highest amount"
        in weir("seen", "orders", "8", "--finding", "HIGHEST amount", "--reason", "agreed").out
    )
    assert store.noticed.open() == [] and weir("seen", "orders", "8", "--reason", "agreed").code == 4
    store.close()
