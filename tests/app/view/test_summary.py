"""The summary's figures and sentences."""

from dataclasses import replace
from datetime import timedelta

from app.summary.view import summary as table
from backend.format import ago_short
from backend.health.rules import MergeGain
from backend.lake.history.unusual import Rhythm
from backend.lake.model import StreamOrigin, Timeline, VersionTotals
from backend.streams.graph import Lineage
from tests.backend.streams.test_stream_graph import status
from tests.worlds.lake.made import NOW, REF, commit, snapshot


def test_figures_of_a_version() -> None:
    figures = table.key_figures(snapshot([10, 20]), MergeGain(2, 2, 30, 1))
    assert [figure.value for figure in figures] == ["10", "2", "30 B", "2 of 2"]
    assert table.key_figures(snapshot([10, 20]), MergeGain(2, 0, 30, 2))[-1].value == "Fine"


def test_freshness_is_told_against_the_tables_own_rhythm() -> None:
    assert table.rhythm_sentence(Rhythm(12.0, 14.0, 4.2)) == "A commit every 12 s, the last 4 s ago."
    late = table.rhythm_sentence(Rhythm(12.0, 14.0, 7_800.0))
    assert late == "A commit every 12 s, the last 2 h 10 min ago: that is later than usual."
    assert table.rhythm_sentence(None) == ""


def test_the_age_of_a_key_figure_fits_a_narrow_card() -> None:
    ages = [ago_short(NOW - timedelta(seconds=seconds), NOW) for seconds in (0, 4, 2_896, 7_800, 300_000, -90)]
    assert ages == ["just now", "4 s ago", "48 min ago", "2 h ago", "3 d ago", "in 1 min 30 s"]
    assert ago_short(None, NOW) == "–"


def test_growth_is_of_a_day_or_of_all_that_is_known() -> None:
    first = VersionTotals(3, NOW - timedelta(hours=3), "WRITE", 1, 1_000, 5, 0)
    last = VersionTotals(4, NOW, "WRITE", 2, 3_000, 6, 0)
    assert table.growth_sentence(Timeline((first, last), 3), NOW) == "Since v3, 3 h ago: +1 row, +2 kB."
    old = VersionTotals(2, NOW - timedelta(hours=30), "WRITE", 1, 500, None, 0)
    assert table.growth_sentence(Timeline((old, first, last), 2), NOW) == "In 24 h: +2.5 kB."
    assert table.growth_sentence(Timeline((last,), 4), NOW) == ""


def test_streams_that_write_the_table_are_named() -> None:
    by_stream = replace(commit(1), origin=StreamOrigin(None, "7c1b", None, 9))
    assert (
        table.writers_sentence([by_stream], {"7c1b": "silver_orders"}) == "Its only commit is by stream silver_orders."
    )


def test_the_streams_that_write_and_read_the_table_are_those_of_the_graph() -> None:
    writes = status("orders", sink_table="silver/orders", side_tables=("silver/orders_quarantine",))
    reads, other = status("gold", reads=("silver/orders",)), status("other", reads=("bronze/orders_raw",))
    streams = [writes, reads, other]
    assert table.lineage_of(REF, streams, NOW) == Lineage(("orders",), ("gold",))
    beside = replace(REF, name="silver/orders_quarantine", uri="/lake/silver/orders_quarantine")
    assert table.lineage_of(beside, streams, NOW) == Lineage(("orders",), ())
    raw = replace(REF, name="bronze/orders_raw", uri="/lake/bronze/orders_raw")
    assert table.lineage_of(raw, streams, NOW) == Lineage((), ("other",))
    assert table.lineage_of(REF, [other], NOW) == Lineage()
