"""A version is pinned by a named person with a reason, once, and let go the same way."""

from datetime import timedelta

import pytest

from backend.access import Actor
from backend.errors import StreamRefusedError, VersionFormatError
from backend.format import utc_text
from backend.jobs.model import JobKind, JobRequest
from backend.lake.model import Pin, TableRef
from backend.store.store import ControlStore
from tests.worlds.store.values import NOW

ORDERS = TableRef("s3://lake/silver/orders", "silver/orders", "s3://lake")
OTHER = TableRef("s3://lake/silver/other", "silver/other", "s3://lake")
ANA = Actor("ana")


def test_a_pin_is_kept_audited_and_let_go(store: ControlStore) -> None:
    store.pins.add(ORDERS, 118, actor=ANA, reason=" audit of May ", now=NOW)
    store.pins.add(ORDERS, 7, actor=Actor("bo"), reason="the first load", now=NOW)
    store.pins.add(OTHER, 118, actor=ANA, reason="audit", now=NOW)
    may = Pin(ORDERS.uri, 118, "ana", "audit of May", NOW)
    assert store.pins.of_table(ORDERS) == [Pin(ORDERS.uri, 7, "bo", "the first load", NOW), may]

    gone = store.pins.remove(ORDERS, 118, actor=Actor("bo"), reason="audited", now=NOW + timedelta(days=1))
    assert gone == may
    assert [pin.version for pin in store.pins.of_table(ORDERS)] == [7] and len(store.pins.of_table(OTHER)) == 1
    told = [(each.actor, each.action, each.reason, each.detail) for each in store.audit_entries(subject=ORDERS.name)]
    assert told == [
        ("bo", "unpin", "audited", "v118, pinned by ana: audit of May"),
        ("bo", "pin", "the first load", "v7"),
        ("ana", "pin", "audit of May", "v118"),
    ]


@pytest.mark.parametrize(
    ("actor", "reason", "why"),
    [
        (ANA, " ", "a reason is required"),
        (Actor("eve", "Weir is read-only"), "mine", "Weir is read-only"),
        (ANA, "once more", "v1 of silver/orders is pinned already, by bo: ours"),
    ],
)
def test_what_is_refused_changes_nothing(store: ControlStore, actor: Actor, reason: str, why: str) -> None:
    store.pins.add(ORDERS, 1, actor=Actor("bo"), reason="ours", now=NOW)
    before = store.pins.of_table(ORDERS), store.audit_entries()
    with pytest.raises(StreamRefusedError, match=why):
        store.pins.add(ORDERS, 1 if "already" in why else 2, actor=actor, reason=reason, now=NOW)
    if "already" not in why:
        with pytest.raises(StreamRefusedError, match=why):
            store.pins.remove(ORDERS, 1, actor=actor, reason=reason, now=NOW)
    assert (store.pins.of_table(ORDERS), store.audit_entries()) == before


def test_what_is_not_pinned_cannot_be_let_go(store: ControlStore) -> None:
    store.pins.add(ORDERS, 1, actor=ANA, reason="audit", now=NOW)
    with pytest.raises(StreamRefusedError, match="v2 of silver/orders is not pinned") as refused:
        store.pins.remove(ORDERS, 2, actor=ANA, reason="audited", now=NOW)
    assert refused.value.hint == "pinned: v1"


def test_nothing_is_pinned_while_a_vacuum_is_under_way(store: ControlStore) -> None:
    vacuum = JobRequest(JobKind.VACUUM, ORDERS.name, "f1", "{}", ANA, "space", 600.0)
    job = store.jobs.submit(vacuum, now=NOW)
    with pytest.raises(StreamRefusedError, match="a vacuum of it is under way"):
        store.pins.add(ORDERS, 1, actor=ANA, reason="audit", now=NOW)
    store.pins.add(OTHER, 1, actor=ANA, reason="audit", now=NOW)
    store.jobs.cancel(job.job_id, actor=ANA, reason="first the pin", now=NOW)
    assert store.pins.add(ORDERS, 1, actor=ANA, reason="audit", now=NOW).version == 1


def test_a_name_is_one_of_its_table_alone_and_a_pin_may_end(store: ControlStore) -> None:
    end = NOW + timedelta(days=30)
    made = store.pins.add(ORDERS, 118, actor=ANA, reason="the model", now=NOW, name=" features-2026-11 ", until=end)
    assert (
        store.pins.of_table(ORDERS)
        == [made]
        == [Pin(ORDERS.uri, 118, "ana", "the model", NOW, "features-2026-11", end)]
    )
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
