"""How a batch that is replayed changes nothing.

Rule: a sink that writes in foreachBatch stamps each commit with `txnAppId` and `txnVersion`, so Delta skips a replayed
batch. `userMetadata` names stream, batch and run. Delta's own sink needs no stamp.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from pipelines.specs.tables import quoted

_WRITER, _NUMBER = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


def query_id(session: SparkSession) -> str:
    """The id of the query that runs this batch."""
    return str(session.sparkContext.getLocalProperty("sql.streaming.queryId"))


def stamp(session: SparkSession, stream: str, batch_id: int, *, as_native: bool = False) -> None:
    """Mark what this session commits from now on. Every query has a clone of the session, so streams do not mix.

    The query's id is part of `txnAppId`. After a reset to an empty checkpoint, batches count from 0 again, and Delta
    would skip them as already written. `as_native`: as Delta's own sink marks, which may have written the batch before.
    """
    query, run_id = query_id(session), session.sparkContext.getLocalProperty("spark.jobGroup.id")
    metadata = {"stream": stream, "batch_id": batch_id, "query_id": query, "run_id": run_id}
    mark(session, query if as_native else f"{stream}:{query}", batch_id, metadata)


def mark(session: SparkSession, writer: str, number: int, metadata: Mapping[str, object]) -> None:
    """Delta passes over what this writer committed already under this number, table by table."""
    session.conf.set(_WRITER, writer)
    session.conf.set(_NUMBER, str(number))
    sign(session, metadata)


def sign(session: SparkSession, metadata: Mapping[str, object]) -> None:
    """What commits of this session say of themselves. Spark reads `${env:…}` in the values of settings, always: a
    reason could write a secret of the host into a log."""
    session.conf.set(_METADATA, json.dumps(metadata).replace("${", "\\u0024{"))


@contextmanager
def unnumbered(session: SparkSession) -> Iterator[None]:
    """For what goes before a batch's one numbered commit to a table: Delta would pass over that commit as a repeat.

    What is done meanwhile must change nothing when it is done again.
    """
    marks = {key: session.conf.get(key, None) for key in (_WRITER, _NUMBER)}
    for key in marks:
        session.conf.unset(key)
    try:
        yield
    finally:
        for key, value in marks.items():
            if value is not None:
                session.conf.set(key, value)


def append_rows(rows: DataFrame, uri: str) -> None:
    """Append the columns that the table has; those that the rows lack are null."""
    theirs = {name.lower() for name in rows.columns}
    names = [name for name in rows.sparkSession.read.format("delta").load(uri).columns if name.lower() in theirs]
    rows.select(*map(quoted, names)).write.format("delta").mode("append").save(uri)
