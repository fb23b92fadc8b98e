"""Whatever a log or a symlink names, nothing outside the table and the roots is read, and the error says so."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from backend.errors import PathRefusedError, StorageError, TableError
from backend.lake.model import UnreadableTable
from backend.lake.storage.local_folder import LocalFolder
from tests.worlds.lake.builders import (
    HandLog,
    add,
    commit_info,
    deletion_vector,
    first_rows,
    metadata,
    orders_table,
    protocol,
    remove,
    write,
)

SECRET = "secret/part.parquet"
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
    path = tmp_path / SECRET
    path.parent.mkdir()
    path.write_bytes(b"PAR1")
    return path


def refused(lake, name: str) -> None:
    ref = lake.find(name)
    with pytest.raises(PathRefusedError) as caught:
        assert lake.snapshot(ref).num_files is None
    assert caught.value.hint
    with pytest.raises(PathRefusedError):
        first_rows(lake, ref, limit=1)
    (row,) = [card for card in lake.cards() if card.ref.name == name]
    assert isinstance(row, UnreadableTable)
    assert "outside" in row.reason
    assert lake.history(ref), "the history opens no data file and stays readable"


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.parametrize("kind", ["add", "remove", "cdc"])
def test_an_action_that_names_a_place_outside_is_refused(root, open_lake, secret, path, kind):
    action = {"add": add(path), "remove": remove(path), "cdc": {"cdc": add(path)["add"]}}[kind]
    HandLog(root / "t").start().commit(action, commit_info())
    refused(open_lake(), "t")


@pytest.mark.parametrize("path", ESCAPES)
def test_a_checkpoint_that_names_a_place_outside_is_refused(root, open_lake, secret, path):
    log = HandLog(root / "t").start().commit(commit_info())
    log.checkpoint(1, [protocol(), metadata(), add(path)])
    refused(open_lake(), "t")


@pytest.mark.parametrize(
    ("kind", "text"),
    [("p", "file:///etc/passwd"), ("p", "/etc/passwd"), ("p", "s3://x/y"), ("u", "../../secret/" + "a" * 20)],
)
@pytest.mark.parametrize("where", ["commit", "checkpoint"])
def test_a_deletion_vector_outside_is_refused(root, open_lake, secret, kind, text, where):
    action = add("a", dv=deletion_vector(text, cardinality=1, kind=kind))
    log = HandLog(root / "t").start()
    if where == "commit":
        log.commit(action, commit_info())
    else:
        log.commit(commit_info()).checkpoint(1, [protocol(), metadata(), action])
    refused(open_lake(), "t")


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.parametrize(
    ("kind", "where"),
    [("add", "parts"), ("add", "json"), ("add", "parquet"), ("vector", "commit"), ("vector", "checkpoint"),
     ("vector", "json"), ("removed vector", "commit")],
)  # fmt: skip
def test_every_kind_of_path_is_refused_in_every_encoding_wherever_it_stands(root, open_lake, secret, path, kind, where):
    vector = deletion_vector(path, cardinality=1, kind="p")
    action = {"add": add(path), "vector": add("a", dv=vector), "removed vector": remove("a", dv=vector)}[kind]
    log = HandLog(root / "t").start().commit(commit_info())
    actions = [protocol(), metadata(), action]
    if where == "commit":
        log.commit(action, commit_info())
    elif where in ("json", "parquet"):
        log.v2_checkpoint(1, actions, top=where)
    else:
        log.checkpoint(1, actions, parts=2 if where == "parts" else 1)
    refused(open_lake(), "t")


@pytest.mark.parametrize("path", [*ESCAPES, "../00000000000000000000.json", "sub/../../x.parquet"])
def test_a_sidecar_outside_the_sidecar_folder_is_refused(root, open_lake, secret, path):
    log = HandLog(root / "t")
    log.raw(
        f"{0:020d}.checkpoint.00000000-aaaa-aaaa-aaaa-aaaaaaaaaaaa.json",
        "\n".join(
            __import__("json").dumps(action)
            for action in (
                {"checkpointMetadata": {"version": 0}},
                protocol(),
                metadata(),
                {"sidecar": {"path": path, "sizeInBytes": 1, "modificationTime": 1}},
            )
        ),
    )
    log.commit(commit_info(), version=1)
    refused(open_lake(), "t")


@pytest.mark.parametrize(
    "path",
    ["p=..a/part", "a..b", "...", "p=%252e%252e/part", "p=a%253Ab/part", "http-logs/part", "day=2026-01-01 10%3A00"],
)
def test_an_odd_path_that_stays_inside_is_read(root, open_lake, path):
    HandLog(root / "t").start().commit(add(path), commit_info())
    lake = open_lake()
    assert lake.snapshot(lake.find("t")).num_files == 1


def test_a_file_of_another_allowed_table_is_allowed(root, open_lake):
    """Shallow clones name the files of the table that they were cloned from."""
    other = write(root / "other", {"id": [1, 2]})
    (data,) = other.glob("*.parquet")
    HandLog(root / "t").start().commit(add(str(data), rows=2), commit_info())
    lake = open_lake()
    assert lake.snapshot(lake.find("t")).num_rows == 2


def test_a_symlinked_data_file_is_refused_before_it_is_read(root, open_lake, secret):
    path = write(root / "t", {"id": [1]})
    (data,) = path.glob("*.parquet")
    data.rename(secret)
    data.symlink_to(secret)
    lake = open_lake()
    with pytest.raises(PathRefusedError):
        first_rows(lake, lake.find("t"), limit=1)


def test_a_symlinked_change_file_is_refused_before_it_is_read(root, open_lake, secret):
    path = orders_table(root / "t")
    data = next((path / "_change_data").glob("*.parquet"))
    data.rename(secret)
    data.symlink_to(secret)
    lake = open_lake()
    with pytest.raises(PathRefusedError):
        lake.changes(lake.find("t"), 1, 3).read_all()


def test_a_symlinked_log_folder_is_refused(root, open_lake, tmp_path):
    outside = write(tmp_path / "outside", {"id": [1]})
    (root / "t").mkdir()
    (root / "t" / "_delta_log").symlink_to(outside / "_delta_log")
    (card,) = open_lake().cards()
    assert isinstance(card, UnreadableTable)
    assert "outside every allowed root" in card.reason


def test_a_symlinked_commit_is_refused(root, open_lake, tmp_path):
    outside = write(tmp_path / "outside", {"id": [1]})
    log = HandLog(root / "t").start()
    (log.log / f"{1:020d}.json").symlink_to(outside / "_delta_log" / f"{0:020d}.json")
    lake = open_lake()
    with pytest.raises(PathRefusedError):
        assert lake.snapshot(lake.find("t")).num_files is None


def test_a_symlinked_table_is_shown_with_its_reason_and_one_inside_the_roots_is_read(root, open_lake, tmp_path):
    outside = write(tmp_path / "outside", {"id": [1]})
    inside = write(root / "inside", {"id": [1]})
    (root / "away").symlink_to(outside)
    (root / "near").symlink_to(inside)
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


class TestFolder:
    """The reader of a folder itself, asked for what no log should ever name."""

    @pytest.fixture
    def folder(self, root):
        (root / "t" / "_delta_log").mkdir(parents=True)
        (root / "t" / "_delta_log" / "0.json").write_bytes(b"{}")
        return LocalFolder(str(root / "t"), [str(root)])

    @pytest.mark.parametrize("path", ["../../secret", "_delta_log/../../../secret", "../..", "link"])
    def test_no_way_of_reading_leads_outside(self, folder, root, secret, path):
        (root / "t" / "link").symlink_to(secret.parent)
        file = f"{path}/part.parquet"
        for ask in (folder.read, folder.stat, folder.open, lambda file: folder.read_many([file])):
            with pytest.raises(PathRefusedError):
                ask(file)
        for ask in (folder.list, folder.holds, lambda path: folder.list_after(path, "")):
            with pytest.raises(PathRefusedError):
                ask(path)

    def test_a_link_that_appears_after_the_folder_was_opened_is_refused(self, folder, root, secret):
        assert folder.read("_delta_log/0.json") == b"{}"
        (root / "t" / "_delta_log" / "0.json").unlink()
        (root / "t" / "_delta_log").rmdir()
        (root / "t" / "_delta_log").symlink_to(secret.parent)
        for ask in (folder.read, folder.stat, folder.open):
            with pytest.raises(PathRefusedError):
                ask("_delta_log/part.parquet")
        with pytest.raises(PathRefusedError):
            folder.read_many(["_delta_log/part.parquet"])

    def test_a_file_that_is_a_link_to_outside_is_refused(self, folder, root, secret):
        (root / "t" / "link").symlink_to(secret)
        for ask in (folder.read, folder.stat, folder.open, lambda path: folder.read_many([path])):
            with pytest.raises(PathRefusedError):
                ask("link")

    def test_a_link_put_in_between_the_check_and_the_opening_is_not_followed(self, folder, root, secret):
        """The check says that all is well, and then the folder is exchanged."""
        (root / "t" / "link").symlink_to(secret.parent)
        (root / "t" / "file").symlink_to(secret)
        trusting = LocalFolder(folder.uri, [str(root)], follow=lambda path: path)
        for ask in (trusting.read, trusting.open, trusting.stat):
            for path in ("link/part.parquet", "file"):
                with suppress(StorageError):
                    assert ask(path) is None

    def test_links_that_stay_inside_are_followed(self, folder, root):
        (root / "t" / "near").symlink_to(root / "t" / "_delta_log")
        (root / "t" / "one.json").symlink_to("_delta_log/0.json")
        assert folder.read("near/0.json") == folder.read("one.json") == folder.open("one.json").read() == b"{}"
        assert [content.data for content in folder.read_many(["one.json", "near/0.json"])] == [b"{}", b"{}"]
        assert folder.stat("one.json").size_bytes == 2
        assert [entry.name for entry in folder.list_after("near", "")] == ["0.json"]

    def test_a_table_behind_a_link_follows_it_when_it_is_set_anew(self, root):
        for name in ("old", "new"):
            (root / name).mkdir()
            (root / name / "a").write_text(name)
        (root / "t").symlink_to("old")
        folder = LocalFolder(str(root / "t"), [str(root)])
        assert folder.read("a") == b"old"
        (root / "t").unlink()
        (root / "t").symlink_to("new")
        assert folder.read("a") == b"new"

    def test_a_pipe_a_loop_and_a_folder_are_errors_and_not_waited_for(self, folder, root):
        os.mkfifo(root / "t" / "pipe")
        (root / "t" / "loop").symlink_to("loop")
        for name in ("pipe", "loop", "_delta_log"):
            for ask in (folder.read, folder.open):
                with pytest.raises(StorageError):
                    ask(name)
        assert all(isinstance(content, StorageError) for content in folder.read_many(["pipe", "loop", "_delta_log"]))

    def test_a_name_that_ends_like_a_folder_is_that_file_or_no_file(self, folder, root):
        os.mkfifo(root / "t" / "pipe")
        for name in ("_delta_log/0.json/", "pipe/", "_delta_log/", "/", "", "."):
            for ask in (folder.read, folder.open, folder.descriptor):
                with pytest.raises(StorageError):
                    ask(name)

    def test_no_descriptor_is_left_open(self, folder):
        before = len(os.listdir("/dev/fd"))  # noqa: PTH208
        for _ in range(20):
            folder.read_many(["_delta_log/0.json", "none", "_delta_log"])
            folder.list_after("_delta_log", "")
            folder.open("_delta_log/0.json").close()
            assert folder.stat("none/none") is None
        assert len(os.listdir("/dev/fd")) == before  # noqa: PTH208


def test_refusals_are_table_errors():
    assert issubclass(PathRefusedError, TableError)
