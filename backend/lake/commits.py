"""Commit files (`<version>.json`, one action a line) read into records and Arrow columns.

Rule: a commit that cannot be read says so in its record and contributes no file; whoever needs its files raises.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any

import pyarrow as pa

from backend.lake.actions import (
    ActionColumns,
    BadActionError,
    Kind,
    file_action,
    load_json,
    read_metadata,
    read_protocol,
)
from backend.lake.model import Metadata, Protocol

_FILE_ACTIONS = {"add": Kind.ADD, "remove": Kind.REMOVE, "cdc": Kind.CDC}


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """What one commit says beside its files. `problem` is set when the commit cannot be trusted."""

    version: int
    commit_info: Any = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    sidecars: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class CommitSlice:
    """A record and its rows in a block that many commits share."""

    record: CommitRecord
    block: pa.Table
    start: int
    length: int

    @property
    def actions(self) -> pa.Table:
        return self.block.slice(self.start, self.length)


def commit_name(version: int) -> str:
    return f"{version:020d}.json"


def parse_commits(contents: Iterable[tuple[int, bytes]]) -> list[CommitSlice]:
    """Commits parsed into one shared block of `ACTIONS`, in the order given."""
    columns = ActionColumns()
    parsed: list[tuple[CommitRecord, int, int]] = []
    for version, content in contents:
        start = len(columns)
        record = parse_commit(version, content, columns)
        parsed.append((record, start, len(columns) - start))
    block = columns.table()
    return [CommitSlice(record, block, start, length) for record, start, length in parsed]


def parse_commit(version: int, content: bytes, columns: ActionColumns, name: str = "") -> CommitRecord:
    """Append a commit's file actions to `columns` and return the rest."""
    name, start = name or commit_name(version), len(columns)
    found: dict[str, Any] = {}
    number = 0
    try:
        for number, line in enumerate(content.split(b"\n"), start=1):  # noqa: B007
            if line and not line.isspace():
                _read_line(version, line, columns, found)
    except (BadActionError, JSONDecodeError, UnicodeDecodeError, RecursionError) as exc:
        columns.cut(start)
        found["problem"] = f"line {number} of {name}: {_reason(exc)}"
    if not content.strip():
        found["problem"] = f"{name} is empty: its writer was cut off"
    return CommitRecord(version, **found)


def _read_line(version: int, line: bytes, columns: ActionColumns, found: dict[str, Any]) -> None:
    action = load_json(line)
    if not isinstance(action, Mapping):
        raise BadActionError("no JSON object")
    for kind, body in action.items():
        if body is None:
            continue
        if kind in _FILE_ACTIONS:
            columns.append(file_action(version, _FILE_ACTIONS[kind], body))
        elif kind == "commitInfo":
            found["commit_info"] = body
        elif kind == "protocol":
            found["protocol"] = read_protocol(body)
        elif kind == "metaData":
            found["metadata"] = read_metadata(body)
        elif kind == "sidecar":
            found["sidecars"] = (*found.get("sidecars", ()), _sidecar_path(body))


def _sidecar_path(body: Any) -> str:
    path = body.get("path") if isinstance(body, Mapping) else None
    if not isinstance(path, str) or not path:
        raise BadActionError("sidecar without a path")
    return path


def _reason(exc: Exception) -> str:
    if isinstance(exc, BadActionError):
        return str(exc)
    return "nested too deeply" if isinstance(exc, RecursionError) else "not JSON (cut off or garbage)"
