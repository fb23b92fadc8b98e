"""A table that is taken out of the lake: moved aside below its root, until somebody brings it back or purges it.

Rule: a drop deletes nothing; what it moved lies in a folder whose name begins with a dot, which no walk of a root looks
into. The note beside it says what it was, and the folder is named after the job that dropped it.
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
from backend.lake.lake import is_uri
from backend.lake.log.listing import LOG
from backend.lake.model import Snapshot, TableRef
from backend.lake.storage.paths import is_remote, is_within, normal_uri
from backend.lake.storage.storage import Storage
from backend.maintenance.model import ActPreview, Drop, Purge, TableAct, Undrop
from backend.maintenance.places import why_read_only, why_taken
from backend.maintenance.readers import Users
from backend.settings import Settings

ASIDE, NOTE, TABLE = ".dropped", "dropped.json", "table"

_log = logging.getLogger(__name__)  # structlog would cost each command 0.2 s


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
    """Those that can be brought back, newest first; raises `StorageError` where a root cannot be listed."""
    storage = Storage(settings)
    found = [table for root in storage.roots for table in _dropped_below(storage, root)]
    return sorted(found, key=lambda table: table.dropped_at, reverse=True)


def find_dropped(settings: Settings, name: str) -> DroppedTable:
    """By the table's name (or the end of it), its URI, or the job that dropped it; raises `TableNotFoundError`."""
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
    refused, way_out = _why_kept(ref, root, users)
    notes = ["every version goes along, and nothing is deleted: the same bytes stay in use"]
    if is_remote(ref.uri):
        notes.append(f"an object store moves by copying: {bytes_text(latest.size_bytes)} and more are read and written")
    risks = [f"{writer.stream} writes it: its next start makes a new, empty table here" for writer in users.writers]
    risks += [f"{reader.stream} reads it: its next start fails" for reader in users.readers]
    risks.append("a writer that Weir does not know makes a new table here; a shallow copy that reads its files breaks")
    return ActPreview(
        TableAct(ref.uri, ref.name, latest.version, Drop()),
        f"{ref.name}, {_amount(latest.num_rows, latest.num_files, latest.size_bytes)}, is moved to {root}/{ASIDE}",
        {"rows": latest.num_rows, "files": latest.num_files, "size_bytes": latest.size_bytes},
        tuple(notes),
        tuple(risks),
        way_back=f"weir undrop {ref.name}, until somebody purges it",
        refused=refused,
        way_out=way_out,
        typed=True,
    )


def preview_dropped(settings: Settings, asked: Undrop | Purge) -> ActPreview:
    """Of a table that was dropped; raises `TableNotFoundError` where it is not there any more."""
    table = find_dropped(settings, asked.dropped)
    amount = _amount(table.num_rows, table.num_files, table.size_bytes)
    was = f"dropped {utc_text(datetime.fromisoformat(table.dropped_at))} by {table.actor}: {table.reason}"
    brings_back = isinstance(asked, Undrop)
    refused, way_out = "", ""
    if why := why_read_only(settings, table.uri):
        refused, way_out = why, "act where it may be changed"
    elif brings_back and (taken := why_taken(settings, table.uri)):
        refused, way_out = f"{table.uri}: {taken}", "move that away first"
    return ActPreview(
        TableAct(table.uri, table.name, table.version, replace(asked, dropped=table.job_id)),
        f"{table.name}, {amount}, {f'comes back to {table.uri}' if brings_back else 'is deleted with all versions'}",
        {"rows": table.num_rows, "files": table.num_files, "size_bytes": table.size_bytes},
        (was,),
        way_back=f"weir drop {table.name}" if brings_back else "none: it is gone for good",
        refused=refused,
        way_out=way_out,
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


def _why_kept(ref: TableRef, root: str, users: Users) -> tuple[str, str]:
    if ref.uri == root:
        return "it is a root of the lake itself", "take the root out of lake.roots"
    reading = (reader.stream for reader in users.readers if not reader.stopped)
    if running := ", ".join(dict.fromkeys((*users.running_writers, *reading))):
        return f"running streams read or write it: {running}", f"stop them first: weir stop {running.replace(',', '')}"
    if users.kept:
        return users.kept[0].reason, users.kept[0].way_out
    return "", ""


def _amount(rows: int | None, files: int, size_bytes: int) -> str:
    return f"{rows_text(rows)} in {things(files, 'file')} ({bytes_text(size_bytes)})"
