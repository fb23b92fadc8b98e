"""The oracle: a Delta log read the slow and obvious way, one dictionary after the other.

Rule: what PROTOCOL.md says in "Action Reconciliation" and nothing clever; no line is shared with `backend.lake`.
"""

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

Action = dict[str, Any]
Key = tuple[str, str | None]  # decoded path, id of the deletion vector
NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class State:
    """A table at one version: `files` are the live add actions. `faded`: files whose statistics a checkpoint left out,
    so that their rows may be unknown to whoever started from it."""

    files: dict[Key, Action] = field(default_factory=dict)
    protocol: Action | None = None
    metadata: Action | None = None
    faded: frozenset[Key] = frozenset()


def key_of(action: Action) -> Key:
    vector = action.get("deletionVector")
    if vector is None:
        return unquote(action["path"]), None
    offset = "" if vector.get("offset") is None else f"@{vector['offset']}"
    return unquote(action["path"]), vector["storageType"] + vector["pathOrInlineDv"] + offset


def replayed(state: State, actions: list[Action]) -> State:
    """The state after the actions of one commit (or of a whole checkpoint), one after the other."""
    files, protocol, metadata, faded = dict(state.files), state.protocol, state.metadata, set(state.faded)
    for action in actions:
        if action.get("add"):
            files[key_of(action["add"])] = action["add"]
            faded.discard(key_of(action["add"]))
        if action.get("remove"):
            files.pop(key_of(action["remove"]), None)
        protocol = action.get("protocol") or protocol
        metadata = action.get("metaData") or metadata
    return State(files, protocol, metadata, frozenset(faded))


def read_log(log: Path, *, compactions: bool = False) -> dict[int, State]:
    """The state at every version that the files of a `_delta_log` still give."""
    names = {path.name for path in log.iterdir()}
    newest = max(int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.(json|checkpoint\..*)", name))
    found: dict[int, State] = {}
    for version in range(newest + 1):
        before = found.get(version - 1) if version else State()
        if f"{version:020d}.json" in names and before is not None:
            found[version] = replayed(before, read_lines(log / f"{version:020d}.json"))
        if compactions and version not in found:
            for name in names:
                if match := re.fullmatch(rf"(\d{{20}})\.{version:020d}\.compacted\.json", name):
                    before = found.get(int(match[1]) - 1) if int(match[1]) else State()
                    if before is not None:
                        found[version] = replayed(before, read_lines(log / name))
        for actions in read_checkpoints(log, version, names):
            state = replayed(State(), [action for action in actions if "remove" not in action])
            found[version] = either(found.get(version, state), state)
    return {v: state for v, state in found.items() if state.protocol and state.metadata}


def either(one: State, other: State) -> State:
    """Two ways to the same version, where a checkpoint may have left statistics out."""
    faded = {key for state in (one, other) for key, add in state.files.items() if rows_of(add) is None}
    files = {key: other.files.get(key, add) if rows_of(add) is None else add for key, add in one.files.items()}
    return replace(one, files=files, faded=one.faded | faded)


def read_lines(path: Path) -> list[Action]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line.strip()]


def read_checkpoints(log: Path, version: int, names: set[str]) -> list[list[Action]]:
    """The actions of each complete checkpoint of a version that can be read at all."""
    start = f"{version:020d}.checkpoint."
    mine = sorted(name for name in names if name.startswith(start))
    groups = [[name] for name in mine if not re.fullmatch(r"\d{10}\.\d{10}\.parquet", name.removeprefix(start))]
    for count in {name.split(".")[3] for name in mine if [name] not in groups}:
        parts = [f"{start}{number + 1:010d}.{count}.parquet" for number in range(int(count))]
        groups += [parts] if set(parts) <= names else []
    found = []
    for group in groups:
        try:
            actions = [action for name in group for action in read_rows(log / name)]
            sidecars = [action["sidecar"]["path"] for action in actions if action.get("sidecar")]
            found.append(actions + [a for name in sidecars for a in read_rows(log / "_sidecars" / name)])
        except (ValueError, OSError):  # damaged (Arrow's errors are such): another way has to do
            continue
    return found


def read_rows(path: Path) -> list[Action]:
    """The actions of one checkpoint file, without the kinds that a row leaves null."""
    if path.suffix == ".json":
        return read_lines(path)
    rows = pq.ParquetFile(path).read().to_pylist()
    return [{kind: body for kind, body in row.items() if body is not None} for row in rows]


def rows_of(add: Action) -> int | None:
    """The rows that a file holds, from its statistics."""
    stats = json.loads(add["stats"]) if add.get("stats") else add.get("stats_parsed") or {}
    count: int | None = stats.get("numRecords")
    return count


def marked_rows(add: Action) -> int:
    return (add.get("deletionVector") or {}).get("cardinality") or 0


def live_rows(state: State) -> int | None:
    rows = [rows_of(add) for add in state.files.values()]
    return None if None in rows else sum(n for n in rows if n) - sum(map(marked_rows, state.files.values()))


def configuration(state: State) -> dict[str, str]:
    assert state.metadata is not None
    return dict(state.metadata.get("configuration") or {})


def partition_of(add: Action, state: State) -> str:
    """`day=2026-01-01/country=NL`: the table's names in the table's order, null as Hive writes it."""
    assert state.metadata is not None
    columns = json.loads(state.metadata["schemaString"])["fields"]
    names = {c["name"]: c["metadata"].get("delta.columnMapping.physicalName", c["name"]) for c in columns}
    types = {c["name"]: c["type"] for c in columns}
    values = dict(add["partitionValues"])
    shown = []
    for column in state.metadata["partitionColumns"]:
        value = values.get(names[column])
        if value is None or (value == "" and types[column] != "string"):
            shown.append(f"{column}={NULL}")
        else:  # the word itself is no null
            text = value.replace("%", "%25").replace("/", "%2F")
            shown.append(f"{column}={'%5F' + text[1:] if text == NULL else text}")
    return "/".join(shown)
