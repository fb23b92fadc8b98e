"""SQL over the lake before anything runs: what a statement names, what of it is pruned, and what is refused."""

import re
import time
from contextlib import suppress

import duckdb
import pytest

from app.query import view
from backend.errors import LakehouseError, QueryError
from backend.lake.table.schema import SchemaColumn
from backend.query.plan import plan_query
from backend.query.statement import MOST_CHARACTERS, MOST_TABLES, Source, read_statement
from backend.query.views import World
from backend.settings import load_settings
from backend.sql.expression import FUNCTIONS
from backend.sql.filters import pruning_filter
from backend.sql.values import plain_name, quoted_name
from backend.times import Clock
from tests.worlds.cases import MORE, few
from tests.worlds.lake import builders
from tests.worlds.lake.hostile_sql import HOSTILE, LONG
from tests.worlds.lake.questions import open_world


def sources(text: str) -> list[Source]:
    return list(read_statement(text).sources)


def pruned_by(source: Source) -> str | None:
    """What readers of a table of whole numbers are told."""
    schema = [SchemaColumn(name, (name,), "bigint", "long", nullable=True, physical=(name,)) for name in "ixyz"]
    where = pruning_filter(source.conditions, schema, source.alias)
    return where.predicate() if where else None


@pytest.mark.parametrize(
    ("written", "parts", "version", "is_time"),
    [
        ("orders", ("orders",), None, False),
        ("silver.orders", ("silver", "orders"), None, False),
        ('"silver/orders"', ("silver/orders",), None, False),
        ('main.silver."my orders"', ("main", "silver", "my orders"), None, False),
        ("a.b.c.d.e", ("a", "b", "c", "d", "e"), None, False),
        ("orders VERSION AS OF 118", ("orders",), "118", False),
        ("orders VERSION AS OF -5", ("orders",), "-5", False),
        ("orders version as of 'latest' o", ("orders",), "latest", False),
        ("orders TIMESTAMP AS OF '2 h ago' AS o", ("orders",), "2 h ago", True),
    ],
)
def test_a_table_is_named_as_the_lake_names_it_at_a_version(
    written: str, parts: tuple[str, ...], version: str | None, is_time: bool
) -> None:
    (source,) = sources(f"SELECT * FROM {written}")
    assert (source.parts, source.version, source.is_time, source.view) == (parts, version, is_time, "")


def test_a_column_that_needs_no_quotes_means_the_column_wherever_it_stands() -> None:
    from sqlglot.dialects.duckdb import DuckDB
    from sqlglot.parser import Parser

    tricky = {name for (name,) in duckdb.sql("SELECT keyword_name FROM duckdb_keywords()").fetchall()}
    tricky |= {word.lower() for word in (*DuckDB.Tokenizer.KEYWORDS, *Parser.NO_PAREN_FUNCTION_PARSERS)} | FUNCTIONS
    plain = [name for name in sorted(tricky) if plain_name(name) == name]
    assert len(plain) > 500 and plain_name("order") == '"order"' and plain_name('a"b') == '"a""b"'
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE lake_0 AS SELECT {', '.join(f'42 AS {quoted_name(name)}' for name in plain)}")
    for name in plain if MORE > 1 else plain[::5]:
        text = f"SELECT {name} n, sum({name}) FROM t WHERE t.{name} = 42 AND 41 < {name} GROUP BY {name}"
        statement = read_statement(text)
        assert connection.execute(statement.sql).fetchall() == [(42, 42)], text
        assert statement.sources[0].columns is not None and name in statement.sources[0].columns


def test_views_of_a_table_are_told_from_its_name() -> None:
    found = sources(
        """SELECT 1 FROM silver."orders$history", "silver/orders$files" VERSION AS OF 3, "a$changes"(1, '-1')"""
    )
    assert [(s.parts, s.view, s.version, s.arguments) for s in found] == [
        (("silver", "orders"), "history", None, ()),
        (("silver/orders",), "files", "3", ()),
        (("a",), "changes", None, ("1", "-1")),
    ]
    assert sources('SELECT 1 FROM "price$"')[0].parts == ("price$",)


def test_a_name_of_with_is_no_table_of_the_lake_but_where_it_is_not_defined_yet() -> None:
    found = sources("WITH a AS (SELECT * FROM a), b AS (SELECT * FROM A JOIN c ON true) SELECT * FROM b, lake.b, a")
    assert sorted(source.parts for source in found) == [("a",), ("c",), ("lake", "b")]
    nested = "SELECT (SELECT max(x) FROM w) FROM (WITH w AS (SELECT 1 AS x) SELECT * FROM w)"
    assert [source.parts for source in sources(nested)] == [("w",)]


def test_names_are_told_apart_as_duckdb_does_it() -> None:
    kelvin = "\u212a"  # `str.lower` makes a k of it
    text = f"WITH duc{kelvin}db_settings AS (SELECT 1 AS x) SELECT * FROM duckdb_settings"
    assert [source.parts for source in sources(text)] == [("duckdb_settings",)]
    assert "db_settings AS (" not in read_statement(text).sql  # a name of DuckDB's own catalogue
    pruned = sources(f"SELECT 1 FROM a AS k, b AS {kelvin} WHERE {kelvin}.x = 1")
    assert list(map(pruned_by, pruned)) == [None, '("x" = 1)']


def test_a_comment_at_the_end_and_a_byte_order_mark_are_no_statement() -> None:
    for text in ("SELECT 1; -- daily", "\ufeff-- hello\nSELECT 1;\n\n", "SELECT 1 /* a */; /* b */ -- c"):
        assert read_statement(text).sql == "SELECT 1"
    for text in ("SELECT 1; SELECT 2", "; -- nothing"):
        with pytest.raises(QueryError, match="statements"):
            read_statement(text)


def test_columns_that_a_statement_cannot_need_are_left_out() -> None:
    def columns(text: str) -> list[frozenset[str] | None]:
        return [source.columns for source in sources(text)]

    (some,) = columns("SELECT sum(Amount) FROM orders o WHERE o.status = 'new' ORDER BY o.day")
    assert some is not None and {"amount", "status", "day"} <= some and "order_id" not in some
    assert columns("SELECT count(*) FROM orders") != [None]
    whole = ["*", "o.*", "COLUMNS('a.*')", "o", "* EXCLUDE (a)"]
    assert [columns(f"SELECT {all_of} FROM orders o") for all_of in whole] == [[None]] * len(whole)
    assert columns("SELECT x FROM orders AS o(x, y)") == [None]
    assert columns("SELECT #1 FROM orders") == [None]
    inner, outer = columns("SELECT x FROM (SELECT * FROM a) JOIN b USING (x)")
    assert (inner is None) != (outer is None)
    assert columns("SELECT x FROM a NATURAL JOIN b") == [None, None]
    assert columns("SELECT a.x FROM a WHERE EXISTS (SELECT a.* FROM b)")[0] is None


@pytest.mark.parametrize(
    ("text", "predicates"),
    [
        ("SELECT * FROM a WHERE x > 1 AND (y = 2 OR z < 3)", ['("x" > 1 AND ("y" = 2 OR "z" < 3))']),
        ("SELECT * FROM a JOIN b ON a.i = b.i WHERE a.x = 1 AND b.y = 2 AND z = 3", ['("x" = 1)', '("y" = 2)']),
        ("SELECT * FROM a LEFT JOIN b ON a.i = b.i WHERE a.x = 1 AND b.y = 2", ['("x" = 1)', None]),
        ("SELECT * FROM a RIGHT JOIN b ON a.i = b.i WHERE a.x = 1 AND b.y = 2", [None, None]),
        ("SELECT * FROM a FULL JOIN b ON a.i = b.i WHERE a.x = 1", [None, None]),
        ("SELECT * FROM a NATURAL JOIN b WHERE a.x = 1", [None, None]),
        ("SELECT * FROM a LEFT JOIN (b JOIN c ON b.i = c.i) ON a.i = b.i WHERE b.y = 2 AND a.x = 1",
         ['("x" = 1)', None, None]),
        ("SELECT * FROM a ASOF JOIN b ON a.i >= b.i WHERE a.x = 1", [None, None]),
        ("SELECT * FROM a ANTI JOIN b ON a.i = b.i WHERE a.x = 1", ['("x" = 1)', None]),
        ("SELECT * FROM a, LATERAL (SELECT 1 WHERE a.x = 1) WHERE a.y = 2", ['("y" = 2)']),
        ("SELECT * FROM a WHERE x = 1 OR y = 2", ['(("x" = 1 OR "y" = 2))']),
        ("SELECT * FROM a WHERE x IN (SELECT y FROM b WHERE y > 5)", [None, '("y" > 5)']),
        ("SELECT * FROM a WHERE x = (SELECT 3)", [None]),
        ("SELECT * FROM a AS b(y, x) WHERE b.x = 1", [None]),
        ("SELECT * FROM a WHERE b.x = 1 AND abs(y) = 2 AND no = 3 AND x = 'one'", [None]),
        ("SELECT * FROM a WHERE true", [None]),
        ("SELECT count(*) FILTER (WHERE x = 1) FROM a HAVING max(x) > 1", [None]),
        ("WITH w AS (SELECT * FROM a WHERE x = 1) SELECT * FROM w, a WHERE w.x = 2 AND a.x = 3",
         ['("x" = 3)', '("x" = 1)']),
    ],
)  # fmt: skip
def test_only_conditions_that_every_row_must_meet_prune(text: str, predicates: list[str | None]) -> None:
    assert [pruned_by(source) for source in sources(text)] == predicates


def test_duckdb_gets_names_of_ours_and_columns_keep_theirs() -> None:
    text = "SELECT silver.orders.id, o2.id FROM silver.orders, orders o2 -- comment\nWHERE silver.orders.id = 1"
    sql = read_statement(text, most_rows=11).sql
    assert sql == 'SELECT orders.id, o2.id FROM lake_0 AS "orders", lake_1 AS o2 WHERE orders.id = 1 LIMIT 11'
    assert "lake__0" in read_statement("SELECT 1 AS lake_0 FROM t").sql
    assert read_statement("SELECT 1 LIMIT 5", most_rows=3).sql.endswith("LIMIT 5")
    assert read_statement("SELECT 1 UNION SELECT 2", most_rows=3).sql == "SELECT 1 UNION SELECT 2 LIMIT 3"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    home = tmp_path_factory.mktemp("hostile")
    builders.orders_table(home / "lake" / "silver" / "orders")
    builders.write(home / "lake" / "t", {"id": [1], "u": [2]})
    opened = open_world(load_settings(home=home))
    assert plan_query(opened, "SELECT id FROM t", Clock()).versions == (("t", 0),), "what hostile statements name"
    return opened


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:40])
def test_hostile_statements_are_refused_in_a_sentence(world: World, text: str) -> None:
    started = time.process_time()  # a busy machine is not the statement's fault
    with pytest.raises(LakehouseError) as refused:
        plan_query(world, text, Clock())
    assert time.process_time() - started < 10
    assert refused.value.exit_code in (2, 3) and 10 < len(refused.value.message) < 400
    assert "Traceback" not in refused.value.message and "sqlglot" not in refused.value.message


@pytest.mark.parametrize("text", few(2, LONG), ids=lambda text: text[:40])
def test_the_longest_statements_are_read_or_refused_soon(world: World, text: str) -> None:
    started = time.process_time()
    with suppress(QueryError):
        assert len(plan_query(world, text, Clock()).reads) <= MOST_TABLES
    assert time.process_time() - started < 10 and len(text) < MOST_CHARACTERS


def test_what_analysts_write_is_allowed_and_with_it_all_that_the_editor_offers() -> None:
    statements = (
        "SELECT a::INT, CASE WHEN b THEN 1 END, list_transform(l, lambda x: x + 1), {'k': 1}, l[1], s.f.g FROM t",
        "SELECT sum(x) OVER (PARTITION BY y ORDER BY z ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
        "SELECT * FROM t QUALIFY row_number() OVER w = 1 WINDOW w AS (PARTITION BY a ORDER BY b)",
        "SELECT a, count(*) FROM t GROUP BY GROUPING SETS ((a), ()) HAVING count(*) > 1 ORDER BY ALL LIMIT 3 OFFSET 1",
        "FROM t SELECT a WHERE a LIKE 'x%' AND b NOT IN (1, 2) AND c BETWEEN 1 AND 2 AND d IS NOT DISTINCT FROM e",
        "SELECT date_trunc('day', ts AT TIME ZONE 'UTC'), ts + INTERVAL 1 DAY, extract(hour FROM ts), now() FROM t",
        "SELECT a FROM t UNION ALL BY NAME SELECT b FROM u EXCEPT SELECT 1 INTERSECT SELECT 2",
        "SELECT * FROM t, LATERAL (SELECT t.a + 1 AS b), unnest([1, 2]) AS n(x), (VALUES (1), (2)) AS v(y)",
        "SELECT t.* EXCLUDE (a) REPLACE (b + 1 AS b) FROM t SEMI JOIN u USING (id)",
        "SELECT j ->> '$.a', string_agg(x, ',' ORDER BY y), quantile_cont(x, 0.9), x // 2, x % 2, x ^ 2 FROM t",
        "SELECT a ILIKE 'x' OR EXISTS (SELECT 1) AND 1 = ANY (SELECT 1), TRY_CAST(a AS INT), true, false, NULL FROM t",
        "WITH x AS (FROM t) SELECT CASE WHEN a THEN 1 ELSE 2 END FROM x INNER JOIN u ON x.a = u.a CROSS JOIN v",
        "SELECT 1 FROM t LEFT OUTER JOIN a USING (x) RIGHT JOIN b USING (x) FULL JOIN c USING (x) ANTI JOIN d ON true",
        "SELECT sum(a) FILTER (a > 1) OVER (ORDER BY a RANGE BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING) FROM t",
        "SELECT 1 FROM t VERSION AS OF 1 NATURAL JOIN u ASOF JOIN v USING (x), w TIMESTAMP AS OF '2 h ago'",
        "SELECT a FROM t ORDER BY a ASC NULLS FIRST, 1 DESC NULLS LAST",
        *(f"SELECT CAST(a AS {kind}) FROM t" for kind in view.TYPES.split()),
    )
    for text in statements:
        assert read_statement(text).sql
    assert set(view.KEYWORDS.split()) <= set(re.findall(r"\w+", " ".join(statements).lower()))
