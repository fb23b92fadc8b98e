"""The first screen in words: totals, order, what needs attention and where it leads."""

from app.overview import view as overview
from app.ui.lake import lake_totals, totals_sentence
from backend.health.model import AttentionItem, Severity
from backend.lake.model import TableCard, TableRef, UnreadableTable
from tests.unit.app.made import NOW, REF


def test_totals_say_what_they_could_not_count() -> None:
    known = TableCard(REF, 3, 10, 1000, 50, 9, NOW, "WRITE")
    rowless = TableCard(REF, 3, 10, 1000, None, 0, NOW, "WRITE")
    broken = UnreadableTable(REF, "cut off", "restore it")
    text = totals_sentence(lake_totals([known, rowless, broken]))
    assert text == "3 tables · 50 rows (unknown in 1 table) · 20 files · 2 kB · 45 % small files · 1 unreadable"


def test_tables_stand_in_the_order_of_the_medallion_and_the_broken_among_them() -> None:
    def named(name: str, layer: str | None) -> UnreadableTable:
        return UnreadableTable(TableRef(f"/{name}", name, "/", layer), "no", "")

    tables = [named("a", None), named("b", "gold"), named("d", "bronze"), named("c", "bronze")]
    ordered = overview.by_layer(tables)
    assert [t.ref.name for t in ordered] == ["c", "d", "b", "a"]
    assert overview.tables_frame(ordered, NOW)["State"].tolist() == ["⚠ unreadable"] * 4


def test_the_heading_tells_urgent_from_notes_and_never_praises_what_is_unknown() -> None:
    note = AttentionItem(Severity.NOTE, "table", "t", "old", "look")
    urgent = AttentionItem(Severity.CRITICAL, "stream", "s", "failed", "restart")
    assert overview.attention_sentence([]) == "Nothing needs attention"
    assert overview.attention_sentence([note]) == "Nothing urgent, 1 note"
    assert overview.attention_sentence([urgent, note]) == "1 thing needs attention"
    assert overview.attention_sentence([], ["streams"]) == "Not known: streams could not be read"


def test_every_item_leads_to_the_page_that_helps() -> None:
    stream = AttentionItem(Severity.CRITICAL, "stream", "s", "failed", "restart")
    broken = AttentionItem(Severity.CRITICAL, "table", "t", "cannot be read", "restore")
    small = AttentionItem(Severity.WARNING, "table", "t", "small files", "optimize")
    host = AttentionItem(Severity.CRITICAL, "host", "h", "silent", "start")
    found = [overview.attention_destination(item) for item in (stream, broken, small, host)]
    assert [(d.page, d.table, d.stream) for d in found] == [
        ("stream", None, "s"),
        ("table", "t", None),
        ("health", "t", None),
        ("streams", None, None),
    ]


def test_figures_of_a_lake_that_no_one_can_read_are_dashes_and_no_zeros() -> None:
    broken = UnreadableTable(REF, "cut off", "restore it")
    figures = {figure.label: figure for figure in overview.key_figures(lake_totals([broken]), [])}
    assert (figures["Tables"].value, figures["Tables"].help) == ("1", "0 can be read.")
    assert (figures["Rows"].value, figures["Streams running"].value) == ("–", "–")
