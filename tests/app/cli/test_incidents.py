"""`weir incident`: opened of a version, added to, noted and closed; listed and shown as text, Markdown and JSON."""

from pathlib import Path

from backend.lake.model import TableRef
from backend.settings import load_settings
from backend.store.store import ControlStore
from tests.worlds.terminal import Copied, Weir


def test_an_incident_from_its_opening_to_its_end(weir: Weir, home: Path, copied: Copied) -> None:
    risen = copied("risen", home / "lake" / "orders")
    copied("orders", home / "lake" / "shop")
    assert weir("incident").code == 3, "there is no store"
    assert weir("incident", "open", "orders", "8").code == 4, "no reason"
    assert weir("incident", "lose", "orders").code == 2
    assert weir("incident").out.startswith("No incident: ") and weir("incident", "--json").document == []
    assert weir("incident", "open", "orders", "99", "--reason", "x").code == 3
    assert weir("incident", "open", "orders", "eight", "--reason", "x").code == 2
    answer = weir("incident", "open", "orders", "8", "--reason", "a bad batch")
    assert (answer.code, answer.out) == (0, "Incident 1: highest amount 310 → 47,189 at v8, WRITE · ✕ Open · orders\n")
    assert weir("incident", "open", "orders", "8", "--reason", "again").code == 4, "it is in that one"
    more = ("--into", "1", "--no-pin", "--reason", "the same batch", "--json")
    added = weir("incident", "open", "shop", "0", *more).document
    assert [(each["name"], each["good"], each["bad"]) for each in added["tables"]] == [
        ("orders", 7, 8),
        ("shop", None, 0),
    ]
    with_pins = ControlStore.open(load_settings())
    pinned = {
        each.name: with_pins.pins.of_table(TableRef(str(each), each.name, "")) for each in (risen, home / "lake/shop")
    }
    assert [pin.version for pin in pinned["orders"]] == [7, 8] and pinned["shop"] == []
    with_pins.close()

    assert weir("incident", "note", "1", "the price list was in cents").code == 0
    assert weir("incident", "note", "7", "x").code == 3 and weir("incident", "show", "7").code == 3
    shown = weir("incident", "show", "1").out
    assert "orders: v8 is the first bad version, v7 is the last good one." in shown
    assert "the price list was in cents" in shown and "highest amount 310 → 47,189 at v8, WRITE; still so." in shown
    (item,) = weir("incident", "--json").document
    assert (item["id"], item["state"], item["title"][:14]) == (1, "seen", "highest amount") and len(
        item["findings"]
    ) == 1
    document = weir("incident", "show", "1", "--json").document
    assert document["incident"] == item and document["findings"][0]["after"] == "47,189"
    assert {"note", "act", "notice"} == {event["kind"] for event in document["events"]}
    markdown = weir("incident", "show", "1", "--md").out
    assert markdown.startswith("# Incident 1: highest amount 310 → 47,189 at v8, WRITE\n")
    assert "**orders** · v7 → v8, 1 commit: 20 rows inserted" in markdown

    assert weir("incident", "close", "1").code == 4, "no reason"
    assert "✓ Over" in weir("incident", "close", "1", "--reason", "divided again").out
    assert weir("incident", "close", "1", "--reason", "divided again").code == 4
    listed = weir("incident").out
    assert "✓ Over" in listed and "orders, shop" in listed
