"""SQL by Spark: a host's rows are those of here, in order and at the versions asked for; Spark's own answers agree.

Rule: what Weir answers is compared with pandas, with Spark SQL on the same versions, and with the code for other tools.
"""

import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from app.summary.view.data import Asked as Rows
from app.summary.view.data import snippets
from app.ui.view.code import code
from backend.access import Actor
from backend.errors import LakehouseError
from backend.jobs.documents import HostQuery, of_document, to_document
from backend.jobs.model import Job, JobKind, JobRequest, JobState
from backend.jobs.results import results_lake
from backend.lake.rows.rows import RowQuery
from backend.lake.table.schema import columns
from backend.query.answer import KeptRows, answered, job_request, kept_rows
from backend.query.plan import QueryPlan, plan_query
from backend.query.views import World as Asked
from backend.query.worker import QueryLimits
from backend.settings import load_settings
from backend.sql.filters import parse_filter
from backend.times import Clock
from tests.worlds.cases import few
from tests.worlds.lake import questions
from tests.worlds.lake.builders import write
from tests.worlds.spark.diff_world import World, serving

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
LIMITS = QueryLimits(500_000_000, 100_000_000, 120.0)
MAPPED = {"delta.columnMapping.mode": "name", "delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}
OPTIONS = {"orders": {"delta.enableDeletionVectors": "true"}, "customers": MAPPED, "events": {}}
MOST_ROWS, MANY = 40_000, 60_000
TABLES = {name: f"silver.orders VERSION AS OF {version}" for name, version in questions.VERSIONS.items()}
TABLES |= {"customers": "silver.customers", "events": "silver.events", "many": "silver.many"}


class HostWorld(World):
    """The same with questions in SQL; its session is by UTC's clock."""

    def asked(self) -> Asked:
        return Asked(self.lake, None, datetime.now(UTC), self.settings)

    def planned(self, text: str) -> QueryPlan:
        return plan_query(self.asked(), text.format(**TABLES), Clock())

    def wanted(self, text: str) -> JobRequest:
        return job_request(self.planned(text), actor=Actor("ann"), reason="test", time_limit_s=240)

    def submit(self, text: str | JobRequest) -> Job:
        wanted = self.wanted(text) if isinstance(text, str) else text
        return self.store.jobs.submit(wanted, now=datetime.now(UTC))

    def rows(self, job: Job) -> KeptRows:
        ended = self.ended(job)
        assert ended.state is JobState.DONE, (ended.error, ended.hint)
        return kept_rows(results_lake(self.settings), self.settings, ended)

    def local(self, text: str) -> pa.Table:
        with answered(self.asked(), self.planned(text), LIMITS, None) as rows:
            return rows.read_all()

    def answer_of_spark(self, text: str, **tables: tuple[str, int]) -> pa.Table:
        """To the statement as it stands."""
        named = {name: f"delta.`{self.place(table)}` VERSION AS OF {v}" for name, (table, v) in tables.items()}
        return self.spark.sql(text.format(**named)).toArrow()

    def place(self, table: str) -> Path:
        return self.settings.home / "lake" / "silver" / table

    def save(self, name: str, frame: pd.DataFrame, **options: str) -> None:
        rows = self.spark.createDataFrame(pa.Table.from_pandas(frame, preserve_index=False))
        writer = rows.write.format("delta").mode("append").options(**options)
        (writer.partitionBy("day") if name == "orders" else writer).save(str(self.place(name)))

    def act(self, statement: str, name: str) -> None:
        self.spark.sql(statement.format(f"delta.`{self.place(name)}`"))


def comparable(table: pa.Table) -> list[tuple[str, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    rows: list[tuple[Any, ...]] = list(zip(*columns, strict=True))
    return questions.comparable(rows)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostWorld]:
    settings = load_settings(home=tmp_path_factory.mktemp("query-job"), jobs={"query_rows": MOST_ROWS, "at_once": 2})
    with serving(spark, settings, HostWorld) as world:
        world.spark = spark.newSession()
        world.spark.conf.set("spark.sql.session.timeZone", "UTC")
        frames = {"orders": questions.orders(), "customers": questions.customers(), "events": questions.events()}
        for name, frame in frames.items():
            world.save(name, frame, **OPTIONS[name])
        world.save("orders", questions.appended())
        world.act("UPDATE {} SET status = 'paid' WHERE customer_id = 3", "orders")
        world.act("DELETE FROM {} WHERE status = 'lost'", "orders")
        numbers = pd.Series(range(MANY))
        world.save("many", pd.DataFrame({"n": numbers * 7919 % MANY, "t": numbers.astype(str)}))
        yield world


def by_id(question: questions.Question) -> str:
    return question.name


# agreement -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", few(1, questions.QUESTIONS), ids=by_id)
def test_a_host_spark_and_pandas_answer_as_is_answered_here(lake: HostWorld, question: questions.Question) -> None:
    versions = {name: ("orders", version) for name, version in questions.VERSIONS.items()}
    kept, here = lake.rows(lake.submit(question.sql)), lake.local(question.sql)
    theirs = lake.answer_of_spark(question.sql, **versions, customers=("customers", 0), events=("events", 0))
    assert comparable(kept.rows) and comparable(kept.rows) == comparable(here) == comparable(theirs)
    assert comparable(here) == questions.comparable(question.by_pandas(questions.states()))
    assert not kept.is_cut and "host-a" in kept.by
    assert lake.lake.snapshot(lake.lake.find("silver/orders"), 3).deleted_rows > 0, "there are vectors to be read"


@pytest.mark.ci
def test_a_widened_and_a_renamed_column_between_two_versions(lake: HostWorld) -> None:
    columns = "id INT, amount DOUBLE, note STRING"
    properties = "'delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true'"
    for statement in (
        f"CREATE TABLE {{}} ({columns}) USING delta TBLPROPERTIES ({properties})",
        "INSERT INTO {} VALUES (1, 1.5, 'a'), (2, NULL, 'b'), (3, 3.5, NULL)",
        "ALTER TABLE {} RENAME COLUMN amount TO price",
        "ALTER TABLE {} ALTER COLUMN id TYPE BIGINT",
        "INSERT INTO {} VALUES (3000000000, 9.5, 'c'), (2, 7.5, 'd')",
    ):
        lake.act(statement, "grown")
    text = "SELECT o.id, o.amount, n.price, n.note FROM {old} o FULL OUTER JOIN {new} n ON o.id = n.id"
    ours = lake.local(text.format(old="silver.grown VERSION AS OF 1", new="silver.grown VERSION AS OF 4"))
    theirs = lake.answer_of_spark(text, old=("grown", 1), new=("grown", 4))
    assert len(ours) == 5 and comparable(ours) == comparable(theirs)


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
TRANSLATED = (*IN_OTHER_WORDS, *(question.sql for question in questions.QUESTIONS[::3]))


def by_tool(lake: HostWorld, text: str) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of Weir, and of the code for others."""
    given: dict[str, dict[str, Any]] = {"pandas": {}, "Spark": {"spark": lake.spark}}
    for tool, names in given.items():
        exec(code(lake.planned(text), tool), names)
    frame = given["pandas"]["frame"].astype(object)
    columns = {
        "Weir": [column.to_pylist() for column in lake.local(text).columns],
        "pandas": [[None if value is pd.NA else value for value in frame.iloc[:, n]] for n in range(frame.shape[1])],
        "Spark": [column.to_pylist() for column in given["Spark"]["frame"].toArrow().columns],
    }
    return {tool: list(zip(*values, strict=True)) for tool, values in columns.items()}


@pytest.mark.parametrize("text", few(1, TRANSLATED), ids=range(len(TRANSLATED)))
def test_code_for_other_tools_gives_the_same_rows(lake: HostWorld, text: str) -> None:
    """A join, time travel, a partitioned table with deletion vectors and a mapped one among them."""
    rows = by_tool(lake, text)
    assert rows["Weir"]
    assert questions.comparable(rows["pandas"]) == questions.comparable(rows["Weir"])
    assert questions.comparable(rows["Spark"]) == questions.comparable(rows["Weir"])
    if "LIMIT" in text:
        assert [row[:2] for row in rows["Spark"]] == [row[:2] for row in rows["Weir"]], "in the same order"


@pytest.mark.ci
@pytest.mark.parametrize(("written", "of"), [(VALUES, "order_id"), (GROUPED, "day")], ids=["values", "groups"])
def test_each_function_means_the_same_in_spark(lake: HostWorld, written: tuple[str, ...], of: str) -> None:
    group = "" if of == "order_id" else f"GROUP BY {of}"
    rows = by_tool(lake, f"SELECT {of}, {', '.join(written)} FROM {{orders}} {group} ORDER BY {of}")
    pairs = zip((of, *written), zip(*rows["Spark"], strict=True), zip(*rows["Weir"], strict=True), strict=True)
    others = {name: pair for name, *both in pairs for pair in zip(*both, strict=True) if not alike(*pair)}
    assert len(rows["Spark"]) > 5 and not others


FILTERS = (
    "id > 1 AND status IN ('it''s', 'new')",
    "NOT (amount BETWEEN 5 AND 25.5) OR note IS NOT NULL",
    "NOT (amount IS NAN)",
    "ratio = 0.1 OR ratio > 2",
    "day >= DATE '2026-01-02' AND price < 300.25",
    "at <= TIMESTAMP '2026-01-03 00:00:00' AND local > TIMESTAMP '2026-01-01 10:00:00.000001'",
    "status ILIKE 'NE%' AND ok AND home.city <> 'x\\y'",
    "raw = X'01ff'",
    "length(status) = 3 OR id = 4",
)


def test_code_for_rows_of_a_table_gives_spark_the_rows_of_the_page(lake: HostWorld) -> None:
    days = [date(2026, 1, number) for number in (1, 2, 3, 4)]
    rows = pa.table(
        {
            "id": [1, 2, 3, 4],
            "status": ["new", "it's", "NEW", None],
            "amount": [1.0, 20.5, float("nan"), None],
            "ratio": pa.array([0.1, 0.2, float("nan"), None], pa.float32()),
            "price": pa.array([Decimal("1.25"), Decimal("300.25"), None, Decimal(7)], pa.decimal128(10, 2)),
            "day": days,
            "at": [datetime(each.year, each.month, each.day, tzinfo=UTC) for each in days],
            "local": [datetime(each.year, each.month, each.day, 10) for each in days],
            "ok": [True, False, True, None],
            "note": [None, "a", None, "b"],
            "raw": [b"\x01\xff", b"", None, b"x"],
            "home": [{"city": "x\\y"}, {"city": "z"}, {"city": None}, None],
        }
    )
    write(lake.place("it's"), rows)
    ref = lake.lake.find("silver/it's")
    snapshot = lake.lake.snapshot(ref)
    for text in FILTERS:
        where = parse_filter(text, columns(snapshot.metadata))
        wanted = lake.lake.find_rows(snapshot, RowQuery(("id",), where)).rows["id"].to_pylist()
        names: dict[str, Any] = {"spark": lake.spark}
        exec(snippets(Rows(ref, 0, ("id",), where))["Spark"][1], names)
        assert sorted(row.id for row in names["frame"].collect()) == sorted(wanted), text


def alike(one: Any, other: Any) -> bool:
    """Sums of floating numbers end as each engine adds them up."""
    if isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9):
        return True
    return questions.comparable([(one,)]) == questions.comparable([(other,)])


# jobs ----------------------------------------------------------------------------------------------------------------


def test_the_order_of_the_statement_is_kept_and_what_is_cut_is_told(lake: HostWorld) -> None:
    kept = lake.rows(lake.submit("SELECT n, t, n AS t FROM {many} ORDER BY n DESC"))
    assert kept.rows.column(0).to_pylist() == list(range(MANY - 1, MANY - 1 - MOST_ROWS, -1))
    assert kept.is_cut and kept.rows.column_names == ["n", "t", "t"]
    fewer = lake.rows(lake.submit(f"SELECT n FROM {{many}} ORDER BY n LIMIT {MOST_ROWS}"))
    assert not fewer.is_cut and fewer.rows.column(0).to_pylist() == list(range(MOST_ROWS))
    values = lake.rows(lake.submit("SELECT * FROM (VALUES (3, NULL), (1, NULL), (2, NULL)) v(a, b) ORDER BY a"))
    assert values.rows.column(0).to_pylist() == [1, 2, 3] and values.rows.column(1).null_count == 3
    assert lake.rows(lake.submit("SELECT n FROM {many} WHERE n < 0")).rows.num_rows == 0


def test_versions_are_those_of_the_question_whatever_is_written_meanwhile(lake: HostWorld) -> None:
    path = lake.settings.home / "lake" / "silver" / "grows"
    write(path, {"n": [1, 2]})
    wanted = lake.wanted("SELECT count(*) FROM silver.grows")
    write(path, {"n": [3]})
    first = lake.submit(wanted)
    assert lake.rows(first).rows.column(0).to_pylist() == [2]
    assert lake.submit(wanted).job_id == first.job_id, "one question has one job"
    assert lake.rows(lake.submit("SELECT count(*) FROM silver.grows")).rows.column(0).to_pylist() == [3]
    told = [e for e in lake.store.audit_entries(limit=200) if first.job_id in e.detail]
    assert [entry.action for entry in told] == ["query done", "query job"]
    assert "silver/grows v0" in told[1].detail and "SELECT count(*) FROM silver.grows" in told[1].detail
    assert told[1].actor == "ann" and "1 row" in told[0].detail
    assert not [e for e in lake.store.audit_entries(limit=200, acts_only=True) if first.job_id in e.detail]


@pytest.mark.ci
def test_another_table_in_its_place_is_not_read(lake: HostWorld) -> None:
    wanted = lake.wanted("SELECT n FROM {many}")
    asked = of_document(HostQuery, wanted.request)
    other = replace(asked, reads=tuple(replace(read, table_id="another") for read in asked.reads))
    ended = lake.ended(lake.submit(replace(wanted, request=to_document(other), fingerprint=other.fingerprint)))
    assert ended.state is JobState.FAILED and "replaced by another one" in ended.error


@pytest.mark.ci
def test_a_version_older_than_the_retention_is_read_while_its_files_are_there(lake: HostWorld) -> None:
    path = lake.settings.home / "lake" / "silver" / "short"
    write(path, {"n": [1, 2]}, configuration={"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    write(path, {"n": [3]}, mode="overwrite")
    kept = lake.rows(lake.submit("SELECT n FROM silver.short VERSION AS OF 0 ORDER BY n"))
    assert kept.rows.column(0).to_pylist() == [1, 2]


def results(lake: HostWorld, job: Job) -> list[Path]:
    return list(Path(lake.settings.results_uri).glob(f"{job.job_id}-*"))


@pytest.mark.ci
def test_a_cancel_half_way_leaves_no_rows(lake: HostWorld) -> None:
    with lake.halted("writing", lake.runner.limits) as is_halted:
        job = lake.submit("SELECT n FROM {many} WHERE n > 5")
        assert is_halted.wait(60)
        lake.store.jobs.cancel(job.job_id, actor=Actor("bob"), reason="typo", now=datetime.now(UTC))
        assert lake.ended(job).state is JobState.CANCELLED
    lake.until(job, lambda _: not lake.host.busy, limit_s=30)
    assert not results(lake, job)


CODE = (
    "reflect('java.lang.System', 'getenv', 'HOME')", "java_method('java.lang.System', 'getenv', 'HOME')",
    "try_reflect('java.lang.System', 'getenv', 'HOME')", "input_file_name()", "current_catalog()",
    "current_database()", "version()", "from_csv('1', 'a INT')", "schema_of_csv('1')", "spark_partition_id()",
    "raise_error('x')", "assert_true(false)", "uuid()", "session_user()", "window(now(), '1 day')",
    "session_window(now(), '1 day')", "xpath('<a/>', 'a')", "parse_url('http://x', 'HOST')", "aes_encrypt('a', 'b')",
    "\"reflect\"('java.lang.System', 'getenv', 'HOME')", "'java.lang.System'.reflect('getenv', 'HOME')",
    "transform(t) USING 'cat'",
)  # fmt: skip
FROM = (
    "read_files('/etc/passwd')", "parquet.`/etc/passwd`", 'text."/etc/passwd"', 'delta."/tmp/x"', "range(3)",
    "spark_catalog.default.t", "global_temp.t", "system.builtin.t", "stack(1, 2)", "IDENTIFIER('many')",
)  # fmt: skip


def test_what_only_spark_could_run_is_refused_before_a_job_is_asked_for(lake: HostWorld) -> None:
    for text in [f"SELECT {written} FROM {{many}}" for written in CODE] + [f"SELECT * FROM {name}" for name in FROM]:
        with pytest.raises(LakehouseError):
            lake.wanted(text)
    for view in ('"silver/many$files"', "weir.tables", '"silver/orders$changes"(1, 2)'):
        with pytest.raises(LakehouseError, match="the stream host has no") as refused:
            lake.wanted(f"SELECT count(*) FROM {view}")
        assert "run it here" in refused.value.hint


@pytest.mark.ci
def test_a_forged_job_does_not_run(lake: HostWorld) -> None:
    good = lake.wanted("SELECT n FROM {many}")
    forged = (
        "SELECT reflect('java.lang.System', 'getenv', 'HOME') FROM silver.many",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM \"/etc/passwd\"", "SELECT 1; DROP TABLE silver.many",
    )  # fmt: skip
    for text in forged:  # by somebody who writes into the store
        document = replace(of_document(HostQuery, good.request), text=text)
        ended = lake.ended(lake.submit(replace(good, request=to_document(document), fingerprint=document.fingerprint)))
        assert ended.state is JobState.FAILED and ended.result_uri is None and ended.answer is None, text
        assert not results(lake, ended)


@pytest.mark.ci
def test_columns_that_are_none_of_the_table_are_told(lake: HostWorld) -> None:
    """Those that Spark hides are not there; one that no table holds is named."""
    for column in ("_metadata.file_path", "_metadata", "t.x"):
        ended = lake.ended(lake.submit(f"SELECT {column} FROM {{many}} t"))
        assert ended.state is JobState.FAILED and re.match("UNRESOLVED_COLUMN|INVALID_EXTRACT", ended.error)
    # Spark takes it for the name of the host's user: no more than a name
    assert lake.ended(lake.submit('SELECT "current_user" FROM {many} t')).state is JobState.DONE
    ended = lake.ended(lake.submit("SELECT max(created) - min(created) AS span FROM {orders}"))
    assert ended.state is JobState.FAILED and "the column span of type interval" in ended.error


@pytest.mark.ci
def test_texts_reach_spark_as_they_are(lake: HostWorld) -> None:
    text = "SELECT 'a\\' AS \"x`y\", '\\'';--', 'it''s', '`', '\\n', 'é$', '/*+ x */' FROM {many} LIMIT 1"
    kept, here = lake.rows(lake.submit(text)), lake.local(text)
    assert kept.rows.column_names[0] == here.column_names[0] == "x`y"  # a column without AS is called as each likes
    assert [c.to_pylist() for c in kept.rows.columns] == [c.to_pylist() for c in here.columns]


def weir(world: HostWorld, text: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "app.cli", "query", text.format(**TABLES), "--on", "host", *arguments],
        env={**os.environ, "WEIR_HOME": str(world.settings.home)}, cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.ci
def test_the_command_waits_prints_and_cancels(lake: HostWorld) -> None:
    command = weir(lake, "SELECT n, t FROM {many} ORDER BY n", "--limit", "3", "--json")
    out, err = command.communicate(timeout=120)
    document = json.loads(out)
    assert command.returncode == 0, err
    assert [row["n"] for row in document["rows"]] == [0, 1, 2] and document["truncated"]
    assert "on host-a" in document["computed_by"] and document["tables"][0]["version"] == 0
    command = weir(lake, "SELECT sum(a.n * b.n % 11) FROM {many} a, {many} b")
    jobs: list[Job] = []

    def computes(_: Job) -> bool:
        jobs[:] = [job for job in lake.store.jobs.unfinished() if job.progress.phase == "computing the rows"]
        return bool(jobs)

    lake.until(lake.store.jobs.newest(1)[0], computes)
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=60)
    assert command.returncode == 130 and f"job {jobs[0].job_id} is being cancelled" in err
    assert jobs[0].kind is JobKind.QUERY and lake.ended(jobs[0]).state is JobState.CANCELLED
