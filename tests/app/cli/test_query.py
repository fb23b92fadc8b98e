"""`weir query`: rows on stdout, the versions under them, and exit codes as elsewhere."""

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backend.access import Actor
from backend.settings import load_settings
from backend.sql.saved import Chart
from backend.store.store import ControlStore
from tests.worlds.lake import builders
from tests.worlds.terminal import Copied, Weir

BY_STATUS = "SELECT status, count(*) AS n, sum(amount) AS total FROM orders GROUP BY status ORDER BY status"


@pytest.fixture(autouse=True)
def orders(home: Path, copied: Copied) -> Path:
    return copied("orders", home / "lake" / "silver" / "orders")


def test_rows_with_the_versions_under_them(weir: Weir) -> None:
    *rows, last = weir("query", BY_STATUS).out.splitlines()
    assert [row.split() for row in rows] == [["status", "n", "total"], ["new", "3", "120.0"], ["paid", "1", "25.0"]]
    assert last == "2 rows from silver/orders v3"
    both = "SELECT count(*) AS n FROM silver.orders VERSION AS OF 0 a JOIN orders b USING (order_id)"
    assert weir("query", both).out.splitlines()[-1] == "1 row from silver/orders v0, silver/orders v3"
    assert weir("query", BY_STATUS, "--at", "0").out.splitlines()[1:] == [
        "new     3   60.0",
        "1 row from silver/orders v0",
    ]


def test_versions_of_a_link_are_read_whatever_the_statement_says(weir: Weir) -> None:
    both = "SELECT (SELECT count(*) FROM orders VERSION AS OF 'latest') AS a, (SELECT count(*) FROM orders) AS b"
    rows = weir("query", both, "--versions", "0,1", "--json").document["rows"]
    assert rows in ([{"a": 3, "b": 5}], [{"a": 5, "b": 3}])  # places stand in the order of the tree
    wrong = weir("query", BY_STATUS, "--versions", "0,1")
    assert wrong.code == 2 and "the versions are not those of this statement" in wrong.err


def test_json_has_types_versions_and_whether_there_is_more(weir: Weir) -> None:
    document = weir("query", "SELECT order_id, status FROM orders ORDER BY 1", "--limit", "2", "--json").document
    assert document["rows"] == [{"order_id": 2, "status": "paid"}, {"order_id": 3, "status": "new"}]
    assert document["truncated"] and document["columns"][0] == {"name": "order_id", "type": "int64"}
    (table,) = document["tables"]
    assert (table["table"], table["version"], table["num_files"] > 0) == ("silver/orders", 3, True)
    whole = weir("query", "SELECT order_id FROM orders LIMIT 9", "--limit", "4", "--json").document
    assert len(whole["rows"]) == 4 and not whole["truncated"]
    twice = weir(
        "query", "SELECT 1 AS a, 2 AS a, a.status, b.status FROM orders a, orders b LIMIT 1", "--json"
    ).document
    assert len(twice["rows"][0]) == len({column["name"] for column in twice["columns"]}) == 4


def test_csv_has_all_rows_and_nothing_else(home: Path, weir: Weir) -> None:
    builders.write(home / "lake" / "many", {"id": list(range(3_000))})
    answer = weir("query", "SELECT id FROM many ORDER BY id", "--csv")
    rows = list(csv.DictReader(io.StringIO(answer.out.removeprefix("\ufeff"))))
    assert [int(row["id"]) for row in rows] == list(range(3_000)) and answer.err == "3,000 rows from many v0\n"
    assert weir("query", "SELECT id FROM many").out.endswith("the first 1,000 rows from many v0\n")


def test_a_statement_may_be_in_a_file(home: Path, weir: Weir) -> None:
    (home / "q.sql").write_text(f"-- by status\n{BY_STATUS};\n")
    assert weir("query", "-f", str(home / "q.sql")).out == weir("query", BY_STATUS).out
    for wrong in (("query",), ("query", "SELECT 1", "-f", "q.sql"), ("query", "-f", "no.sql")):
        assert weir(*wrong).code == 2


def test_what_it_would_read_and_what_is_too_much(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    said = weir("query", BY_STATUS, "--dry-run").out
    assert said.endswith(" from silver/orders v3\n") and " file" in said
    monkeypatch.setenv("WEIR_LAKE__QUERY_MAX_BYTES", "10")
    refused = weir("query", BY_STATUS)
    assert refused.code == 4 and "more than 10 B" in refused.err and "--yes" in refused.err
    assert weir("query", BY_STATUS, "--yes").code == 0


@pytest.mark.parametrize("rows", ["names", "(SELECT * FROM names)"])
def test_texts_are_compared_by_their_collation_or_it_is_said(home: Path, weir: Weir, rows: str) -> None:
    path = home / "lake" / "names"
    traits = [{"__COLLATIONS": {"name": "spark.UTF8_LCASE"}}, {"__COLLATIONS": {"town": "icu.de_DE"}}]
    columns = [builders.column(name, "string", **trait) for name, trait in zip(("name", "town"), traits, strict=True)]
    data = {"name": ["Ada", "ada", "Bob"], "town": ["Ulm", "Bonn", "Köln"]}
    stats = {"minValues": {"name": "Ada"}, "maxValues": {"name": "ada"}}
    added = builders.put(path, "a.parquet", data, rows=None, stats=json.dumps({"numRecords": 3, **stats}))
    builders.HandLog(path).commit(builders.protocol(), builders.metadata(columns), added)
    found = weir("query", f"SELECT name FROM {rows} WHERE name = 'ADA' ORDER BY town", "--json").document["rows"]
    assert found == [{"name": "ada"}, {"name": "Ada"}]
    said = weir("query", f"SELECT * FROM {rows}", "--dry-run").out
    assert "compared by bytes, not by collation: town (de_DE)" in said and "UTF8_LCASE" not in said
    assert "string collate UTF8_LCASE" in weir("table", "names").out


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("SELECT * FROM nowhere", 3, "nowhere"),
        ("SELECT * FROM orders VERSION AS OF 99", 3, "no version 99"),
        ("SELECT nope FROM orders", 2, "order_id"),
        ("SELECT status + 1 FROM orders", 2, "error: the query cannot be computed"),
        ("DROP TABLE orders", 2, "DROP is not allowed"),
        ("SELECT * FROM read_text('/etc/passwd')", 2, "the table function read_text is not allowed"),
    ],
)
def test_exit_codes_and_sentences(weir: Weir, text: str, code: int, words: str) -> None:
    answer = weir("query", text)
    assert answer.code == code and words in answer.err and not answer.out


def test_it_makes_no_store_and_is_in_the_audit_of_one_that_is_there(home: Path, weir: Weir) -> None:
    weir("query", BY_STATUS)
    assert not (home / "store").exists()
    store = ControlStore.open(load_settings())
    try:
        weir("query", BY_STATUS)
        (entry,) = store.audit_entries()
        assert (entry.action, entry.subject) == ("query", "silver/orders")
        assert entry.detail == f"2 rows; silver/orders v3; {BY_STATUS}"
    finally:
        store.close()


def test_streams_are_as_their_own_command_has_them(store: ControlStore, weir: Weir) -> None:
    def rows(text: str) -> list[tuple[object, ...]]:
        return [tuple(row.values()) for row in weir("query", text, "--json").document["rows"]]

    streams = rows("SELECT stream, state, verdict, sink_table FROM weir.streams ORDER BY 1")
    listed = weir("streams", "--json").document
    keys = ("name", "state", "verdict", "writes_to")
    assert len(streams) == 3 and streams == sorted(tuple(stream[key] for key in keys) for stream in listed)
    assert rows("SELECT stream, batch_id, num_input_rows FROM weir.batches") == [("flows", 3, 10)]


def test_a_saved_query_is_run_by_its_name(weir: Weir) -> None:
    missing = weir("query", "--saved", "By status")
    assert missing.code == 3 and "no saved query 'By status'" in missing.err
    store = ControlStore.open(load_settings())
    try:
        chart = Chart("Bar", "status", "n")
        store.saved.save("By status", BY_STATUS, chart, actor=Actor("ana"), reason="for all", now=datetime.now(UTC))
    finally:
        store.close()
    assert weir("query", "--saved", "By status").out == weir("query", BY_STATUS).out
    (row,) = weir("query", "SELECT name, owner, chart FROM weir.queries", "--json").document["rows"]
    assert row == {"name": "By status", "owner": "ana", "chart": "Bar"}
    missing = weir("query", "--saved", "By day")
    assert missing.code == 3 and "saved: By status" in missing.err
    assert weir("query", "SELECT 1", "--saved", "By status").code == 2


def test_as_code_for_another_tool(home: Path, weir: Weir) -> None:
    names: dict[str, Any] = {}
    exec(weir("query", BY_STATUS, "--at", "0", "--as", "pandas").out, names)
    assert names["frame"].to_dict("records") == weir("query", BY_STATUS, "--at", "0", "--json").document["rows"]
    one = weir("query", BY_STATUS, "--as", "trino", "--limit", "1").out
    assert "FOR VERSION AS OF 3" in one and one.endswith("LIMIT 1\n")
    assert "VERSION AS OF 3 AS `orders`" in weir("query", BY_STATUS, "--as", "spark").out
    refused = weir("query", "SELECT * FROM weir.tables", "--as", "spark")
    assert refused.code == 2 and "Spark has no weir.tables with these rows" in refused.err and not refused.out
    assert weir("query", BY_STATUS, "--as", "spark", "--json").code == 2
