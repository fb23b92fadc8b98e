"""Expectations on tables: on Summary, on Overview and in the list of tables, as the store has them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backend.expectations.model import ExpectationKind, Finding, Judgement, State, TableExpectation
from backend.store.store import ControlStore
from tests.worlds.lake import builders
from tests.worlds.pages.opened import home, open_page, words
from tests.worlds.store import stream_store

__all__ = ["home"]

MINUTES = timedelta(minutes=1)


@pytest.fixture
def lake(home: Path) -> Path:
    return builders.medallion_lake(home / "lake")


def say(store: ControlStore, expected: TableExpectation, finding: Finding, now: datetime) -> None:
    since = now - 30 * MINUTES if finding.state is State.BROKEN else None
    store.note_judgement(Judgement(expected, finding, stream_store.HOST, now, since))


def expectation(lake: Path, table: str, kind: ExpectationKind, **more: object) -> TableExpectation:
    return TableExpectation(str(lake / table), table.replace("/", "_"), kind, "shop", **more)  # type: ignore[arg-type]


def fill(lake: Path, *, beat_at: datetime, table: str = "silver/orders") -> None:
    """Broken, unknown and met, by a host that was alive at `beat_at`."""
    now, store = beat_at, stream_store.open_store(lake.parent)
    stream_store.beat(store, now)
    key = expectation(lake, table, ExpectationKind.UNIQUE, columns=("order_id",))
    found = Finding(State.BROKEN, broken_keys=7, broken_rows=15, examples=("1", "2", "3", "4", "5"), version=3)
    say(store, key, found, now)
    large = Finding(State.UNKNOWN, "1.2 TB, limit 10 GB")
    refers = {"columns": ("customer_id",), "other": "silver_customers", "other_column": "id"}
    say(store, expectation(lake, table, ExpectationKind.REFERENCES, **refers), large, now)
    fresh = Finding(State.MET, last_data_at=now - 4 * MINUTES, version=3)
    say(store, expectation(lake, table, ExpectationKind.FRESH, within_s=900.0), fresh, now)
    store.close()


def test_the_summary_shows_what_is_expected_and_found(lake: Path) -> None:
    fill(lake, beat_at=datetime.now(UTC))
    text = words(open_page("table", table="silver/orders"))
    assert "3 table expectations: 1 broken, 1 not known, 1 met" in text
    assert "**order_id is unique** · 7 keys are repeated, in 15 rows: 1 · 2 · 3 · 4 · 5 and 2 more" in text
    assert "broken for 30 min" in text and "judged at v3" in text
    assert "**customer_id is in silver_customers.id** · not judged: 1.2 TB, limit 10 GB" in text
    assert "**new data every 15 min** · the last came 4 min" in text
    assert "Not judged for" not in text
    assert "expectation" not in words(open_page("table", table="gold/orders_by_status"))
    assert "expectation" not in words(open_page("table", table="silver/orders", version=1)), "they are of the latest"


def test_a_host_that_is_away_makes_them_unknown_since_then(lake: Path) -> None:
    fill(lake, beat_at=datetime.now(UTC) - 10 * MINUTES)
    text = words(open_page("table", table="silver/orders"))
    assert "3 table expectations: 1 broken, 2 not known" in text
    assert "Not judged for 10 min" in text and "the host that did is away" in text
    assert "it was broken: 7 keys are repeated" in text and "it was met: the last came" in text
    assert "broken for" not in text, "nobody knows how it is now"
    overview = words(open_page("overview"))
    assert "its host is away" in overview


def test_overview_says_what_is_broken_and_leads_to_the_table(lake: Path) -> None:
    fill(lake, beat_at=datetime.now(UTC))
    app = open_page("overview")
    text = words(app)
    assert "1 thing needs attention" in text
    assert "**silver/orders** · Expected: order_id is unique. Found: 7 keys are repeated" in text
    assert "Expected: customer_id is in silver_customers.id. It is not judged: 1.2 TB, limit 10 GB" in text
    links = [link.proto for link in app.main.page_link if link.proto.label == "Open table"]
    assert {link.query_string for link in links} == {"table=silver%2Forders"}


def test_met_expectations_are_praised_and_young_ones_are_no_news(lake: Path) -> None:
    now, store = datetime.now(UTC), stream_store.open_store(lake.parent)
    stream_store.beat(store, now)
    say(
        store,
        expectation(lake, "silver/orders", ExpectationKind.FRESH, within_s=900.0),
        Finding(State.MET, last_data_at=now),
        now,
    )
    early = Finding(State.UNKNOWN, "3 of 7 full days before 2026-03-01 are known", is_early=True)
    say(store, expectation(lake, "silver/orders", ExpectationKind.ROWS_PER_DAY), early, now)
    store.close()
    app = open_page("overview")
    assert "Nothing needs attention" in words(app)
    assert "1 table expectation is met" in app.success[0].value
    summary = words(open_page("table", table="silver/orders"))
    assert "3 of 7 full days" in summary and "2 table expectations: 1 too early to tell, 1 met" in summary
    assert "0 of 3 tables match" in words(open_page("tables", show="Not as expected"))


def test_several_tables_lead_to_a_list_of_them(lake: Path) -> None:
    fill(lake, beat_at=datetime.now(UTC))
    fill(lake, beat_at=datetime.now(UTC), table="bronze/orders_raw")
    app = open_page("overview")
    said = [each.value for each in app.markdown]
    assert any("**2 tables** break 2 table expectations\\: bronze/orders_raw, silver/orders" in each for each in said)
    link = next(link.proto for link in app.main.page_link if link.proto.label == "Open the list")
    assert link.query_string == "show=Not+as+expected"
    listed = open_page("tables", show="Not as expected")
    assert listed.dataframe(key="catalog").value["Table"].tolist() == ["bronze/orders_raw", "silver/orders"]
