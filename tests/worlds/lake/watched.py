"""Tables whose commits are looked at for what is unusual: usual batches, and logs written by hand at a given pace."""

import json
import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.worlds.lake import builders
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol, remove

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
NOW = datetime.now(UTC).replace(microsecond=0)
LATER = NOW + timedelta(days=1)


def orders(dice: random.Random, rows: int = 20) -> dict[str, list[object]]:
    return {
        "amount": [round(dice.uniform(1, 500), 2) for _ in range(rows)],
        "email": [f"a{number}@example.org" for number in range(rows)],
    }


def write(table: Path, batches: Iterable[dict[str, list[object]]]) -> None:
    for batch in batches:
        builders.write(table, batch)


def orders_with_a_bad_batch(table: Path) -> None:
    """Eight batches of usual orders; v8 brings amounts far above them."""
    dice = random.Random(7)
    write(table, [*(orders(dice) for _ in range(8)), {**orders(dice), "amount": [47_189.0] * 20}])


def aggregate(log: HandLog, lowest: float, at: datetime, copied: int = 0) -> None:
    """One more version of five rows, all of them written anew."""
    version = log.next_version
    stats = {"numRecords": 5, "minValues": {"amount": lowest}, "maxValues": {"amount": 110.0}, "nullCount": {}}
    begin = [remove(f"{version - 1}.parquet")] if version else [protocol(), metadata({"amount": "double"})]
    info = commit_info(timestamp=int(at.timestamp() * 1_000), operationMetrics={"numTargetRowsCopied": str(copied)})
    log.commit(*begin, add(f"{version}.parquet", stats=json.dumps(stats)), info)


SPARK, PYTHON = "Apache-Spark/4.2.0 Delta-Lake/4.4.0", "delta-rs:py-1.6.6"
COLUMNS = {"id": "long", "amount": "double"}


def appended(log: HandLog, *actions: dict[str, Any], **info: Any) -> None:
    """One more commit of rows, a minute later."""
    at = NOW - timedelta(days=1) + timedelta(minutes=log.next_version)
    info = {"engineInfo": SPARK, "timestamp": int(at.timestamp() * 1_000), **info}
    log.commit(*actions, add(f"{log.next_version}.parquet"), commit_info(**info))


def grown(log: HandLog, commits: int, **info: Any) -> None:
    for _ in range(commits):
        appended(log, *([protocol(), metadata(COLUMNS)] if not log.next_version else []), **info)


def every_ten_minutes(log: HandLog, commits: int, **info: Any) -> list[datetime]:
    """Commits of rows, the first 5 hours ago."""
    times = [NOW - timedelta(minutes=300 - 10 * number) for number in range(commits)]
    for at in times:
        first = [] if log.next_version else [protocol(), metadata(COLUMNS)]
        appended(log, *first, timestamp=int(at.timestamp() * 1_000), **info)
    return times
