"""The checkpoint of a stream set back to the end of one of its batches, and the note by which that is taken back.

Rule: the plan is written down before anything is done, and each step is done once: whoever carries on finds it. The
checkpoint is moved aside whole; what goes on is a copy under a new query id, for Delta passes over batches that a query
wrote before, also when a restore took their rows away.
Source: the layout that Spark's StreamingCheckpointConstants and StateStoreProvider write; batch N leaves version N + 1
of the state.
"""

import json
import re
import uuid
from dataclasses import asdict, dataclass

from backend.jobs.model import Job
from backend.lake.storage.storage import declared_folder
from backend.maintenance.model import Proof
from backend.maintenance.rewind import RewindFacts, TableBack
from backend.settings import Settings
from backend.streams.checkpoint import query_id, read_checkpoint
from backend.streams.reset import CHECKPOINT, NOTE, ResetNote, set_aside_folder
from pipelines.jvm.hadoop import CheckpointFiles, spark_uri

PLAN = "rewind.json"
LEVEL = "rewind"  # of its note: a reset of this level takes nothing but an undo
_NUMBERED = re.compile(r"\.?(\d+)")


@dataclass(frozen=True, slots=True)
class RewindPlan:
    """`batch`: the last that stays done. `tables`: what becomes of each."""

    checkpoint: str
    batch: int
    tables: tuple[TableBack, ...]


def read_plan(settings: Settings, stream: str, job: Job) -> RewindPlan | None:
    """None where this job has not begun."""
    folder = declared_folder(settings, set_aside_folder(settings, stream))
    if folder.stat(f"{job.job_id}/{PLAN}") is None:
        return None
    body = json.loads(folder.read(f"{job.job_id}/{PLAN}"))
    return RewindPlan(body["checkpoint"], body["batch"], tuple(TableBack(**table) for table in body["tables"]))


def write_plan(settings: Settings, facts: RewindFacts, job: Job, files: CheckpointFiles) -> RewindPlan:
    """With the note that an undo looks for."""
    plan = RewindPlan(facts.declared.checkpoint_location, facts.batch, facts.tables)
    versions = {spark_uri(uri): version for uri, version in facts.versions.items()}
    note = ResetNote(job.job_id, LEVEL, job.requested_at.isoformat(), job.actor, job.reason, versions)
    folder = f"{set_aside_folder(settings, facts.declared.name)}/{job.job_id}"
    files.write(f"{folder}/{NOTE}", json.dumps(asdict(note)))
    files.write(f"{folder}/{PLAN}", json.dumps(asdict(plan)))
    return plan


def set_back(settings: Settings, stream: str, plan: RewindPlan, job: Job, files: CheckpointFiles) -> Proof:
    """What the checkpoint says of itself afterwards."""
    folder = f"{set_aside_folder(settings, stream)}/{job.job_id}"
    aside, done = f"{folder}/{CHECKPOINT}", f"{folder}/set_back"
    files.move(plan.checkpoint, aside, done=f"{folder}/moved")
    if not files.exists(done):
        files.copy(aside, plan.checkpoint, lambda path: not is_behind(path, plan.batch))
        files.write(f"{plan.checkpoint}/metadata", json.dumps({"id": str(uuid.uuid4())}))
        files.write(done, "")
    seen = declared_folder(settings, plan.checkpoint)
    before = declared_folder(settings, aside)
    checkpoint = read_checkpoint(seen)
    holds = checkpoint.processed_batch == plan.batch and query_id(seen) != query_id(before)
    told = f"its newest batch is {checkpoint.processed_batch}, of query {query_id(seen)}"
    return Proof(f"the checkpoint ends with batch {plan.batch}", holds, told)


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
