"""Metadata changed by Spark: comment, columns and constraints as previewed, and nothing of what is refused."""

import json
from collections.abc import Callable
from itertools import product

import pytest
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from backend.errors import LakehouseError, StreamRefusedError
from backend.maintenance.column_types import may_widen
from backend.maintenance.model import Alter, TableAct
from tests.pipelines.jobs.test_table_acts import NAME, Shelf, shelf

__all__ = ["shelf"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

MAPPED = {"delta.columnMapping.mode": "name"}
HOSTILE = "x`; DROP TABLE t; --\n'\" \\ ü"


def columns(table: Shelf) -> list[tuple[str, str]]:
    """As Spark reads them."""
    return table.spark.read.format("delta").load(table.uri).dtypes


def test_a_comment_and_a_column_are_as_they_were_typed(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write("a")
    asked = Alter(comment=HOSTILE, add_columns={"it's`odd": "decimal(10,2)"}, column_comments={"it's`odd": HOSTILE})
    planned = table.preview(asked)
    assert planned.figures == {"properties_changed": 0, "columns_changed": 1, "rows_violating": 0}
    assert not planned.typed and "a column it's`odd decimal(10,2) is added, null in every row" in planned.effect

    result = table.act(asked)

    assert [(proof.what, proof.holds) for proof in result.proofs] == [
        ("the comment is set", True),
        ("the columns are as asked", True),
    ]
    (*_, added) = table.spark.read.format("delta").load(table.uri).schema
    assert (added.name, added.dataType.simpleString(), added.metadata["comment"]) == (
        "it's`odd",
        "decimal(10,2)",
        HOSTILE,
    )
    assert DeltaTable.forPath(table.spark, table.uri).detail().collect()[0]["description"] == HOSTILE
    assert len(table.ids()) == 100
    assert table.preview(Alter(comment=HOSTILE)).refused == "it is so already"
    assert table.act(Alter(comment="")).proofs[0].holds is True


def test_columns_are_renamed_dropped_and_widened_and_restored(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.spark.range(10).selectExpr("id", "cast(id as int) n", "id * 2 twice").write.format("delta").save(table.uri)
    off = table.preview(Alter(rename_columns={"n": HOSTILE}))
    assert off.way_out.startswith("--set delta.columnMapping.mode=name")
    widening = {**MAPPED, "delta.enableTypeWidening": "true"}
    asked = Alter(
        widening, rename_columns={"N": HOSTILE}, drop_columns=("twice",), widen_columns={"ID": "decimal(20,0)"}
    )
    planned = table.preview(asked)
    assert planned.typed and planned.refused == "" and "RESTORE to v0" in planned.way_back
    raised = [risk for risk in planned.risks if "for good" in risk]
    assert len(raised) == 2, planned.risks

    result = table.act(asked)

    assert all(proof.holds for proof in result.proofs) and len(result.proofs) == 2
    assert columns(table) == [("id", "decimal(20,0)"), (HOSTILE, "int")]
    assert sorted(row[1] for row in table.spark.read.format("delta").load(table.uri).collect()) == list(range(10))
    table.sql("RESTORE TABLE {} TO VERSION AS OF 0")
    assert columns(table) == [("id", "bigint"), ("n", "int"), ("twice", "bigint")]
    assert sorted(row["twice"] for row in table.spark.read.format("delta").load(table.uri).collect()) == [
        2 * number for number in range(10)
    ]


def test_a_constraint_is_refused_while_rows_violate_it(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write("a", "b")
    table.sql("UPDATE {} SET id = NULL WHERE id = 7")  # unknown is a violation, for Delta as well
    asked = Alter(add_constraints={"Small": "id < 198 AND day <> 'x  y'"})
    planned = table.preview(asked)
    assert (planned.figures["rows_violating"], planned.refused) == (3, "3 rows violate small")
    assert "small: such as id 198, day b" in planned.notes
    with pytest.raises(StreamRefusedError, match="3 rows violate small"):
        table.run(table.submit(TableAct(table.uri, NAME, table.lake.latest_version(table.ref), planned.act.arguments)))
    table.sql("DELETE FROM {} WHERE id >= 198 OR id IS NULL")

    planned = table.preview(asked)
    assert any("constraint raises the table's protocol for good" in risk for risk in planned.risks)
    result = table.act(asked)

    assert [(proof.what, proof.holds) for proof in result.proofs] == [("the constraints are as asked", True)]
    with pytest.raises((PySparkException, Py4JJavaError), match="DELTA_VIOLATE_CONSTRAINT"):
        table.write("c", start=500)
    table.write("c", rows=3)
    again = table.preview(Alter(add_constraints={"SMALL": "id < 5"}))
    assert again.refused.startswith("there is a constraint small already")
    assert table.preview(Alter(MAPPED, rename_columns={"id": "key"})).refused == "constraint small is computed from id"
    assert not table.preview(Alter(add_constraints={"other": "id < 1000"})).risks
    assert table.act(Alter(drop_constraints=("SMALL",))).proofs[0].holds is True
    table.write("c", start=500)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (Alter(add_columns={"a b": "int"}), "needs column mapping"),
        (Alter(add_columns={"ID": "int"}), "there is a column id already"),
        (Alter(add_columns={"x": "int) USING delta; DROP TABLE t"}), "is no type that can be given here"),
        (Alter(add_columns={"x": "timestamp_ntz"}), "a table feature that is off"),
        (Alter(MAPPED, drop_columns=("day",)), "the table is laid out by day"),
        (Alter(MAPPED, drop_columns=("id", "gone")), "there is no column 'gone'"),
        (Alter(MAPPED, rename_columns={"id": "Day"}), "there is a column day already"),
        (Alter(widen_columns={"id": "decimal(20,0)"}), "delta.enableTypeWidening, which is off"),
        (Alter({"delta.enableTypeWidening": "true"}, widen_columns={"id": "int"}), "id bigint cannot become int"),
        (Alter(MAPPED, rename_columns={"id": "a"}, drop_columns=("ID",)), "'id' is named twice"),
        (Alter(add_constraints={"x`; DROP": "id > 0"}), "no name for a constraint"),
        (Alter(add_constraints={"x": "id > 0); DROP TABLE t; SELECT (1"}), "only one expression is allowed"),
        (Alter(add_constraints={"x": '"id" >= 0'}), 'has " in it'),
        (Alter(add_constraints={"x": "id >= 0 -- )"}), "has -- in it"),
        (Alter(add_constraints={"x": "id IN (SELECT 1)"}), "a subquery is not allowed"),
        (Alter(add_constraints={"x": "starts_with(day, 'a') OR id % 7 < 9"}), "Spark cannot read this"),
        (Alter(drop_constraints=("x",)), "there is no constraint x"),
        (Alter({"delta.constraints.x": "id > 0"}), "is a constraint, no property"),
    ],
)
def test_what_is_refused_changes_nothing(shelf: Callable[..., Shelf], asked: Alter, why: str) -> None:
    table = shelf()
    table.write("a")
    before = columns(table)
    with pytest.raises(LakehouseError, match=why.replace("(", r"\(")):
        table.run(table.submit(TableAct(table.uri, NAME, 0, asked)))
    assert table.lake.latest_version(table.ref) == 0 and columns(table) == before


def test_a_change_whose_host_died_halfway_is_carried_on(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write("a")
    asked = Alter(MAPPED, comment="sales", rename_columns={"id": "key"}, add_constraints={"known": "day IS NOT NULL"})
    job = table.submit(table.preview(asked).act)
    table.spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", json.dumps({"alter": job.job_id}))
    table.sql("ALTER TABLE {} ADD CONSTRAINT known CHECK (day IS NOT NULL)")
    table.spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
    result = table.run(job)
    assert all(proof.holds for proof in result.proofs) and len(result.proofs) == 4
    operations = [commit.operation for commit in table.lake.history(table.ref)]
    assert operations == ["RENAME COLUMN", "SET TBLPROPERTIES", "SET TBLPROPERTIES", "ADD CONSTRAINT", "WRITE"]


@pytest.mark.ci
def test_types_widen_where_delta_lets_them(spark: SparkSession, tmp_path) -> None:
    """Asked of Delta itself, one column of each type."""
    kinds = ["tinyint", "smallint", "int", "bigint", "float", "double", "date", "decimal(5,2)", "decimal(10,0)"]
    kinds += ["decimal(20,0)", "decimal(7,3)", "decimal(6,4)", "string", "timestamp_ntz"]
    on = "'delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported'"
    for number, (before, after) in enumerate(product(kinds, kinds)):
        if before == after or ("string" in (before, after) and (before, after) != ("int", "string")):
            continue
        name = f"delta.`{tmp_path}/t{number}`"
        spark.sql(f"CREATE TABLE {name} (x {before}) USING delta TBLPROPERTIES ({on})")
        try:
            spark.sql(f"ALTER TABLE {name} ALTER COLUMN x TYPE {after}")
            widened = True
        except (PySparkException, Py4JJavaError):
            widened = False
        assert may_widen(before, after) is widened, (before, after)
