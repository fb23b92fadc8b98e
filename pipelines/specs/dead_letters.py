"""Records that are no rows: where they leave a stream's plan, and how its batch finds them again.

Rule: a record is read and judged once. A function never sees a dead letter, so it may be any: one that counts or joins
as well. So the letters go past it: all records of a batch are kept in a shuffle's files, which do not fill the memory.
Rows and letters are read from there, and a batch without letters reads them once.
"""

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backend.errors import StreamError

COUNTED = "_weir_dead_letters_"  # begins the name of an observation
_LETTER = "_weir_dead_letter"
_numbers = itertools.count()  # Spark refuses two observations of one name in a plan


def without_dead_letters(rows: DataFrame, letter: Column, *, spread_by: str) -> DataFrame:
    """The rows whose `letter` is null. It is a struct of the table's columns where a row is a dead letter.

    `spread_by`: a column with many values, by which the rows are spread over tasks.
    """
    counts = F.count("*").alias("read"), F.count(_LETTER).alias("letters")
    # before the shuffle, which takes in the whole batch however much of it is read after that
    counted = rows.withColumn(_LETTER, letter).observe(f"{COUNTED}{next(_numbers)}", *counts)
    context = rows.sparkSession.sparkContext
    is_local = str(context.master).startswith("local")  # whose own parallelism is 1, for what is small: a table's log
    tasks = (os.cpu_count() or 1) if is_local else context.defaultParallelism
    kept = counted.repartition(tasks, spread_by)
    is_row = F.when(F.spark_partition_id() >= 0, F.col(_LETTER).isNull())  # always so; else Spark filters first
    return kept.where(is_row).drop(_LETTER)


class Kept:
    """What a batch with dead letters beside its rows has kept. `plan`: the physical one that it runs. `must`: whether
    it has to keep something. A function that unwraps changes need not.
    """

    def __init__(self, session: SparkSession, plan: Any, *, must: bool) -> None:
        self._session, self._places = session, {place.name: place for place in _places(plan)}
        if must and not self._places:
            raise StreamError(
                "dead letters cannot be followed: the function uses no row of its source",
                hint="return rows that are made of those that it takes",
            )

    def was_read(self) -> bool:
        """Whether there was anything to read, and it was: of a batch that is replayed, Delta passes over rows that it
        has."""
        reading = [place for place in self._places.values() if not place.is_empty]
        return not reading or any(place.counted(0) for place in reading)

    def dead_letters(self) -> DataFrame | None:
        """Those of a batch that was read; None where there is none."""
        letters = [place.dead_letters(self._session) for place in self._places.values() if place.counted(1)]
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), letters) if letters else None

    def remove(self) -> None:
        """The shuffle's files, which Spark would leave until the JVM collects its garbage."""
        cleaner: Any = self._session.sparkContext._jsc.sc().cleaner()
        for place in self._places.values() if cleaner.isDefined() else ():
            cleaner.get().doCleanupShuffle(place.shuffle.shuffleDependency().shuffleId(), False)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where letters leave a plan. `counter` and `shuffle` are Spark's operators."""

    counter: Any
    shuffle: Any

    @property
    def name(self) -> str:
        return str(self.counter.name())

    @property
    def is_empty(self) -> bool:
        """Whether its source has nothing for the batch."""
        return bool(self.counter.child().nodeName() == "LocalTableScan")

    def counted(self, number: int) -> int:
        """The records, or (1) the letters among them."""
        return int(self.counter.collectedMetrics().getLong(number))

    def dead_letters(self, session: SparkSession) -> DataFrame:
        """Out of the shuffle's files, which are there by now."""
        java: Any = session._jsparkSession
        kept = java.internalCreateDataFrame(self.shuffle.execute(), self.shuffle.schema(), False)
        return DataFrame(kept, session).where(F.col(_LETTER).isNotNull()).select(f"{_LETTER}.*")


def _places(plan: Any, shuffle: Any = None) -> Iterator[_Place]:
    """`shuffle`: the last one on the way down. Adaptive execution wraps stages in operators of its own."""
    name = plan.nodeName()
    if name == "CollectMetrics" and plan.name().startswith(COUNTED):
        yield _Place(plan, shuffle)
    if name == "AdaptiveSparkPlan":
        yield from _places(plan.executedPlan(), shuffle)
    if name.endswith("QueryStage"):
        yield from _places(plan.plan(), shuffle)
    children = plan.children()  # a function may find more among the rows of its source
    for number in range(children.size()):
        yield from _places(children.apply(number), plan if name == "Exchange" else shuffle)
