"""Rows replaced by those of a former version or of another table: counted twice, and compared with the source."""

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backend.errors import StreamRefusedError
from backend.maintenance.model import Repair, TableAct
from pipelines.jobs.same_rows import rows_proof
from tests.pipelines.jobs.test_table_acts import NAME, Shelf, shelf

__all__ = ["shelf"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def rows(table: Shelf, version: int | None = None) -> list[tuple[object, ...]]:
    reader = table.spark.read.format("delta")
    reader = reader if version is None else reader.option("versionAsOf", version)
    return sorted(map(tuple, reader.load(table.uri).collect()), key=repr)


@pytest.mark.parametrize("vectors", ["true", pytest.param("false", marks=pytest.mark.ci)])
def test_rows_of_a_former_version_come_back(shelf: Callable[..., Shelf], vectors: str) -> None:
    table = shelf()
    options = {"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": vectors}
    table.write("2026-01-01", "2026-01-02", rows=50, **options)
    before = rows(table)
    table.sql("UPDATE {} SET id = id + 1000 WHERE day = '2026-01-02' AND id < 60")  # ten rows that are wrong
    table.sql("DELETE FROM {} WHERE id IN (1, 70)")
    table.sql("INSERT INTO {} SELECT id, '2026-01-02' FROM range(60, 65)")  # five rows twice
    asked = Repair("\"day\" = '2026-01-02'", from_version=1)
    planned = table.preview(asked)
    assert (planned.figures["rows"], planned.figures["rows_in"]) == (50 - 1 + 5, 50)
    assert planned.typed and any(note.startswith("of those that come, such as id ") for note in planned.notes)

    result = table.act(asked)

    assert [(proof.what, proof.holds) for proof in result.proofs] == [
        ("exactly the rows of the preview", True),
        ("the rows are those of the source", True),
    ]
    assert result.figures == {"rows": 54, "rows_in": 50}
    assert rows(table) == [row for row in before if row != (1, "2026-01-01")]
    assert table.act(Repair("id = 1", from_version=1)).figures == {"rows": 0, "rows_in": 1}
    assert rows(table) == before
    table.write("2026-01-03", start=500, rows=5)
    assert table.act(Repair("id >= 500", from_version=1)).figures == {"rows": 5, "rows_in": 0}
    assert rows(table) == before


def test_rows_of_another_table_come(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write("a", "b", rows=10)
    other = table.uri.replace(NAME, "fixed/it's other")
    mended = table.spark.range(5, 25).select(F.lit("a").alias("day"), "id")  # columns in another order
    mended.write.format("delta").save(other)
    planned = table.preview(Repair("id BETWEEN 5 AND 14", from_table="it's other"))
    assert planned.act.arguments == Repair("id BETWEEN 5 AND 14", from_version=0, from_table=other)
    mended.limit(1).write.format("delta").mode("append").save(other)  # what was previewed comes, not this

    result = table.run(table.submit(planned.act))

    assert all(proof.holds for proof in result.proofs) and result.figures == {"rows": 10, "rows_in": 10}
    expected = [(n, "a") for n in range(15)] + [(n, "b") for n in range(15, 20)]
    assert rows(table) == sorted(expected, key=repr)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (Repair("id < 5", from_version=2), "v2 is the latest version"),
        (Repair("id < 5", from_version=0), "the columns of v0 are others: n missing, here int"),
        (Repair("id > 500", from_version=1), "no row satisfies the condition"),
        (Repair("regexp_matches(day, 'a')", from_version=1), "Spark cannot read this"),
    ],
)
def test_rows_that_cannot_come_change_nothing(shelf: Callable[..., Shelf], asked: Repair, why: str) -> None:
    table = shelf()
    table.write("a", rows=10)
    table.sql("ALTER TABLE {} ADD COLUMNS (n INT)")
    table.sql("DELETE FROM {} WHERE id = 3")
    with pytest.raises(StreamRefusedError, match=why):
        table.run(table.submit(TableAct(table.uri, NAME, 2, asked)))
    assert table.lake.latest_version(table.ref) == 2
    table.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    assert "append-only" in table.preview(Repair("id < 5", from_version=1)).refused


def test_a_version_beyond_retention_is_refused(shelf: Callable[..., Shelf]) -> None:
    """Delta reads none, whether its files are there or not."""
    table = shelf()
    table.write("a", rows=10, **{"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    table.sql("DELETE FROM {} WHERE id = 3")
    refused = table.preview(Repair("id < 5", from_version=0))
    assert refused.refused and refused.way_out == "choose a later version"


def test_other_rows_are_told_from_the_same(spark: SparkSession) -> None:
    at = datetime(2026, 1, 1, 1, 2, 3, 456789)
    kind = "t timestamp, n timestamp_ntz, d date, x double, s string, m map<string,int>, p decimal(38,9), b binary"
    one = (at, at, date(2026, 1, 1), 0.1 + 0.2, None, {"a": 1}, Decimal("1.000000001"), b"\x00")
    kept = spark.createDataFrame([one, one, (None,) * 8], kind)
    assert rows_proof("same", kept.repartition(3), kept).holds is True
    others = (
        (at.replace(microsecond=456788), *one[1:]), (at, at.replace(microsecond=0), *one[2:]),
        (*one[:3], 0.3, *one[4:]),
        (*one[:4], "", *one[5:]), (*one[:5], {"a": None}, *one[6:]), (*one[:6], Decimal("1.000000002"), one[7]),
        (*one[:7], b"\x01"),
    )  # fmt: skip
    for other in others:
        proof = rows_proof("same", spark.createDataFrame([one, other, (None,) * 8], kind), kept)
        assert (proof.holds, proof.detail) == (False, "3 rows against 3, but not the same ones"), other
    assert rows_proof("same", spark.createDataFrame([one, (None,) * 8, (None,) * 8], kind), kept).holds is False
    assert rows_proof("same", kept.limit(2), kept).detail == "2 rows against 3"
