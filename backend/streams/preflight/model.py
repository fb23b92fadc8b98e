"""Whether a stream can go on: the checks with their outcome, and the evidence that they are judged by.

Rule: what could not be looked at is unknown, never ok. Only a failed check says that the stream cannot go on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from backend.lake.model import Commit, Metadata
from backend.stream_model.stream import Desired, HostHeartbeat, Lease, StreamDeclaration, StreamInput, TopicEnds
from backend.streams.checkpoint import KafkaPosition
from backend.streams.table_changes import DeclaredChange


class Outcome(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Check:
    """`detail` is the evidence; `remedy` what helps, empty where nothing is to be done."""

    name: str
    outcome: Outcome
    detail: str
    remedy: str = ""

    @property
    def ok(self) -> bool | None:
        """None: not known."""
        return None if self.outcome is Outcome.UNKNOWN else self.outcome is not Outcome.FAILED


@dataclass(frozen=True, slots=True)
class Preflight:
    name: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return not self.failed

    @property
    def failed(self) -> tuple[Check, ...]:
        return self.of(Outcome.FAILED)

    def of(self, outcome: Outcome) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.outcome is outcome)


@dataclass(frozen=True, slots=True)
class CheckpointSeen:
    """A checkpoint's folder. `damage`: why each file that a start reads cannot be read, by its path. `sources`: how
    many the last offsets hold, None where they cannot be read. `state_lost`: what is missing of the state that the next
    batch goes on with.

    `problem`: why the folder itself could not be looked at.
    """

    location: str
    has_metadata: bool = False
    planned: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()
    damage: tuple[tuple[str, str], ...] = ()
    query_id: str | None = None
    sources: int | None = None
    state_lost: str = ""
    problem: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.has_metadata or self.planned or self.finished)

    def damage_of(self, file: str) -> str:
        return dict(self.damage).get(file, "")


@dataclass(frozen=True, slots=True)
class Unread:
    """A commit that a stream has yet to read: how many files it brings, and how many it took out of the table."""

    commit: Commit
    files: int
    removed: int


@dataclass(frozen=True, slots=True)
class FilesLookedFor:
    """`replaced`: how many of the unread files later commits took out. `missing`: of those looked for."""

    unread: int
    replaced: int
    looked: int
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableSeen:
    """A source table beside the stream's position in it. `first`: the first unread version, None without a position.
    `needed`: from where a start needs the log; `first_kept`: from where on it is there. `read_with`: the columns at
    the position.

    `problem`: why the table cannot be read; `skipped`: what could not be looked at, and why.
    """

    source: StreamInput
    table_id: str | None = None
    present_id: str | None = None
    latest: int = -1
    first: int | None = None
    needed: int | None = None
    first_kept: int | None = None
    unread: tuple[Unread, ...] = ()
    read_with: Metadata | None = None
    present: Metadata | None = None
    files: FilesLookedFor | None = None
    skipped: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class FolderSeen:
    """A source that is no table. `is_there` None: not looked, and `problem` says why. `unreadable`: the file that the
    stream ended at, which has not changed since. `elsewhere`: a file that the checkpoint names in another folder."""

    source: StreamInput
    is_there: bool | None
    problem: str = ""
    unreadable: str = ""
    elsewhere: str = ""


@dataclass(frozen=True, slots=True)
class TopicsSeen:
    """A Kafka source: `position`, None before the first batch, beside what a host last `reported` of its topics."""

    source: StreamInput
    position: KafkaPosition | None
    reported: TopicEnds | None


@dataclass(frozen=True, slots=True)
class SinkSeen:
    """`exists` None: not looked, and `problem` says why. `last_batch`: the newest batch that this query wrote, by the
    table's transactions; None: it names none. `keys_before`: those of its rows, where others are declared now."""

    exists: bool | None
    files: int = 0
    last_batch: int | None = None
    problem: str = ""
    keys_before: str = ""


@dataclass(frozen=True, slots=True)
class Owners:
    """Leases by stream, hosts by id, and the other declared streams."""

    leases: dict[str, Lease]
    hosts: dict[str, HostHeartbeat]
    others: Sequence[StreamDeclaration]
    desired: dict[str, Desired]
    heartbeat_stale_s: float


@dataclass(frozen=True, slots=True)
class RoomSeen:
    """`free_bytes` None: not on a disk of this machine. `state_bytes`: of the last batch, None without any."""

    free_bytes: int | None
    state_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PreflightEvidence:
    declaration: StreamDeclaration
    checkpoint: CheckpointSeen
    tables: tuple[TableSeen, ...]
    folders: tuple[FolderSeen, ...]
    topics: tuple[TopicsSeen, ...]
    sink: SinkSeen
    changes: tuple[DeclaredChange, ...]
    owners: Owners
    room: RoomSeen
    seen_at: datetime
