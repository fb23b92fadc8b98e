"""What was checked is what is read: while another process exchanges a table's files and folders for links to a secret
outside every root, no reading gives a row or a byte of it. And what is no regular file ends a reading at once."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable

from backend.changes.model import DiffMethod
from backend.errors import LakehouseError, StorageError
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.lake.rows import files_on_disk
from backend.lake.rows.rows import RowQuery
from backend.search.model import BisectRequest
from backend.search.search import bisect
from backend.sql.profile import profiles
from tests.worlds.lake.builders import CHANGE_FEED, HandLog, add, commit_info, orders_table, write
from tests.worlds.lake.diff_lakes import ByDeltalake
from tests.worlds.lake.diffs import diff
from tests.worlds.lake.vectors import write_vector

ROUNDS = 2_000 if os.environ.get("WEIR_TEST_SOAK") else 200  # `make soak` sets it
SECRET = "SECRET"
OpenLake = Callable[..., Lake]
Way = Callable[[Lake, TableRef], object]

# Exchanges a name for a link and back until its input ends, then says how often. Each lies there for as long as a
# reading may need between its look and its opening.
_SWAPPER = """
import os, random, select, sys
victim, secret = sys.argv[1:]
own, link = victim + ".own", victim + ".link"
is_folder, times = os.path.isdir(victim), 0
def ended():
    return select.select([sys.stdin], [], [], random.choice((0, 0.001, 0.004, 0.01)))[0]
print(flush=True)
while not ended():
    os.symlink(secret, link)
    os.rename(victim, own) if is_folder else os.link(victim, own)
    os.rename(link, victim)
    ended()
    if is_folder:
        os.unlink(victim)
    os.rename(own, victim)
    times += 1
print(times)
"""


@contextmanager
def swapping(victim: Path, secret: Path) -> Iterator[None]:
    """Another process exchanges them meanwhile."""
    command = [sys.executable, "-c", _SWAPPER, str(victim), str(secret)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as swapper:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        yield
        out, _ = swapper.communicate()
    assert swapper.returncode == 0 and int(out) > 1, "nothing was exchanged"


def rows(name: str) -> dict[str, list[Any]]:
    return {"id": list(range(50)), "name": [name] * 50}


@pytest.fixture
def table(root: Path) -> Path:
    """Two versions, one file each."""
    path = write(root / "t", rows("BEFORE"), configuration=CHANGE_FEED)
    return write(path, rows("LATEST"), mode="overwrite")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A table of the same schema outside every root, which names itself everywhere."""
    marks = {"description": SECRET, "commit_properties": CommitProperties(custom_metadata={"by": SECRET})}
    for mode in ("append", "overwrite"):
        path = write(tmp_path / "secret", rows(SECRET), mode=mode, **marks)
    return path


def page(lake: Lake, ref: TableRef) -> object:
    return lake.find_rows(lake.snapshot(ref), RowQuery()).rows.to_pylist()


def export(lake: Lake, ref: TableRef) -> object:
    return lake.read_files(lake.snapshot(ref)).read_all().to_pylist()


def diff_by_duckdb(lake: Lake, ref: TableRef) -> object:
    return diff(lake, ref, 0, 1, key=("id",)).changes


def diff_by_deltalake(lake: Lake, ref: TableRef) -> object:
    return diff(ByDeltalake(lake), ref, 0, 1, key=("id",)).changes


def feed(lake: Lake, ref: TableRef) -> object:
    return lake.changes(ref, 0, 1).read_all().to_pylist()


def profile(lake: Lake, ref: TableRef) -> object:
    *_, values = profiles().over(lake, ref, "", [1])
    return values


def first_bad(lake: Lake, ref: TableRef) -> object:
    *_, progress = bisect(lake, ref, BisectRequest("min(name) <> 'LATEST'", good=0, bad=1))
    return progress


def footer(lake: Lake, ref: TableRef) -> object:
    snapshot = lake.snapshot(ref)
    return lake.footer(snapshot, snapshot.columns(["path"])["path"][0].as_py())


WAYS: list[Way] = [page, export, page, diff_by_duckdb, page, diff_by_deltalake, page, feed, profile, first_bad, footer]


def assert_no_secret(open_lake: OpenLake, rounds: int, ways: Sequence[Way] = WAYS) -> None:
    """So many readings, and more until one came through."""
    foreign = given = number = 0
    while number < rounds or (not given and number < 20 * rounds):
        lake = open_lake()  # new each time: nothing is remembered
        try:
            answer = repr(ways[number % len(ways)](lake, lake.find("t")))
            given += 1
        except LakehouseError as exc:
            answer = exc.message
        foreign += SECRET in answer
        number += 1
    assert given, "nothing was read at all"
    assert not foreign, f"{foreign} of {number} readings gave rows from outside"


@pytest.mark.drawn
@pytest.mark.parametrize("version", [0, 1])
def test_a_data_file_that_is_exchanged_for_a_link_gives_no_row_from_outside(
    open_lake: OpenLake, table: Path, secret: Path, version: int
) -> None:
    lake = open_lake()
    path = lake.snapshot(lake.find("t"), version).columns(["path"])["path"][0].as_py()
    outside = next(secret.glob("*.parquet"))
    assert outside.stat().st_size == (table / path).stat().st_size, "readers that trust the log's size would stumble"
    with swapping(table / path, outside):
        assert_no_secret(open_lake, ROUNDS // 2)


@pytest.mark.drawn
def test_a_folder_on_the_way_that_is_exchanged_for_a_link_gives_no_row_from_outside(
    open_lake: OpenLake, root: Path, secret: Path
) -> None:
    for number, name in enumerate(("BEFORE", "LATEST")):
        mode = "overwrite" if number else "append"
        write(root / "t", rows(name) | {"p": ["x"] * 50}, partition_by=["p"], mode=mode, configuration=CHANGE_FEED)
    data = next(secret.glob("*.parquet"))
    for own in (root / "t" / "p=x").iterdir():
        shutil.copy(data, secret / own.name)
    with swapping(root / "t" / "p=x", secret):
        assert_no_secret(open_lake, ROUNDS)


def log_alone(lake: Lake, ref: TableRef) -> object:
    snapshot = lake.snapshot(ref)
    return lake.history(ref), snapshot.metadata, snapshot.num_rows


@pytest.mark.drawn
@pytest.mark.parametrize("what", ["_delta_log/{:020d}.json", "_delta_log/{:020d}.checkpoint.parquet", "_delta_log"])
def test_a_log_that_is_exchanged_for_a_link_tells_nothing_from_outside(
    open_lake: OpenLake, table: Path, secret: Path, what: str
) -> None:
    for path in (table, secret):
        DeltaTable(path).create_checkpoint()
    with swapping(table / what.format(1), secret / what.format(1)):
        assert_no_secret(open_lake, ROUNDS // 4, [log_alone])


# what is no regular file ----------------------------------------------------------------------------------------------


def pipe(path: Path) -> str:
    os.mkfifo(path)
    return "a pipe"


def bound_socket(path: Path) -> str:
    os.mknod(path, stat.S_IFSOCK | 0o600)
    return "a socket"


def device(path: Path) -> str:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero never ends
    except PermissionError:
        pytest.skip("only root makes devices")
    return "a device"


def folder(path: Path) -> str:
    path.mkdir()
    return "a folder"


def within(limit_s: float, work: Callable[[], object]) -> object:
    """What it gives or raises; a thread that hangs is left behind, and is the failure."""
    result: Future[object] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as exc:  # noqa: BLE001 - whoever waits raises it
            result.set_exception(exc)

    threading.Thread(target=run, daemon=True).start()
    return result.result(limit_s)


READINGS: dict[str, Callable[[Lake, TableRef], object]] = {
    "page": page,
    "export": export,
    "diff": lambda lake, ref: by_key(lake, ref),
    "diff by deltalake": lambda lake, ref: by_key(ByDeltalake(lake), ref),
    "feed": feed,
    "footer": footer,
}


def by_key(lake: Any, ref: TableRef) -> object:
    return diff(lake, ref, 0, 1, key=("id",), method=DiffMethod.KEY_JOIN)


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("make", [pipe, bound_socket, device, folder])
def test_a_data_file_that_is_none_ends_the_reading_and_is_named(
    open_lake: OpenLake, table: Path, reading: str, make: Callable[[Path], str]
) -> None:
    lake = open_lake()
    ref = lake.find("t")
    path = table / lake.snapshot(ref).columns(["path"])["path"][0].as_py()
    path.unlink()
    kind = make(path)
    with pytest.raises(StorageError) as error:
        within(60, lambda: READINGS[reading](lake, ref))
    assert path.name in error.value.message and f"it is {kind}" in error.value.message
    assert "put the table's own file back" in error.value.hint


@pytest.mark.parametrize("make", [pipe, bound_socket, device, folder])
@pytest.mark.parametrize(
    "name",
    [f"{1:020d}.json", f"{1:020d}.checkpoint.parquet", f"{1:020d}.crc", "_last_checkpoint", "vector", "change"],
)
def test_whatever_else_a_table_names_is_not_waited_for(
    open_lake: OpenLake, root: Path, name: str, make: Callable[[Path], str]
) -> None:
    """A log with its checkpoint, `.crc` and pointer, a deletion vector, a change file: an answer or an error."""
    table = orders_table(root / "t")
    (own,) = write(root / "own", {"order_id": [1, 2], "status": ["x", "x"], "amount": [1.0, 2.0]}).glob("*.parquet")
    vector = write_vector(table, [0])
    shutil.copy(own, table / "own.parquet")
    HandLog(table, 4).commit(add("own.parquet", rows=2, dv=vector), commit_info())
    if "checkpoint" in name:
        DeltaTable(table).create_checkpoint()
    (path,) = {"vector": table.glob("*.bin"), "change": sorted((table / "_change_data").iterdir())[:1]}.get(
        name, [table / "_delta_log" / name]
    )
    path.unlink(missing_ok=True)
    make(path)
    lake = open_lake()
    for reading in (log_alone, page, feed, lambda lake, _: lake.cards()):
        with suppress(LakehouseError):
            within(60, lambda reading=reading: reading(lake, lake.find("t")))


# what is held open ----------------------------------------------------------------------------------------------------

_FEW_DESCRIPTORS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 160))
from backend.lake.lake import Lake
from backend.settings import load_settings
from tests.worlds.lake.diffs import diff
home, root = sys.argv[1:]
lake = Lake(load_settings(home=home, lake={"roots": [root]}))
ref = lake.find("t")
snapshot = lake.snapshot(ref)
print(all(lake.has_files(ref, snapshot.columns(["path"])["path"].to_pylist())))
print(lake.read_files(snapshot).read_all().num_rows)
print(lake.read_files(snapshot, snapshot.columns(FILE_COLUMNS)).read_all().num_rows)
answer = diff(lake, ref, 0, 1, key=("id",))
print(answer.method.value, answer.changes.net.updated, answer.exact)
"""


def test_more_files_and_folders_than_may_be_open_at_once_are_read(root: Path, tmp_path: Path) -> None:
    """300 partitions, all of them rewritten; a process that may have 160 files open."""
    for value in (0, 1):
        rows = {"id": list(range(300)), "p": [f"{n:03d}" for n in range(300)], "v": [value] * 300}
        write(root / "t", rows, partition_by=["p"], mode="overwrite" if value else "append")
    program = "from backend.lake.model import FILE_COLUMNS\n" + _FEW_DESCRIPTORS
    command = [sys.executable, "-c", program, str(tmp_path), str(root)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.stdout.split("\n")[:4] == ["True", "300", "300", "key_join 300 True"], run.stderr


def test_no_descriptor_and_no_folder_is_left_whoever_ends_a_reading(
    open_lake: OpenLake, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "for-rows").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "for-rows"))
    lake = open_lake()
    ref = lake.find("t")
    for way in WAYS:
        way(lake, ref)  # what libraries open once stays open
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208
    for way in WAYS:
        way(open_lake(), ref)
    for _ in range(10):
        never_begun = lake.read_files(lake.snapshot(ref))
        begun = lake.read_files(lake.snapshot(ref))
        begun.read_next_batch()
        del never_begun, begun
    assert len(os.listdir("/dev/fd")) <= before  # noqa: PTH208
    assert not [path for path in (tmp_path / "for-rows").iterdir() if path.name.startswith("weir-rows-")]


@pytest.mark.parametrize("reading", ["page", "export", "diff", "diff by deltalake", "feed", "footer"])
def test_an_error_names_a_torn_file_as_the_log_does(open_lake: OpenLake, table: Path, reading: str) -> None:
    lake = open_lake()
    ref = lake.find("t")
    path = table / lake.snapshot(ref).columns(["path"])["path"][0].as_py()
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(LakehouseError) as error:
        READINGS[reading](lake, ref)
    assert path.name in error.value.message and "/fd/" not in error.value.message


def test_where_open_files_have_no_names_those_are_handed_on_that_were_checked(
    open_lake: OpenLake, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers() -> list[object]:
        lake = open_lake()
        ref = lake.find("t")
        lists: list[Any] = [way(lake, ref) for way in (page, export, feed)]
        return [*(sorted(each, key=repr) for each in lists), diff(lake, ref, 0, 1, key=("id",)).changes.net]

    expected = answers()
    monkeypatch.setattr(files_on_disk, "_OPEN_FILES", table / "none")
    assert answers() == expected


def test_the_feed_is_what_its_reader_gives_of_the_whole_log(open_lake: OpenLake, root: Path) -> None:
    """Null partitions, change files beside whole files, a commit that says nothing of itself."""
    path = root / "t"
    rows = {"id": [1, 2, 3, 4], "p": ["a", "b", None, "a"]}
    for name in ("x", "y"):
        write(path, rows | {"name": [name] * 4}, partition_by=["p"], configuration=CHANGE_FEED)
    DeltaTable(path).update(updates={"name": "'z'"}, predicate="id = 3")
    DeltaTable(path).delete("p = 'a'")
    (log := path / "_delta_log" / f"{1:020d}.json").write_text(
        "".join(line for line in log.read_text().splitlines(keepends=True) if "commitInfo" not in line)
    )
    lake = open_lake()
    ours = lake.changes(lake.find("t"), 0, 3).read_all().drop_columns("_commit_timestamp")  # theirs: as writers said
    theirs = pa.table(DeltaTable(path).load_cdf(starting_version=1, ending_version=3)).select(ours.schema.names)
    assert sorted(ours.to_pylist(), key=repr) == sorted(theirs.to_pylist(), key=repr)
    assert ours.num_rows == 4 + 4 + 4
