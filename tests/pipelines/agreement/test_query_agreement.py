"""SQL over tables that Spark wrote is answered as Spark SQL answers it on the same versions."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from app.query.code import code
from backend.access import Actor
from backend.query.answer import answered
from backend.query.plan import plan_query
from backend.query.worker import QueryLimits
from backend.settings import load_settings
from backend.times import Clock
from tests.worlds.lake import questions
from tests.worlds.lake.questions import open_world

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
LIMITS = QueryLimits(500_000_000, 100_000_000, 120.0)
MAPPED = {"delta.columnMapping.mode": "name", "delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}
OPTIONS = {"orders": {"delta.enableDeletionVectors": "true"}, "customers": MAPPED, "events": {}}


class Both:
    """One lake for Weir and for Spark."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark, self.lake = spark, home / "lake" / "silver"
        self.world = open_world(load_settings(home=home))

    def write(self, name: str, frame: pd.DataFrame, mode: str = "append", **options: str) -> None:
        rows = pa.Table.from_pandas(frame, preserve_index=False)
        writer = self.spark.createDataFrame(rows).write.format("delta").mode(mode).options(**options)
        (writer.partitionBy("day") if name == "orders" else writer).save(str(self.lake / name))

    def act(self, statement: str, name: str) -> None:
        self.spark.sql(statement.format(f"delta.`{self.lake / name}`"))

    def answers(self, text: str, versions: dict[str, tuple[str, int]]) -> tuple[list[tuple[str, ...]], pa.Table]:
        """Weir's, comparable, and Spark's."""
        ours = {name: f"silver.{table} VERSION AS OF {version}" for name, (table, version) in versions.items()}
        theirs = {n: f"delta.`{self.lake / table}` VERSION AS OF {v}" for n, (table, v) in versions.items()}
        with answered(self.world, plan_query(self.world, text.format(**ours), Clock()), LIMITS, Actor("x")) as rows:
            found = comparable(rows.read_all())
        return found, comparable(self.spark.sql(text.format(**theirs)).toArrow())


def comparable(table: pa.Table) -> list[tuple[str, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    rows: list[tuple[Any, ...]] = list(zip(*columns, strict=True))
    return questions.comparable(rows)


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    made = Both(session, tmp_path_factory.mktemp("query"))
    for name, frame in (
        ("orders", questions.orders()), ("customers", questions.customers()), ("events", questions.events())
    ):  # fmt: skip
        made.write(name, frame, **OPTIONS[name])
    made.write("orders", questions.appended())
    made.act("UPDATE {} SET status = 'paid' WHERE customer_id = 3", "orders")
    made.act("DELETE FROM {} WHERE status = 'lost'", "orders")
    yield made


@pytest.mark.parametrize("question", questions.QUESTIONS, ids=lambda question: question.name)
def test_both_answer_alike(both: Both, question: questions.Question) -> None:
    versions = {name: ("orders", version) for name, version in questions.VERSIONS.items()}
    ours, theirs = both.answers(question.sql, versions | {"customers": ("customers", 0), "events": ("events", 0)})
    assert ours and ours == theirs
    assert ours == questions.comparable(question.by_pandas(questions.states()))


def test_deletion_vectors_were_there_to_be_read(both: Both) -> None:
    assert both.world.lake.snapshot(both.world.lake.find("silver/orders"), 3).deleted_rows > 0


def test_a_widened_and_a_renamed_column_between_two_versions(both: Both) -> None:
    columns = "id INT, amount DOUBLE, note STRING"
    properties = "'delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true'"
    both.act(f"CREATE TABLE {{}} ({columns}) USING delta TBLPROPERTIES ({properties})", "grown")
    both.act("INSERT INTO {} VALUES (1, 1.5, 'a'), (2, NULL, 'b'), (3, 3.5, NULL)", "grown")
    both.act("ALTER TABLE {} RENAME COLUMN amount TO price", "grown")
    both.act("ALTER TABLE {} ALTER COLUMN id TYPE BIGINT", "grown")
    both.act("INSERT INTO {} VALUES (3000000000, 9.5, 'c'), (2, 7.5, 'd')", "grown")
    text = "SELECT o.id, o.amount, n.price, n.note FROM {old} o FULL OUTER JOIN {new} n ON o.id = n.id"
    ours, theirs = both.answers(text, {"old": ("grown", 1), "new": ("grown", 4)})
    assert len(ours) == 5 and ours == theirs


VALUES = (
    "abs(-amount)", "ceil(amount)", "floor(amount)", "round(amount, 1)", "sign(amount)", "sqrt(amount)", "cbrt(amount)",
    "ln(amount + 1)", "exp(amount / 100)", "pow(amount, 2)", "sin(amount)", "cos(amount)", "tan(amount)",
    "asin(amount / 200)", "acos(amount / 200)", "atan(amount)", "atan2(amount, 3)", "degrees(amount)",
    "radians(amount)", "pi()", "lower('ÄB')", "upper(status)", "length('añb')", "concat(status, NULL, 'x')",
    "status || NULL", "concat_ws('-', status, 'x')", "trim(' x ')", "ltrim('xxa', 'x')", "rtrim('axx', 'x')",
    "substring(status, 2, 2)", "left(status, 2)", "right(status, 2)", "starts_with(status, 'p')",
    "ends_with(status, 'd')", "contains(status, 'ai')", "reverse(status)", "translate(status, 'ae', 'xy')",
    "replace(status, 'a', 'b')", "strpos(status, 'e')", "instr(status, 'e')", "position('e' IN status)",
    "levenshtein(status, 'past')", "lpad(status, 6, '-')", "rpad(status, 6, '-')", "split_part(status, 'e', 2)",
    "sha256(status)", "coalesce(amount, -1)", "nullif(status, 'new')", "ifnull(amount, 0)",
    "if(amount > 50, 1, 0)", "greatest(amount, 50)", "least(amount, 50)", "xor(order_id, 3)", "order_id % 7",
    "order_id // 7", "-7 // 2", "-7 % 3", "order_id / 7", "2 ** 3", "0.1 + 0.2", "date_trunc('week', created)",
    "date_trunc('quarter', created)", "date_trunc('minute', created)", "year(created)", "quarter(created)",
    "month(created)", "day(created)", "dayofyear(created)", "weekofyear(created)", "hour(created)", "minute(created)",
    "second(created)", "last_day(CAST(created AS DATE))", "extract(week FROM created)", "extract(year FROM created)",
    "CAST(day AS DATE) + 3", "created + INTERVAL 5 HOURS", "status LIKE 'p%'", "status ILIKE 'P_I%'",
    "amount BETWEEN 5 AND 50", "status IN ('new', 'paid')", "amount IS DISTINCT FROM NULL", "amount IS NULL",
    "TRY_CAST(status AS DOUBLE)", "CAST(floor(amount) AS INT)", "'a\\b'", "'it''s \"$x\"'", "NOT (amount > 5)",
    "CASE status WHEN 'new' THEN 1 ELSE 2 END", "amount > 5 OR status = 'new' AND order_id < 9",
)  # fmt: skip
GROUPED = (
    "count(*)", "count(amount)", "count_if(amount > 5)", "sum(amount)", "avg(amount)", "min(status)", "max(created)",
    "median(amount)", "stddev(amount)", "stddev_pop(amount)", "stddev_samp(amount)", "variance(amount)",
    "var_pop(amount)", "var_samp(amount)", "covar_pop(amount, order_id)", "covar_samp(amount, order_id)",
    "bool_and(amount > 5)", "bool_or(amount > 90)", "any_value(day)", "count(DISTINCT status)",
    "sum(amount) FILTER (WHERE status = 'new')", "sum(count(*)) OVER (ORDER BY day)", "ntile(3) OVER (ORDER BY day)",
    "row_number() OVER (ORDER BY sum(amount), day)", "dense_rank() OVER (ORDER BY count(*))",
    "percent_rank() OVER (ORDER BY day)", "cume_dist() OVER (ORDER BY day)", "rank() OVER (ORDER BY count(*) DESC)",
    "first_value(day) OVER (ORDER BY day DESC)", "last_value(day) OVER (ORDER BY day)", "lead(day) OVER (ORDER BY day)",
    "nth_value(day, 2) OVER (ORDER BY day)",
)  # fmt: skip
IN_OTHER_WORDS = (
    "SELECT * EXCLUDE (day) FROM {orders}",
    "SELECT DISTINCT ON (status) status, order_id FROM {orders} ORDER BY status, amount DESC, order_id",
    "SELECT order_id FROM {orders} QUALIFY row_number() OVER (PARTITION BY status ORDER BY amount, order_id) = 1",
    "SELECT day, status, sum(amount) AS total FROM {orders} GROUP BY ALL ORDER BY ALL LIMIT 7 OFFSET 2",
    "SELECT o.order_id FROM {orders} o SEMI JOIN {customers} c USING (customer_id)",
    "SELECT order_id FROM {orders} ORDER BY amount, order_id LIMIT 120",
    "FROM {orders} WHERE amount = (SELECT max(amount) FROM {orders_v1})",
    "SELECT a.order_id, b.status FROM {orders_v1} a LEFT JOIN {orders} b USING (order_id) EXCEPT ALL SELECT 1, 'new'",
)
ASKED = (*(question.sql for question in questions.QUESTIONS[::3] if "max_by" not in question.sql), *IN_OTHER_WORDS)


def by_tool(both: Both, text: str) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of Weir, and of the code for others."""
    tables = {name: f"silver.orders VERSION AS OF {version}" for name, version in questions.VERSIONS.items()}
    plan = plan_query(both.world, text.format(**tables, customers="customers", events="events"), Clock())
    with answered(both.world, plan, LIMITS, Actor("x")) as rows:
        ours = rows.read_all()
    given: dict[str, dict[str, Any]] = {"pandas": {}, "Spark": {"spark": both.spark}}
    for tool, names in given.items():
        exec(code(plan, tool), names)
    frame = given["pandas"]["frame"].astype(object)
    columns = {
        "Weir": [column.to_pylist() for column in ours.columns],
        "pandas": [[None if value is pd.NA else value for value in frame.iloc[:, n]] for n in range(frame.shape[1])],
        "Spark": [column.to_pylist() for column in given["Spark"]["frame"].toArrow().columns],
    }
    return {tool: list(zip(*values, strict=True)) for tool, values in columns.items()}


@pytest.mark.parametrize("text", ASKED, ids=range(len(ASKED)))
def test_code_for_other_tools_gives_the_same_rows(both: Both, text: str) -> None:
    """A join, time travel, a partitioned table with deletion vectors and a mapped one among them."""
    rows = by_tool(both, text)
    assert rows["Weir"]
    assert questions.comparable(rows["pandas"]) == questions.comparable(rows["Weir"])
    assert questions.comparable(rows["Spark"]) == questions.comparable(rows["Weir"])
    if "LIMIT" in text:
        assert [row[:2] for row in rows["Spark"]] == [row[:2] for row in rows["Weir"]], "in the same order"


@pytest.mark.parametrize(("written", "of"), [(VALUES, "order_id"), (GROUPED, "day")], ids=["values", "groups"])
def test_each_function_means_the_same_in_spark(both: Both, written: tuple[str, ...], of: str) -> None:
    group = "" if of == "order_id" else f"GROUP BY {of}"
    rows = by_tool(both, f"SELECT {of}, {', '.join(written)} FROM {{orders}} {group} ORDER BY {of}")
    pairs = zip((of, *written), zip(*rows["Spark"], strict=True), zip(*rows["Weir"], strict=True), strict=True)
    others = {name: pair for name, *both in pairs for pair in zip(*both, strict=True) if not alike(*pair)}
    assert len(rows["Spark"]) > 5 and not others


def alike(one: Any, other: Any) -> bool:
    """Sums of floating numbers end as each engine adds them up."""
    if isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9):
        return True
    return questions.comparable([(one,)]) == questions.comparable([(other,)])
