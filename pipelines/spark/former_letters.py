"""Dead letters that a query of their own has read: former versions ran the stream `<name>_dead_letters`.

Rule: each is in the table once, wherever either query stood. What the former one had not reached is read once, before
the first batch; what it had read is left out. Where it stood is noted in the stream's own checkpoint, which a reset
moves away.
"""

import json
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backend.lake.storage.folder import Folder
from backend.lake.storage.storage import declared_folder
from backend.streams.checkpoint import KafkaPosition, query_id, read_checkpoint, read_positions
from backend.streams.unread import places
from pipelines.jvm.delta import delta_log
from pipelines.jvm.hadoop import CheckpointFiles
from pipelines.jvm.kafka import Offsets
from pipelines.sources.kafka import KafkaSource, by_topic
from pipelines.specs.ends import Inputs
from pipelines.specs.streams import StreamSpec

_NOTE = "dead_letters_read.json"


def read_before(stream: StreamSpec, inputs: Inputs, letters: str) -> Offsets:
    """Up to where the former query has read; empty without one. `letters`: where the table lies. After this call it has
    those as well that lie between there and the stream's own place."""
    checkpoint, files = stream.checkpoint_location(inputs.settings), CheckpointFiles(inputs.session)
    note = f"{checkpoint}/{_NOTE}"
    if files.exists(note):
        return _from_json(files.read(note))
    former, own = (declared_folder(inputs.settings, uri) for uri in (f"{checkpoint}_dead_letters", checkpoint))
    if read_checkpoint(former).is_empty or read_checkpoint(own).is_empty:
        return {}
    name = query_id(former)
    # the last batch that it wrote, whether or not its checkpoint knows
    noted = delta_log(inputs.session, letters).unsafeVolatileSnapshot().transactions().get(name)
    theirs, ours = _place(former, noted.get() if noted.isDefined() else -1), _place(own)
    for source in stream.sources:
        if isinstance(source, KafkaSource) and source.is_parsed:
            missed = source.dead_letters_between(inputs, theirs, ours)
            if missed is not None and not missed.isEmpty():
                once = {"txnAppId": f"{name}:{source.describe()}", "txnVersion": "0"}
                missed.write.format("delta").options(**once).mode("append").save(letters)
    files.write(note, json.dumps(by_topic(theirs)))
    return theirs


def not_read_before(letters: DataFrame, before: Offsets) -> DataFrame:
    """Without those that the former query has read."""
    read: list[Column] = [
        (F.col("topic") == topic) & (F.col("partition") == partition) & (F.col("offset") < offset)
        for (topic, partition), offset in before.items()
    ]
    return letters.where(~reduce(or_, read)) if read else letters


def _place(checkpoint: Folder, least: int = -1) -> Offsets:
    """Where a query stood after its last batch. `least`: one that is done, whatever the checkpoint knows."""
    done = read_checkpoint(checkpoint).processed_batch
    last = max(least, -1 if done is None else done)
    positions = read_positions(checkpoint, last if last >= 0 else None).values()
    read = [places(position.offsets) for position in positions if isinstance(position, KafkaPosition)]
    return {place: offset for of_source in read for place, offset in of_source}


def _from_json(text: str) -> Offsets:
    noted = {topic: {int(number): offset for number, offset in of.items()} for topic, of in json.loads(text).items()}
    return dict(places(noted))
