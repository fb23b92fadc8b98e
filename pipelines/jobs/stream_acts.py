"""Acts on streams by their host: a checkpoint reset, taken back, or rewound to the end of a batch; and repaired rows of
a quarantine requeued through their stream's sink.

Rule: what is to be done is written down before anything is done, and each step is done once: a job that is begun twice,
by whichever host, carries on with the plan that it finds. Of a checkpoint nothing is deleted. What goes on after a
rewind is a copy of it under a new query id, for Delta passes over batches that a query wrote before, also when a
restore took their rows away. Which rows of a quarantine go is decided once; both steps after that carry the job's name
as their writer, so Delta passes over one that is done, and what a broken job left between the two is ended by the
stream's next one.
Source: the layout that Spark's StreamingCheckpointConstants and StateStoreProvider write; batch N leaves version N + 1
of the state.
"""

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backend.errors import StreamRefusedError
from backend.format import cut
from backend.jobs.model import Job, JobKind
from backend.lake.lake import Lake
from backend.lake.storage.storage import declared_folder
from backend.maintenance.model import Proof
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.streams.checkpoint import START, query_id, read_checkpoint
from backend.streams.requeue import REASON, RequeueAnswer, RequeueRequest, Sample, why_never
from backend.streams.reset import (
    CHECKPOINT,
    NOTE,
    CheckpointMove,
    ResetLevel,
    ResetRequest,
    kept_by,
    read_move,
    set_aside,
    set_aside_folder,
    why_refused,
)
from backend.streams.verdict import is_stopped
from pipelines.declare.pipeline import declaration
from pipelines.jobs.rows import exact_text, satisfies, value_of, why_failed
from pipelines.jvm.delta import delta_log, make_active
from pipelines.jvm.hadoop import CheckpointFiles, spark_uri
from pipelines.sinks.commits import mark, sign
from pipelines.spark.session import KEPT
from pipelines.spark.writing import write_rows
from pipelines.specs.expectations import BROKEN, OnViolation, breaks_any, marked
from pipelines.specs.streams import Registry, StreamSpec
from pipelines.specs.tables import quoted

_NUMBERED = re.compile(r"\.?(\d+)")

log = structlog.get_logger()


class ActListener(Protocol):
    """Who wants to know how far a job is."""

    def tell(self, phase: str) -> None:
        """What goes on now; raises when the job is to end."""

    def changes(self, phase: str) -> None:
        """The same, of what is carried through once it has begun."""


class StreamActs:
    """What one host does to its streams' checkpoints, tables and quarantines."""

    def __init__(self, settings: Settings, store: ControlStore, registry: Registry) -> None:
        self._settings, self._store, self._registry = settings, store, registry

    def reset(self, job: Job, session: SparkSession) -> None:
        """Raises `StreamRefusedError` where the stream is not stopped, or may not be reset."""
        request = ResetRequest.parse(job.request)
        spec, level = self._registry.get(job.subject), request.level  # which is locked, whatever the request says
        move, files = read_move(self._settings, spec.name, job.job_id), CheckpointFiles(session)
        moves = [move.job_id] if move else set_aside(self._settings, spec.name)
        declared = declaration(self._registry, spec, self._settings)
        running = "" if self._is_stopped(spec.name) else "it is not stopped: stop it first"
        kept = kept_by(Lake(self._settings), declared, level)
        if why := why_refused(declared, running, level, moves, kept):
            raise StreamRefusedError(f"{spec.name}: {why}")
        uris = [table.spark_uri(self._settings) for table in spec.writes]
        tables = {uri: DeltaTable.forPath(session, uri) for uri in uris if DeltaTable.isDeltaTable(session, uri)}
        if move is None:
            undoes = moves[-1] if level is ResetLevel.UNDO else None
            versions = {uri: int(_newest(table)["version"]) for uri, table in tables.items()}
            move = CheckpointMove.of(job, level.value, versions, undoes=undoes)
            write_move(self._settings, spec.name, move, files)
        sign(session, {"reset": job.job_id, "by": job.actor, "reason": job.reason})
        undone = read_move(self._settings, spec.name, move.undoes) if move.undoes else None
        for uri, version in undone.versions.items() if undone else ():
            if move.versions.get(uri, version) > version and not _did(tables[uri], job):
                tables[uri].restoreToVersion(version)
        checkpoint = spec.checkpoint_location(self._settings)
        folder = move_aside(self._settings, spec.name, checkpoint, move, files)
        for table in tables.values() if level is ResetLevel.FULL else ():
            if not _did(table, job):  # last: what fails here leaves rows beside a new checkpoint, and an undo
                table.delete()
        if move.undoes:
            source = f"{set_aside_folder(self._settings, spec.name)}/{move.undoes}/{CHECKPOINT}"
            files.move(source, checkpoint, done=f"{folder}/moved_back")
        if request.starts:
            files.write(f"{checkpoint}/{START}", json.dumps(request.starts))
        log.info("stream_reset", stream=spec.name, level=level.value, set_aside=folder)

    def requeue(self, job: Job, session: SparkSession, listener: ActListener) -> RequeueAnswer:
        """Raises `StreamRefusedError` where it may not be done, `QueryError` for SQL that the rows do not go with."""
        make_active(session)
        request = RequeueRequest.parse(job.request)
        work = self._work(job.subject, request, session)
        try:
            if job.kind is JobKind.REQUEUE_PREVIEW:
                listener.tell("trying the repair")
                tried = work.decided().persist()
                try:
                    return work.answer(tried)
                finally:
                    tried.unpersist()
            name = work.spec.name
            if not self._is_stopped(name):
                raise StreamRefusedError(f"{name} is not stopped", hint="stop it first")
            return self._send(job, work, listener)
        except (PySparkException, Py4JJavaError) as exc:
            if (failure := why_failed(exc)) is not None:
                raise failure from exc
            raise

    def _work(self, stream: str, request: RequeueRequest, session: SparkSession) -> "_Work":
        spec = self._registry.get(stream)  # which is locked, whatever the request says
        never = why_never(declaration(self._registry, spec, self._settings))
        if never or spec.quarantine is None:
            raise StreamRefusedError(f"no row of {spec.name} can be requeued: {never}")
        work = _Work(spec, self._settings, request, session, spec.quarantine.spark_uri(self._settings))
        if not DeltaTable.isDeltaTable(session, work.quarantine):
            raise StreamRefusedError(f"{spec.name} has quarantined no row", hint="start it once: it makes the table")
        for key, value in {**spec.spark_conf, **KEPT}.items():
            session.conf.set(key, value)
        return work

    def _send(self, job: Job, work: "_Work", listener: ActListener) -> RequeueAnswer:
        folder = spark_uri(f"{self._settings.checkpoints_uri}/{_FOLDER}/{work.spec.name}")
        listener.tell("deciding which rows go")
        self._end_others(folder, job, work)
        decided = work.decided_in(f"{folder}/{job.job_id}")
        answer = work.answer(decided)
        listener.changes("writing rows")
        work.write(decided, job.job_id, by=job.actor, why=job.reason)
        listener.changes("taking them out of the quarantine")
        work.take_out(decided)
        log.info("rows_sent_again", stream=work.spec.name, rows=answer.met, left=answer.left)
        return answer

    def _end_others(self, folder: str, job: Job, work: "_Work") -> None:
        """What a former job wrote leaves the quarantine; one that had written nothing is forgotten.

        Raises `StreamRefusedError` then: this job was asked for with those rows in view.
        """
        ended, files = [], CheckpointFiles(work.session)
        for other in (name for name in files.names(folder) if name != job.job_id):
            place, writer = f"{folder}/{other}", _writer(work.spec, other)
            if work.is_table(place) and work.has_begun(writer):
                if not work.has_written(writer, work.quarantine):
                    ended.append(other)
                decided = work.session.read.format("delta").load(place)
                work.write(decided, other, by=job.actor, why="ended what broke off")
                work.take_out(decided)
            files.remove(place)
        if ended:
            message = f"{', '.join(ended)} had broken off: its rows have left the quarantine now"
            raise StreamRefusedError(
                f"{work.spec.name}: {message}", hint="preview it again, and send what is there now"
            )

    def _is_stopped(self, stream: str) -> bool:
        return is_stopped(self._store.desired().get(stream), self._store.observed().get(stream))


def _newest(table: DeltaTable) -> Any:
    return table.history(1).collect()[0]


def _did(table: DeltaTable, job: Job) -> bool:
    """Whether the table's last commit is this job's."""
    return job.job_id in (_newest(table)["userMetadata"] or "")


# what a reset and a rewind share ---------------------------------------------------------------------------------


def write_move(settings: Settings, stream: str, move: CheckpointMove, files: CheckpointFiles) -> None:
    files.write(f"{set_aside_folder(settings, stream)}/{move.job_id}/{NOTE}", move.text())


def move_aside(settings: Settings, stream: str, checkpoint: str, move: CheckpointMove, files: CheckpointFiles) -> str:
    """The folder of the job, where the checkpoint lies then."""
    folder = f"{set_aside_folder(settings, stream)}/{move.job_id}"
    files.move(checkpoint, f"{folder}/{CHECKPOINT}", done=f"{folder}/moved")
    return folder


def set_back(settings: Settings, stream: str, checkpoint: str, move: CheckpointMove, files: CheckpointFiles) -> Proof:
    """The checkpoint ends with the batch that stays done: what it says of itself afterwards."""
    assert move.batch is not None
    batch, folder = move.batch, move_aside(settings, stream, checkpoint, move, files)
    aside, done = f"{folder}/{CHECKPOINT}", f"{folder}/set_back"
    if not files.exists(done):
        files.copy(aside, checkpoint, lambda path: not is_behind(path, batch))
        files.write(f"{checkpoint}/metadata", json.dumps({"id": str(uuid.uuid4())}))
        files.write(done, "")
    now, before = declared_folder(settings, checkpoint), declared_folder(settings, aside)
    newest = read_checkpoint(now).processed_batch
    holds = newest == batch and query_id(now) != query_id(before)
    detail = f"its newest batch is {newest}, of query {query_id(now)}"
    return Proof(f"the checkpoint ends with batch {batch}", holds, detail)


def is_behind(path: str, batch: int) -> bool:
    """Whether a file of a checkpoint, by its path there, was written for a later batch. What a file source has listed
    stays: it is read by the number that an offset names."""
    *folders, name = path.split("/")
    if not folders:
        return name in ("metadata", ".metadata.crc")  # another takes its place
    match = _NUMBERED.match(name)
    if match is None or {"_metadata", "_stateSchema", "SSTs"} & {*folders}:
        return False
    last = {"offsets": batch, "commits": batch, "state": batch + 1}.get(folders[0])
    return last is not None and int(match[1]) > last


# requeue --------------------------------------------------------------------------------------------------------------


ROW, SENT, NOW = "_weir_row", "_weir_sent", "_weir_now"
_WAS, _IS = "_weir_was", "_weir_is"
_FOLDER = ".requeued"  # among the checkpoints
_SHOWN = 3  # rows that go, and as many that stay
_LONGEST = 300  # characters of a value that is shown
_ADDING = frozenset(
    ("STREAMING UPDATE", "OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "ADD COLUMNS", "CHANGE COLUMN")
)


@dataclass(frozen=True, slots=True)
class _Work:
    """One request. `quarantine`: its URI."""

    spec: StreamSpec
    settings: Settings
    request: RequeueRequest
    session: SparkSession
    quarantine: str

    def decided_in(self, folder: str) -> DataFrame:
        """The same, decided on the first call alone."""
        if not self.is_table(folder):
            self._require_only_more()
            writer = self.decided().write.format("delta").option("delta.columnMapping.mode", "name")
            writer.save(folder)
        return self.session.read.format("delta").load(folder)

    def answer(self, decided: DataFrame) -> RequeueAnswer:
        rules = [(rule.name, rule.on_violation == OnViolation.WARN) for rule in self.spec.expectations]
        counts = [F.count_if(F.array_contains(BROKEN, name) & (F.col(SENT) == warns)) for name, warns in rules]
        chosen, met, *broken_rows = decided.agg(F.count("*"), F.count_if(SENT), *counts).collect()[0]
        broken, warned = (
            {name: rows for (name, warns), rows in zip(rules, broken_rows, strict=True) if rows and warns == kind}
            for kind in (False, True)
        )
        return RequeueAnswer(chosen, met, broken, warned, tuple(_samples(decided)))

    def write(self, decided: DataFrame, job_id: str, *, by: str, why: str) -> None:
        """By the stream's own sinks: what they do with rows that come late, they do with these. From here on commits
        carry the job as their writer."""
        metadata = {"stream": self.spec.name, "requeue": job_id, "by": by, "reason": why}
        mark(self.session, _writer(self.spec, job_id), 0, metadata)
        rows = decided.where(SENT).select(*map(quoted, _own(decided.columns)))
        if not rows.isEmpty():
            target = replace(self.spec.target(self.settings), query_id=f"requeue-{job_id}", batch_id=0)
            write_rows(rows, self.spec, target)

    def take_out(self, decided: DataFrame) -> None:
        """Rows that went leave the quarantine. The others keep their values, with the rules that those break today."""
        into = DeltaTable.forPath(self.session, self.quarantine).alias("q")
        names = [*_own(decided.columns), *REASON]
        row = exact_text([F.col(f"q.{quoted(name)}").alias(name) for name in names])
        decisions = decided.select(ROW, SENT, NOW).dropDuplicates([ROW]).alias("s")  # same rows were decided the same
        merge = into.merge(decisions, row == F.col(f"s.{ROW}")).whenMatchedDelete(f"s.{SENT}")
        merge = merge.whenMatchedUpdate(f"NOT (q.{REASON[0]} <=> s.{NOW})", set={REASON[0]: f"s.{NOW}"})
        merge.execute()

    def has_begun(self, writer: str) -> bool:
        """Whether one of the stream's tables has rows of this writer."""
        uris = [
            table.spark_uri(self.settings) for destination in self.spec.destinations for table in destination.writes
        ]
        return any(self.has_written(writer, uri) for uri in uris)

    def is_table(self, folder: str) -> bool:
        return bool(DeltaTable.isDeltaTable(self.session, folder))

    def has_written(self, writer: str, uri: str) -> bool:
        """Whether a table's log holds a commit of this writer."""
        return bool(delta_log(self.session, uri).unsafeVolatileSnapshot().transactions().contains(writer))

    def decided(self) -> DataFrame:
        """Every chosen row, repaired, and whether it goes."""
        reader = self.session.read.format("delta").option("versionAsOf", self.request.version)
        present = reader.load(self.quarantine)
        names, own = present.columns, _own(present.columns)
        place = {name: f"c{number}" for number, name in enumerate(names)}
        rows = present.toDF(*place.values())
        if self.request.where:
            rows = rows.where(satisfies(self.request.where, names, rows.schema))
        was = {name: F.col(place[name]) for name in own}
        now = {name: value_of(text, name, names, rows.schema) for name, text in self.request.repairs.items()}
        key = exact_text([F.col(place[name]).alias(name) for name in (*own, *REASON)])
        rows = rows.select(key.alias(ROW), _struct(was).alias(_WAS), _struct({**was, **now}).alias(_IS))
        as_was = marked(rows.select(ROW, _IS, f"{_WAS}.*"), self.spec.expectations).withColumnRenamed(BROKEN, NOW)
        judged = marked(as_was.select(ROW, NOW, f"{_IS}.*"), self.spec.expectations)
        keeping = [rule.name for rule in self.spec.expectations if rule.on_violation != OnViolation.WARN]
        return judged.withColumn(SENT, ~breaks_any(keeping))

    def _require_only_more(self) -> None:
        """Raises `StreamRefusedError` where rows of the version may have gone since."""
        history = DeltaTable.forPath(self.session, self.quarantine).history()
        for commit in history.where(F.col("version") > self.request.version).orderBy("version").collect():
            mode = (commit["operationParameters"] or {}).get("mode")
            if commit["operation"] not in _ADDING and (commit["operation"], mode) != ("WRITE", "Append"):
                raise StreamRefusedError(
                    f"the quarantine of {self.spec.name} is not what it was: {commit['operation']} in version"
                    f" {commit['version']}",
                    hint="preview it again, and send what is there now",
                )


def _writer(spec: StreamSpec, job_id: str) -> str:
    return f"{spec.name}:requeue-{job_id}"


def _own(columns: Sequence[str]) -> list[str]:
    """The columns that the stream's function returned."""
    return [name for name in columns if name not in (*REASON, ROW, SENT, NOW, BROKEN)]


def _struct(values: dict[str, Column]) -> Column:
    return F.struct(*(value.alias(name) for name, value in values.items()))


def _samples(decided: DataFrame) -> list[Sample]:
    after = exact_text([F.col(quoted(name)) for name in _own(decided.columns)]).alias("after")
    rows = decided.select(ROW, SENT, BROKEN, after)
    shown = [row for goes in (F.col(SENT), ~F.col(SENT)) for row in rows.where(goes).limit(_SHOWN).collect()]
    return [Sample(_values(row[ROW]), _values(row["after"]), tuple(row[BROKEN]), row[SENT]) for row in shown]


def _values(text: str) -> dict[str, object]:
    values = {name: value for name, value in json.loads(text).items() if name not in REASON}
    for name, value in values.items():
        shown = value if isinstance(value, str) else json.dumps(value)
        values[name] = value if len(shown) <= _LONGEST else cut(shown, _LONGEST)
    return values
