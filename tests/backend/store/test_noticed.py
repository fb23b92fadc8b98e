"""What hosts notice is kept once, mended by a later look, and ended by a named person with a reason."""

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.access import Actor
from backend.errors import StreamRefusedError
from backend.search.notice import Measure, Notice
from backend.store.store import ControlStore
from tests.worlds.store.values import NOW

JUMP = Notice(
    "s3://lake/orders", "orders", 31, Measure.HIGHEST, "amount", "498.2", "47,189", "amount <= 550",
    "MERGE by stream silver_orders", NOW,
)  # fmt: skip
NULLS = replace(JUMP, kind=Measure.NULLS, subject="email", committed_at=NOW - timedelta(seconds=1))
OTHER = replace(JUMP, uri="s3://lake/other", table="other", committed_at=None)


def test_what_is_noticed_twice_is_kept_once_and_mended(store: ControlStore) -> None:
    store.noticed.keep([JUMP, NULLS, OTHER], now=NOW)
    store.noticed.keep([JUMP], now=NOW + timedelta(hours=1))
    assert {notice.key: notice for notice in store.noticed.open()} == {each.key: each for each in (JUMP, NULLS, OTHER)}
    store.noticed.keep([replace(JUMP, mended_at=33)], now=NOW)
    assert {notice.key for notice in store.noticed.open()} == {NULLS.key, OTHER.key}


def test_what_somebody_has_seen_is_told_no_more(store: ControlStore) -> None:
    store.noticed.keep([JUMP, NULLS, OTHER], now=NOW)
    seen = store.noticed.seen(JUMP.uri, 31, actor=Actor("ana"), reason=" a price list in cents ", now=NOW)
    assert {notice.key for notice in seen} == {JUMP.key, NULLS.key} and store.noticed.open() == [OTHER]
    store.noticed.keep([JUMP, NULLS], now=NOW)  # by a host that began anew
    assert store.noticed.open() == [OTHER]
    told = [(each.actor, each.action, each.reason, each.detail) for each in store.audit_entries(subject="orders")]
    assert told == [("ana", "seen", "a price list in cents", "v31")]


def test_what_no_host_knows_is_seen_as_a_page_told_it_and_what_one_knows_stays_as_it_is(store: ControlStore) -> None:
    store.noticed.keep([replace(JUMP, mended_at=33)], now=NOW)
    seen = store.noticed.seen(JUMP.uri, 31, actor=Actor("ana"), reason="agreed", now=NOW, told=[JUMP, NULLS])
    assert [notice.key for notice in seen] == [NULLS.key] and store.noticed.open() == []
    assert store.noticed.seen_keys() == {NULLS.key}
    with pytest.raises(StreamRefusedError, match="a reason is required"):
        store.noticed.seen(OTHER.uri, 31, actor=Actor("ana"), reason="", now=NOW, told=[OTHER])
    assert store.noticed.open() == [], "what was refused was not written either"


@pytest.mark.parametrize(
    ("version", "actor", "reason", "why"),
    [
        (30, Actor("ana"), "mine", "nothing is open of v30"),
        (31, Actor("ana"), " ", "a reason is required"),
        (31, Actor("eve", "Weir is read-only"), "mine", "Weir is read-only"),
    ],
)
def test_what_is_refused_changes_nothing(
    store: ControlStore, version: int, actor: Actor, reason: str, why: str
) -> None:
    store.noticed.keep([JUMP], now=NOW)
    with pytest.raises(StreamRefusedError, match=why):
        store.noticed.seen(JUMP.uri, version, actor=actor, reason=reason, now=NOW)
    assert store.noticed.open() == [JUMP] and store.audit_entries() == []


def test_old_ones_are_forgotten(store: ControlStore) -> None:
    store.noticed.keep([JUMP], now=NOW)
    store.noticed.keep([OTHER], now=NOW + timedelta(days=2))
    assert store.noticed.prune(before=NOW + timedelta(days=1)) == 1
    assert store.noticed.open() == [OTHER]
