"""Records that cannot be parsed: a stream of their own, beside the one that takes the others.

Rule: Delta's own sink writes both from checkpoints of their own, so each record is in one of them, exactly once. The
function never sees such a record, so it may be any function: also one that joins or counts.
"""

from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame

from pipelines.sinks.append import append
from pipelines.sources.kafka import KafkaSource
from pipelines.specs.streams import StreamSpec
from pipelines.specs.tables import TableSpec


def dead_letters_of(stream: StreamSpec) -> StreamSpec | None:
    """The stream `<name>_dead_letters`, where a source of this one can hold such records."""
    parsed = [each for each in stream.sources if isinstance(each, KafkaSource) and each.is_parsed]
    if not parsed:
        return None
    name = f"{stream.name}_dead_letters"
    comment = f"Records that {stream.name} cannot parse, as their bytes, with the reason"
    owners = {key: value for key, value in stream.table.properties.items() if key.startswith("catalog.")}
    return replace(
        stream,
        name=name,
        table=TableSpec(name, stream.table.layer, comment, properties=owners),
        sources=tuple(replace(each, keeps_dead_letters_of=stream.name) for each in parsed),
        function=_united,
        sink=append(),
        expectations=(),
        also=(),
    )


def _united(*letters: DataFrame) -> DataFrame:
    return reduce(DataFrame.unionByName, letters)
