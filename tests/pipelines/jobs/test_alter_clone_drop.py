"""Metadata changed, versions copied and tables moved aside by Spark: as previewed, whole, and over nothing."""

from pathlib import Path

import pytest
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from backend.errors import StreamRefusedError, TableNotFoundError
from backend.lake.storage.storage import Storage
from backend.maintenance.clone_and_drop import ASIDE, dropped_tables, find_dropped
from backend.maintenance.model import Alter, Clone, Drop, Purge, Repair, TableAct, Undrop, Vacuum
from tests.worlds.spark.act_host import ActTable

pytestmark = [pytest.mark.spark, pytest.mark.ci, pytest.mark.timeout(600)]

NAME = ActTable.NAME
MAPPED = {"delta.columnMapping.mode": "name"}
HOSTILE = "x`; DROP TABLE t; --\n'\" \\ ${env:PATH} ü"
COPY = "kept/it's a `copy`; DROP"


# metadata ------------------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_comments_columns_and_properties_are_as_they_were_typed(table: ActTable) -> None:
    table.write("a")
    asked = Alter(comment=HOSTILE, add_columns={"it's`odd": "decimal(10,2)"}, column_comments={"it's`odd": HOSTILE})
    planned, result = table.preview(asked), table.act(asked)
    assert planned.figures == {"properties_changed": 0, "columns_changed": 1, "rows_violating": 0}
    assert not planned.typed and "a column it's`odd decimal(10,2) is added, null in every row" in planned.effect
    assert [proof.what for proof in result.proofs] == ["the comment is set", "the columns are as asked"]
    (*_, added) = table.spark.read.format("delta").load(table.uri).schema
    typed = (added.name, added.dataType.simpleString(), added.metadata["comment"])
    assert typed == ("it's`odd", "decimal(10,2)", HOSTILE)
    assert DeltaTable.forPath(table.spark, table.uri).detail().collect()[0]["description"] == HOSTILE
    assert table.preview(Alter(comment=HOSTILE)).refused == "it is so already"

    table.act(Alter({"owner's \\ note": HOSTILE, "delta.appendOnly": "true"}, comment=""))
    assert dict(table.snapshot.metadata.configuration) == {"owner's \\ note": HOSTILE, "delta.appendOnly": "true"}
    table.act(Alter(unset_properties=("owner's \\ note",)))
    assert dict(table.snapshot.metadata.configuration) == {"delta.appendOnly": "true"} and len(table.ids()) == 100


def test_columns_are_renamed_dropped_and_widened_and_restored(table: ActTable) -> None:
    def columns() -> list[tuple[str, str]]:
        return table.spark.read.format("delta").load(table.uri).dtypes

    table.spark.range(10).selectExpr("id", "cast(id as int) n", "id * 2 twice").write.format("delta").save(table.uri)
    with pytest.raises(StreamRefusedError, match=r"Delta refuses it: .*olumn mapping"):
        table.act(Alter(rename_columns={"n": HOSTILE}))
    on = {**MAPPED, "delta.enableTypeWidening": "true"}
    asked = Alter(on, rename_columns={"N": HOSTILE}, drop_columns=("twice",), widen_columns={"ID": "decimal(20,0)"})
    planned = table.preview(asked)
    assert planned.typed and planned.refused == "" and "RESTORE to v0" in planned.way_back
    assert sum("for good" in risk for risk in planned.risks) == 2, planned.risks
    assert len(table.act(asked).proofs) == 2
    assert columns() == [("id", "decimal(20,0)"), (HOSTILE, "int")]
    assert sorted(row[1] for row in table.rows()) == list(range(10))
    table.sql("RESTORE TABLE {} TO VERSION AS OF 0")
    assert columns() == [("id", "bigint"), ("n", "int"), ("twice", "bigint")]
    assert sorted(row[2] for row in table.rows()) == list(range(0, 20, 2))


def test_a_constraint_is_refused_while_rows_violate_it(table: ActTable) -> None:
    table.write("a", "b")
    table.sql("UPDATE {} SET id = NULL WHERE id = 7")  # unknown is a violation, for Delta as well
    asked = Alter(add_constraints={"Small": "id < 198 AND day <> 'x  y'"})
    planned = table.preview(asked)
    assert (planned.figures["rows_violating"], planned.refused) == (3, "3 rows violate small")
    assert "small: such as id 198, day b" in planned.notes
    with pytest.raises(StreamRefusedError, match="3 rows violate small"):
        table.run(table.submit(TableAct(table.uri, NAME, table.snapshot.version, planned.act.arguments)))
    table.sql("DELETE FROM {} WHERE id >= 198 OR id IS NULL")

    assert any("constraint raises the table's protocol for good" in risk for risk in table.preview(asked).risks)
    assert [proof.what for proof in table.act(asked).proofs] == ["the constraints are as asked"]
    with pytest.raises((PySparkException, Py4JJavaError), match="DELTA_VIOLATE_CONSTRAINT"):
        table.write("c", start=500)


@pytest.mark.soak
def test_of_two_changes_that_delta_refuses_neither_is_done(table: ActTable) -> None:
    table.write("a", "b")
    table.act(Alter(add_constraints={"small": "id < 200"}))
    version = table.snapshot.version
    for again in (Alter(add_constraints={"SMALL": "id < 1000"}), Alter(MAPPED, rename_columns={"id": "key"})):
        with pytest.raises(StreamRefusedError, match=r"Delta refuses it: .*small"):
            table.act(again)
    assert table.snapshot.version == version, "of two changes, neither"
    assert not list((table.settings.home / "checkpoints" / ".rehearsed").iterdir())
    assert not table.preview(Alter(add_constraints={"other": "id < 1000"})).risks
    table.act(Alter(drop_constraints=("SMALL",)))
    table.write("c", start=500)


# copies --------------------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_copy_has_the_rows_and_what_was_said_of_them(table: ActTable) -> None:
    table.write("a'b", "c", **MAPPED, **{"delta.enableDeletionVectors": "true"})
    for statement in (
        "ALTER TABLE {} SET TBLPROPERTIES ('catalog.team_name' = 'it\\'s blue')",
        "COMMENT ON TABLE {} IS 'sales, x\\'); DROP'",
        "ALTER TABLE {} ADD CONSTRAINT known CHECK (id >= 0)",
        "ALTER TABLE {} ALTER COLUMN id COMMENT 'the \\'key\\''",
        "DELETE FROM {} WHERE id % 10 = 3",
    ):
        table.sql(statement)
    version = table.snapshot.version
    table.write("d", start=500)
    target = str(Path(table.uri).parents[1] / COPY)
    planned = table.preview(Clone(COPY, version))
    assert planned.figures["rows"] == 180 and planned.act.arguments == Clone(target, version)

    result = table.act(Clone(COPY, version))

    assert result.proofs[0].detail == "180 rows against 180, each the same"
    assert table.rows(target) == table.rows(version=version)
    detail = DeltaTable.forPath(table.spark, target).detail().collect()[0]
    assert (detail["partitionColumns"], detail["description"]) == (["day"], "sales, x'); DROP")
    copied = table.reader().snapshot(table.reader().find(target)).metadata.configuration
    assert copied["catalog.team_name"] == "it's blue" and copied["delta.constraints.known"] == "id >= 0"
    assert table.spark.read.format("delta").load(target).schema["id"].metadata["comment"] == "the 'key'"
    assert table.preview(Clone(COPY)).refused == f"{target}: there is a table already"


@pytest.mark.soak
def test_a_shallow_copy_reads_the_files_which_no_vacuum_takes_and_changes_apart(table: ActTable) -> None:
    table.write("a", "b", **{"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    target = str(Path(table.uri).parents[1] / "kept" / "copy")
    planned = table.preview(Clone("kept/copy", shallow=True))
    assert planned.figures["bytes_written"] == 0 and "VACUUM" in planned.risks[0]
    result = table.act(Clone("kept/copy", shallow=True))
    assert [proof.what for proof in result.proofs] == ["it reads the files of the version"]
    assert not list(Path(target).rglob("part-*.parquet")) and table.rows(target) == table.rows()
    table.sql("DELETE FROM {} WHERE day = 'a'")
    assert table.preview(Vacuum()).refused == "kept/copy is a shallow copy, and reads 1 file that would be deleted"
    table.spark.sql(f"DELETE FROM delta.`{target}` WHERE id < 150")
    assert (len(table.rows(target)), len(table.rows())) == (50, 100)
    assert table.preview(Repair("id >= 0", from_table="kept/copy")).figures["rows_in"] == 50


# moved aside ---------------------------------------------------------------------------------------------------------


def of_dropped(table: ActTable, arguments: Undrop | Purge) -> TableAct:
    planned = table.planned("", arguments)
    assert not planned.refused, planned.refused
    return planned.act


def test_a_dropped_table_comes_back_as_it_was_and_over_no_other(table: ActTable) -> None:
    table.write("a", "b", **{"delta.enableDeletionVectors": "true"})
    table.sql("DELETE FROM {} WHERE id = 3")
    before, version, root = table.ids(), table.snapshot.version, Storage(table.settings).roots[0]
    planned = table.preview(Drop())
    assert planned.figures["rows"] == len(before) == 199 and planned.typed
    dropping = table.submit(planned.act)
    result = table.run(dropping)
    assert [proof.holds for proof in result.proofs] == [True] * 3 and result.version is None
    assert table.reader().tables() == [] and not Path(table.uri).exists()
    (dropped,) = dropped_tables(table.settings)
    assert (dropped.name, dropped.version, dropped.num_rows) == (NAME, version, 199)
    assert (dropped.job_id, dropped.actor, dropped.reason) == (dropping.job_id, "ana", "to put it right")
    aside = table.spark.read.format("delta").load(f"{root}/{ASIDE}/{dropping.job_id}/table")
    assert sorted(row.id for row in aside.collect()) == before

    result = table.run(table.submit(of_dropped(table, Undrop(NAME))))
    assert [proof.holds for proof in result.proofs] == [True] * 2 and result.version == version
    assert table.ids() == before and dropped_tables(table.settings) == []
    assert not list(Path(root, ASIDE).iterdir())
    table.write("c", start=900)  # as one that was never away
    assert table.snapshot.version == version + 1

    table.act(Drop())
    back = of_dropped(table, Undrop(NAME))
    table.write("z", start=7)
    elsewhere = TableAct(str(Path(table.uri).parent / "other"), "other", 1, Purge(back.arguments.dropped))
    climbing = TableAct(table.uri, NAME, 1, Purge("../../sales"))
    refusals = ((back, "there is a table already"), (elsewhere, "something else"), (climbing, "no dropped table"))
    for act, why in refusals:
        with pytest.raises(StreamRefusedError, match=why):
            table.run(table.submit(act))
    assert len(table.ids()) == 100 and len(dropped_tables(table.settings)) == 1


def test_a_purge_is_for_good_and_takes_one_of_two(table: ActTable) -> None:
    jobs = []
    for days in (("a",), ("b", "c")):
        table.write(*days)
        jobs.append(table.submit(table.preview(Drop()).act))
        table.run(jobs[-1])
    first, second = jobs
    with pytest.raises(TableNotFoundError, match="was dropped 2 times"):
        find_dropped(table.settings, NAME)
    result = table.run(table.submit(of_dropped(table, Purge(first.job_id))))
    assert [(proof.what, proof.holds) for proof in result.proofs] == [("nothing of it is left", True)]
    (left,) = dropped_tables(table.settings)
    assert (left.job_id, left.num_rows) == (second.job_id, 200)
    with pytest.raises(TableNotFoundError, match="no dropped table"):
        of_dropped(table, Undrop(first.job_id))
