"""A table copied to another place below the roots: what that takes, and whether the place is free.

Rule: nothing that is there is written over. The copy is a table of its own; a shallow one reads the files of this one.
"""

from dataclasses import replace
from datetime import datetime

from backend.format import bytes_text, rows_text, things
from backend.lake.files.clustering import declared_clustering
from backend.lake.lake import Lake, is_uri
from backend.lake.model import Snapshot, TableRef
from backend.lake.retention.answers import Reach, judge_version
from backend.lake.retention.runs import judge
from backend.lake.storage.paths import normal_uri
from backend.lake.storage.storage import Storage
from backend.lake.table.schema import columns
from backend.maintenance.model import ActPreview, Clone, TableAct
from backend.maintenance.places import why_read_only, why_taken
from backend.settings import Settings


def target_uri(ref: TableRef, target: str) -> str:
    """An address, or a name below the root of the table that is copied."""
    return normal_uri(target if is_uri(target) else f"{ref.root.rstrip('/')}/{target.strip()}")


def preview_clone(settings: Settings, lake: Lake, latest: Snapshot, asked: Clone, now: datetime) -> ActPreview:
    """Raises `PathRefusedError` for a target outside the roots, and where there is no such version."""
    ref, target = latest.ref, target_uri(latest.ref, asked.target)
    version = latest.version if asked.version is None else asked.version
    then = lake.snapshot(ref, version)
    travel = judge_version(judge(lake.retention_facts(ref), now), version).time_travel
    refused, way_out = _why_not_there(settings, ref, target)
    if not refused and travel.verdict is Reach.NO:
        refused, way_out = travel.reasons[0], "choose a later version"
    files = f"{things(then.num_files, 'file')} ({bytes_text(then.size_bytes)})"
    written = (
        f"no file is written; it reads the {files} of {ref.name}" if asked.shallow else f"{files} are written anew"
    )
    shared = [f"a VACUUM of {ref.name} by another engine deletes files that the copy reads; Weir's is refused then"]
    return ActPreview(
        TableAct(ref.uri, ref.name, latest.version, replace(asked, target=target, version=version)),
        f"{target} becomes a copy of v{version}: {rows_text(then.num_rows)}; {written}",
        {"rows": then.num_rows, "files": then.num_files, "bytes_written": 0 if asked.shallow else then.size_bytes},
        () if asked.shallow else tuple(_left_behind(then)),
        tuple(shared if asked.shallow else ()),
        way_back=f"delete the folder {target}: nothing else changed",
        refused=refused,
        way_out=way_out,
    )


def _left_behind(then: Snapshot) -> list[str]:
    """What Spark's CREATE TABLE AS SELECT does not take along."""
    traits = [column for column in columns(then.metadata) if column.generated_as or column.identity]
    left = ["its history"] + ([f"how {', '.join(c.path for c in traits)} is generated"] if traits else [])
    left += ["NOT NULL"] if any(not column.nullable and column.depth == 0 for column in columns(then.metadata)) else []
    left += ["clustering"] if declared_clustering(then) else []
    return [f"properties, comments, constraints and partitions come along; {' and '.join(left)} not"]


def _why_not_there(settings: Settings, ref: TableRef, target: str) -> tuple[str, str]:
    """Why no table may begin at an address, and what helps."""
    root = Storage(settings).root_of(target)
    if why_read_only(settings, target):
        return f"{target} is read-only (lake.read_only_roots)", "copy to another root"
    names = target.removeprefix(root).strip("/").split("/")
    if not names[0] or any(name.startswith((".", "_")) for name in names):
        return f"{target} is no place for a table", "name a folder below a root that begins with neither . nor _"
    if taken := why_taken(settings, target):
        return f"{target}: {taken}", f"choose another place; {ref.name} is not copied over anything"
    return "", ""
