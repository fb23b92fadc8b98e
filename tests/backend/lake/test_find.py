"""The search over the lake: what is found, why, and in which order."""

from backend.lake.find import FoundTable, LakeFinder, Where
from backend.lake.model import CardColumn, TableCard, TableRef, UnreadableTable


def card(name: str, *columns: tuple[str, str | None], **more: object) -> TableCard:
    ref = TableRef(f"/lake/{name}", name, "/lake", name.partition("/")[0])
    made = tuple(CardColumn(path, "bigint", comment) for path, comment in columns)
    return TableCard(ref, 1, 1, 1, 1, 0, None, None, columns=made, **more)  # type: ignore[arg-type]


LAKE = [
    card("silver/customers", ("id", "the customer_id of the shop"), ("Name", None)),
    card("silver/orders", ("order_id", None), ("customer_id", None), ("address.street", None)),
    card("gold/sales", ("customer_id_hash", None), description="Sales per Customer and day"),
    card("bronze/raw", ("payload", None), owner="Growth", properties={"catalog.team_name": "Growth", "source": "CRM"}),
    UnreadableTable(TableRef("/lake/odd", "odd", "/lake"), "needs reader feature catalogOwned", ""),
]


def find(words: str) -> list[FoundTable]:
    return LakeFinder().find(LAKE, words)


def names(words: str) -> list[str]:
    return [found.table.ref.name for found in find(words)]


def test_which_tables_hold_a_column() -> None:
    assert names("customer_id") == ["silver/orders", "gold/sales", "silver/customers"]  # whole, part, only a comment
    (match,) = find("customer_id")[0].matches()
    assert (match.where, match.subject, match.text) == (Where.COLUMN, "customer_id", "bigint")
    (comment,) = find("customer_id")[2].matches()
    assert (comment.where, comment.subject) == (Where.COMMENT, "id")


def test_names_come_before_columns_and_whole_ones_before_parts() -> None:
    assert names("orders") == ["silver/orders"]
    assert names("customer")[0] == "silver/customers"
    assert names("STREET") == ["silver/orders"]


def test_every_word_must_be_found_somewhere() -> None:
    assert names("silver customer_id") == ["silver/orders", "silver/customers"]
    assert names("silver nowhere") == names("") == names("  ") == []


def test_owner_property_description_and_problem_are_looked_through_and_types_are_not() -> None:
    assert [(f.table.ref.name, f.matches()[0].where) for f in find("growth")] == [("bronze/raw", Where.OWNER)]
    assert len(find("growth")[0].matches()) == 1, "the property that names the owner is no second match"
    assert [(m.where, m.subject, m.text) for m in find("crm")[0].matches()] == [(Where.PROPERTY, "source", "CRM")]
    assert find("per day")[0].matches()[0].where is Where.DESCRIPTION
    assert [(f.table.ref.name, f.matches()[0].where) for f in find("catalogowned")] == [("odd", Where.PROBLEM)]
    assert names("bigint") == []


def test_a_finder_notices_a_card_that_changed_and_a_table_that_went() -> None:
    finder = LakeFinder()
    assert len(finder.find(LAKE, "customer_id")) == 3
    changed = [card("silver/orders", ("buyer", None)), *LAKE[2:]]
    assert [found.table.ref.name for found in finder.find(changed, "customer_id")] == ["gold/sales"]


def test_the_words_of_a_table_are_gathered_once_however_often_one_searches() -> None:
    finder = LakeFinder()
    first, second = (finder.find(LAKE, words) for words in ("customer_id", "customer"))
    entries = {found.table.ref.name: found.entry for found in first}
    assert entries and all(entries.get(found.table.ref.name, found.entry) is found.entry for found in second)
