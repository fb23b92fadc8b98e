"""Random logs read equal to a simple replay that shares no code with the reader, and equal to deltalake.

Rule: one seed, one log; a failure names its seeds. `make soak` tries ten thousand more than the fifty that are always
tried, `WEIR_TEST_RANDOM_SEED=7` that one alone.
"""

import math
import os
import shutil
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from backend.errors import LakehouseError, TableCorruptError, VersionNotFoundError
from backend.lake.files.file_sizes import distribute
from backend.lake.lake import Lake
from backend.lake.model import Commit, Protocol, Snapshot, TableCard, TableRef, VersionTotals
from backend.settings import load_settings
from tests.worlds.lake.logs import STATISTICS, RandomLog, commit_name
from tests.worlds.streams.replay import (
    NULL,
    State,
    configuration,
    live_rows,
    marked_rows,
    partition_of,
    read_lines,
    read_log,
    rows_of,
)

ONE_SEED = os.environ.get("WEIR_TEST_RANDOM_SEED")
MIN_FILES, TARGET, RATIO = 4, 5000, 0.5
SIZES = {"200": 200, "1kb": 1024, "128mb": 128 * 2**20}  # what tests.logs sets as delta.targetFileSize


def open_lake(root: Path) -> Lake:
    health = {"min_files": MIN_FILES, "small_file_ratio": RATIO, "target_file_bytes": TARGET}
    return Lake(load_settings(home=root, lake={"roots": [str(root)]}, health=health))


def random_log(seed: int, root: Path, *, statistics: Sequence[str] = STATISTICS) -> RandomLog:
    random = Random(seed)
    log = RandomLog(root / f"t{seed}", random, statistics)
    for _ in range(random.choice([1, 2, 3, 5, 8, 12, 15])):
        log.grow()
    if log.checkpoints and log.chance(0.4):
        log.clean(random.choice(log.checkpoints))
    if log.chance(0.15):
        log.damage()
    return log


# -- what has to come out, from the oracle's state -------------------------------------------------------------------


def files_of(state: State) -> dict[Any, tuple[Any, ...]]:
    return {
        key: (add["size"], rows_of(add), marked_rows(add), add["modificationTime"], partition_of(add, state))
        for key, add in state.files.items()
    }


def target_of(state: State) -> int:
    return SIZES.get(configuration(state).get("delta.targetFileSize", ""), TARGET)


def files_after_merge(state: State) -> int:
    """The small files of each partition with two and more as so many of the target size as their bytes fill."""
    after, mergeable = len(state.files), {part: small for part, small in small_files(state).items() if small > 1}
    if sum(mergeable.values()) < MIN_FILES:
        return after
    for partition, small in mergeable.items():
        sizes = [add["size"] for add in state.files.values() if partition_of(add, state) == partition]
        in_bytes = sum(size for size in sizes if size < int(target_of(state) * RATIO))
        after -= small - min(small, max(1, math.ceil(in_bytes / target_of(state))))
    return after


def small_files(state: State) -> dict[str, int]:
    """Per partition those under half of the target."""
    limit = int(target_of(state) * RATIO)
    parts = [(partition_of(add, state), add["size"]) for add in state.files.values()]
    small = Counter(partition for partition, size in parts if size < limit)
    return {partition: small[partition] for partition, _ in parts}


def buckets_of(state: State) -> list[tuple[int, int, int, int]]:
    sizes = [add["size"] for add in state.files.values()]
    if not sizes:
        return []
    edges = [0, *(2**power for power in range(80))]
    first, last = (max(i for i, edge in enumerate(edges) if edge <= size) for size in (min(sizes), max(sizes)))
    inside = [[s for s in sizes if edges[i] <= s < edges[i + 1]] for i in range(first, last + 1)]
    return [(edges[first + i], edges[first + i + 1], len(s), sum(s)) for i, s in enumerate(inside)]


def info_of(log: Path, version: int) -> tuple[datetime | None, str | None]:
    """When and what, None where the commit is gone."""
    path = log / commit_name(version)
    if not path.exists():
        return None, None
    return commit_info_of(path, path.stat())


@lru_cache(maxsize=4096)
def commit_info_of(path: Path, _: os.stat_result) -> tuple[datetime, str | None]:
    """When and what: the in-commit time, else that of the file, later than the commit's before it."""
    info = next((action["commitInfo"] for action in read_lines(path) if "commitInfo" in action), None)
    info = info if isinstance(info, dict) else {}
    at = info.get("inCommitTimestamp")
    if at is None:
        at = path.stat().st_mtime_ns // 10**6
        before = max((each for each in path.parent.glob(f"{'[0-9]' * 20}.json") if each < path), default=None)
        if before is not None:
            earlier, _ = commit_info_of(before, before.stat())
            at = max(at, round(earlier.timestamp() * 1000) + 1)
    moment = datetime.fromtimestamp(at // 1000, UTC) + timedelta(milliseconds=at % 1000)
    return moment, info["operation"] if isinstance(info.get("operation"), str) else None


def rows_allowed(state: State) -> set[int | None]:
    """Unknown, too, where a checkpoint left statistics out: which way a reader came is its own affair."""
    return {live_rows(state)} | ({None} if state.faded else set())


# -- the comparison --------------------------------------------------------------------------------------------------


def check(lake: Lake, ref: TableRef, log: RandomLog, random: Random) -> None:
    states = read_log(log.log, compactions=True)
    newest = log.version
    assert lake.latest_version(ref) == newest
    if newest in states:
        assert states[newest].files.keys() == log.state.files.keys(), "the oracle itself is wrong"
    spans = lake.versions(ref)
    assert {v for first, last in spans for v in range(first, last + 1)} == set(states)
    check_history(lake, ref, log)
    if newest not in states:
        for read in (lake.snapshot, lake.timeline, lake.card):
            assert refuses(read, ref), read
    else:
        if random.random() < 0.5:
            check_timeline(lake, ref, log, states)
        chosen = {newest, *random.sample(sorted(states), min(2, len(states)))}
        for version in random.sample(sorted(chosen), len(chosen)):
            check_snapshot(lake, lake.snapshot(ref, version), states[version], log)
        for _ in range(3):
            check_files_apart(lake, ref, log, [random.choice(sorted(states)) for _ in "ab"], states)
        check_timeline(lake, ref, log, states)
        check_card(lake, ref, log, states[newest])
    for version in {newest + 1, -1, random.randrange(newest + 1)} - set(states):
        assert refuses_or_knows(lake, ref, version, log), version


def refuses(read: Any, *args: Any) -> bool:
    try:
        read(*args)
    except (VersionNotFoundError, TableCorruptError):
        return True
    return False


def refuses_or_knows(lake: Lake, ref: TableRef, version: int, log: RandomLog) -> bool:
    """A lake that saw a version before its commits were cleaned away may still know it, if it knows it right. That they
    are gone may show only where its files are asked for."""
    if refuses(lambda: keys_of(lake.snapshot(ref, version))):
        return True
    return set(log.states[version].files) == keys_of(lake.snapshot(ref, version))


def keys_of(snapshot: Snapshot) -> set[Any]:
    columns = snapshot.columns(["path", "dv_id"])
    return set(zip(columns["path"].to_pylist(), columns["dv_id"].to_pylist(), strict=True))


def check_sizes(sizes: Snapshot | VersionTotals | TableCard, state: State) -> None:
    assert sizes.num_files == len(state.files)
    assert sizes.size_bytes == sum(add["size"] for add in state.files.values())
    assert sizes.num_rows in rows_allowed(state)


def check_snapshot(lake: Lake, snapshot: Snapshot, state: State, log: RandomLog) -> None:
    check_sizes(snapshot, state)
    adds = state.files.values()
    assert snapshot.deleted_rows == sum(map(marked_rows, adds))
    assert snapshot.num_deletion_vectors == sum(1 for add in adds if add.get("deletionVector"))
    check_metadata(snapshot, state)
    check_files(snapshot, state)
    check_distribution(lake, snapshot, state)
    assert snapshot.committed_at == info_of(log.log, snapshot.version)[0]
    disagrees = any("checksum" in finding for finding in snapshot.findings)
    wrong = (log.log / f"{snapshot.version:020d}.crc").exists() and snapshot.version in log.wrong_checksums
    assert disagrees == wrong, snapshot.findings


def check_metadata(snapshot: Snapshot, state: State) -> None:
    protocol, metadata = state.protocol, state.metadata
    assert protocol is not None and metadata is not None
    created = metadata.get("createdTime")
    assert snapshot.protocol == Protocol(
        protocol["minReaderVersion"],
        protocol["minWriterVersion"],
        tuple(protocol.get("readerFeatures") or []),
        tuple(protocol.get("writerFeatures") or []),
    )
    read = snapshot.metadata
    assert (read.id, read.schema_json) == (metadata["id"], metadata["schemaString"])
    assert list(read.partition_columns) == metadata["partitionColumns"]
    assert dict(read.configuration) == configuration(state)
    assert (read.name, read.description) == (metadata.get("name"), metadata.get("description"))
    assert read.created_at == (created and datetime.fromtimestamp(created / 1000, UTC))


def check_files(snapshot: Snapshot, state: State) -> None:
    names = ["path", "dv_id", "size_bytes", "num_records", "deleted_rows", "modified_at", "partition"]
    files = snapshot.files
    assert snapshot.columns(["path", "dv_id"]) == files.select(["path", "dv_id"]), "the order of rows changed"
    places = list(range(snapshot.num_files)[::-2])
    assert snapshot.rows_at(places, names).equals(snapshot.columns(names).take(pa.array(places, pa.int64())))
    modified_at = files["modified_at"].cast(pa.int64())
    files = files.set_column(files.column_names.index("modified_at"), "modified_at", modified_at)
    rows = list(zip(*(files[name].to_pylist() for name in names), strict=True))
    found = {(path, dv_id): rest for path, dv_id, *rest in rows}
    assert len(found) == len(rows), "a file is there twice"
    want = files_of(state)
    assert found.keys() == want.keys()
    for key, (size, records, *rest) in found.items():
        assert (size, *rest) == (want[key][0], *want[key][2:]), key
        assert records == want[key][1] or (records is None and key in state.faded), key


def check_files_apart(lake: Lake, ref: TableRef, log: RandomLog, pair: list[int], states: dict[int, State]) -> None:
    apart = lake.file_difference(ref, *pair)
    first, second = (states[version] for version in pair)
    for files, own, other in ((apart.only_first, first, second), (apart.only_second, second, first)):
        rows = {(row["path"], row["dv_id"]): row for row in files.to_pylist()}
        want = files_of(own)
        assert len(rows) == len(files)
        assert rows.keys() == want.keys() - other.files.keys(), pair
        for key, row in rows.items():
            size, records, marked, _, partition = want[key]
            assert (row["size_bytes"], row["deleted_rows"], row["partition"]) == (size, marked, partition), (pair, key)
            if records is None:  # what a checkpoint forgot, or came later, a commit in between may say
                assert row["num_records"] in {None, *(rows_of(s.files[key]) for s in log.states if key in s.files)}
            else:
                assert row["num_records"] == records or (row["num_records"] is None and key in own.faded), (pair, key)


def check_distribution(lake: Lake, snapshot: Snapshot, state: State) -> None:
    distribution = distribute(snapshot, lake.target_bytes(snapshot), ratio=RATIO, min_files=MIN_FILES)
    assert [(b.from_bytes, b.to_bytes, b.files, b.bytes) for b in distribution.buckets] == buckets_of(state)
    small = small_files(state)
    for part in distribution.partitions:
        mine = {key: add for key, add in state.files.items() if partition_of(add, state) == part.partition}
        assert part.num_files == len(mine)
        assert part.size_bytes == sum(add["size"] for add in mine.values())
        assert part.small_files == small[part.partition]
        assert part.num_rows in rows_allowed(State(mine, faded=state.faded & mine.keys()))
    assert sorted(part.partition for part in distribution.partitions) == sorted(small)
    assert distribution.small_files == sum(small.values())
    assert distribution.files_after_merge == files_after_merge(state)


def check_history(lake: Lake, ref: TableRef, log: RandomLog) -> None:
    there = [v for v in range(log.version, -1, -1) if (log.log / commit_name(v)).exists()]
    history: list[Commit] = lake.history(ref)
    assert [c.version for c in history] == there
    for commit in history:
        assert (commit.committed_at, commit.operation) == info_of(log.log, commit.version)
    assert [c.version for c in lake.history(ref, limit=3)] == there[:3]
    low, high = log.version // 3, log.version - 1
    ranged = lake.history(ref, starting_version=low, ending_version=high)
    assert [c.version for c in ranged] == [v for v in there if low <= v <= high]


def check_timeline(lake: Lake, ref: TableRef, log: RandomLog, states: dict[int, State]) -> None:
    first = log.version
    while first - 1 in states and (log.log / commit_name(first)).exists():
        first -= 1
    timeline = lake.timeline(ref)
    if (log.log / commit_name(first)).exists() or first not in states:
        assert timeline.first_version == first
    else:  # its commit is gone and a checkpoint stands in: to go on before it is allowed
        assert timeline.first_version <= first
    first = timeline.first_version
    assert timeline.truncated == (first > 0)
    assert [totals.version for totals in timeline.totals] == list(range(first, log.version + 1))
    for totals in timeline.totals:
        check_sizes(totals, states[totals.version])
        assert totals.small_files == sum(small_files(states[totals.version]).values()), totals.version
        assert (totals.committed_at, totals.operation) == info_of(log.log, totals.version)


def check_card(lake: Lake, ref: TableRef, log: RandomLog, state: State) -> None:
    card = lake.card(ref)
    check_sizes(card, state)
    assert (card.version, card.small_files) == (log.version, sum(small_files(state).values()))
    assert card.files_after_merge == files_after_merge(state)
    assert (card.last_commit_at, card.last_operation) == info_of(log.log, log.version)


# -- the tests -------------------------------------------------------------------------------------------------------


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that is gone at once: pytest's own would keep thousands of tables of three runs."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def in_each(seeds: range, attempt: Any) -> None:
    """Try every seed and fail once, with the seeds that failed and the first one's traceback."""
    failed: dict[int, str] = {}
    for seed in seeds:
        try:
            attempt(seed)
        except (AssertionError, LakehouseError, ArithmeticError, LookupError, TypeError, ValueError, OSError):
            failed[seed] = traceback.format_exc()
    if failed:
        first = next(iter(failed))
        pytest.fail(f"{len(failed)} of {len(seeds)} seeds failed: {list(failed)[:20]}\nseed {first}: {failed[first]}")


def portions(at_once: int, *, soak: int) -> list[Any]:
    """Seeds of one test each: the first are always tried, `soak` more in `make soak`."""
    if ONE_SEED:
        return [range(int(ONE_SEED), int(ONE_SEED) + 1)]
    more = [range(first, first + at_once) for first in range(at_once, at_once + soak, at_once)]
    each = [pytest.param(seeds, marks=pytest.mark.soak) for seeds in more]
    return [range(at_once), *each]


# Many below one root, read by one lake.
@pytest.mark.parametrize("seeds", portions(25, soak=10_000), ids=str)
def test_random_logs_read_as_a_simple_replay_reads_them(place, seeds):
    logs = {seed: random_log(seed, place) for seed in seeds}
    lake = open_lake(place)
    refs = {ref.name: ref for ref in lake.tables()}
    in_each(seeds, lambda seed: check(lake, refs[f"t{seed}"], logs[seed], Random(-seed)))


@pytest.mark.parametrize("seeds", portions(3, soak=200), ids=str)
def test_a_lake_that_follows_a_log_reads_as_one_that_comes_late(place, seeds):
    in_each(seeds, lambda seed: follow(seed, place))


def following_log(table: Path, random: Random) -> RandomLog:
    """A log whose checkpoints keep all statistics: who followed it would know more than who came late."""
    log = RandomLog(table, random, ["json", "both", "struct"])
    log.grow()
    return log


def follow(seed: int, root: Path) -> None:
    random = Random(seed)
    log = following_log(root / f"t{seed}", random)
    lake = open_lake(root)
    ref = next(ref for ref in lake.tables() if ref.name == f"t{seed}")
    for _ in range(4):
        check(lake, ref, log, Random(-seed))
        check(open_lake(root), ref, log, Random(seed))
        step = random.choice(["grow", "grow", "checkpoint", "clean", "again", "cleaned alone"])
        if step == "again":
            shutil.rmtree(log.table)
            log = following_log(log.table, random)
        if step in ("checkpoint", "clean", "cleaned alone"):
            log.checkpoint()
        if step in ("clean", "cleaned alone"):
            log.clean(log.version)
        if step == "cleaned alone":  # a poll may miss what no commit tells of; it may answer nothing wrong
            check_snapshot(lake, lake.snapshot(ref), read_log(log.log)[log.version], log)
        for _ in range(random.choice([1, 1, 2, 5])):
            log.grow()
    check(lake, ref, log, Random(-seed))


@pytest.mark.parametrize("seeds", portions(20, soak=1_000), ids=str)
def test_random_logs_read_as_deltalake_reads_them(place, seeds):
    compared: list[int] = []
    in_each(seeds, lambda seed: compared.extend(compare_with_deltalake(seed, place)))
    assert ONE_SEED or len(compared) > 12, "deltalake opened too few of them to compare"


def compare_with_deltalake(seed: int, root: Path) -> list[int]:
    """The versions compared; none where deltalake cannot open the table."""
    log = random_log(seed, root, statistics=["both"])  # deltalake does not read those that are parsed alone
    lake = open_lake(root)
    ref = next(ref for ref in lake.tables() if ref.name == log.table.name)
    compared = []
    for version in {log.version, log.version // 2} & {v for a, b in lake.versions(ref) for v in range(a, b + 1)}:
        try:
            theirs = DeltaTable(str(log.table), version=version)
            adds = pa.table(theirs.get_add_actions(flatten=True)).to_pylist()
        except (DeltaError, OSError):
            continue
        ours = lake.snapshot(ref, version)
        assert ours.version == theirs.version()
        assert Counter(ours_row(row) for row in ours.files.to_pylist()) == Counter(map(theirs_row, adds))
        assert dict(ours.metadata.configuration) == theirs.metadata().configuration
        assert list(ours.metadata.partition_columns) == theirs.metadata().partition_columns
        assert ours.protocol.min_reader_version == theirs.protocol().min_reader_version
        assert set(ours.protocol.reader_features) == set(theirs.protocol().reader_features or [])
        compared.append(version)
    return compared


def ours_row(row: dict[str, Any]) -> tuple[Any, ...]:
    # deltalake's list of files does not tell an empty text from null
    shown = "/".join(f"{pair}{NULL}" if pair.endswith("=") else pair for pair in row["partition"].split("/"))
    return row["path"], row["size_bytes"], row["num_records"], shown


def theirs_row(add: dict[str, Any]) -> tuple[Any, ...]:
    values = {name.removeprefix("partition."): value for name, value in add.items() if name.startswith("partition.")}
    shown = {name: NULL if value in (None, "") else escaped(value) for name, value in values.items()}
    partition = "/".join(f"{name}={value}" for name, value in shown.items())
    return unquote(add["path"]), add["size_bytes"], add.get("num_records"), partition


def escaped(value: Any) -> str:
    return str(value).replace("%", "%25").replace("/", "%2F")


def test_the_random_logs_hold_what_they_are_meant_to_hold(place):
    """The generator must not silently stop to make the hard cases."""
    seen: Counter[str] = Counter()
    for seed in range(200):
        log = random_log(seed, place)
        names = " ".join(sorted(path.name for path in log.log.iterdir()))
        states = read_log(log.log, compactions=True)
        seen["cleaned"] += commit_name(0) not in names
        seen["compacted"] += "compacted" in names
        seen["checksum"] += ".crc" in names
        seen["wrong checksum"] += bool(log.wrong_checksums)
        seen["classic"] += ".checkpoint.parquet" in names
        seen["multi"] += ".checkpoint.0000000001." in names
        seen["sidecars"] += "_sidecars" in names
        seen["hint"] += "_last_checkpoint" in names
        seen["mapped"] += "physicalName" in str(log.state.metadata)
        seen["vectors"] += any(key[1] for key in log.state.files)
        seen["faded"] += any(state.faded for state in states.values())
        seen["huge"] += any(add["size"] > 2**53 for add in log.state.files.values())
        seen["null partition"] += any(NULL in partition_of(add, log.state) for add in log.state.files.values())
        seen["unreadable"] += log.version not in states
        seen["empty"] += not log.state.files
    assert all(seen.values()), seen
    assert len(seen) == 15


# a log that changes while it is read ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_log_that_changes_while_it_is_read_gives_whole_versions_or_named_errors(place, seed):
    log = RandomLog(place / "t", Random(seed), ["both"])
    log.wrong_share = 0.0
    log.grow()
    lake = open_lake(place)
    ref = lake.find("t")
    stop = threading.Event()
    counted: Counter[str] = Counter()
    failures: list[BaseException] = []

    def watch(number: int) -> None:
        random, newest = Random(number), 0
        try:
            while not stop.is_set():
                try:
                    newest = read_one(lake, ref, log, random, newest)
                    counted["right"] += 1
                except LakehouseError as exc:
                    assert exc.message
                    counted["refused"] += 1
        except BaseException as exc:  # noqa: BLE001 - told by the test's own thread
            failures.append(exc)

    watchers = [threading.Thread(target=watch, args=(number,)) for number in range(2)]
    for watcher in watchers:
        watcher.start()
    for step in range(2_000):
        if failures or (step >= 60 and counted["right"] > max(20, counted["refused"])):
            break
        log.grow()
        if step % 10 == 5:
            log.checkpoint()
        if step % 20 == 15:
            log.clean(log.checkpoints[-1])
    stop.set()
    for watcher in watchers:
        watcher.join()
    assert not failures, failures[0]
    assert counted["right"] > max(20, counted["refused"]), counted
    assert keys_of(lake.snapshot(ref)) == log.states[-1].files.keys()


def read_one(lake: Lake, ref: TableRef, log: RandomLog, random: Random, newest: int) -> int:
    """One reading, compared with what the writer knows; the newest version read, which never goes back."""
    choice = random.randrange(4)
    if choice < 2:
        snapshot = lake.snapshot(ref, random.randrange(log.version + 1) if choice else None)
        check_sizes(snapshot, log.states[snapshot.version])
        assert keys_of(snapshot) == log.states[snapshot.version].files.keys()
        assert choice or snapshot.version >= newest
        return newest if choice else snapshot.version
    if choice == 2:
        for totals in lake.timeline(ref).totals:
            check_sizes(totals, log.states[totals.version])
    else:
        versions = [commit.version for commit in lake.history(ref, limit=10)]
        assert versions == sorted(versions, reverse=True)
    return newest
