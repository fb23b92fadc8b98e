"""Any other source that Spark can stream from, by the name of its format.

Rule: Spark alone knows what waits in it, so its backlog is unknown, and pages say so.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from backend.settings import Settings
from pipelines.jvm.failures import SpecError
from pipelines.specs.ends import Inputs, Secret, revealed, secret_options, secret_problems
from pipelines.specs.tables import parse_schema

_OWN = {"delta": "table(…)", "kafka": "kafka(…)"}  # with a backlog, a preflight and a reset
_NOT_REPLAYABLE = ("socket", "textsocketsourceprovider")  # a batch that broke off has no second reading


@dataclass(frozen=True, slots=True)
class SparkSource:
    """`name` is what pages call it. Without `schema` the source says its columns itself."""

    format: str
    options: Mapping[str, str | Secret] = field(default_factory=dict, repr=False)
    schema: str | None = None
    name: str = ""
    kind = "other"
    letters = ()
    tables: tuple[str, ...] = ()

    def describe(self) -> str:
        return self.name or f"Spark's {self.format}"

    def prepare(self, settings: Settings) -> None: ...

    def problems(self) -> Iterator[tuple[str, str]]:
        """What cannot work, and what to do."""
        if not self.format.strip():
            yield "spark_source: names no format", 'write spark_source("rate", {"rowsPerSecond": 1})'
        if ours := _OWN.get(self.format.lower()):
            yield f"spark_source: {self.format} has a source of its own", f"write {ours}"
        if self.format.lower().rpartition(".")[2] in _NOT_REPLAYABLE:
            message = f"spark_source: {self.format} cannot be replayed: what a batch had read when it broke off is lost"
            yield message, "put Kafka or files between, and read those"
        for name, value in self.options.items():
            yield from secret_problems("spark_source", name, value)

    def read(self, inputs: Inputs) -> DataFrame:
        if inputs.versions is not None:
            hint = "read a streaming table of it"
            raise SpecError(f"a materialized view cannot read a stream of {self.describe()}", hint=hint)
        columns = parse_schema(inputs.session, self.schema) if self.schema else None
        if columns is not None and inputs.schemas is not None:  # nobody needs its secrets
            return inputs.stream_of(columns)
        reader = inputs.session.readStream.format(self.format).options(**revealed(self.options))
        return (reader.schema(columns) if columns is not None else reader).load()


def spark_source(
    format: str, options: Mapping[str, object] | None = None, *, schema: str | None = None, name: str = ""
) -> SparkSource:
    """Rows of whatever `spark.readStream.format(format)` reads, with its options; secrets as `secret("env:NAME")`.

    Exactly once if the source can be replayed from its offsets. What waits in it cannot be counted from here.
    `schema`: DDL text, for a source that asks for it. `name`: what pages call it. A connector's JARs are named by
    `spark.jars.packages` in `spark.conf`.
    """
    return SparkSource(format, secret_options(options or {}), schema, name)
