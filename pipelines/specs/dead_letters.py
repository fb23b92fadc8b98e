"""Records that are no rows: where they leave a stream's plan, and how its batch finds them again.

Rule: a record is read and judged once. A function never sees a dead letter, so it may be any: one that counts or joins
as well. So the letters go past it: all records of a batch are kept in a shuffle's files, which do not fill the memory.
Rows and letters are read from there, and a batch without letters reads them once.
"""

import itertools
import os
from collections.abc import Iterator
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backend.errors import StreamError

COUNTED = "_weir_dead_letters_"  # begins the name of an observation
_LETTER = "_weir_dead_letter"
_KEEPS = "Exchange"  # Spark's name for the operator
_numbers = itertools.count()  # Spark refuses two observations of one name in a plan


def without_dead_letters(rows: DataFrame, letter: Column, *, spread_by: str) -> DataFrame:
    """The rows whose `letter` is null. It is a struct of the table's columns where a row is a dead letter.

    `spread_by`: a column with many values, by which the rows are spread over tasks.
    """
    counts = F.count("*").alias("read"), F.count(_LETTER).alias("letters")
    marked = rows.withColumn(_LETTER, letter).repartition(_tasks(rows.sparkSession), spread_by)
    counted = marked.observe(f"{COUNTED}{next(_numbers)}", *counts)  # Spark moves no filter below it
    return counted.where(F.col(_LETTER).isNull()).drop(_LETTER)


def _tasks(session: SparkSession) -> int:
    """As many as there are cores. A local host's own parallelism is 1: for what is small, such as a table's log."""
    context = session.sparkContext
    return (os.cpu_count() or 1) if str(context.master).startswith("local") else context.defaultParallelism


class Kept:
    """What a batch with dead letters beside its rows has kept. `plan`: the physical one that it runs. `must`: whether
    it has to keep something. A function that unwraps changes need not.
    """

    def __init__(self, session: SparkSession, plan: Any, *, must: bool) -> None:
        self._session, self._places = session, {place.name(): place for place in _places(plan)}
        if must and not self._places:
            raise StreamError(
                "dead letters cannot be followed: the function uses no row of its source",
                hint="return rows that are made of those that it takes",
            )

    def was_read(self) -> bool:
        """Whether all that is kept was: of a batch that is replayed, Delta passes over rows that it has. A batch
        without records keeps nothing."""
        kept = [place for place in self._places.values() if place.child().nodeName() == _KEEPS]
        return all(place.collectedMetrics().getLong(0) for place in kept)

    def dead_letters(self) -> DataFrame | None:
        """Those of a batch that was read; None where there is none."""
        places = [place for place in self._places.values() if place.collectedMetrics().getLong(1)]
        letters = [self._letters_at(place) for place in places]
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), letters) if letters else None

    def remove(self) -> None:
        """The shuffle's files, which Spark would leave until the JVM collects its garbage."""
        cleaner: Any = self._session.sparkContext._jsc.sc().cleaner()
        for place in self._places.values() if cleaner.isDefined() else ():
            if place.child().nodeName() == _KEEPS:
                cleaner.get().doCleanupShuffle(place.child().shuffleDependency().shuffleId(), False)

    def _letters_at(self, place: Any) -> DataFrame:
        """By Spark's own operator for what was kept, whose files are there by now."""
        java: Any = self._session._jsparkSession
        kept = java.internalCreateDataFrame(place.child().execute(), place.child().schema(), False)
        return DataFrame(kept, self._session).where(F.col(_LETTER).isNotNull()).select(f"{_LETTER}.*")


def _places(plan: Any) -> Iterator[Any]:
    """Where letters leave the plan, also below what adaptive execution has put around its stages."""
    name = plan.nodeName()
    if name == "CollectMetrics" and plan.name().startswith(COUNTED):
        yield plan
    elif name == "AdaptiveSparkPlan":
        yield from _places(plan.executedPlan())
    elif name.endswith("QueryStage"):
        yield from _places(plan.plan())
    else:
        children = plan.children()
        for number in range(children.size()):
            yield from _places(children.apply(number))
