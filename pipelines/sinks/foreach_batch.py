"""A sink of the user's own: a function that gets each batch.

Rule: it writes through the session that it is given. That session carries Delta's transaction number, so a batch that
is replayed changes no table twice.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import get_args

from pyspark.sql import DataFrame, SparkSession

from pipelines.specs.ends import OutputMode, Target

BatchFunction = Callable[[DataFrame, int, SparkSession], object]


@dataclass(frozen=True, slots=True)
class ForeachBatchSink:
    function: BatchFunction
    output_mode: OutputMode = "append"
    kind = "foreach_batch"
    is_native = False

    @property
    def outside(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"{getattr(self.function, '__module__', '')}.{name}"

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.output_mode not in get_args(OutputMode):
            yield f"foreach_batch: output_mode={self.output_mode!r} is not known", "use append, update or complete"

    def judge(self, rows: DataFrame) -> None: ...

    def prepare(self, rows: DataFrame) -> None: ...

    def write(self, batch: DataFrame, target: Target) -> None:
        batch.persist()  # it may be used for several tables: state and observed counts must not run twice
        try:
            self.function(batch, target.batch_id, batch.sparkSession)
        finally:
            batch.unpersist()


def foreach_batch(function: BatchFunction, *, output_mode: OutputMode = "append") -> ForeachBatchSink:
    """Call `function(rows, batch_id, session)` for each batch. The stream has no table of its own.

    What is written to Delta tables through `session`, or through `rows`, is committed once, however often the batch is
    replayed: one commit a table and batch, and Delta passes over a second one. Anything else that the function does
    happens at least once.
    """
    return ForeachBatchSink(function, output_mode)
