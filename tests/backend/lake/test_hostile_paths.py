"""Whatever a log or a symlink names, also while files are exchanged for links: nothing outside the roots is read."""

import json
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
from backend.errors import LakehouseError, PathRefusedError, StorageError
from backend.lake.lake import Lake
from backend.lake.model import TableRef, UnreadableTable
from backend.lake.rows import log_subset
from backend.lake.rows.rows import RowQuery
from backend.lake.storage.local_folder import LocalFolder
from backend.search.search import BisectRequest, bisect
from backend.sql.numbers import profiles
from tests.worlds.cases import few
from tests.worlds.lake.builders import (
    CHANGE_FEED,
    HandLog,
    add,
    commit_info,
    deletion_vector,
    first_rows,
    metadata,
    orders_table,
    protocol,
    put,
    remove,
    write,
)
from tests.worlds.lake.diff_lakes import ByDeltalake
from tests.worlds.lake.diffs import diff
from tests.worlds.lake.vectors import write_vector

OUTSIDE_FILE = "secret/part.parquet"
ESCAPES = [
    "../../secret/part.parquet",
    "day=1/../../../secret/part.parquet",
    "%2e%2e/%2e%2e/secret/part.parquet",
    "..%2F..%2Fsecret%2Fpart.parquet",
    "%252e%252e/%252e%252e/secret/part.parquet",
    "..\\..\\secret\\part.parquet",
    "/etc/passwd",
    "file:///etc/passwd",
    "file:/etc/passwd",
    "FILE:///etc/passwd",
    "file://localhost/etc/passwd",
    "s3://other-bucket/part.parquet",
    "part.parquet%00/../../x",
]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A real data file outside every root."""
    path = tmp_path / OUTSIDE_FILE
    path.parent.mkdir()
    path.write_bytes(b"PAR1")
    return path


def written(table: Path, path: str, kind: str, where: str) -> None:
    """A table in which an action of this kind names the path."""
    vector = deletion_vector(path, cardinality=1, kind="p")
    log = HandLog(table).start().commit(commit_info())
    action = {
        "add": add(path),
        "remove": remove(path),
        "cdc": {"cdc": add(path)["add"]},
        "vector": add("a", dv=vector),
        "relative vector": add("a", dv=deletion_vector(path + "a" * 20, cardinality=1)),
        "removed vector": remove("a", dv=vector),
        "sidecar": {"sidecar": {"path": path, "sizeInBytes": 1, "modificationTime": 1}},
    }[kind]
    actions = [protocol(), metadata(), action]
    if where == "commit":
        log.commit(action, commit_info())
    elif kind == "sidecar":
        lines = [{"checkpointMetadata": {"version": 1}}, *actions]
        name = f"{1:020d}.checkpoint.00000000-aaaa-aaaa-aaaa-aaaaaaaaaaaa.json"
        log.raw(name, "\n".join(json.dumps(line) for line in lines))
        (log.log / f"{0:020d}.json").unlink()
    elif where in ("json", "parquet"):
        log.v2_checkpoint(1, actions, top=where)
    else:
        log.checkpoint(1, actions, parts=2 if where == "parts" else 1)


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        *((kind, "commit") for kind in ("add", "remove", "cdc", "vector", "removed vector", "relative vector")),
        *(("add", where) for where in ("checkpoint", "parts", "json", "parquet")),
        *(("vector", where) for where in ("checkpoint", "json")),
        ("relative vector", "checkpoint"),
        ("sidecar", "json"),
    ],
)
def test_every_kind_of_path_is_refused_in_every_encoding_wherever_it_stands(root, lake, secret, kind, where):
    paths = [path for path in ESCAPES if path.startswith("../")] if kind == "relative vector" else list(ESCAPES)
    if kind == "sidecar":
        paths += ["../00000000000000000000.json", "sub/../../x.parquet"]
    for number, path in enumerate(paths):
        written(root / f"t{number}", path, kind, where)
    rows = {card.ref.name: card for card in lake.cards()}
    for number, path in enumerate(paths):
        ref = lake.find(f"t{number}")
        with pytest.raises(PathRefusedError) as caught:
            assert lake.snapshot(ref).num_files is None, path
        assert caught.value.hint
        with pytest.raises(PathRefusedError):
            first_rows(lake, ref, limit=1)
        assert isinstance(rows[ref.name], UnreadableTable) and "outside" in rows[ref.name].reason, path
        assert lake.history(ref), "the history opens no data file and stays readable"


def test_odd_paths_that_stay_inside_are_read(root, open_lake):
    paths = ("p=..a/part", "a..b", "...", "p=%252e%252e/part", "p=a%253Ab/part", "http-logs/part", "day=2026 10%3A00")
    HandLog(root / "t").start().commit(*(add(path) for path in paths), commit_info())
    assert open_lake().snapshot(open_lake().find("t")).num_files == len(paths)


def test_a_symlinked_file_is_refused_before_it_is_read(root, open_lake, secret):
    for name, pattern, read in (
        ("data", "*.parquet", lambda lake, ref: first_rows(lake, ref, version=1, limit=9)),
        ("footer", "*.parquet", footer),
        ("change", "_change_data/*.parquet", lambda lake, ref: lake.changes(ref, 1, 3).read_all()),
    ):
        for file in orders_table(root / name).glob(pattern):
            file.rename(secret)
            file.symlink_to(secret)
        lake = open_lake()
        with pytest.raises(PathRefusedError):
            read(lake, lake.find(name))


def test_a_symlinked_log_folder_and_a_symlinked_commit_are_refused(root, lake, tmp_path):
    outside = write(tmp_path / "outside", {"id": [1]})
    (root / "log").mkdir()
    (root / "log" / "_delta_log").symlink_to(outside / "_delta_log")
    (HandLog(root / "commit").start().log / f"{1:020d}.json").symlink_to(outside / "_delta_log" / f"{0:020d}.json")
    reasons = {card.ref.name: card.reason for card in lake.cards()}
    assert "outside every allowed root" in reasons["log"]
    with pytest.raises(PathRefusedError):
        assert lake.snapshot(lake.find("commit")).num_files is None


def test_a_symlinked_table_is_shown_with_its_reason_and_one_inside_the_roots_is_read(root, open_lake, tmp_path):
    (root / "away").symlink_to(write(tmp_path / "outside", {"id": [1]}))
    (root / "near").symlink_to(write(root / "inside", {"id": [1]}))
    (root / "loop").symlink_to(root)
    cards = {card.ref.name: card for card in open_lake().cards()}
    assert set(cards) == {"away", "near", "inside"}
    assert isinstance(cards["away"], UnreadableTable)
    assert cards["near"].num_rows == 1


@pytest.mark.parametrize(
    "uri", ["/etc", "file:///etc", "{root}/../secret", "file://{root}/%2e%2e/secret", "s3://bucket/x", "/a\x00b"]
)
def test_an_address_outside_every_root_is_refused(root, open_lake, secret, uri):
    with pytest.raises(PathRefusedError) as caught:
        open_lake().find(uri.replace("{root}", str(root)))
    assert caught.value.exit_code == 4


# the reader of a folder itself, asked for what no log should ever name ------------------------------------------------


@pytest.fixture
def folder(root):
    (root / "t" / "_delta_log").mkdir(parents=True)
    (root / "t" / "_delta_log" / "0.json").write_bytes(b"{}")
    return LocalFolder(str(root / "t"), [str(root)])


def ways(folder):
    """Every way of reading a file."""
    return (folder.read, folder.stat, folder.open, lambda file: folder.read_many([file]))


@pytest.mark.parametrize("path", ["../../secret", "_delta_log/../../../secret", "../..", "link"])
def test_no_way_of_reading_leads_outside(folder, root, secret, path):
    (root / "t" / "link").symlink_to(secret.parent)
    (root / "t" / "file").symlink_to(secret)
    for ask in ways(folder):
        for file in (f"{path}/part.parquet", "file"):
            with pytest.raises(PathRefusedError):
                ask(file)
    for ask in (folder.list, folder.holds, lambda path: folder.list_after(path, "")):
        with pytest.raises(PathRefusedError):
            ask(path)


def test_a_link_that_appears_after_the_folder_was_opened_is_refused(folder, root, secret):
    assert folder.read("_delta_log/0.json") == b"{}"
    shutil.rmtree(root / "t" / "_delta_log")
    (root / "t" / "_delta_log").symlink_to(secret.parent)
    for ask in ways(folder):
        with pytest.raises(PathRefusedError):
            ask("_delta_log/part.parquet")


def test_a_link_put_in_between_the_check_and_the_opening_is_not_followed(folder, root, secret):
    """The check says that all is well, and then the folder is exchanged."""
    (root / "t" / "link").symlink_to(secret.parent)
    (root / "t" / "file").symlink_to(secret)
    trusting = LocalFolder(folder.uri, [str(root)], follow=lambda path: path)
    for ask in (trusting.read, trusting.open, trusting.stat):
        for path in ("link/part.parquet", "file"):
            with suppress(StorageError):
                assert ask(path) is None


def test_links_that_stay_inside_are_followed(folder, root):
    (root / "t" / "near").symlink_to(root / "t" / "_delta_log")
    (root / "t" / "one.json").symlink_to("_delta_log/0.json")
    assert folder.read("near/0.json") == folder.read("one.json") == folder.open("one.json").read() == b"{}"
    assert [content.data for content in folder.read_many(["one.json", "near/0.json"])] == [b"{}", b"{}"]
    assert folder.stat("one.json").size_bytes == 2
    assert [entry.name for entry in folder.list_after("near", "")] == ["0.json"]


def test_a_table_behind_a_link_follows_it_when_it_is_set_anew(root):
    for name in ("old", "new"):
        (root / name).mkdir()
        (root / name / "a").write_text(name)
    (root / "t").symlink_to("old")
    folder = LocalFolder(str(root / "t"), [str(root)])
    assert folder.read("a") == b"old"
    (root / "t").unlink()
    (root / "t").symlink_to("new")
    assert folder.read("a") == b"new"


def test_a_name_that_ends_like_a_folder_is_that_file_or_no_file(folder, root):
    os.mkfifo(root / "t" / "pipe")
    for name in ("_delta_log/0.json/", "pipe/", "_delta_log/", "/", "", "."):
        for ask in (folder.read, folder.open, folder.descriptor):
            with pytest.raises(StorageError):
                ask(name)


# files that are exchanged ---------------------------------------------------------------------------------------------

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
def secret_table(tmp_path: Path) -> Path:
    """A table of the same schema outside every root, which names itself everywhere."""
    marks = {"description": SECRET, "commit_properties": CommitProperties(custom_metadata={"by": SECRET})}
    for mode in ("append", "overwrite"):
        path = write(tmp_path / "secret", rows(SECRET), mode=mode, **marks)
    return path


def footer(lake: Lake, ref: TableRef) -> object:
    snapshot = lake.snapshot(ref)
    return lake.footer(snapshot, snapshot.columns(["path"])["path"][0].as_py())


def by_key(lake: Any, ref: TableRef, **options: Any) -> object:
    return diff(lake, ref, 0, 1, key=("id",), **options).changes


def first_bad(lake: Lake, ref: TableRef) -> object:
    return list(bisect(lake, ref, BisectRequest("min(name) <> 'LATEST'", good=0, bad=1)))[-1]


def log_alone(lake: Lake, ref: TableRef) -> object:
    snapshot = lake.snapshot(ref)
    return lake.history(ref), snapshot.metadata, snapshot.num_rows


JOIN = {"method": DiffMethod.KEY_JOIN}
READINGS: dict[str, Way] = {
    "page": lambda lake, ref: lake.find_rows(lake.snapshot(ref), RowQuery()).rows.to_pylist(),
    "export": lambda lake, ref: lake.read_files(lake.snapshot(ref)).read_all().to_pylist(),
    "diff": lambda lake, ref: by_key(lake, ref, **JOIN),
    "diff by deltalake": lambda lake, ref: by_key(ByDeltalake(lake), ref, **JOIN),
    "feed": lambda lake, ref: lake.changes(ref, 0, 1).read_all().to_pylist(),
    "footer": footer,
}
page, export, feed = (READINGS[name] for name in ("page", "export", "feed"))
diffs: list[Way] = [by_key, lambda lake, ref: by_key(ByDeltalake(lake), ref)]
profile: Way = lambda lake, ref: list(profiles().over(lake, ref, "", [1]))[-1]  # noqa: E731
WAYS: list[Way] = [page, export, page, diffs[0], page, diffs[1], page, feed, profile, first_bad, footer]


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
@pytest.mark.parametrize("version", few(1, [0, 1]))
def test_a_data_file_that_is_exchanged_for_a_link_gives_no_row_from_outside(open_lake, table, secret_table, version):
    lake = open_lake()
    path = lake.snapshot(lake.find("t"), version).columns(["path"])["path"][0].as_py()
    outside = next(secret_table.glob("*.parquet"))
    assert outside.stat().st_size == (table / path).stat().st_size, "readers that trust the log's size would stumble"
    with swapping(table / path, outside):
        assert_no_secret(open_lake, ROUNDS // 2)


@pytest.mark.ci
@pytest.mark.drawn
def test_a_folder_on_the_way_that_is_exchanged_for_a_link_gives_no_row_from_outside(open_lake, root, secret_table):
    for number, name in enumerate(("BEFORE", "LATEST")):
        mode = "overwrite" if number else "append"
        write(root / "t", rows(name) | {"p": ["x"] * 50}, partition_by=["p"], mode=mode, configuration=CHANGE_FEED)
    data = next(secret_table.glob("*.parquet"))
    for own in (root / "t" / "p=x").iterdir():
        shutil.copy(data, secret_table / own.name)
    with swapping(root / "t" / "p=x", secret_table):
        assert_no_secret(open_lake, ROUNDS)


@pytest.mark.drawn
@pytest.mark.parametrize("what", ["_delta_log/{:020d}.json", "_delta_log/{:020d}.checkpoint.parquet", "_delta_log"])
def test_a_log_that_is_exchanged_for_a_link_tells_nothing_from_outside(open_lake, table, secret_table, what):
    for path in (table, secret_table):
        DeltaTable(path).create_checkpoint()
    with swapping(table / what.format(1), secret_table / what.format(1)):
        assert_no_secret(open_lake, ROUNDS // 4, [log_alone])


# what is no regular file ----------------------------------------------------------------------------------------------


ODD_FILES: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
    "a device": lambda path: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5)),  # /dev/zero never ends
    "a folder": Path.mkdir,
}


def make(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    try:
        ODD_FILES[kind](path)
    except PermissionError:
        pytest.skip("only root makes devices")


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


@pytest.mark.parametrize("kind", ODD_FILES)
def test_a_data_file_that_is_none_ends_the_reading_and_is_named(lake, table, kind):
    ref = lake.find("t")
    path = table / lake.snapshot(ref).columns(["path"])["path"][0].as_py()
    make(path, kind)
    for name, reading in READINGS.items():
        with pytest.raises(StorageError) as error:
            within(60, lambda reading=reading: reading(lake, ref))
        assert path.name in error.value.message and f"it is {kind}" in error.value.message, name
        assert "put the table's own file back" in error.value.hint


@pytest.mark.parametrize("kind", ODD_FILES)
@pytest.mark.parametrize(
    "name",
    [f"{1:020d}.json", f"{1:020d}.checkpoint.parquet", f"{1:020d}.crc", "_last_checkpoint", "vector", "change"],
)
def test_whatever_else_a_table_names_is_not_waited_for(lake, root, name, kind):
    """A log with its checkpoint, `.crc` and pointer, a deletion vector, a change file: an answer or an error."""
    table = orders_table(root / "t")
    own = put(table, "own.parquet", {"order_id": [1, 2], "status": ["x", "x"], "amount": [1.0, 2.0]})
    own["add"]["deletionVector"] = write_vector(table, [0])
    HandLog(table, 4).commit(own, commit_info())
    if "checkpoint" in name:
        DeltaTable(table).create_checkpoint()
    (path,) = {"vector": table.glob("*.bin"), "change": sorted((table / "_change_data").iterdir())[:1]}.get(
        name, [table / "_delta_log" / name]
    )
    make(path, kind)
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


def test_more_files_and_folders_than_may_be_open_at_once_are_read(root, tmp_path):
    """300 partitions, all of them rewritten; a process that may have 160 files open."""
    for value in (0, 1):
        rows = {"id": list(range(300)), "p": [f"{n:03d}" for n in range(300)], "v": [value] * 300}
        write(root / "t", rows, partition_by=["p"], mode="overwrite" if value else "append")
    program = "from backend.lake.model import FILE_COLUMNS\n" + _FEW_DESCRIPTORS
    command = [sys.executable, "-c", program, str(tmp_path), str(root)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.stdout.split("\n")[:4] == ["True", "300", "300", "key_join 300 True"], run.stderr


def test_no_descriptor_and_no_folder_is_left_whoever_ends_a_reading(open_lake, table, tmp_path, monkeypatch):
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


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 1_000, None], ids=["empty", "cut off", "other", "gone"])
def test_an_error_names_a_torn_or_missing_file_as_the_log_does(lake, table, content):
    ref = lake.find("t")
    path = table / lake.snapshot(ref).columns(["path"])["path"][0].as_py()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    for name, reading in READINGS.items():
        with pytest.raises(LakehouseError) as error:
            reading(lake, ref)
        assert path.name in error.value.message and "/fd/" not in error.value.message, name


def test_where_open_files_have_no_names_those_are_handed_on_that_were_checked(open_lake, table, monkeypatch):
    def answers() -> list[object]:
        lake = open_lake()
        ref = lake.find("t")
        lists: list[Any] = [way(lake, ref) for way in (page, export, feed)]
        return [*(sorted(each, key=repr) for each in lists), diff(lake, ref, 0, 1, key=("id",)).changes.net]

    expected = answers()
    monkeypatch.setattr(log_subset, "_OPEN_FILES", table / "none")
    assert answers() == expected


def test_the_feed_is_what_its_reader_gives_of_the_whole_log(lake, root):
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
    ours = lake.changes(lake.find("t"), 0, 3).read_all().drop_columns("_commit_timestamp")  # theirs: as writers said
    theirs = pa.table(DeltaTable(path).load_cdf(starting_version=1, ending_version=3)).select(ours.schema.names)
    assert sorted(ours.to_pylist(), key=repr) == sorted(theirs.to_pylist(), key=repr)
    assert ours.num_rows == 4 + 4 + 4
