"""`python -m pipelines.demo.generator`: lands event and order files as producers would, until stopped.

Rule: temporary file, state, rename: each step is atomic, in this order. So a file whose state is stored will land,
whatever was killed: the next start renames it. One that has no state is made again, the same. SIGTERM and SIGINT end
it between two files.
"""

import argparse
import fcntl
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from backend.errors import LakehouseError
from backend.settings import Settings, load_settings
from pipelines.demo.producers import Delivery, EventProducer, OrderProducer, Producer
from pipelines.stop_signals import stop_signals

BACKFILL = timedelta(hours=6)  # so that the first look at the demo shows some hours of gold
BACKFILL_EVERY = timedelta(minutes=15)
BACKFILL_RECORDS = 40


class LandingError(LakehouseError):
    """Files cannot be landed."""


class Topic:
    """One producer and its files below `home`, resumed where it stood. Only one process may land files
    (`sole_generator`)."""

    def __init__(self, home: Path, producer: type[Producer], *, records: int, seed: int) -> None:
        """`records`: of a live file."""
        self._name, self._records, self._seed = producer.topic, records, seed
        self._folder, self._states = home / "landing" / self._name, home / "ledger"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._states.mkdir(parents=True, exist_ok=True)
        numbers = (int(path.suffixes[-2][1:]) for path in self._states.glob(f"{self._name}.state.*.json"))
        self._number = max(numbers, default=0)
        self._landed_at: datetime | None = None
        state: dict[str, Any] = {}
        if self._number:
            state, self._landed_at = self._stored_state()
            if (last := self._file(temporary=True)).exists():
                last.rename(self._file())
        self._producer = producer(**state)

    def land(self, now: datetime) -> None:
        """The past hours before the very first file, as if the producer had been running; then the next file."""
        if self._landed_at is None:
            start = now - BACKFILL
            for quarter in range(BACKFILL // BACKFILL_EVERY):
                self._land(start + quarter * BACKFILL_EVERY, BACKFILL_RECORDS, backfill=True)
        self._land(now, self._records)

    def _land(self, now: datetime, records: int, *, backfill: bool = False) -> None:
        """In whole milliseconds, and later than the last file: a clock set back must not reorder them."""
        landed_at = now.replace(microsecond=now.microsecond // 1_000 * 1_000)
        if self._landed_at and landed_at <= self._landed_at:
            landed_at = self._landed_at + timedelta(milliseconds=1)
        self._number, self._landed_at = self._number + 1, landed_at
        lines = self._producer.produce(Delivery(self._number, landed_at, records, self._seed, backfill))
        temporary, landed_s = self._file(temporary=True), landed_at.timestamp()
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        os.utime(temporary, (landed_s, landed_s))  # a reader takes the modification time for the time of landing
        draft = self._states / f"{self._name}.state.tmp"
        draft.write_text(json.dumps(asdict(self._producer)), encoding="utf-8")
        os.utime(draft, (landed_s, landed_s))
        draft.rename(self._state(self._number))
        temporary.rename(self._file())
        self._state(self._number - 1).unlink(missing_ok=True)

    def _file(self, *, temporary: bool = False) -> Path:
        """The last file. Spark reads no name that starts with a dot."""
        name = f"{self._name}-{self._number:08d}.jsonl"
        return self._folder / (f".{name}.tmp" if temporary else name)

    def _state(self, number: int) -> Path:
        return self._states / f"{self._name}.state.{number}.json"

    def _stored_state(self) -> tuple[dict[str, Any], datetime]:
        """The producer's fields after its last file, and when that landed."""
        path = self._state(self._number)
        try:
            return json.loads(path.read_bytes()), datetime.fromtimestamp(path.stat().st_mtime, UTC)
        except (OSError, ValueError) as exc:
            raise LandingError(
                f"the demo's state for {self._file().name} cannot be read: {path}",
                hint="stop Weir and delete its home folder to begin the demo anew",
            ) from exc


def topics(settings: Settings) -> tuple[Topic, Topic]:
    """Events and orders, each resumed from its state."""
    demo = settings.demo
    events, orders = (
        max(1, round(per_s * demo.landing_interval_s)) for per_s in (demo.events_per_s, demo.orders_per_s)
    )
    return (
        Topic(settings.home, EventProducer, records=events, seed=demo.seed),
        Topic(settings.home, OrderProducer, records=orders, seed=demo.seed),
    )


def generate(settings: Settings, *, files: int | None, stop: threading.Event) -> int:
    """Land the past once, then a file of each topic per interval. Returns how many of each, at most `files`."""
    landed = 0
    with sole_generator(settings.home):
        lines = topics(settings)
        while landed != files and not stop.is_set():
            for topic in lines:
                topic.land(datetime.now(UTC))
            landed += 1
            if landed != files:
                stop.wait(settings.demo.landing_interval_s)
    return landed


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


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipelines.demo.generator", description=__doc__)
    parser.add_argument("--files", type=int, help="land so many more files of each kind, then stop")
    files = parser.parse_args(argv).files
    try:
        landed = generate(load_settings(), files=files, stop=stop_signals())
    except LakehouseError as exc:
        sys.stderr.write(f"error: {exc.message}\nhint: {exc.hint}\n")
        return exc.exit_code
    sys.stdout.write(f"generator stopped after {landed} files of each kind\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
