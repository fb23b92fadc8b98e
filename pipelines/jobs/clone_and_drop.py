"""A version of a table copied by Spark in one commit; a table moved aside, brought back, or deleted where it lies.

Rule: a copy is there whole, or not at all; it is proven from both logs, and the rows of a deep one are read again and
compared. A host that takes a move over carries on behind what was done: the note is written before anything moves, and
goes last; what a job has begun is marked by a file named after it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import structlog
from pyspark.sql import SparkSession

from backend.errors import StreamRefusedError, TableNotFoundError
from backend.format import things
from backend.jobs.model import Job
from backend.lake.lake import Lake
from backend.lake.model import Commit, TableRef
from backend.maintenance.alter import OF_ENGINES
from backend.maintenance.clone_and_drop import NOTE, TABLE, DroppedTable, folder_of
from backend.maintenance.model import ActPreview, ActResult, Clone, Drop, Proof, Purge, TableAct, Undrop
from pipelines.jobs.alter import literal
from pipelines.jobs.rows import rows_proof, table_rows
from pipelines.jobs.stream_acts import ActListener
from pipelines.jvm.hadoop import CheckpointFiles, spark_uri
from pipelines.specs.tables import quoted

log = structlog.get_logger()


def clone_commits(lake: Lake, asked: Clone, job_id: str) -> list[Commit]:
    """That of this job in the copy's log."""
    try:
        commits = lake.history(lake.find(asked.target))
    except TableNotFoundError:
        return []
    return [commit for commit in commits if job_id in (commit.user_metadata or "")]


def clone_statement(lake: Lake, ref: TableRef, asked: Clone) -> str:
    """Spark refuses it where a table is by now."""
    source, target = (f"delta.{quoted(spark_uri(uri))}" for uri in (ref.uri, asked.target))
    version = f"VERSION AS OF {asked.version}"
    if asked.shallow:
        return f"CREATE TABLE {target} SHALLOW CLONE {source} {version}"
    metadata = lake.snapshot(ref, asked.version).metadata
    kept = {key: value for key, value in metadata.configuration.items() if not key.startswith(OF_ENGINES)}
    parts = [f"CREATE TABLE {target} USING delta"]
    if metadata.partition_columns:
        parts.append(f"PARTITIONED BY ({', '.join(map(quoted, metadata.partition_columns))})")
    if metadata.description:
        parts.append(f"COMMENT {literal(metadata.description)}")
    if kept:
        parts.append(f"TBLPROPERTIES ({', '.join(f'{literal(key)} = {literal(kept[key])}' for key in kept)})")
    return " ".join([*parts, f"AS SELECT * FROM {source} {version}"])


def cloned(session: SparkSession, lake: Lake, ref: TableRef, asked: Clone) -> ActResult:
    """`version`: of the table that was copied."""
    then, copy = lake.snapshot(ref, asked.version), lake.snapshot(lake.find(asked.target), 0)
    if asked.shallow:
        theirs, ours = ((s.num_files, s.size_bytes, s.num_rows) for s in (then, copy))
        told = "{:,} files, {:,} bytes, {} rows".format(*ours)
        proof = Proof("it reads the files of the version", theirs == ours, told)
    else:
        rows = table_rows(session, asked.target, 0)
        proof = rows_proof("the rows are those of the version", rows, table_rows(session, ref.uri, asked.version))
    effect = f"v{asked.version} was copied to {asked.target}, {things(copy.num_rows, 'row')}"
    figures = {"rows": copy.num_rows, "files": copy.num_files, "bytes_written": 0 if asked.shallow else copy.size_bytes}
    return ActResult(effect, lake.latest_version(ref), figures, (proof,))


# moved aside -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dropping:
    """One such job on a table's place, which may hold none. `check` previews it once more, and raises where it may not
    be done any more."""

    lake: Lake
    ref: TableRef
    act: TableAct
    job: Job
    files: CheckpointFiles
    check: Callable[[], ActPreview]

    def run(self, listener: ActListener) -> ActResult:
        steps: dict[type, Callable[[ActListener], ActResult]] = {
            Drop: self._drop, Undrop: self._undrop, Purge: self._purge
        }  # fmt: skip
        result = steps[type(self.act.arguments)](listener)
        log.info("table_act_done", table=self.act.name, act=str(self.act.kind), version=result.version)
        return result

    def _drop(self, listener: ActListener) -> ActResult:
        folder = folder_of(self.ref.root, self.job.job_id)
        note, aside = spark_uri(f"{folder}/{NOTE}"), f"{folder}/{TABLE}"
        if not self.files.exists(note):
            self.check()
            listener.changes(f"moving {self.act.name} aside")
            self.files.write(note, DroppedTable.of(self.lake.snapshot(self.ref), self.ref.root, self.job).text())
        self.files.move(spark_uri(self.ref.uri), spark_uri(aside), done=spark_uri(f"{folder}/moved"))
        left = self.files.exists(spark_uri(self.ref.uri))
        proofs = (
            Proof("nothing is left in its place", not left, f"{self.ref.uri} is {'still there' if left else 'gone'}"),
            *self._whole(self.lake.find(aside)),
        )
        return ActResult(f"{self.act.name} lies in {aside} now", None, {}, proofs)

    def _undrop(self, listener: ActListener) -> ActResult:
        folder = self._begin(listener, f"moving {self.act.name} back")
        aside, done = spark_uri(f"{folder}/{TABLE}"), spark_uri(f"{folder}/back")
        if self.files.exists(spark_uri(folder)):
            self.files.move(aside, spark_uri(self.ref.uri), done=done)
        proofs = tuple(self._whole(self.ref))
        if all(proof.holds for proof in proofs):
            self.files.remove(spark_uri(folder))
        return ActResult(f"{self.act.name} is back", self.lake.latest_version(self.ref), {}, proofs)

    def _purge(self, listener: ActListener) -> ActResult:
        folder = self._begin(listener, f"deleting what was {self.act.name}")
        for place in (f"{folder}/{TABLE}", folder):
            self.files.remove(spark_uri(place))
        left = self.files.exists(spark_uri(folder))
        proof = Proof("nothing of it is left", not left, f"{folder} is {'still there' if left else 'gone'}")
        return ActResult(f"{self.act.name} is deleted", None, {}, (proof,))

    def _begin(self, listener: ActListener, phase: str) -> str:
        """The folder of the dropped table; not there any more where a former host had come to the end."""
        asked = self.act.arguments
        assert isinstance(asked, Undrop | Purge)
        folder = folder_of(self.ref.root, asked.dropped)
        begun = spark_uri(f"{folder}/{self.job.job_id}")
        is_over = self.job.attempts > 1 and not self.files.exists(spark_uri(folder))
        if not is_over and not self.files.exists(begun):
            if self.check().act != self.act:
                raise StreamRefusedError(f"job {asked.dropped} dropped something else", hint="preview it again")
            listener.changes(phase)
            self.files.write(begun, "")
        return folder

    def _whole(self, table: TableRef) -> list[Proof]:
        """What is there, by the log in the place and the files beside it."""
        version = self.lake.latest_version(table)
        *_, seen = self.lake.see_files(table, version, sample=None)
        told = f"{things(seen.missing, 'file')} of v{version} are missing" if seen.missing else f"all {seen.total:,}"
        return [
            Proof("its latest version is the same", version == self.act.version, f"v{version}"),
            Proof("the files of that are there", not seen.missing, told),
        ]
