"""SQL over real tables: answers equal to pandas, what is read and where, and nothing left behind whatever ends it."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from backend.access import Actor
from backend.errors import LakehouseError, QueryError
from backend.lake.model import UnreadableTable
from backend.query.answer import answered
from backend.query.plan import LEAST_CPU_S, QueryPlan, plan_query
from backend.query.process import start_process
from backend.query.views import VIEW_COLUMNS, World
from backend.query.worker import QueryLimits
from backend.settings import load_settings
from backend.store.store import ControlStore
from backend.streams.timeline import EPOCH, load_timeline
from backend.times import Clock
from backend.work import Interruptible, Stopped
from tests.worlds.cases import few
from tests.worlds.lake import builders, questions
from tests.worlds.lake.builders import HandLog, add, commit_info, mapped_metadata, protocol, remove
from tests.worlds.lake.hostile_sql import BOMBS, cross
from tests.worlds.lake.questions import open_world
from tests.worlds.lake.vectors import write_vector
from tests.worlds.processes import query_processes, wait_until

LIMITS = QueryLimits(400_000_000, 100_000_000, 60.0)
Ask = Callable[..., list[dict[str, Any]]]
ENDLESS = BOMBS[0]
ANA = Actor("ana")


@pytest.fixture(autouse=True)
def spills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where queries spill: a folder of the test's own. Whatever a test does, no process and no file is left."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not query_processes(os.getpid()) and not list(folder.glob("weir-query-*"))


@pytest.fixture
def world(root: Path, tmp_path: Path) -> World:
    return open_world(load_settings(home=tmp_path))


@pytest.fixture
def ask(world: World) -> Ask:
    def rows(text: str, *, limits: QueryLimits = LIMITS, **more: Any) -> list[dict[str, Any]]:
        with answered(world, plan_query(world, text, Clock(), **more), limits, ANA) as batches:
            found: list[dict[str, Any]] = batches.read_all().to_pylist()
            return found

    return rows


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ControlStore]:
    store = ControlStore.open(load_settings(home=tmp_path))
    yield store
    store.close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> World:
    home = tmp_path_factory.mktemp("shop")
    silver = home / "lake" / "silver"
    written = {"orders": questions.orders(), "customers": questions.customers(), "events": questions.events()}
    for name, frame in written.items():
        partition = {"partition_by": ["day"]} if name == "orders" else {}
        builders.write(silver / name, pa.Table.from_pandas(frame, preserve_index=False), **partition)
    table = str(silver / "orders")
    builders.write(silver / "orders", pa.Table.from_pandas(questions.appended(), preserve_index=False))
    DeltaTable(table).update(updates={"status": "'paid'"}, predicate="customer_id = 3")
    DeltaTable(table).delete("status = 'lost'")
    return open_world(load_settings(home=home))


@pytest.mark.parametrize("question", few(6, questions.QUESTIONS), ids=lambda question: question.name)
def test_analysts_questions_are_answered_as_pandas_answers_them(shop: World, question: questions.Question) -> None:
    names = {name: f"silver.orders VERSION AS OF {version}" for name, version in questions.VERSIONS.items()}
    text = question.sql.format(**names, customers="silver.customers", events='"silver/events"')
    with answered(shop, plan_query(shop, text, Clock()), LIMITS, ANA) as batches:
        table = batches.read_all()  # two columns may have one name
        rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    expected = questions.comparable(question.by_pandas(questions.states()))
    assert expected and questions.comparable(rows) == expected


# what is read ---------------------------------------------------------------------------------------------------------


def test_files_are_pruned_by_partition_and_statistics(root: Path, world: World, ask: Ask) -> None:
    builders.partitioned_table(root / "parts", days=3, files_per_day=2)
    for low in range(0, 700, 10):  # more files than are opened without a look at statistics
        builders.write(root / "many", {"id": list(range(low, low + 10))})

    def files(text: str) -> list[int]:
        return [read.num_files for read in plan_query(world, text, Clock()).reads]

    assert files("SELECT * FROM parts") == [6] and files("SELECT * FROM parts WHERE day = '2026-01-02'") == [2]
    assert files("SELECT * FROM many WHERE id = 42") == [1] and files("SELECT * FROM many") == [70]
    assert files("SELECT * FROM many a LEFT JOIN many b ON a.id = b.id WHERE a.id < 20 AND b.id = 3") == [2, 70]
    assert files("SELECT * FROM parts WHERE day = (SELECT max(day) FROM parts p)") == [6, 6]
    joined = "SELECT count(*) AS n FROM many a JOIN many b ON a.id = b.id + 1 WHERE a.id < 20 AND b.id > 4"
    assert ask(joined) == [{"n": 14}], "pruned, it has the rows of the whole one"
    left = "SELECT count(*) AS n, count(b.id) AS m FROM many a LEFT JOIN many b ON a.id = b.id + 690 WHERE a.id > 685"
    assert ask(left) == [{"n": 14, "m": 10}]


def test_a_time_names_the_version_of_then_and_what_names_none_is_refused(root: Path, world: World, ask: Ask) -> None:
    builders.orders_table(root / "silver" / "orders")
    moment = world.lake.history(world.lake.find("orders"))[1].committed_at
    assert moment is not None
    timed = f"SELECT count(*) AS n FROM silver.orders TIMESTAMP AS OF '{moment.isoformat()}'"
    plan = plan_query(world, timed, Clock())
    assert plan.versions == (("silver/orders", 2),) and ask(timed) == [{"n": 5}]
    for wrong in (
        "VERSION AS OF 99",
        "TIMESTAMP AS OF '2020-01-01'",
        "TIMESTAMP AS OF 'nonsense'",
        "TIMESTAMP AS OF '3'",
    ):
        with pytest.raises(LakehouseError) as refused:
            ask(f"SELECT * FROM orders {wrong}")
        assert refused.value.exit_code in (2, 3)


# every kind of table --------------------------------------------------------------------------------------------------


def test_every_type_comes_through(root: Path, ask: Ask) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    row = {
        "flag": True, "small": 3, "whole": 2**40, "real": 1.5, "money": Decimal("12345678901234567890.12"),
        "text": "ü'\"", "raw": b"\x00\xff", "day": date(1969, 12, 31), "at": moment, "local": datetime(2026, 1, 2, 3),
        "items": [1, 2], "pair": {"a": 1, "b": "x"}, "lookup": [("k", 1)],
    }  # fmt: skip
    kinds = [
        pa.bool_(), pa.int8(), pa.int64(), pa.float64(), pa.decimal128(38, 2), pa.string(), pa.binary(), pa.date32(),
        pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.list_(pa.int32()),
        pa.struct([("a", pa.int32()), ("b", pa.string())]), pa.map_(pa.string(), pa.int64()),
    ]  # fmt: skip
    schema = pa.schema(list(zip(row, kinds, strict=True)))
    builders.write(root / "typed", pa.Table.from_pylist([row, dict.fromkeys(row)], schema=schema))
    flat = ", ".join(name for name in row if name not in ("items", "pair", "lookup"))
    assert ask("SELECT * FROM typed WHERE flag") == [row]
    assert ask(f"SELECT {flat} FROM typed WHERE flag") == [{n: row[n] for n in flat.split(", ")}]  # by DuckDB itself
    assert ask("SELECT pair.b, items[2] AS i, lookup['k'] AS k FROM typed WHERE flag") == [{"b": "x", "i": 2, "k": 1}]


@pytest.mark.parametrize("extra", ["", ", l"], ids=["as files lie", "through Arrow"])
def test_deleted_rows_mapped_names_and_partitions(root: Path, ask: Ask, extra: str) -> None:
    """The column of lists is one that DuckDB does not read from the files itself."""
    table = root / "odd"
    table.mkdir()
    lists = {"type": "array", "elementType": "long", "containsNull": True}
    columns = {"id": ("c1", "long", 1), "p": ("c2", "string", 2), "l": ("c3", lists, 3)}
    pq.write_table(pa.table({"c1": range(8), "c3": [[n] for n in range(8)]}), table / "a")
    pq.write_table(pa.table({"c1": range(20, 24), "c3": [[n] for n in range(4)]}), table / "b")
    sizes = {name: (table / name).stat().st_size for name in "ab"}
    a, b = ({"rows": rows, "partitionValues": {"c2": value}} for rows, value in ((8, "x"), (4, None)))
    features, mapped = ["deletionVectors", "columnMapping"], mapped_metadata(columns, partition_by=["p"])
    log = HandLog(table).commit(protocol(3, 7, features), mapped, commit_info())
    log.commit(add("a", size=sizes["a"], **a), add("b", size=sizes["b"], **b), commit_info())
    gone = write_vector(table, [2, 5])
    log.commit(remove("a"), add("a", size=sizes["a"], dv=gone, **a), commit_info())
    text = f"SELECT id, p{extra} FROM odd VERSION AS OF {{}} WHERE id > 1 ORDER BY id"
    after = [(row["id"], row["p"]) for row in ask(text.format(2))]
    assert after == [(3, "x"), (4, "x"), (6, "x"), (7, "x"), (20, None), (21, None), (22, None), (23, None)]
    assert len(ask(text.format(1))) == 10


def test_a_column_that_came_later_is_null_before(root: Path, ask: Ask) -> None:
    builders.write(root / "grown", {"id": [1, 2]})
    builders.write(root / "grown", {"id": [3], "note": ["x"]}, schema_mode="merge")
    joined = "SELECT n.id, n.note, o.id AS old FROM grown n LEFT JOIN grown VERSION AS OF 0 o ON n.id = o.id ORDER BY 1"
    assert [tuple(row.values()) for row in ask(joined)] == [(1, None, 1), (2, None, 2), (3, "x", None)]


# views ----------------------------------------------------------------------------------------------------------------


def test_history_properties_files_and_partitions_say_what_the_log_says(root: Path, world: World, ask: Ask) -> None:
    builders.orders_table(root / "orders")
    builders.partitioned_table(root / "parts")
    history = ask('SELECT * FROM "orders$history" ORDER BY version')
    commits = world.lake.history(world.lake.find("orders"))[::-1]
    assert [(r["version"], r["operation"], r["timestamp"]) for r in history] == [
        (c.version, c.operation, c.committed_at) for c in commits
    ]
    weighs = sum(file.stat().st_size for file in (root / "orders" / "_change_data").glob("*.parquet"))
    assert sum(row["change_bytes"] or 0 for row in history) == weighs > 0
    assert dict(history[2]["operation_parameters"])["predicate"] == commits[2].parameters["predicate"]
    for view in VIEW_COLUMNS:
        of_view = f'"parts${view}"' + ("(0, 'latest')" if view == "changes" else "")
        assert list(ask(f"SELECT * FROM {of_view}")[0])[-len(VIEW_COLUMNS[view]) :] == list(VIEW_COLUMNS[view])
    assert ask('SELECT max(version) AS v FROM "orders$history" VERSION AS OF 1') == [{"v": 1}]
    properties = {row["key"]: row["value"] for row in ask('SELECT * FROM "orders$properties"')}
    assert properties["delta.enableChangeDataFeed"] == "true" and properties["delta.minWriterVersion"] >= "4"
    of_files = "partition.day AS day, sum(record_count) AS n, sum(file_size_in_bytes) AS b"
    files = ask(f'SELECT {of_files} FROM "parts$files" GROUP BY 1')
    parts = ask('SELECT partition.day AS day, record_count AS n, total_size AS b, file_count FROM "parts$partitions"')
    assert {(r["day"], r["n"], r["b"]) for r in files} == {(r["day"], r["n"], r["b"]) for r in parts} and len(
        parts
    ) == 3
    sizes = {p.name: p.stat().st_size for p in (root / "parts").glob("day=2026-01-02/*.parquet")}
    assert next(r["b"] for r in parts if r["day"] == "2026-01-02") == sum(sizes.values())
    bounds = ask("""SELECT lower_bounds['id'] AS low, upper_bounds['id'] AS high, null_value_counts['id'] AS nulls
                    FROM "parts$files" WHERE partition.day = '2026-01-03' ORDER BY 1""")  # fmt: skip
    assert bounds == [{"low": "103", "high": "153", "nulls": "0"}, {"low": "3", "high": "53", "nulls": "0"}]


def test_changes_are_the_feed_or_the_difference(root: Path, ask: Ask) -> None:
    builders.orders_table(root / "fed")
    builders.orders_table(root / "plain", change_feed=False)
    fed = ask("SELECT _change_type AS kind, order_id FROM \"fed$changes\"(1, 'latest') ORDER BY 1, 2")
    assert [tuple(row.values()) for row in fed] == [("delete", 1), ("update_postimage", 2), ("update_preimage", 2)]
    plain = ask(
        'SELECT _change_type AS kind, order_id, amount, _commit_version FROM "plain$changes"(1, 3) ORDER BY 1, 2'
    )
    assert [tuple(row.values()) for row in plain] == [
        ("delete", 1, 10.0, None), ("delete", 2, 20.0, None), ("insert", 2, 25.0, None)
    ]  # fmt: skip
    (version, at) = ask("""SELECT DISTINCT _commit_version AS version, _commit_timestamp AS at
                           FROM "plain$changes"(1, 2)""")[0].values()  # fmt: skip
    (second,) = ask('SELECT timestamp AS at FROM "plain$history" WHERE version = 2')
    assert (version, at) == (2, second["at"]), "one commit alone is named"
    DeltaTable(str(root / "plain")).optimize.z_order(["order_id"])
    after = ask('SELECT DISTINCT _change_type AS kind, _commit_version AS v FROM "plain$changes"(2, 4)')
    assert after == [{"kind": "delete", "v": 3}], "and one that alone changed rows"
    with pytest.raises(QueryError, match="no commit comes after v3"):
        ask('SELECT * FROM "fed$changes"(3, 1)')


def test_the_lake_and_the_store_are_tables_too(root: Path, world: World, store: ControlStore) -> None:
    builders.orders_table(root / "orders")
    (root / "broken" / "_delta_log").mkdir(parents=True)
    (root / "broken" / "_delta_log" / f"{0:020d}.json").write_text("{}")
    full = replace(world, store=store)

    def rows(text: str) -> list[tuple[Any, ...]]:
        with answered(full, plan_query(full, text, Clock()), LIMITS, ANA) as batches:
            return [tuple(row.values()) for row in batches.read_all().to_pylist()]

    tables = rows("SELECT table_name, num_rows, problem FROM weir.tables ORDER BY 1")
    why = next(card.reason for card in world.lake.cards() if isinstance(card, UnreadableTable))
    assert tables == [("broken", None, why), ("orders", 4, None)]
    assert ("orders", "amount", "double") in rows("SELECT table_name, column_name, data_type FROM weir.columns")
    written = "SELECT operation, count(*) FROM weir.commits WHERE table_name = 'orders' GROUP BY 1 ORDER BY 1"
    assert rows(written) == [("DELETE", 1), ("UPDATE", 1), ("WRITE", 2)]
    for empty in ("streams", "batches", "notices"):
        assert rows(f"SELECT * FROM weir.{empty}") == []
    acts = rows("SELECT actor, action, subject, detail FROM weir.acts WHERE subject = 'weir.columns'")
    assert acts == [
        ("ana", "query", "weir.columns", "3 rows; SELECT table_name, column_name, data_type FROM weir.columns")
    ]


# ends -----------------------------------------------------------------------------------------------------------------


def plan_of(world: World, text: str) -> QueryPlan:
    return plan_query(world, text, Clock())


def test_a_query_that_is_left_ends(root: Path, world: World) -> None:
    builders.orders_table(root / "orders")
    with answered(world, plan_of(world, "SELECT * FROM orders"), LIMITS, ANA) as rows:
        next(iter(rows))  # and the others are not asked for


def test_a_process_that_was_started_ahead_answers_or_ends_unasked(root: Path, world: World) -> None:
    builders.orders_table(root / "orders")
    with start_process() as process:
        plan = plan_of(world, "SELECT * FROM orders")
        with answered(world, plan, LIMITS, ANA, process=process) as rows:
            assert rows.read_all().num_rows == 4
    assert process.returncode in (0, -signal.SIGKILL)
    with pytest.raises(QueryError), start_process() as process:
        plan_of(world, "DROP TABLE orders")
    assert process.returncode


def test_a_cancelled_query_leaves_no_process_and_no_file(world: World, spills: Path) -> None:
    token = Interruptible()
    ended: list[Exception] = []

    def run() -> None:
        try:
            with answered(world, plan_of(world, ENDLESS), LIMITS, ANA, token) as rows:
                rows.read_all()
        except (LakehouseError, Stopped) as exc:
            ended.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: query_processes(os.getpid()), "a process")
    assert [path.stat().st_mode & 0o777 for path in spills.glob("weir-query-*")] == [0o700]
    token.stop()
    thread.join(10)
    assert not thread.is_alive() and isinstance(ended[0], Stopped)
    with pytest.raises(Stopped), answered(world, plan_of(world, "SELECT 1"), LIMITS, ANA, token):
        pass  # before it began


LARGE = f"SELECT list(concat(md5(concat(t0.x, t1.x, t2.x, t3.x, t4.x, t5.x, t6.x)), 'x')) AS l FROM {cross(7)}"
LATE = (
    f"SELECT CAST(CASE WHEN t0.x + t1.x + t2.x + t3.x + t4.x = 50 THEN 'ten' ELSE '1' END AS INT) AS n FROM {cross(5)}"
)


@pytest.mark.parametrize(
    ("text", "limits", "reason"),
    [
        pytest.param(ENDLESS, QueryLimits(400_000_000, 0, 1.0), "took longer than 1 s and was stopped", id="time"),
        pytest.param(LARGE, QueryLimits(64_000_000, 0, 60.0), "does not fit into 64 MB", id="memory"),
        pytest.param(LATE, LIMITS, r"the query cannot be computed: .*'ten'", id="a row after the first thousands"),
    ],
)
def test_what_ends_a_query_is_a_sentence(ask: Ask, text: str, limits: QueryLimits, reason: str) -> None:
    started = time.monotonic()
    with pytest.raises(QueryError, match=reason):
        ask(text, limits=limits)
    assert time.monotonic() - started < 10 or limits.time_limit_s > 10


@pytest.mark.parametrize(
    "text", few(2, [BOMBS[4], BOMBS[8], *BOMBS[1:4], *BOMBS[5:8], *BOMBS[9:]]), ids=lambda text: text[:40]
)
def test_a_bomb_ends_soon_in_a_sentence(root: Path, ask: Ask, text: str) -> None:
    builders.write(root / "t", {"id": [1]})
    before, started = sorted(root.rglob("*")), time.monotonic()
    sentence = r"took longer than 4 s|does not fit|needs more memory|holds more than|ended by|maximum total string size"
    try:
        rows = ask(text, limits=QueryLimits(100_000_000, 50_000_000, 4.0), most_rows=1_001)
        assert len(rows) == 1_001, "the first rows alone were soon there"
    except QueryError as exc:
        assert re.search(sentence, exc.message), exc.message
    assert time.monotonic() - started < 10 and sorted(root.rglob("*")) == before


def test_what_reads_little_may_not_compute_for_long(
    root: Path, world: World, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    builders.orders_table(root / "orders")
    size = world.lake.snapshot(world.lake.find("orders")).size_bytes
    plan = plan_of(world, "SELECT * FROM orders")
    assert plan.cpu_s == LEAST_CPU_S + plan.num_files + size / 1e6
    feed = plan_of(world, 'SELECT * FROM "orders$changes"(0, 3)')
    assert feed.size_bytes > 0 and feed.num_files > 0
    monkeypatch.setattr("backend.query.plan.LEAST_CPU_S", 1.0)
    with pytest.raises(QueryError, match="the query computed for 1 s, too long for what it reads"):
        ask(ENDLESS)


def test_an_answer_too_large_to_hold_does_not_reach_who_asked(world: World, ask: Ask) -> None:
    text = f"SELECT lpad('x', 1000000, 'y') AS l FROM {cross(2)}"
    with pytest.raises(QueryError, match=r"the answer holds more than 64 MB"):
        ask(text, most_rows=1_001)
    with answered(world, plan_of(world, text), LIMITS, ANA) as rows:  # an export holds a piece at a time
        assert max(batch.nbytes for batch in rows) < 10_000_000


def test_a_process_that_is_killed_is_told(ask: Ask) -> None:
    def kill() -> None:
        wait_until(lambda: query_processes(os.getpid()), "a process")
        os.kill(query_processes(os.getpid())[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(QueryError, match=r"ended by itself \(code -9\)"):
        ask(ENDLESS)
    killer.join()


def test_what_a_tables_rows_fail_with_is_told_as_it_is(root: Path, world: World) -> None:
    path = builders.write(root / "t", pa.table({"id": [1], "l": [[1]]}))
    plan = plan_of(world, "SELECT * FROM t")
    for file in path.glob("*.parquet"):
        file.unlink()
    with pytest.raises(LakehouseError, match="is gone"), answered(world, plan, LIMITS, ANA) as rows:
        rows.read_all()


@pytest.mark.ci
def test_a_query_ends_with_the_process_that_asked(tmp_path: Path, spills: Path) -> None:
    code = f"""
import tempfile; tempfile.tempdir = {str(spills)!r}
from tests.backend.sql.test_query_on_tables import *
world = open_world(load_settings(home={str(tmp_path)!r}))
with answered(world, plan_of(world, ENDLESS), LIMITS, ANA) as rows:
    rows.read_all()
"""
    errors = tmp_path / "errors"
    with errors.open("w") as stderr:
        asked = subprocess.Popen([sys.executable, "-c", code], stderr=stderr)

    def runs() -> bool:
        assert asked.poll() is None, errors.read_text()
        return bool(query_processes(asked.pid) and list(spills.glob("weir-query-*")))

    wait_until(runs, "a process and a folder")
    workers = query_processes(asked.pid)
    asked.kill()
    asked.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "no process")
    wait_until(lambda: not list(spills.glob("weir-query-*")), "no folder")


def test_a_query_is_in_the_audit_with_who_text_versions_and_rows(root: Path, world: World, store: ControlStore) -> None:
    builders.orders_table(root / "silver" / "orders")
    kept = replace(world, store=store)
    with answered(kept, plan_of(kept, "SELECT *\nFROM orders"), LIMITS, ANA) as rows:
        rows.read_all()
    with (
        pytest.raises(QueryError),
        answered(kept, plan_of(kept, "SELECT x FROM orders VERSION AS OF 1"), LIMITS, Actor("bo")) as rows,
    ):
        rows.read_all()
    second, first = store.audit_entries()
    assert (first.actor, first.action, first.subject) == ("ana", "query", "silver/orders")
    assert first.detail == "4 rows; silver/orders v3; SELECT * FROM orders"
    assert second.actor == "bo" and second.detail.startswith("0 rows, then the query cannot be computed")
    assert "silver/orders v1; SELECT x" in second.detail
    ref = world.lake.find("orders")
    told = load_timeline(world.lake, store, (), ref, since=EPOCH, until=None, now=store.now())
    assert {event.kind for event in told.events} == {"commit"} and store.audit_entries(acts_only=True) == []
