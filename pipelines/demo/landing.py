"""Lands a producer's files one by one, so that the ledger is true after any kill.

Rule: the order of the steps matters: temporary file, state, ledger entry, rename. Each step is atomic. So an entry
whose temporary file still exists has not landed, whatever was killed. A start finishes or deletes what the last process
left.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from backend.errors import LakehouseError
from pipelines.demo.producers import Delivery, LandedRecord, Producer, RecordKind


class LandingError(LakehouseError):
    """Files cannot be landed."""


@dataclass(frozen=True, slots=True)
class LandedFile:
    """One file: its number in its topic, its name, when it landed, what is in it."""

    number: int
    name: str
    landed_at: datetime
    records: tuple[LandedRecord, ...]

    def entry(self) -> bytes:
        """The ledger's line for it."""
        records = [[record.kind.value, record.line] for record in self.records]
        entry = {"number": self.number, "name": self.name, "landed_at": self.landed_at.isoformat(), "records": records}
        return json.dumps(entry).encode() + b"\n"

    @classmethod
    def of_entry(cls, line: bytes) -> "LandedFile":
        entry = json.loads(line)
        records = tuple(LandedRecord(RecordKind(kind), text) for kind, text in entry["records"])
        return cls(entry["number"], entry["name"], datetime.fromisoformat(entry["landed_at"]), records)


class Landing:
    """The files of one topic below `home`. Only one process may land files (`sole_generator`)."""

    def __init__(self, home: Path, topic: str) -> None:
        self._topic = topic
        self._folder = home / "landing" / topic
        self._ledger = home / "ledger" / f"{topic}.jsonl"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._ledger.parent.mkdir(parents=True, exist_ok=True)
        self._last = self._recover()

    @property
    def next_number(self) -> int:
        return self._last.number + 1 if self._last else 1

    @property
    def last_landed_at(self) -> datetime | None:
        return self._last.landed_at if self._last else None

    def producer_state(self) -> dict[str, Any]:
        """The state stored with the last entry; empty before the first."""
        if self._last is None:
            return {}
        path = self._state_path(self._last.number)
        try:
            state: dict[str, Any] = json.loads(path.read_bytes())
        except (OSError, ValueError) as exc:
            raise LandingError(
                f"the demo's state for {self._last.name} cannot be read: {path}",
                hint="stop Weir and delete its home folder to begin the demo anew",
            ) from exc
        return state

    def land(self, producer: Producer, delivery: Delivery) -> LandedFile:
        """Make and land the next file."""
        records = tuple(producer.produce(delivery))
        name = f"{self._topic}-{delivery.number:08d}.jsonl"
        file = LandedFile(delivery.number, name, delivery.landed_at, records)
        self._write_temporary(file)
        _write_atomically(self._state_path(file.number), json.dumps(producer.state()).encode())
        self._enter(file)
        self._reveal(file)
        self._state_path(file.number - 1).unlink(missing_ok=True)
        self._last = file
        return file

    def _recover(self) -> LandedFile | None:
        """Finish the last entry's rename, drop a half-written line and files that were never entered."""
        last = self._cut_torn_line()
        if last is not None and (self._folder / temporary_name(last.name)).exists():
            self._reveal(last)
        for stray in self._folder.glob(".*.tmp"):
            stray.unlink()
        return last

    def _cut_torn_line(self) -> LandedFile | None:
        last, whole = b"", 0
        if self._ledger.exists():
            with self._ledger.open("r+b") as lines:
                for line in lines:
                    if line.endswith(b"\n"):
                        last, whole = line, whole + len(line)
                lines.truncate(whole)
        return LandedFile.of_entry(last) if last else None

    def _write_temporary(self, file: LandedFile) -> None:
        path = self._folder / temporary_name(file.name)
        path.write_text("".join(f"{record.line}\n" for record in file.records), encoding="utf-8")
        landed_s = file.landed_at.timestamp()
        os.utime(path, (landed_s, landed_s))  # a reader takes the modification time for the time of landing

    def _enter(self, file: LandedFile) -> None:
        with self._ledger.open("ab") as ledger:
            ledger.write(file.entry())
            ledger.flush()
            os.fsync(ledger.fileno())

    def _reveal(self, file: LandedFile) -> None:
        (self._folder / temporary_name(file.name)).rename(self._folder / file.name)

    def _state_path(self, number: int) -> Path:
        return self._ledger.parent / f"{self._topic}.state.{number}.json"


@contextmanager
def sole_generator(home: Path) -> Iterator[None]:
    """Hold the lock that lets one process land files. The kernel frees it however the process ends."""
    folder = home / "ledger"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise LandingError(f"another generator lands files in {home}", hint="stop it, or set WEIR_HOME") from exc
        yield


def temporary_name(name: str) -> str:
    """What a file is called until it lands; Spark reads no name that starts with a dot."""
    return f".{name}.tmp"


def after(moment: datetime | None, now: datetime) -> datetime:
    """`now` in whole milliseconds, but later than `moment`: a clock set back must not reorder files."""
    now = now.replace(microsecond=now.microsecond // 1_000 * 1_000)
    return now if moment is None or now > moment else moment + timedelta(milliseconds=1)


def _write_atomically(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(content)
    temporary.rename(path)
