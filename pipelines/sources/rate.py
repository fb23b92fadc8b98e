"""Made-up rows at a steady rate, to try out what comes after."""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from backend.settings import Settings
from pipelines.specs.ends import Inputs


@dataclass(frozen=True, slots=True)
class RateSource:
    """`timestamp` and `value` (0, 1, 2, …), so many rows a second."""

    rows_per_second: int = 1
    kind = "rate"
    letters = ()
    tables: tuple[str, ...] = ()

    def describe(self) -> str:
        return f"{self.rows_per_second} rows a second"

    def prepare(self, settings: Settings) -> None: ...

    def read(self, inputs: Inputs) -> DataFrame:
        return inputs.session.readStream.format("rate").option("rowsPerSecond", self.rows_per_second).load()


def rate(rows_per_second: int = 1) -> RateSource:
    """Made-up rows: `timestamp` and `value` (0, 1, 2, …)."""
    return RateSource(rows_per_second)
