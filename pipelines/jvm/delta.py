"""Delta's own objects, where its Python API has no call: a table's log, one version of it, a scan of chosen files.

Rule: they work with the settings of the thread's active session, so `make_active` comes first.
"""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backend.errors import DiffError
from backend.lake.model import Snapshot
from pipelines.jvm.hadoop import spark_uri


def make_active(session: SparkSession) -> None:
    """From here on Delta's own classes work for this session in this thread."""
    SparkSession._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)


@dataclass(frozen=True, slots=True)
class DeltaState:
    """One version of a table. `log` and `snapshot` are Java's."""

    session: SparkSession
    log: Any
    snapshot: Any

    def table(self) -> DataFrame:
        """Its rows, whatever the table's retention: Delta's own reader refuses versions older than that."""
        java: Any = self.session._jvm
        none = java.scala.Option.empty()
        no_filters = java.scala.jdk.javaapi.CollectionConverters.asScala(java.java.util.ArrayList()).toSeq()
        relation = self.log.createRelation(no_filters, java.scala.Option.apply(self.snapshot), none, True)
        return DataFrame(self.session._jsparkSession.baseRelationToDataFrame(relation), self.session)

    def files(self) -> DataFrame:
        """Its AddFile actions."""
        return DataFrame(self.snapshot.allFiles().toDF(), self.session)

    def files_not_in(self, other: "DeltaState") -> DataFrame:
        """AddFile actions that the other state lacks: a file is its path and deletion vector."""
        same = "mine.path = theirs.path AND mine.deletionVector <=> theirs.deletionVector"
        return self.files().alias("mine").join(other.files().alias("theirs"), F.expr(same), "left_anti")

    def rows(self, files: DataFrame, *, as_of: "DeltaState") -> DataFrame:
        """Rows of some of its files, with the schema of another version: deletion vectors, column mapping and
        partition values are seen to by Delta's own scan."""
        java: Any = self.session._jvm
        actions = getattr(files._jdf, "as")(self.snapshot.allFiles().encoder()).collectAsList()
        chosen = java.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq()
        return DataFrame(
            self.log.createDataFrame(as_of.snapshot, chosen, False, java.scala.Option.empty()), self.session
        )


def delta_log(session: SparkSession, uri: str) -> Any:
    """A table's log; Delta keeps those that it has read."""
    java: Any = session._jvm
    return java.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, spark_uri(uri))


def open_state(session: SparkSession, wanted: Snapshot) -> DeltaState:
    """A version of a table, as Delta reads it; raises `DiffError` where another table lies there by now."""
    java: Any = session._jvm
    none = java.scala.Option.empty()
    for _ in range(2):
        log = delta_log(session, wanted.ref.uri)
        state = DeltaState(session, log, log.getSnapshotAt(wanted.version, none, none, False))
        if str(state.snapshot.metadata().id()) == wanted.metadata.id:
            return state
        path = java.org.apache.hadoop.fs.Path(spark_uri(wanted.ref.uri))
        java.org.apache.spark.sql.delta.DeltaLog.invalidateCache(session._jsparkSession, path)
    raise DiffError("the table was replaced by another one meanwhile", hint="ask for it again")
