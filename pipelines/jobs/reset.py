"""A stream's checkpoint moved by its host: reset, taken back, or rewound to the end of a batch.

Rule: the plan is written down before anything is done, and each step is done once: a job that is begun twice, by
whichever host, carries on with the plan that it finds. Nothing is deleted. What goes on after a rewind is a copy of the
checkpoint under a new query id, for Delta passes over batches that a query wrote before, also when a restore took their
rows away.
Source: the layout that Spark's StreamingCheckpointConstants and StateStoreProvider write; batch N leaves version N + 1
of the state.
"""

import json
import re
import uuid
from typing import Any

import structlog
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from backend.errors import StreamRefusedError
from backend.jobs.model import Job
from backend.lake.lake import Lake
from backend.lake.storage.storage import declared_folder
from backend.maintenance.model import Proof
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.streams.checkpoint import START, query_id, read_checkpoint
from backend.streams.reset import (
    CHECKPOINT,
    NOTE,
    CheckpointMove,
    ResetLevel,
    ResetRequest,
    is_stopped,
    kept_by,
    read_move,
    set_aside,
    set_aside_folder,
    why_refused,
)
from pipelines.declare.pipeline import declaration
from pipelines.jvm.hadoop import CheckpointFiles
from pipelines.sinks.commits import sign
from pipelines.specs.streams import Registry

_NUMBERED = re.compile(r"\.?(\d+)")

log = structlog.get_logger()


class Resets:
    """What one host does to its streams' checkpoints and tables."""

    def __init__(self, settings: Settings, store: ControlStore, registry: Registry) -> None:
        self._settings, self._store, self._registry = settings, store, registry

    def run(self, job: Job, session: SparkSession) -> None:
        """Raises `StreamRefusedError` where the stream is not stopped, or may not be reset."""
        request = ResetRequest.parse(job.request)
        spec, level = self._registry.get(job.subject), request.level  # which is locked, whatever the request says
        move, files = read_move(self._settings, spec.name, job.job_id), CheckpointFiles(session)
        moves = [move.job_id] if move else set_aside(self._settings, spec.name)
        declared = declaration(self._registry, spec, self._settings)
        is_free = is_stopped(self._store.desired().get(spec.name), self._store.observed().get(spec.name))
        running = "" if is_free else "it is not stopped: stop it first"
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
