"""Resets a stream, or undoes that: its checkpoint is moved aside, its tables are emptied or restored.

Rule: a job that is begun twice does each step once; its note says what it moved, and nothing is deleted.
"""

import json
from dataclasses import asdict
from typing import Any

import structlog
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from backend.errors import StreamRefusedError
from backend.jobs.model import Job
from backend.lake.storage.storage import declared_folder
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.streams.reset import (
    CHECKPOINT,
    NOTE,
    START,
    ResetLevel,
    ResetNote,
    ResetRequest,
    is_stopped,
    read_note,
    set_aside,
    set_aside_folder,
    why_kept,
)
from pipelines.jvm.hadoop import CheckpointFiles
from pipelines.sinks.commits import sign
from pipelines.specs.streams import Registry, StreamSpec

log = structlog.get_logger()


class Resets:
    """What one host does to its streams' checkpoints and tables."""

    def __init__(self, settings: Settings, store: ControlStore, registry: Registry) -> None:
        self._settings, self._store, self._registry = settings, store, registry

    def run(self, job: Job, session: SparkSession) -> None:
        """Raises `StreamRefusedError` where the stream is not stopped, or may not be reset."""
        request = ResetRequest.parse(job.request)
        spec = self._registry.get(job.subject)  # which is locked, whatever the request says
        self._require_stopped(spec, request.level)
        if request.level is not ResetLevel.UNDO:
            self._require_tables_allow(spec, request.level, session)
        files, archive = CheckpointFiles(session), set_aside_folder(self._settings, spec.name)
        folder = f"{archive}/{job.job_id}"
        undone = self._last(spec, job) if request.level is ResetLevel.UNDO else None
        note = self._noted(job, undone, session)
        if undone is not None:
            _restore(self._note_of(spec, undone), note, session, job)
        checkpoint = spec.checkpoint_location(self._settings)
        files.move(checkpoint, f"{folder}/{CHECKPOINT}", done=f"{folder}/moved")
        if request.level is ResetLevel.FULL:  # last: what fails here leaves rows beside a new checkpoint, and an undo
            self._empty(spec, session, job)
        if undone is not None:
            files.move(f"{archive}/{undone}/{CHECKPOINT}", checkpoint, done=f"{folder}/moved_back")
        if request.starts:
            files.write(f"{checkpoint}/{START}", json.dumps(request.starts))
        log.info("stream_reset", stream=spec.name, level=request.level.value, set_aside=folder)

    def _require_stopped(self, spec: StreamSpec, level: ResetLevel) -> None:
        if not is_stopped(self._store.desired().get(spec.name), self._store.observed().get(spec.name)):
            raise StreamRefusedError(f"{spec.name} is not stopped", hint="stop it first")
        if spec.outside and level is ResetLevel.FULL:
            raise StreamRefusedError(f"nobody here empties {spec.outside}", hint="empty it yourself, then reprocess")
        if not spec.may_be_reset and level is not ResetLevel.UNDO:
            raise StreamRefusedError(f"{spec.name} is declared with reset_allowed=False")

    def _require_tables_allow(self, spec: StreamSpec, level: ResetLevel, session: SparkSession) -> None:
        for table in spec.writes:
            uri = table.spark_uri(self._settings)
            if not DeltaTable.isDeltaTable(session, uri):
                continue
            properties = DeltaTable.forPath(session, uri).detail().collect()[0]["properties"]
            if why := why_kept(table.path, properties, level):
                raise StreamRefusedError(why, hint="change the table's property first, if its rows may go")

    def _last(self, spec: StreamSpec, job: Job) -> str:
        """The folder's name: the newest that was not taken back, or the one that this job already takes back."""
        own = self._note_of(spec, job.job_id)
        if own is not None and own.undoes:
            return own.undoes
        checkpoints = set_aside(self._settings, spec.name)
        if not checkpoints:
            raise StreamRefusedError(f"no checkpoint of {spec.name} was set aside", hint="there is nothing to undo")
        return checkpoints[-1]

    def _note_of(self, spec: StreamSpec, name: str) -> ResetNote | None:
        folder = declared_folder(self._settings, set_aside_folder(self._settings, spec.name))
        return read_note(folder, name) if folder.stat(f"{name}/{NOTE}") else None

    def _noted(self, job: Job, undoes: str | None, session: SparkSession) -> ResetNote:
        """The note of this job, written before anything else is done."""
        spec = self._registry.get(job.subject)
        if noted := self._note_of(spec, job.job_id):
            return noted
        level = ResetRequest.parse(job.request).level
        uris = [table.spark_uri(self._settings) for table in spec.writes]
        versions = {uri: int(_newest(session, uri)["version"]) for uri in uris if DeltaTable.isDeltaTable(session, uri)}
        note = ResetNote(job.job_id, level.value, job.requested_at.isoformat(), job.actor, job.reason, versions, undoes)
        file = f"{set_aside_folder(self._settings, spec.name)}/{job.job_id}/{NOTE}"
        CheckpointFiles(session).write(file, json.dumps(asdict(note)))
        return note

    def _empty(self, spec: StreamSpec, session: SparkSession, job: Job) -> None:
        for table in spec.writes:
            uri = table.spark_uri(self._settings)
            if DeltaTable.isDeltaTable(session, uri) and not _did(session, uri, job):
                _sign(session, job)
                DeltaTable.forPath(session, uri).delete()


def _restore(undone: ResetNote | None, note: ResetNote, session: SparkSession, job: Job) -> None:
    for uri, version in (undone.versions if undone else {}).items():
        if note.versions.get(uri, version) > version and not _did(session, uri, job):
            _sign(session, job)
            DeltaTable.forPath(session, uri).restoreToVersion(version)


def _did(session: SparkSession, uri: str, job: Job) -> bool:
    """Whether the table's last commit is this job's."""
    return job.job_id in (_newest(session, uri)["userMetadata"] or "")


def _newest(session: SparkSession, uri: str) -> Any:
    return DeltaTable.forPath(session, uri).history(1).collect()[0]


def _sign(session: SparkSession, job: Job) -> None:
    sign(session, {"reset": job.job_id, "by": job.actor, "reason": job.reason})
