"""What people and hosts note of tables: pins, saved queries, notices, and what is expected of rows."""

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.access import Actor
from backend.errors import QueryError, SavedQueryNotFoundError, StreamRefusedError, VersionFormatError
from backend.expectations.model import ExpectationKind, Finding, State, TableExpectation
from backend.format import utc_text
from backend.jobs.model import JobKind
from backend.lake.model import Pin, TableRef
from backend.search.notice import Measure
from backend.sql.saved import Chart, SavedQuery
from backend.store.store import ControlStore
from tests.worlds.store.values import FRESH, JOB, JUMP, NOW, judgement

ORDERS = TableRef("s3://lake/silver/orders", "silver/orders", "s3://lake")
OTHER = TableRef("s3://lake/silver/other", "silver/other", "s3://lake")


def test_a_pin_is_kept_audited_and_let_go(store: ControlStore) -> None:
    store.pins.add(ORDERS, 118, actor=ANA, reason=" audit of May ", now=NOW)
    store.pins.add(ORDERS, 7, actor=BO, reason="the first load", now=NOW)
    store.pins.add(OTHER, 118, actor=ANA, reason="audit", now=NOW)
    may = Pin(ORDERS.uri, 118, "ana", "audit of May", NOW)
    assert store.pins.of_table(ORDERS) == [Pin(ORDERS.uri, 7, "bo", "the first load", NOW), may]

    gone = store.pins.remove(ORDERS, 118, actor=BO, reason="audited", now=NOW + timedelta(days=1))
    assert gone == may
    assert [pin.version for pin in store.pins.of_table(ORDERS)] == [7] and len(store.pins.of_table(OTHER)) == 1
    acts = [(each.actor, each.action, each.reason, each.detail) for each in store.audit_entries(subject=ORDERS.name)]
    assert acts == [
        ("bo", "unpin", "audited", "v118, pinned by ana: audit of May"),
        ("bo", "pin", "the first load", "v7"),
        ("ana", "pin", "audit of May", "v118"),
    ]


def test_a_version_is_pinned_once_and_what_is_not_pinned_cannot_be_let_go(store: ControlStore) -> None:
    pin = store.pins.add(ORDERS, 1, actor=BO, reason="ours", now=NOW)
    with pytest.raises(StreamRefusedError, match="v1 of silver/orders is pinned already, by bo: ours"):
        store.pins.add(ORDERS, 1, actor=ANA, reason="once more", now=NOW)
    with pytest.raises(StreamRefusedError, match="v2 of silver/orders is not pinned") as refused:
        store.pins.remove(ORDERS, 2, actor=ANA, reason="audited", now=NOW)
    assert refused.value.hint == "pinned: v1"
    assert store.pins.of_table(ORDERS) == [pin] and len(store.audit_entries()) == 1


def test_nothing_is_pinned_while_a_vacuum_is_under_way(store: ControlStore) -> None:
    vacuum = replace(JOB, kind=JobKind.VACUUM, subject=ORDERS.name)
    job = store.jobs.submit(vacuum, now=NOW)
    with pytest.raises(StreamRefusedError, match="a vacuum of it is under way"):
        store.pins.add(ORDERS, 1, actor=ANA, reason="audit", now=NOW)
    store.pins.add(OTHER, 1, actor=ANA, reason="audit", now=NOW)
    store.jobs.cancel(job.job_id, actor=ANA, reason="first the pin", now=NOW)
    assert store.pins.add(ORDERS, 1, actor=ANA, reason="audit", now=NOW).version == 1


def test_a_name_is_one_of_its_table_alone_and_a_pin_may_end(store: ControlStore) -> None:
    end = NOW + timedelta(days=30)
    made = store.pins.add(ORDERS, 118, actor=ANA, reason="the model", now=NOW, name=" features-2026-11 ", until=end)
    assert made == Pin(ORDERS.uri, 118, "ana", "the model", NOW, "features-2026-11", end)
    assert store.pins.of_table(ORDERS) == [made]
    assert made.holds(end - timedelta(seconds=1)) and not made.holds(end)
    store.pins.add(OTHER, 3, actor=ANA, reason="the model", now=NOW, name="features-2026-11")
    with pytest.raises(StreamRefusedError, match="'features-2026-11' names v118 of silver/orders already"):
        store.pins.add(ORDERS, 119, actor=ANA, reason="once more", now=NOW, name="features-2026-11")
    with pytest.raises(StreamRefusedError, match="which has passed"):
        store.pins.add(ORDERS, 119, actor=ANA, reason="too late", now=NOW, until=NOW)
    with pytest.raises(VersionFormatError, match="no name for a version: 'latest'"):
        store.pins.add(ORDERS, 119, actor=ANA, reason="confusing", now=NOW, name="latest")
    for version in (1, 2):
        store.pins.add(ORDERS, version, actor=ANA, reason="without a name", now=NOW, name=" ")
    store.pins.remove(ORDERS, 118, actor=ANA, reason="trained", now=NOW)
    store.pins.add(ORDERS, 119, actor=ANA, reason="once more", now=NOW, name="features-2026-11")
    assert [entry.detail for entry in store.audit_entries(subject=ORDERS.name)] == [
        "v119 as features-2026-11",
        "v118, pinned as features-2026-11 by ana: the model",
        "v2",
        "v1",
        f"v118 as features-2026-11, until {utc_text(end)}",
    ]


ANA, BO = Actor("ana"), Actor("bo")
CHART = Chart("Bar", "status", "n", None)
TEXT = "SELECT status,\n  count(*) AS n FROM orders GROUP BY 1"


def test_a_query_is_kept_with_its_chart_replaced_by_its_owner_and_removed(store: ControlStore) -> None:
    made = store.saved.save(" By status ", TEXT, CHART, actor=ANA, reason="for the stand-up", now=NOW)
    assert made == SavedQuery("By status", "ana", TEXT, CHART, NOW) == store.saved.get("By status")
    plain = store.saved.save("All", "SELECT 1", actor=BO, reason="a first look", now=NOW)
    assert store.saved.all() == [plain, made]

    later = NOW + timedelta(days=1)
    again = store.saved.save("By status", "SELECT 2", actor=ANA, reason="shorter", now=later)
    assert store.saved.all() == [plain, replace(made, text="SELECT 2", chart=None, saved_at=later)] == [plain, again]

    assert store.saved.remove("By status", actor=BO, reason="nobody looks", now=later) == again
    assert store.saved.all() == [plain]
    acts = [(entry.actor, entry.action, entry.reason, entry.detail) for entry in store.audit_entries()]
    assert acts == [
        ("bo", "remove query", "nobody looks", "of ana: SELECT 2"),
        ("ana", "save query", "shorter", "of ana: SELECT 2"),
        ("bo", "save query", "a first look", "of bo: SELECT 1"),
        ("ana", "save query", "for the stand-up", "of ana: SELECT status, count(*) AS n FROM orders GROUP BY 1"),
    ]


def test_nobody_replaces_what_somebody_else_saved(store: ControlStore) -> None:
    mine = store.saved.save("Totals", TEXT, actor=ANA, reason="mine", now=NOW)
    entries = store.audit_entries()
    with pytest.raises(StreamRefusedError, match="Totals is a saved query of ana"):
        store.saved.save("Totals", "SELECT 2", actor=BO, reason="better", now=NOW)
    assert store.saved.all() == [mine] and store.audit_entries() == entries


@pytest.mark.parametrize("name", ["  ", "a/b", "two\nlines", "n" * 61, "\u202eslatot"])
def test_a_name_is_one_that_a_link_can_hold(store: ControlStore, name: str) -> None:
    with pytest.raises(QueryError, match="a saved query needs a name"):
        store.saved.save(name, TEXT, actor=ANA, reason="mine", now=NOW)
    assert store.saved.all() == [] and store.audit_entries() == []


def test_one_that_is_not_there_is_told_with_those_that_are(store: ControlStore) -> None:
    store.saved.save("Totals", TEXT, actor=ANA, reason="mine", now=NOW)
    for ask in (store.saved.get, lambda name: store.saved.remove(name, actor=ANA, reason="gone", now=NOW)):
        with pytest.raises(SavedQueryNotFoundError, match="no saved query 'totals'") as missing:
            ask("totals")
        assert missing.value.hint == "saved: Totals"
    assert [entry.action for entry in store.audit_entries()] == ["save query"]


NULLS = replace(JUMP, kind=Measure.NULLS, subject="email", committed_at=NOW - timedelta(seconds=1))
OTHER_JUMP = replace(JUMP, uri="s3://lake/other", table="other", committed_at=None)


def test_what_is_noticed_twice_is_kept_once_and_mended(store: ControlStore) -> None:
    store.noticed.keep([JUMP, NULLS, OTHER_JUMP], now=NOW)
    store.noticed.keep([JUMP], now=NOW + timedelta(hours=1))
    assert {notice.key: notice for notice in store.noticed.open()} == {n.key: n for n in (JUMP, NULLS, OTHER_JUMP)}
    store.noticed.keep([replace(JUMP, mended_at=33)], now=NOW)
    assert {notice.key for notice in store.noticed.open()} == {NULLS.key, OTHER_JUMP.key}
    assert store.noticed.prune(before=NOW) == 0 and store.noticed.prune(before=NOW + timedelta(seconds=1)) == 3
    with pytest.raises(StreamRefusedError, match="nothing is open of v30"):
        store.noticed.seen(JUMP.uri, 30, actor=ANA, reason="mine", now=NOW)


def test_what_somebody_has_seen_is_told_no_more(store: ControlStore) -> None:
    store.noticed.keep([JUMP, NULLS, OTHER_JUMP], now=NOW)
    seen = store.noticed.seen(JUMP.uri, 31, actor=ANA, reason=" a price list in cents ", now=NOW)
    assert {notice.key for notice in seen} == {JUMP.key, NULLS.key} and store.noticed.open() == [OTHER_JUMP]
    store.noticed.keep([JUMP, NULLS], now=NOW)  # by a host that began anew
    assert store.noticed.open() == [OTHER_JUMP]
    acts = [(each.actor, each.action, each.reason, each.detail) for each in store.audit_entries(subject="orders")]
    assert acts == [("ana", "seen", "a price list in cents", "v31")]


def test_what_no_host_knows_is_seen_as_a_page_told_it_and_what_one_knows_stays_as_it_is(store: ControlStore) -> None:
    store.noticed.keep([replace(JUMP, mended_at=33)], now=NOW)
    seen = store.noticed.seen(JUMP.uri, 31, actor=ANA, reason="agreed", now=NOW, told=[JUMP, NULLS])
    assert [notice.key for notice in seen] == [NULLS.key] and store.noticed.open() == []
    assert store.noticed.seen_keys() == {NULLS.key}
    with pytest.raises(StreamRefusedError, match="a reason is required"):
        store.noticed.seen(OTHER_JUMP.uri, 31, actor=ANA, reason="", now=NOW, told=[OTHER_JUMP])
    assert store.noticed.open() == [], "what was refused was not written either"


KEY = TableExpectation("s3://lake/orders", "s3://lake/orders", ExpectationKind.UNIQUE, "shop", columns=("a", "b"))
REFERS = replace(
    KEY, kind=ExpectationKind.REFERENCES, columns=("a",), other="c", other_uri="/lake/c", other_column="id"
)
WITH_ALL = Finding(
    State.BROKEN, "because", NOW, 131, 7, NOW - timedelta(days=1), "2026-02-28", 12, (800, 1_200), 20, 3, 9, ("1", "2"),
    seen={"table": "id", "days": {"2026-02-28": 12, "2026-02-27": None}},
)  # fmt: skip


def test_a_judgement_comes_back_as_it_was_given(store: ControlStore) -> None:
    assert store.judgements() == []
    for each in (FRESH, KEY, REFERS):
        judged = replace(judgement(each, WITH_ALL), broken_since=NOW - timedelta(hours=2))
        store.note_judgement(judged)
        assert judged in store.judgements()
    later = replace(judgement(KEY, replace(WITH_ALL, state=State.MET)), judged_at=NOW + timedelta(seconds=1))
    store.note_judgement(later)
    assert len(store.judgements()) == 3 and later in store.judgements()


def test_what_a_pipeline_expects_no_more_is_forgotten_and_what_was_found_stays(store: ControlStore) -> None:
    of_others = judgement(replace(FRESH, uri="/lake/x", pipeline="other"))
    store.expect(["other"], [of_others])
    store.expect(["shop"], [judgement(FRESH), judgement(KEY)])
    found = judgement(FRESH, WITH_ALL)
    store.note_judgement(found)
    store.expect(["shop"], [judgement(FRESH), judgement(REFERS)])
    assert sorted(store.judgements(), key=lambda each: each.expectation.name) == [found, of_others, judgement(REFERS)]
    store.expect(["shop"], [])
    assert store.judgements() == [of_others]


def test_what_no_host_judges_is_forgotten_after_a_while_and_no_person_takes_it_back(store: ControlStore) -> None:
    store.note_judgement(judgement(FRESH))
    with pytest.raises(StreamRefusedError, match="nobody expects fresh by hand"):
        store.expect_no_more(FRESH, actor=ANA, reason="late anyway", now=NOW)
    assert store.prune_judgements(before=NOW) == 0
    assert store.judgements() == [judgement(FRESH)]
    assert store.prune_judgements(before=NOW + timedelta(seconds=1)) == 1
    assert store.judgements() == []


def test_what_a_person_expects_stays_until_a_person_takes_it_back(store: ControlStore) -> None:
    asked = TableExpectation(FRESH.uri, "gold_orders", ExpectationKind.HOLDS, condition="amount <= 550")
    ann, later = Actor("ann"), NOW + timedelta(days=900)
    store.expect_by_hand(asked, actor=ann, reason=" cents, not euros ", now=NOW)
    (begun,) = store.judgements()
    kept = replace(asked, by="ann", why="cents, not euros")
    assert (begun.expectation, begun.host_id, begun.finding.is_early) == (kept, "", True)
    found = judgement(kept, Finding(State.BROKEN, "2 of 4 rows violate it", version=3))
    store.note_judgement(found)
    store.expect_by_hand(asked, actor=Actor("ben"), reason="so do I", now=NOW)
    store.expect(["shop"], [judgement(FRESH)])
    store.expect(["shop"], [])
    assert store.prune_judgements(before=later) == 0 and store.judgements() == [found]

    store.expect_no_more(kept, actor=ann, reason="prices went up", now=NOW)
    store.note_judgement(found)  # by a host that looked meanwhile
    assert store.judgements() == []
    with pytest.raises(StreamRefusedError, match=r"nobody expects holds\(amount <= 550\) by hand"):
        store.expect_no_more(kept, actor=ann, reason="twice", now=NOW)
    acts = [(each.actor, each.action, each.detail) for each in store.audit_entries(subject="gold_orders")]
    name = "holds(amount <= 550)"
    assert acts == [("ann", "expect no more", name), ("ben", "expect", name), ("ann", "expect", name)]
