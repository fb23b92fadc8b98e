"""`python -m pipelines.demo.generator`: lands event and order files as producers would, until stopped.

Rule: SIGTERM and SIGINT end it between two files. After kill -9 it goes on where the ledger ends.
"""

import argparse
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from backend.errors import LakehouseError
from backend.settings import Settings, load_settings
from pipelines.demo.landing import Landing, after, sole_generator
from pipelines.demo.producers import Delivery, EventProducer, OrderProducer, Producer
from pipelines.stop_signals import stop_signals

BACKFILL = timedelta(hours=6)  # so that the first look at the demo shows some hours of gold
BACKFILL_EVERY = timedelta(minutes=15)
BACKFILL_RECORDS = 40


@dataclass(frozen=True, slots=True)
class Topic:
    """One producer, where its files land, and how many records a live file holds."""

    landing: Landing
    producer: Producer
    records: int
    seed: int

    def land(self, now: datetime) -> None:
        self._land(after(self.landing.last_landed_at, now), records=self.records)

    def backfill(self, now: datetime) -> None:
        """Land the past hours before the very first file, as if the producer had been running."""
        if self.landing.last_landed_at is None:
            for landed_at in _every(now - BACKFILL, now, BACKFILL_EVERY):
                self._land(after(None, landed_at), records=BACKFILL_RECORDS, backfill=True)

    def _land(self, landed_at: datetime, *, records: int, backfill: bool = False) -> None:
        number = self.landing.next_number
        self.landing.land(self.producer, Delivery(number, landed_at, records, self.seed, backfill))


def topics(settings: Settings) -> tuple[Topic, ...]:
    """Events and orders, each resumed from its ledger."""
    demo = settings.demo
    events, orders = Landing(settings.home, "events"), Landing(settings.home, "orders")
    return (
        Topic(events, EventProducer(**events.producer_state()), _per_file(settings, demo.events_per_s), demo.seed),
        Topic(orders, OrderProducer(**orders.producer_state()), _per_file(settings, demo.orders_per_s), demo.seed),
    )


def generate(settings: Settings, *, files: int | None, stop: threading.Event) -> int:
    """Land the past once, then a file of each topic per interval. Returns how many of each, at most `files`."""
    landed = 0
    with sole_generator(settings.home):
        lines = topics(settings)
        for topic in lines:
            topic.backfill(datetime.now(UTC))
        while landed != files and not stop.is_set():
            for topic in lines:
                topic.land(datetime.now(UTC))
            landed += 1
            if landed != files:
                stop.wait(settings.demo.landing_interval_s)
    return landed


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


def _per_file(settings: Settings, per_s: float) -> int:
    return max(1, round(per_s * settings.demo.landing_interval_s))


def _every(start: datetime, end: datetime, step: timedelta) -> Iterator[datetime]:
    moment = start
    while moment < end:
        yield moment
        moment += step


if __name__ == "__main__":
    sys.exit(main())
