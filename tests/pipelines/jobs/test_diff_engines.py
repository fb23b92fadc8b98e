"""One question, two engines: Spark answers what DuckDB answers, whatever the method, the key and the condition.

Rule: a case is a line of the table; a new kind of row or of question is one more.
"""

from dataclasses import dataclass

import pytest

from backend.changes.model import DiffMethod, NetCounts, VersionDiff
from pipelines.jobs.diff import SparkLimits
from tests.worlds.cases import soak
from tests.worlds.lake.diffs import Asked, asked
from tests.worlds.spark.diff_world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FEED, CHANGES, IDS, KEY, ROWS = (
    DiffMethod.CHANGE_FEED, DiffMethod.SPARK_CHANGES, DiffMethod.ROW_ID, DiffMethod.KEY_JOIN, DiffMethod.MULTISET,
)  # fmt: skip
WHOLE, IN_PARTS = SparkLimits(), SparkLimits(part_bytes=1, most_parts=3)


@dataclass(frozen=True, slots=True)
class Case:
    """A question to both; of Spark within `limits`, of DuckDB by the method `same_as` where it has not Spark's own.
    `net`: what both must find, beyond what they agree on."""

    table: str
    first: int
    second: int
    wanted: Asked
    limits: SparkLimits = WHOLE
    same_as: DiffMethod | None = None
    net: NetCounts | None = None

    def __str__(self) -> str:
        wanted = ", ".join(f"{name}={value}" for name, value in self.wanted.items())
        return f"{self.table} {self.first}-{self.second} {wanted}{' in parts' * (self.limits is IN_PARTS)}"


CHANGED = "id IS NULL OR id % 5 = 0 OR id > 99 OR id IN (3, 9)"
NOT_OF_OTHERS = f"CASE WHEN {CHANGED} THEN id = 10 ELSE CAST('x' AS INTEGER) > 1 END"
CASES = (
    Case("plain", 4, 0, asked(method=ROWS, row_limit=6)),
    Case("plain", 2, 4, asked(key=("id", "v.w"), columns=("f", "more", "mp"))),
    Case("tracked", 0, 4, asked(method=IDS)),
    Case("narrowed", 0, 1, asked(method=KEY, key=("id",))),  # each version is read with its own schema
    Case("tracked", 0, 4, asked(method=FEED, key=("id",))),
    Case("tracked", 4, 2, asked(method=CHANGES), same_as=IDS),
    # Null and repeated keys, copies of rows, NaN.
    Case("random", 0, 1, asked(method=KEY, key=("k",))),
    Case("random", 1, 0, asked(method=KEY, key=("k", "f"), row_limit=40), IN_PARTS),
    Case("random", 0, 1, asked(method=ROWS, where="v = 'a' OR k IS NULL"), IN_PARTS),
    Case("random", 0, 1, asked(method=KEY, key=("k",), where="v = 'a' AND f >= 0")),
    # Row 1's null became 0, row 4 has its entries in another order, 2 and 5 differ by microseconds.
    Case("maps", 0, 2, asked(method=KEY, key=("id",)), SparkLimits(compiled_bytes=0), net=NetCounts(0, 3, 0)),
    # Row 0's zeros lost their sign, which no comparison sees; 1 and 2 have numbers for NaN.
    Case("maps", 2, 3, asked(method=KEY, key=("id",)), net=NetCounts(0, 2, 0)),
    Case("replaced", 0, 1, asked(key=("id",), across_replace=True), net=NetCounts(1, 1, 0)),
    Case("plain", 0, 4, asked(method=KEY, key=("p q",), where="id = 101 OR id = 5")),  # a key that names many
    Case("plain", 4, 0, asked(method=ROWS, where="m > 3.1 OR \"v.w\" = 'u'", row_limit=9)),
    Case("tracked", 0, 4, asked(method=IDS, where="v = 'u' OR f > 10")),
    Case("tracked", 0, 4, asked(method=FEED, key=("id",), where="v = 'm'")),
    Case("gaps", 0, 1, asked(where="v <> 'b'")),  # of which the feed has as many as the states
    Case("tracked", 4, 0, asked(method=KEY, key=("id",), tolerance=0.01, row_limit=9), IN_PARTS),
    # Rows that cancel are not asked: the files apart hold others, of which the condition would make an error.
    Case("plain", 0, 4, asked(method=KEY, where=NOT_OF_OTHERS), net=NetCounts(0, 1, 0)),
    Case("plain", 0, 4, asked(method=ROWS, where=NOT_OF_OTHERS)),
)
MORE_CASES = (
    Case("plain", 0, 4, asked(method=KEY)),
    Case("plain", 0, 4, asked(method=KEY, row_limit=95), IN_PARTS),
    Case("tracked", 0, 4, asked(method=ROWS, row_limit=98), IN_PARTS),
    Case("tracked", 0, 4, asked(method=KEY, key=("v",), row_limit=99), IN_PARTS),
    Case("tracked", 0, 4, asked(method=IDS, row_limit=97), IN_PARTS),
    Case("tracked", 0, 4, asked(method=FEED, key=("id",), row_limit=96), IN_PARTS),
    Case("tracked", 1, 2, asked(method=KEY, key=("id",)), IN_PARTS, net=NetCounts(0, 0, 0)),
    Case("tracked", 0, 2, asked(method=CHANGES, where="id < 20 AND v = 'u'"), same_as=IDS, net=NetCounts(0, 3, 0)),
    Case("maps", 0, 2, asked(method=ROWS), SparkLimits(compiled_bytes=0)),
    Case("maps", 2, 3, asked(method=ROWS), SparkLimits(compiled_bytes=0)),
    Case("replaced", 1, 0, asked(method=ROWS, across_replace=True)),
    Case("plain", 0, 4, asked(method=KEY, where="regexp_matches(\"v.w\", '^n[12]')")),  # before alone
    Case("odd", 0, 1, asked(method=KEY, key=("id",), where="place = 11 OR rows.place = 0")),
    Case("plain", 0, 4, asked(method=KEY, where="\"v.w\" = 'u' AND mp['k'] >= 5")),  # after alone
    Case("plain", 4, 0, asked(method=KEY, where="m > 3.1 OR isnan(f)")),
    Case("plain", 0, 4, asked(method=KEY, key=("more",), where="id = 10")),  # a key that is null
    Case("plain", 0, 4, asked(method=KEY, where="id < 0"), net=NetCounts(0, 0, 0)),
    Case("tracked", 0, 4, asked(method=KEY, key=("id",), tolerance=0.01, where="f > 5")),
    Case("tracked", 4, 0, asked(method=FEED, where="v = 'm'")),
)


def assert_same(spark: VersionDiff, here: VersionDiff) -> None:
    """Everything that a method finds; what the log says is the same code."""
    assert spark.changes.net == here.changes.net
    assert spark.changes.apart == here.changes.apart
    assert (spark.changes.changed_cells, spark.changes.truncated) == (
        here.changes.changed_cells,
        here.changes.truncated,
    )
    assert sorted(map(repr, spark.changes.common)) == sorted(map(repr, here.changes.common))
    assert spark.changes.arrow_schema.names == here.changes.arrow_schema.names
    assert list(map(repr, spark.changes.rows)) == list(map(repr, here.changes.rows))
    assert (spark.exact, spark.key, spark.changes.columns) == (here.exact, here.key, here.changes.columns)
    assert spark.num_rows == here.num_rows


@pytest.mark.parametrize("case", [*CASES, *soak(*((case,) for case in MORE_CASES))], ids=str)
def test_both_engines_give_one_answer(world: World, case: Case) -> None:
    with world.limited(case.limits) as phases:
        spark = world.by_spark(case.table, case.first, case.second, case.wanted)
    method = {"method": case.same_as} if case.same_as else {}
    here = world.here(case.table, case.first, case.second, case.wanted | method)
    assert_same(spark, here)
    assert spark.method is (case.wanted["method"] if case.same_as else here.method)
    assert case.same_as or spark.commits == here.commits
    assert any(reason.startswith("computed by Spark") for reason in spark.reasons)
    assert any("part 2 of 3" in phase for phase in phases) is (case.limits is IN_PARTS)
    if case.net is not None:
        assert here.changes.net == case.net
    elif "where" in case.wanted:
        whole = world.here(case.table, case.first, case.second, {**case.wanted, "where": None})
        assert (
            0
            < (here.changes.net.total or 0) + here.changes.apart.rows
            < (whole.changes.net.total or 0) + whole.changes.apart.rows
        )
    else:
        assert here.changes.net.total


def test_two_tables_are_compared_too(world: World) -> None:
    wanted = asked(key=("id",), against=world.lake.find("narrowed"), row_limit=50)
    spark, here = world.by_spark("tracked", 4, 0, wanted), world.here("tracked", 4, 0, wanted)
    assert here.changes.net.total and here.question.against
    assert_same(spark, here)


@pytest.mark.parametrize(("first", "second"), [(4, 2), *soak((0, 2))])
def test_what_sparks_changes_say_of_each_commit_is_what_the_feed_says(world: World, first: int, second: int) -> None:
    found = world.by_spark("tracked", first, second, asked(method=CHANGES))
    assert found.commits == world.here("tracked", first, second, asked(method=FEED)).commits
    assert any(commit.updated for commit in found.commits)


def test_what_a_method_would_misread_is_left_to_the_next_one_and_said(world: World) -> None:
    """Deletion vectors were turned on later: Spark's CHANGES over all of it would make rows up."""
    found = world.by_spark("marked_later", 0, 3, asked())
    assert_same(found, world.here("marked_later", 0, 3, asked(method=IDS)))
    assert found.method is IDS
    [why] = [reason for reason in found.reasons if reason.startswith("not by Spark's CHANGES: ")]
    assert "protocol changed" in why
