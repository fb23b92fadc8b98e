"""A table copied to a free place, moved aside by a drop, brought back, or purged.

Rule: nothing that is there is ever written over, and a drop deletes nothing. What it moved lies in a folder below the
root whose name begins with a dot, which no walk of a root looks into. The note beside it says what it was, and the
folder is named after the job that dropped it.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from backend.errors import LakehouseError, TableNotFoundError
from backend.format import bytes_text, rows_text, things, utc_text
from backend.jobs.model import Job
from backend.lake.catalog import layer_of
from backend.lake.files.clustering import declared_clustering
from backend.lake.lake import Lake, is_uri
from backend.lake.log.listing import LOG
from backend.lake.model import Snapshot, TableRef
from backend.lake.retention.answers import Reach, judge_version
from backend.lake.retention.runs import judge
from backend.lake.storage.folder import is_remote, is_within, normal_uri
from backend.lake.storage.storage import Storage
from backend.lake.table.schema import columns
from backend.maintenance.model import ActPreview, Clone, Drop, Lift, Purge, TableAct, Undrop
from backend.maintenance.places import why_read_only, why_taken
from backend.maintenance.readers import Users
from backend.settings import Settings

ASIDE, NOTE, TABLE = ".dropped", "dropped.json", "table"

_log = logging.getLogger(__name__)  # structlog would cost each command 0.2 s


# copies ----------------------------------------------------------------------------------------------------------


def preview_clone(settings: Settings, lake: Lake, latest: Snapshot, asked: Clone, now: datetime) -> ActPreview:
    """A shallow copy reads the files of this table. The act names the address that is meant, and the version.

    Raises `PathRefusedError` for a target outside the roots, and where there is no such version.
    """
    ref = latest.ref
    target = normal_uri(asked.target if is_uri(asked.target) else f"{ref.root.rstrip('/')}/{asked.target.strip()}")
    version = latest.version if asked.version is None else asked.version
    then = lake.snapshot(ref, version)
    travel = judge_version(judge(lake.retention_facts(ref), now), version).time_travel
    names = target.removeprefix(Storage(settings).root_of(target)).strip("/").split("/")
    refused, way_out, lifts = "", "", tuple[Lift, ...]()
    if why_read_only(settings, target):
        refused, way_out = f"{target} is read-only (lake.read_only_roots)", "copy to another root"
    elif not names[0] or any(name.startswith((".", "_")) for name in names):
        refused = f"{target} is no place for a table"
        way_out = "name a folder below a root that begins with neither . nor _"
    elif taken := why_taken(settings, target):
        refused, way_out = f"{target}: {taken}", f"choose another place; {ref.name} is not copied over anything"
    elif travel.verdict is Reach.NO:
        refused, way_out, lifts = travel.reasons[0], "choose a later version", (Lift("versions", (ref.name,)),)
    files = f"{things(then.num_files, 'file')} ({bytes_text(then.size_bytes)})"
    written, notes, risks = f"it writes {files}", tuple(_left_behind(then)), tuple[str, ...]()
    if asked.shallow:
        written, notes = f"no file is written; it reads the {files} of {ref.name}", ()
        risks = (f"a VACUUM of {ref.name} by another engine deletes files that the copy reads; Weir's is refused then",)
    return ActPreview(
        TableAct(ref.uri, ref.name, latest.version, replace(asked, target=target, version=version)),
        f"{target} becomes a copy of v{version}: {rows_text(then.num_rows)}; {written}",
        {"rows": then.num_rows, "files": then.num_files, "bytes_written": 0 if asked.shallow else then.size_bytes},
        notes,
        risks,
        way_back=f"delete the folder {target}: nothing else changed",
        refused=refused,
        way_out=way_out,
        lifts=lifts,
    )


def _left_behind(then: Snapshot) -> list[str]:
    """What Spark's CREATE TABLE AS SELECT does not take along."""
    traits = [column for column in columns(then.metadata) if column.generated_as or column.identity]
    left = ["its history"] + ([f"how {', '.join(c.path for c in traits)} is generated"] if traits else [])
    left += ["NOT NULL"] if any(not column.nullable and column.depth == 0 for column in columns(then.metadata)) else []
    left += ["clustering"] if declared_clustering(then) else []
    return [f"properties, comments, constraints and partitions come along, not {' and '.join(left)}"]


# moved aside -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """What the latest version was when it was dropped; `num_rows` None where the log does not say. `dropped_at`: ISO
    8601."""

    job_id: str
    root: str
    uri: str
    name: str
    version: int
    num_rows: int | None
    num_files: int
    size_bytes: int
    actor: str
    reason: str
    dropped_at: str

    @classmethod
    def of(cls, latest: Snapshot, root: str, job: Job) -> "DroppedTable":
        return cls(
            job.job_id, root, latest.ref.uri, latest.ref.name, latest.version, latest.num_rows, latest.num_files,
            latest.size_bytes, job.actor, job.reason, job.requested_at.isoformat(),
        )  # fmt: skip

    @property
    def ref(self) -> TableRef:
        return TableRef(self.uri, self.name, self.root, layer_of(self.name))

    def text(self) -> str:
        return json.dumps({key: value for key, value in asdict(self).items() if key not in ("job_id", "root")})


def folder_of(root: str, job_id: str) -> str:
    """Which holds the note of a drop, and the table under `TABLE`."""
    return f"{root.rstrip('/')}/{ASIDE}/{job_id}"


def dropped_tables(settings: Settings) -> list[DroppedTable]:
    """Tables that can be brought back, newest first; raises `StorageError` where a root cannot be listed."""
    storage = Storage(settings)
    tables = [table for root in storage.roots for table in _dropped_below(storage, root)]
    return sorted(tables, key=lambda table: table.dropped_at, reverse=True)


def find_dropped(settings: Settings, name: str) -> DroppedTable:
    """A dropped table by its name (or its end), its URI, or the job that dropped it; raises `TableNotFoundError`."""
    tables = dropped_tables(settings)
    uri = normal_uri(name) if is_uri(name) else ""
    found = [table for table in tables if name in (table.name, table.job_id) or uri == table.uri]
    found = found or [table for table in tables if table.name.endswith(f"/{name}")]
    if not found:
        raise TableNotFoundError(f"no dropped table is named {name!r}", hint="`weir dropped` lists them")
    if len(found) > 1:
        jobs = " or ".join(table.job_id for table in found[:3])
        raise TableNotFoundError(f"{name!r} was dropped {len(found)} times", hint=f"say by which job: {jobs}")
    return found[0]


def plan_drop(settings: Settings, latest: Snapshot, users: Users) -> ActPreview:
    """Pure, but for the root of the table."""
    ref, root = latest.ref, Storage(settings).root_of(latest.ref.uri)
    reading = (reader.stream for reader in users.readers if not reader.stopped)
    running, refused, way_out = tuple(dict.fromkeys((*users.running_writers, *reading))), "", ""
    lifts = tuple[Lift, ...]()
    if ref.uri == root:
        refused, way_out = "it is a root of the lake itself", "take the root out of lake.roots"
    elif running:
        refused, way_out = f"running streams read or write it: {', '.join(running)}", "stop them first"
        elsewhere = {writer.stream for writer in users.writers if writer.application}
        elsewhere |= {reader.stream for reader in users.readers if reader.application}
        lifts = (Lift("stop", ours),) if (ours := tuple(name for name in running if name not in elsewhere)) else ()
    elif users.kept:
        refused, way_out, lifts = users.kept[0].reason, users.kept[0].way_out, (users.kept[0].lift,)
    notes = ["every version goes along, and nothing is deleted: the same bytes stay in use"]
    if is_remote(ref.uri):
        notes.append(f"an object store moves by copying: {bytes_text(latest.size_bytes)} and more are read and written")
    risks = [f"{writer.stream} writes it: its next start makes a new, empty table here" for writer in users.writers]
    risks += [f"{reader.stream} reads it: its next start fails" for reader in users.readers]
    risks.append("a writer that Weir does not know makes a new table here; a shallow copy that reads its files breaks")
    return ActPreview(
        TableAct(ref.uri, ref.name, latest.version, Drop()),
        f"{ref.name}, {_amount(latest)}, is moved to the folder {ASIDE} of its root",
        _figures(latest),
        tuple(notes),
        tuple(risks),
        way_back="an undrop, until somebody purges it",
        refused=refused,
        way_out=way_out,
        lifts=lifts,
        typed=True,
    )


def preview_dropped(settings: Settings, asked: Undrop | Purge) -> ActPreview:
    """What an undrop or a purge would do; raises `TableNotFoundError` where the dropped table is not there any more."""
    table = find_dropped(settings, asked.dropped)
    was = f"dropped {utc_text(datetime.fromisoformat(table.dropped_at))} by {table.actor}: {table.reason}"
    brings_back, lifts = isinstance(asked, Undrop), tuple[Lift, ...]()
    refused, way_out = "", ""
    if why := why_read_only(settings, table.uri):
        refused, way_out = why, "act where it may be changed"
    elif brings_back and (taken := why_taken(settings, table.uri)):
        refused, way_out, lifts = f"{table.uri}: {taken}", "move that away first", (Lift("drop", (table.name,)),)
    becomes = f"comes back to {table.uri}" if brings_back else "is deleted with all versions"
    return ActPreview(
        TableAct(table.uri, table.name, table.version, replace(asked, dropped=table.job_id)),
        f"{table.name}, {_amount(table)}, {becomes}",
        _figures(table),
        (was,),
        way_back="another drop" if brings_back else "none, it is gone for good",
        refused=refused,
        way_out=way_out,
        lifts=lifts,
        typed=not brings_back,
    )


def _dropped_below(storage: Storage, root: str) -> Iterator[DroppedTable]:
    folder = storage.folder(root)
    for entry in folder.list(ASIDE):
        place = f"{ASIDE}/{entry.name}"
        try:
            if not folder.holds(f"{place}/{TABLE}/{LOG}") or folder.stat(f"{place}/{NOTE}") is None:
                continue  # its move has not begun, or the table is back
            table = DroppedTable(entry.name, root, **json.loads(folder.read(f"{place}/{NOTE}")))
            if not is_within(table.uri, root):
                raise ValueError(f"{table.uri} is not below {root}")
            yield table
        except (LakehouseError, ValueError, TypeError) as exc:  # a stranger's: it hides no other
            _log.warning("%s/%s is passed over: %s", root, place, exc)


def _amount(table: Snapshot | DroppedTable) -> str:
    return f"{rows_text(table.num_rows)} in {things(table.num_files, 'file')} ({bytes_text(table.size_bytes)})"


def _figures(table: Snapshot | DroppedTable) -> dict[str, int | None]:
    return {"rows": table.num_rows, "files": table.num_files, "size_bytes": table.size_bytes}
