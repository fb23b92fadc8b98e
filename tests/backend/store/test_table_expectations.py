"""The control store keeps what hosts found of expectations on tables."""

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.access import Actor
from backend.errors import StreamRefusedError
from backend.expectations.model import ExpectationKind, Finding, Judgement, State, TableExpectation
from backend.store.store import ControlStore
from tests.worlds.store.values import NOW

FRESH = TableExpectation("/lake/gold/orders", "gold_orders", ExpectationKind.FRESH, "shop", within_s=900.0)
KEY = TableExpectation("s3://lake/orders", "s3://lake/orders", ExpectationKind.UNIQUE, "shop", columns=("a", "b"))
REFERS = replace(
    KEY, kind=ExpectationKind.REFERENCES, columns=("a",), other="c", other_uri="/lake/c", other_column="id"
)
EARLY = Finding(State.UNKNOWN, "not judged yet", is_early=True)
FULL = Finding(
    State.BROKEN, "because", NOW, 131, 7, NOW - timedelta(days=1), "2026-02-28", 12, (800, 1_200), 20, 3, 9, ("1", "2"),
    seen={"table": "id", "days": {"2026-02-28": 12, "2026-02-27": None}},
)  # fmt: skip


def said(expectation: TableExpectation, finding: Finding = EARLY) -> Judgement:
    return Judgement(expectation, finding, "host-a", NOW)


def test_a_judgement_comes_back_as_it_was_given(store: ControlStore) -> None:
    assert store.judgements() == []
    for each in (FRESH, KEY, REFERS):
        judged = replace(said(each, FULL), broken_since=NOW - timedelta(hours=2))
        store.note_judgement(judged)
        assert judged in store.judgements()
    later = replace(said(KEY, replace(FULL, state=State.MET)), judged_at=NOW + timedelta(seconds=1))
    store.note_judgement(later)
    assert len(store.judgements()) == 3 and later in store.judgements()


def test_what_a_pipeline_expects_no_more_is_forgotten_and_what_was_found_stays(store: ControlStore) -> None:
    of_others = said(replace(FRESH, uri="/lake/x", pipeline="other"))
    store.expect(["other"], [of_others])
    store.expect(["shop"], [said(FRESH), said(KEY)])
    found = said(FRESH, FULL)
    store.note_judgement(found)
    store.expect(["shop"], [said(FRESH), said(REFERS)])
    assert sorted(store.judgements(), key=lambda each: each.expectation.name) == [found, of_others, said(REFERS)]
    store.expect(["shop"], [])
    assert store.judgements() == [of_others]


def test_what_no_host_judges_is_forgotten_after_a_while(store: ControlStore) -> None:
    store.note_judgement(said(FRESH))
    assert store.prune_judgements(before=NOW) == 0
    assert store.prune_judgements(before=NOW + timedelta(seconds=1)) == 1
    assert store.judgements() == []


def test_what_a_person_expects_stays_until_a_person_takes_it_back(store: ControlStore) -> None:
    asked = TableExpectation(FRESH.uri, "gold_orders", ExpectationKind.HOLDS, condition="amount <= 550")
    ann, later = Actor("ann"), NOW + timedelta(days=900)
    store.expect_by_hand(asked, actor=ann, reason=" cents, not euros ", now=NOW)
    (begun,) = store.judgements()
    kept = replace(asked, by="ann", why="cents, not euros")
    assert (begun.expectation, begun.host_id, begun.finding.is_early) == (kept, "", True)
    found = said(kept, Finding(State.BROKEN, "2 of 4 rows violate it", version=3))
    store.note_judgement(found)
    store.expect_by_hand(asked, actor=Actor("ben"), reason="so do I", now=NOW)
    store.expect(["shop"], [said(FRESH)])
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


def test_what_a_pipeline_expects_no_person_takes_back(store: ControlStore) -> None:
    store.note_judgement(said(FRESH))
    with pytest.raises(StreamRefusedError, match="nobody expects fresh by hand"):
        store.expect_no_more(FRESH, actor=Actor("ann"), reason="late anyway", now=NOW)
    assert store.judgements() == [said(FRESH)]
