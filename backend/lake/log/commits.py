"""Commit files (`<version>.json`, one action a line) read into records and Arrow columns.

Rule: a commit that cannot be read says so in its record and contributes no file; whoever needs its files raises.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any

import orjson

from backend.lake.log.actions import (
    BadActionError,
    FileAction,
    encoded_partition,
    file_action,
    file_size,
    in_millis,
    read_metadata,
    read_protocol,
)
from backend.lake.log.listing import commit_name
from backend.lake.model import Metadata, OperationMetrics, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from backend.lake.storage.folder import Content

_FILE_ACTIONS = {"add": FileAction.ADD, "remove": FileAction.REMOVE, "cdc": FileAction.CDC}
BLOCK_ROWS = 50_000  # after so many a block ends
_SIZE, _PARTITION = 6, 10  # columns of a row of `file_set.ACTIONS`
MOST_PARTITIONS = 100  # of one commit that are remembered

Row = tuple[Any, ...]
Take = Callable[[FileAction, Any], tuple[int | None, str]]  # the size and partition of a file action


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """What one commit says beside its files. `problem` is set when the commit cannot be trusted.

    `is_empty`: its file has no byte, as a writer leaves it that was cut off; Spark reads past it, and so does Weir.
    `counts`: of its files; None where there is a problem, `bytes_removed` None where a remove names no size.
    `partitions`: where they lie, encoded; empty for the one of a remove that does not say it, and none of more than
    `MOST_PARTITIONS`. `transactions` are the newest version per application, `domains` the configuration per domain
    (None: removed); `modified_at`: when its file was written.
    """

    version: int
    commit_info: Any = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    sidecars: tuple[str, ...] = ()
    problem: str | None = None
    is_empty: bool = False
    counts: OperationMetrics | None = None
    partitions: tuple[str, ...] = ()
    transactions: Mapping[str, int] = field(default_factory=dict)
    domains: Mapping[str, str | None] = field(default_factory=dict)
    modified_at: datetime | None = None

    @property
    def fault(self) -> str | None:
        """What people should know: a problem, or what was read past. Such a file may yet be written to its end."""
        empty = f"{commit_name(self.version)} is empty, and read past as Spark does: its writer was cut off"
        return self.problem or (empty if self.is_empty else None)


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


def parse_commits(contents: Iterable[tuple[int, str, Content]]) -> list[CommitSlice]:
    """Commits and log compactions, each given as the version it leads to, its name and its content, in the order given.
    Small ones share a block of `file_set.ACTIONS`; many rows as objects would take five times its memory."""
    from backend.lake.log.file_set import action_table

    slices: list[CommitSlice] = []
    rows: list[Row] = []
    parsed: list[tuple[CommitRecord, int, int]] = []

    def close_block() -> None:
        block = action_table(rows)
        slices.extend(CommitSlice(record, block, start, length) for record, start, length in parsed)
        rows.clear()
        parsed.clear()

    for version, name, content in contents:
        start = len(rows)
        record = parse_commit(version, content.data, rows, name, in_millis(content.modified_at))
        parsed.append((record, start, len(rows) - start))
        if len(rows) >= BLOCK_ROWS:
            close_block()
    close_block()
    return slices


def parse_commit(
    version: int, content: bytes, rows: list[Row], name: str = "", modified_at: datetime | None = None
) -> CommitRecord:
    """Append a commit's file actions to `rows` and return the rest."""
    start = len(rows)

    def take(kind: FileAction, body: Any) -> tuple[int | None, str]:
        rows.append(row := file_action(version, kind, body))
        return row[_SIZE], row[_PARTITION]

    record = _read(version, content, name, modified_at, take)
    if record.problem:
        del rows[start:]
    return record


def parse_record(version: int, content: Content) -> CommitRecord:
    """What `parse_commit` returns, for whoever needs no rows of the files: up to twice as fast."""

    def take(kind: FileAction, body: Any) -> tuple[int | None, str]:
        return file_size(kind, body), encoded_partition(body)

    return _read(version, content.data, "", in_millis(content.modified_at), take)


def _read(version: int, content: bytes, name: str, modified_at: datetime | None, take: Take) -> CommitRecord:
    """A commit without its files, which `take` gets and may refuse."""
    fields: dict[str, Any] = {}
    sizes: dict[FileAction, list[int | None]] = {kind: [] for kind in FileAction}
    partitions: set[str] = set()

    def count(kind: FileAction, body: Any) -> None:
        size, partition = take(kind, body)
        sizes[kind].append(size)
        if kind is not FileAction.CDC:
            partitions.add(partition)

    number = 0
    try:
        for number, line in enumerate(content.split(b"\n"), start=1):  # noqa: B007
            if line and not line.isspace():
                _read_line(line, count, fields)
    except (BadActionError, JSONDecodeError, UnicodeError, RecursionError) as exc:
        fields["problem"] = f"line {number} of {name or commit_name(version)}: {_reason(exc)}"
    if not content.strip() and name in ("", commit_name(version)):  # a compaction of commits without files is empty
        if content:
            fields["problem"] = f"{commit_name(version)} holds blanks alone"
        fields["is_empty"] = not content
    if "problem" not in fields:
        added, removed, changed = (sizes[kind] for kind in (FileAction.ADD, FileAction.REMOVE, FileAction.CDC))
        fields["counts"] = OperationMetrics(
            files_added=len(added),
            files_removed=len(removed),
            bytes_added=_sum(added),
            bytes_removed=_sum(removed),
            change_files=len(changed) or None,
            change_bytes=_sum(changed) or None,
        )
        if any(partitions) and len(partitions) <= MOST_PARTITIONS:
            fields["partitions"] = tuple(sorted(partitions))
    return CommitRecord(version, modified_at=modified_at, **fields)


def _read_line(line: bytes, take: Callable[[FileAction, Any], None], fields: dict[str, Any]) -> None:
    try:
        action = orjson.loads(line)
    except JSONDecodeError:
        action = _read_odd(line)
    if type(action) is not dict:
        raise BadActionError("no JSON object")
    for kind, body in action.items():
        if body is None:
            continue
        file_kind = _FILE_ACTIONS.get(kind)
        if file_kind is not None:
            take(file_kind, body)
        elif kind == "commitInfo":
            fields["commit_info"] = body
        elif kind == "protocol":
            fields["protocol"] = read_protocol(body)
        elif kind == "metaData":
            fields["metadata"] = read_metadata(body)
        elif kind == "sidecar":
            path = body.get("path") if isinstance(body, Mapping) else None
            if not isinstance(path, str) or not path:
                raise BadActionError("sidecar without a path")
            fields["sidecars"] = (*fields.get("sidecars", ()), path)
        elif kind == "txn":
            fields.setdefault("transactions", {}).update(transaction(body))
        elif kind == "domainMetadata":
            fields.setdefault("domains", {}).update(domain(body))


def _read_odd(line: bytes) -> Any:
    """What strict JSON does not allow and some writers leave: NaN, and half surrogate pairs outside file actions."""
    action = json.loads(line)
    if isinstance(action, dict) and action.keys() & _FILE_ACTIONS.keys():
        json.dumps(action, ensure_ascii=False).encode()  # no text that a path can hold
    return action


def transaction(body: Any) -> dict[str, int]:
    """`{appId: version}` of a `txn` action; empty when it is not one: no figure hangs on it."""
    app_id, version = (body.get("appId"), body.get("version")) if isinstance(body, Mapping) else (None, None)
    return {app_id: version} if isinstance(app_id, str) and isinstance(version, int) else {}


def domain(body: Any) -> dict[str, str | None]:
    """`{domain: configuration}` of a `domainMetadata` action, the configuration None when it was removed."""
    name, text = (body.get("domain"), body.get("configuration")) if isinstance(body, Mapping) else (None, None)
    if not isinstance(name, str):
        return {}
    return {name: None if body.get("removed") is True or not isinstance(text, str) else text}


def _sum(sizes: list[int | None]) -> int | None:
    return None if None in sizes else sum(size or 0 for size in sizes)


def _reason(exc: Exception) -> str:
    if isinstance(exc, BadActionError):
        return str(exc)
    if isinstance(exc, UnicodeEncodeError):
        return "a text that is no Unicode"
    return "nested too deeply" if isinstance(exc, RecursionError) else "not JSON (cut off or garbage)"
