"""`weir query`: rows on stdout, the versions under them, and exit codes as elsewhere."""

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from app import services
from app.ui.view.frames import shown_rows
from backend.access import Actor
from backend.query.answer import answered, query_limits
from backend.query.plan import plan_query
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


# Of DuckDB's types a value, how it leaves as JSON, and Arrow's type. SAME: as DuckDB's own text.
SAME = object()
LEAVES: dict[str, tuple[str, Any, str]] = {
    "BOOLEAN": ("true", True, "bool"),
    "TINYINT": ("-128", -128, "int8"),
    "SMALLINT": ("-32768", -(2**15), "int16"),
    "INTEGER": ("-2147483648", -(2**31), "int32"),
    "BIGINT": ("-9223372036854775808", -(2**63), "int64"),
    "UTINYINT": ("255", 255, "uint8"),
    "USMALLINT": ("65535", 2**16 - 1, "uint16"),
    "UINTEGER": ("4294967295", 2**32 - 1, "uint32"),
    "UBIGINT": ("18446744073709551615", 2**64 - 1, "uint64"),
    "HUGEINT": ("18446744073709551615", 2**64 - 1, "decimal128(38, 0)"),
    "INT128": ("-170141183460469231731687303715884105727", SAME, "decimal128(38, 0)"),
    "UHUGEINT": ("340282366920938463463374607431768211455", SAME, "string"),
    "BIGNUM": ("1234567890123456789012345678901234567890123", SAME, "string"),
    "FLOAT": ("1.5", 1.5, "float"),
    "DOUBLE": ("-2.5e100", -2.5e100, "double"),
    "DECIMAL(10, 2)": ("1.10", SAME, "decimal128(10, 2)"),
    "VARCHAR": ("ü", SAME, "string"),
    "JSON": ('{"a": 1}', SAME, "string"),
    "ENUM('a', 'b')": ("b", SAME, "dictionary<values=string, indices=uint8, ordered=0>"),
    "UUID": ("b1f0b0f0-0000-4000-8000-000000000001", SAME, "string"),
    "BLOB": ("\\xAA", "qg==", "binary"),
    "BIT": ("10101", SAME, "string"),
    "GEOMETRY": ("POINT (1 2)", SAME, "string"),
    "VARIANT": ("1", SAME, "string"),
    "UNION(n INTEGER, t VARCHAR)": ("7", SAME, "string"),
    "DATE": ("infinity", SAME, "date32[day]"),
    "TIME": ("10:11:12.345678", SAME, "time64[us]"),
    "TIME_NS": ("10:11:12.123456789", SAME, "string"),
    "TIMETZ": ("10:00:00+02", SAME, "string"),
    "TIMESTAMP": ("2026-01-01 00:00:00.5", "2026-01-01T00:00:00.500000", "timestamp[us]"),
    "TIMESTAMP_S": ("2026-01-01 00:00:01", "2026-01-01T00:00:01", "timestamp[us]"),
    "TIMESTAMP_MS": ("-infinity", SAME, "timestamp[us]"),
    "TIMESTAMP_NS": ("2026-01-01 00:00:00.123456789", SAME, "string"),
    "TIMESTAMPTZ": ("2026-01-01 02:00:00+02", "2026-01-01T00:00:00Z", "timestamp[us, tz=UTC]"),
    "TIMESTAMPTZ_NS": ("2026-01-01 00:00:00.123456789+00", SAME, "string"),
    "INTERVAL": ("1 month 2 days 03:00:00", SAME, "string"),
    "INTERVAL[]": ("[1 month, NULL]", ["1 month", None], "list<l: string>"),
    "TIMETZ[1]": ("[10:00:00+02]", ["10:00:00+02"], "list<l: string>"),
    'STRUCT("a b" BIT, c HUGEINT)': (
        "{'a b': 101, 'c': 3}",
        {"a b": "101", "c": "3"},
        "struct<a b: string, c: decimal128(38, 0)>",
    ),
    "MAP(INTEGER, BIT)": ("{1=101}", [[1, "101"]], "map<int32, string>"),
}
WRITTEN = {"TIMESTAMP": "2026-01-01 00:00:00.500000", "TIMESTAMP_S": "2026-01-01 00:00:01.000000"}  # in a CSV
WRITTEN |= {"TIMESTAMPTZ": "2026-01-01 00:00:00.000000Z", "BLOB": "qg==", "DOUBLE": "-2.5e+100"}


def test_each_of_duckdbs_types_leaves_whole(weir: Weir) -> None:
    """Two columns of one name, and the order of rows, are as without the casts that it takes."""
    texts = [text.replace("'", "''") for text, *_ in LEAVES.values()]
    values = ", ".join(f"'{text}'::{kind} AS v" for kind, text in zip(LEAVES, texts, strict=True))
    sql = f"SELECT {values}, (1, INTERVAL 1 DAY) AS v, n FROM (VALUES (3), (9), (5)) AS t(n) ORDER BY n DESC"
    with duckdb.connect() as connection:
        own = [
            str(value)
            for value in connection.sql(f"SET TimeZone = 'UTC'; SELECT COLUMNS(*)::VARCHAR FROM ({sql})").fetchall()[0]
        ]
    document = weir("query", sql, "--json").document
    first = list(document["rows"][0].values())
    wanted = [text if value is SAME else value for text, (_, value, _) in zip(own, LEAVES.values(), strict=False)]
    assert first == [*wanted, {"element1": 1, "element2": "1 day"}, 9] and len(document["rows"]) == 3
    assert [column["type"] for column in document["columns"]][:-2] == [arrow for *_, arrow in LEAVES.values()]
    header, line, *rest = csv.reader(io.StringIO(weir("query", sql, "--csv").out.removeprefix("\ufeff")))
    as_written = zip(LEAVES.items(), own, strict=False)
    cells = [
        json.dumps(v, separators=(",", ":")) if "[" in str(v) or "{'" in str(v) else WRITTEN.get(k, text)
        for (k, (_, v, _)), text in as_written
    ]
    assert (line[:-2], header.count("v"), [row[-1] for row in rest]) == (cells, len(LEAVES) + 1, ["5", "3"])
    world = services.world(services.lake())
    with answered(
        world, plan_query(world, sql, services.clock()), query_limits(services.settings().lake), None
    ) as rows:
        shown = shown_rows(rows.read_all()).frame.iloc[0].tolist()
    same = [
        (page, text) for page, text, (_, value, _) in zip(shown, own, LEAVES.values(), strict=False) if value is SAME
    ]
    assert all(page == text for page, text in same), same


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
