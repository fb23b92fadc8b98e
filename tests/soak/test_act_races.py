"""Acts beside other writers of the same table: no row lost or doubled, no act half recorded, each conflict named.

Rule: what the rows must be is told by a naive model, a dictionary, that does what the log says was committed, in its
order. A round counts only where the log shows that the act and a writer were at work at once.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from backend.errors import StreamRefusedError
from backend.jobs.model import Job, JobState
from backend.lake.model import Commit
from backend.maintenance.model import ActResult, Arguments, Optimize, Repair, Restore, Vacuum
from backend.streams.faults import CONFLICTS
from pipelines.jvm.failures import describe
from tests.worlds.spark.act_host import METADATA, ActTable

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(3_600)]

Rows = Mapping[int, int]  # n by id
Change = Callable[[Rows], Rows]
ROWS = 90  # of a round, in three files
# Beside one act. Any commit breaks a restore, and of several one always comes first; a repair compares readings first.
WRITES = {"optimize": 3, "restore": 1, "repair": 6, "vacuum": 3}
# Of a round whose two sides missed each other: each time the writer begins so much later.
MOST_TRIES, LATER_S = 8, 0.4
LONG_AGO_S = 7_200  # twice the retention


@dataclass(frozen=True)
class Side:
    """What one of the two did between two moments, and what the log has of it, oldest first."""

    from_at: datetime
    to_at: datetime
    commits: Sequence[Commit]

    def met(self, other: "Side") -> bool:
        """Whether neither saw what the other committed. VACUUM looks at the table long before it writes to the log: the
        other committed while it was at work."""
        if any("VACUUM" in str(commit.operation) for commit in (*self.commits, *other.commits)):
            return self._saw(other) or other._saw(self)
        return self._read < other.commits[-1].version and other._read < self.commits[-1].version

    @property
    def _read(self) -> int:
        (read, *_) = (commit.read_version for commit in self.commits)
        assert read is not None, self.commits
        return read

    def _saw(self, other: "Side") -> bool:
        is_vacuum = "VACUUM" in str(self.commits[0].operation)
        return is_vacuum and any(self.from_at <= at(commit) <= self.to_at for commit in other.commits)


def at(commit: Commit) -> datetime:
    assert commit.committed_at is not None, commit
    return commit.committed_at


@dataclass
class Race:
    """A table, and the model of its rows after each version."""

    table: ActTable
    writer: SparkSession
    rows: dict[int, Rows] = field(default_factory=lambda: {-1: {}})
    changes: dict[str, Change] = field(default_factory=dict)  # by what a commit's userMetadata begins with
    starts: Iterator[int] = field(default_factory=lambda: count(0, 1_000))
    names: Iterator[int] = field(default_factory=count)
    conflicts: list[str] = field(default_factory=list)

    @property
    def latest(self) -> int:
        return max(self.rows)

    @property
    def uri(self) -> str:
        return self.table.uri

    def sql(self, text: str) -> None:
        name = self.uri.replace("`", "``")
        self.writer.sql(text.format(f"delta.`{name}`"))

    def write(self, change: Change, statement: Callable[[], None]) -> str:
        """A commit of the writer's, by whose name the log knows it."""
        name = f"write {next(self.names)};"
        self.changes[name] = change
        self.writer.conf.set(METADATA, name)
        statement()
        return name

    def append(self, start: int, rows: int = ROWS, files: int = 1) -> str:
        batch = self.writer.range(start, start + rows).selectExpr("id", "CAST(0 AS BIGINT) AS n").repartition(files)
        writer = batch.write.format("delta").mode("append")
        writer = writer.option("delta.deletedFileRetentionDuration", "interval 1 hour")
        added = dict.fromkeys(range(start, start + rows), 0)
        return self.write(lambda now: {**now, **added}, lambda: writer.save(self.uri))

    def merge(self, start: int) -> str:
        """One row that is there gets another value, one comes."""
        keys = (start, start + ROWS)
        source = f"SELECT explode(array{keys}) AS id"
        text = (
            f"MERGE INTO {{}} AS t USING ({source}) AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = t.n + 1 "
            "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, 0)"
        )
        return self.write(lambda now: {**now, **{key: now.get(key, -1) + 1 for key in keys}}, lambda: self.sql(text))

    def delete(self, gone: int) -> str:
        return self.write(lambda now: without(now, {gone}), lambda: self.sql(f"DELETE FROM {{}} WHERE id = {gone}"))

    def keep(self, text: str) -> str:
        """A statement that changes no row."""
        return self.write(lambda now: now, lambda: self.sql(text))

    def plant(self) -> Path:
        """A file that no version names, older than the retention."""
        path = Path(self.uri, f"left over {next(self.names)}.parquet")
        path.write_bytes(b"x")
        old = path.stat().st_mtime - LONG_AGO_S
        os.utime(path, (old, old))
        return path

    def follow(self) -> list[Commit]:
        """The commits that the model has not seen yet, oldest first; it has seen them after."""
        lake = self.table.reader()
        commits = sorted(lake.history(self.table.ref, starting_version=self.latest + 1), key=lambda each: each.version)
        for commit in commits:
            change = next((do for name, do in self.changes.items() if name in (commit.user_metadata or "")), None)
            assert change is not None, f"nobody here made v{commit.version} {commit.operation}"
            self.rows[commit.version] = change(self.rows[self.latest])
        return commits

    def check_rows(self) -> None:
        assert self.table.rows() == sorted(self.rows[self.latest].items(), key=repr)


def without(rows: Rows, gone: set[int]) -> Rows:
    return {key: value for key, value in rows.items() if key not in gone}


@pytest.fixture
def race(spark: SparkSession, tmp_path: Path) -> Race:
    return Race(ActTable(spark, tmp_path), spark.newSession())


# what is raced ---------------------------------------------------------------------------------------------------


def optimized(race: Race, _: int) -> tuple[Arguments, Change]:
    return Optimize(), lambda now: now


def restored(race: Race, _: int) -> tuple[Arguments, Change]:
    """To the version before the round's last commit."""
    version = race.latest - 1
    return Restore(version), lambda _: race.rows[version]


def repaired(race: Race, start: int) -> tuple[Arguments, Change]:
    gone = {start + 1, start + 2}
    return Repair(f"id IN ({start + 1}, {start + 2})"), lambda now: without(now, gone)


def vacuumed(race: Race, _: int) -> tuple[Arguments, Change]:
    return Vacuum(), lambda now: now


ACTS = {"optimize": optimized, "restore": restored, "repair": repaired, "vacuum": vacuumed}
WRITERS: Mapping[str, Callable[[Race, int, int], str]] = {  # the round's first id, and the how many-th write it is
    "append": lambda race, start, number: race.append(start + 200 + 100 * number, rows=10),
    "merge": lambda race, start, number: race.merge(start + 10 + number),
    "delete": lambda race, start, number: race.delete(start + 30 + number),
    "optimize": lambda race, _start, _number: race.keep("OPTIMIZE {}"),
    "vacuum": lambda race, _start, _number: race.keep("VACUUM {}"),
}


@dataclass
class Beside:
    """A writer that writes again and again while an act is done, in a thread. `done`: what it wrote, from when to when;
    `lost`: how often it gave way."""

    write: Callable[[int], str]
    writes: int
    pause_s: float
    began: list[datetime] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)
    done: list[tuple[str, datetime, datetime]] = field(default_factory=list)
    lost: list[BaseException] = field(default_factory=list)
    faults: list[BaseException] = field(default_factory=list)
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self.began.append(datetime.now(UTC))
        self.thread.start()

    def stop(self) -> None:
        self.is_over.set()
        self.thread.join()
        assert not self.faults, self.faults

    def _run(self) -> None:
        self.is_over.wait(self.pause_s)
        for number in range(self.writes):
            if self.is_over.is_set() or self.faults:
                return
            began = datetime.now(UTC)
            try:
                self.done.append((self.write(number), began, datetime.now(UTC)))
            except (PySparkException, Py4JJavaError) as exc:
                error_class, _ = describe(exc)
                (self.lost if error_class.startswith(CONFLICTS) else self.faults).append(exc)

    def sides(self, commits: Sequence[Commit]) -> list[Side]:
        named = [(tuple(commit for commit in commits if commit.user_metadata == name), *of) for name, *of in self.done]
        return [Side(began, ended, made) for made, began, ended in named if made]


def race_once(race: Race, act: str, writer: str, pause_s: float) -> bool:
    """One round; whether the two sides met, of which the writer began so much later. Whatever came of it must be
    right."""
    start, table = next(race.starts), race.table
    race.append(start, files=3)
    left_over = race.plant()
    race.follow()
    arguments, change = ACTS[act](race, start)
    planned = table.preview(arguments)
    assert planned.refused == "", planned
    job = table.submit(planned.act)
    race.changes[job.job_id] = change
    beside = Beside(lambda number: WRITERS[writer](race, start, number), WRITES[act], pause_s)
    table.runner.listen = lambda phase: beside.start() if phase.startswith(f"{job.kind} of") else None
    result, error = ended(table, job)
    beside.stop()

    commits = race.follow()
    race.check_rows()
    own = [commit for commit in commits if job.job_id in (commit.user_metadata or "")]
    others = {commit.version: commit for commit in commits if commit not in own}
    check_recorded(race, job, result, own, forestalled=writer == act)
    gave_way = [*(result.conflicts if result else []), *([error] if error else [])]
    for conflict in gave_way:
        version = re.search(r"\bv(\d+) ", conflict)
        assert version and int(version[1]) in others, f"{conflict} names none of {sorted(others)}"
    if act == "vacuum" and result is not None:
        assert not left_over.exists() and result.proofs[0].holds
    race.conflicts += gave_way
    sides = beside.sides(list(others.values()))
    mine = [Side(beside.began[0], at(own[-1]), own)] if own else []
    return bool(gave_way or beside.lost) or any(side.met(ours) for side in sides for ours in mine)


def ended(table: ActTable, job: Job) -> tuple[ActResult | None, str]:
    """What it did, or why it failed."""
    try:
        return table.run(job), ""
    except StreamRefusedError as exc:
        return None, exc.message


def check_recorded(
    race: Race, job: Job, result: ActResult | None, own: list[Commit], *, forestalled: bool = False
) -> None:
    """The job, the operation log and the table's log tell the same. `forestalled`: another may have done it before."""
    state = race.table.job_now(job).state
    entries = [entry for entry in race.table.store.audit_entries() if job.job_id in entry.detail]
    actions = [entry.action for entry in entries]
    assert actions == [f"{job.kind} {state.lower()}", f"{job.kind} job"]
    if result is None:
        assert state is JobState.FAILED and own == []
        return
    operations = {
        "optimize": [["OPTIMIZE"], *([[]] if forestalled else [])], "restore": [["RESTORE"]], "repair": [["DELETE"]],
        "vacuum": [["VACUUM START", "VACUUM END"]],
    }[job.kind]  # fmt: skip
    assert state is JobState.DONE and [commit.operation for commit in own] in operations
    assert all(proof.holds for proof in result.proofs) and (own or result.conflicts), result


def test_every_act_beside_every_writer(race: Race) -> None:
    for act in ACTS:
        for writer in WRITERS:
            met_at = 0  # by how many steps later the writer began when they met last
            for number in range(10):
                order = [(met_at + further) % MOST_TRIES for further in range(MOST_TRIES)]
                met_at = next((each for each in order if race_once(race, act, writer, each * LATER_S)), -1)
                assert met_at >= 0, f"{act} and {writer} did not meet, round {number}"
    assert race.conflicts, "no act ever gave way"
