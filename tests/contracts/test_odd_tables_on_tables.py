"""Odd tables, each of a kind of its own: `weir tables --json` gives right numbers or a named reason, never a traceback.

Rule: what a kind must come to is written beside it; where deltalake opens the table, the numbers must be its own.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from app import services
from app.cli import main
from app.cli.output import encoded
from app.cli.tables.lake import SHAPES
from backend.errors import TableNotFoundError
from backend.lake.lake import Lake
from backend.lake.model import TableCard, UnreadableTable
from backend.lake.table.schema import columns
from backend.settings import load_settings
from tests.worlds.lake.builders import (
    HandLog,
    add,
    commit_info,
    deletion_vector,
    first_rows,
    metadata,
    protocol,
    remove,
    write,
)
from tests.worlds.lake.permissions import unreadable

NUMBERS = ("uri", "name", "version", "num_files", "size_bytes", "num_rows", "last_commit_at")
FIRST = f"{0:020d}.json"
HEAD = "".join(json.dumps(action) + "\n" for action in (protocol(), metadata(), commit_info("CREATE TABLE")))
DV = deletion_vector("vBn[lx{q8@P<9BNH/isA", cardinality=2)


@dataclass(frozen=True)
class Reason:
    """The table cannot be read; the reason holds these words."""

    words: str = ""


@dataclass(frozen=True)
class Counts:
    """The table is read."""

    num_files: int
    size_bytes: int
    num_rows: int | None
    version: int = 1


Make = Callable[[Path], object]
KINDS: dict[str, tuple[Make, Reason | Counts]] = {}


def kind(name: str, want: Reason | Counts) -> Callable[[Make], Make]:
    def keep(make: Make) -> Make:
        KINDS[name] = (make, want)
        return make

    return keep


def raw(name: str, want: Reason | Counts, content: str | bytes, file: str = FIRST) -> None:
    """A log of one file with this content."""
    KINDS[name] = (lambda path: HandLog(path).raw(file, content), want)


def second(name: str, want: Reason | Counts, *actions: Any) -> None:
    """A good version 0, and version 1 with these actions (text as it is)."""
    text = "".join(a if isinstance(a, str) else json.dumps(a) + "\n" for a in actions)
    KINDS[name] = (lambda path: HandLog(path).start().raw(f"{1:020d}.json", text), want)


def first(name: str, want: Reason | Counts, *actions: dict[str, Any]) -> None:
    """Version 0 of these actions alone."""
    KINDS[name] = (lambda path: HandLog(path).commit(*actions), want)


def changed(action: dict[str, Any], **values: Any) -> dict[str, Any]:
    """The action with some of its fields replaced; `...` takes one away."""
    ((name, body),) = action.items()
    return {name: {key: value for key, value in (body | values).items() if value is not ...}}


NONE = Counts(0, 0, 0)
ONE = Counts(1, 100, 10)

# the log as files
raw("garbage", Reason(FIRST), "{not json\n")
raw("html", Reason(FIRST), "<html><body>404</body></html>")
raw("binary", Reason(FIRST), bytes(range(256)))
raw("nul_bytes", Reason(FIRST), b"\x00" * 300)
raw("zero_bytes", Reason(), b"")
raw("blank_lines_only", Reason(), "\n\n  \n")
raw("bom", Counts(0, 0, 0, 0), b"\xef\xbb\xbf" + HEAD.encode())
raw("utf16", Reason(FIRST), HEAD.encode("utf-16"))
raw("crlf", Counts(0, 0, 0, 0), HEAD.replace("\n", "\r\n"))
raw("no_newline_at_the_end", Counts(0, 0, 0, 0), HEAD.rstrip("\n"))
raw("blank_lines_between", Counts(0, 0, 0, 0), HEAD.replace("\n", "\n\n"))
raw("truncated", Reason(FIRST), HEAD[:-30])
raw("array_at_top", Reason(FIRST), json.dumps([protocol(), metadata()]))
raw("numbers_at_top", Reason(), "1\n2\n3\n")
raw("deep_nesting", Reason(FIRST), "[" * 100_000)
raw("two_actions_on_a_line", Reason(FIRST), json.dumps(protocol()) + json.dumps(metadata()) + "\n")
raw("unknown_action_only", Reason(), '{"hello": {"world": 1}}\n')
raw("no_commit_name", Reason("log is empty"), HEAD, "0.json")
raw("short_name", Reason("log is empty"), HEAD, "00000000000000000000.jsn")
raw("missing_commit_0", Reason("missing"), HEAD, f"{1:020d}.json")
raw("huge_version", Reason("missing"), HEAD, f"{10**19:020d}.json")
raw("checkpoint_is_garbage", Reason(), b"PAR1 no parquet PAR1", f"{5:020d}.checkpoint.parquet")
raw("checkpoint_is_empty", Reason(), b"", f"{5:020d}.checkpoint.parquet")
raw("last_checkpoint_only", Reason("log is empty"), '{"version":5,"size":1}', "_last_checkpoint")

# protocol and metadata
first("no_protocol", Reason("protocol"), metadata(), add("a"))
first("no_metadata", Reason("metaData"), protocol(), add("a"))
first("commit_info_only", Reason(), commit_info())
first("reader_99", Reason("99"), protocol(99, 99), metadata(), commit_info("CREATE TABLE"))
first("unknown_reader_feature", Reason("fancyFeature"), protocol(3, 7, ["fancyFeature"]), metadata(), commit_info())
first("unknown_writer_feature", Counts(0, 0, 0, 0), protocol(1, 7), metadata())
first(
    "protocol_versions_are_text", Reason(), {"protocol": {"minReaderVersion": "1", "minWriterVersion": "2"}}, metadata()
)
first("protocol_is_text", Reason(), {"protocol": "1/2"}, metadata())
first("protocol_is_null", Reason("protocol"), {"protocol": None}, metadata())
first("negative_protocol", Reason(), protocol(-1, -1), metadata())
first(
    "features_are_a_number",
    Reason(),
    {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": 5}},
    metadata(),
)
first("metadata_is_a_list", Reason(), protocol(), {"metaData": []})
first("schema_garbage", Counts(0, 0, 0, 0), protocol(), changed(metadata(), schemaString="{no schema"))
first("schema_is_a_number", Reason(), protocol(), changed(metadata(), schemaString=5))
first("no_schema", Counts(0, 0, 0, 0), protocol(), changed(metadata(), schemaString=...))
first("schema_null", Counts(0, 0, 0, 0), protocol(), changed(metadata(), schemaString=None))
first(
    "configuration_values_are_numbers",
    Counts(0, 0, 0, 0),
    protocol(),
    changed(metadata(), configuration={"delta.appendOnly": True, "catalog.team_name": 5}),
)
first("configuration_is_a_list", Reason(), protocol(), changed(metadata(), configuration=["a"]))
first("partition_columns_are_text", Counts(0, 0, 0, 0), protocol(), changed(metadata(), partitionColumns="day"))
first("created_in_year_50000", Counts(0, 0, 0, 0), protocol(), changed(metadata(), createdTime=1_500_000_000_000_000))
first("id_missing", Counts(0, 0, 0, 0), protocol(), changed(metadata(), id=...))
first("target_size_banana", Counts(0, 0, 0, 0), protocol(), metadata(configuration={"delta.targetFileSize": "banana"}))

# actions
second("plain", ONE, add("a"))
second("no_trailing_info", ONE, add("a"))
second("empty_commit_1", Reason(), "")
second("half_line", Reason(f"{1:020d}.json"), add("a"), '{"add": {"path": "b", "si')
second("duplicate_keys", Counts(1, 7, 10), json.dumps(add("a")).replace('"size": 100', '"size": 5, "size": 7') + "\n")
second("same_file_twice", ONE, add("a"), add("a"))
# The protocol leaves the order within a commit open; as in Spark the last one counts.
second("add_after_remove", ONE, remove("a"), add("a"))
second("remove_after_add", NONE, add("a"), remove("a"))
second("remove_of_nothing", NONE, remove("never"))
second("size_text", Reason(), add("a", size="100"))  # type: ignore[arg-type]
second("size_float", Reason(), add("a", size=1.5))  # type: ignore[arg-type]
second("size_null", Reason(), changed(add("a"), size=None))
second("size_missing", Reason(), changed(add("a"), size=...))
second("size_negative", Reason(), add("a", size=-5))
second("size_beyond_64_bits", Reason(), add("a", size=2**70))
second("sum_beyond_64_bits", Counts(2, 2**64 - 2, 20), add("a", size=2**63 - 1), add("b", size=2**63 - 1))
second("path_number", Reason(), changed(add("a"), path=5))
second("path_missing", Reason(), changed(add("a"), path=...))
second("path_empty", Reason(), add(""))
second("path_outside", Reason("outside"), add("../../etc/passwd"))
second("add_null", NONE, {"add": None})
second("add_list", Reason(), {"add": [1]})
second("partition_values_list", Reason(), changed(add("a"), partitionValues=["x"]))
second("partition_value_number", ONE, changed(add("a"), partitionValues={"p": 5}))
second("partition_values_missing", ONE, changed(add("a"), partitionValues=...))
second("modified_in_year_50000", ONE, changed(add("a"), modificationTime=1_500_000_000_000_000))
second("modified_text", ONE, changed(add("a"), modificationTime="yesterday"))
second("stats_garbage", Counts(1, 100, None), changed(add("a"), stats="{oops"))
second("stats_number", Counts(1, 100, None), changed(add("a"), stats=5))
second("stats_null_rows", Counts(1, 100, None), changed(add("a"), stats='{"numRecords": null}'))
second("stats_text_rows", Counts(1, 100, None), changed(add("a"), stats='{"numRecords": "10"}'))
second("stats_negative_rows", Counts(1, 100, None), changed(add("a"), stats='{"numRecords": -3}'))
second("stats_missing", Counts(1, 100, None), add("a", rows=None))
second(
    "info_wrong_types", ONE, add("a"), {"commitInfo": {"timestamp": "now", "operation": 5, "operationParameters": 7}}
)
second("info_year_50000", ONE, add("a"), commit_info(timestamp=1_500_000_000_000_000))
second("info_negative_time", ONE, add("a"), commit_info(timestamp=-(10**17)))
second("info_huge_time", ONE, add("a"), commit_info(timestamp=10**40))
second("info_text", ONE, add("a"), {"commitInfo": "WRITE"})
second("unknown_actions", ONE, {"banana": {"x": 1}}, add("a", banana={"y": [1, {}]}))
second("txn_wrong", ONE, {"txn": {"appId": 5, "version": "x"}}, add("a"))
second("domain_wrong", ONE, {"domainMetadata": 5}, add("a"))
second("dv_counts", Counts(1, 100, 8), add("a", dv=DV))
second("dv_wrong_type", Reason(), add("a", dv="xyz"))
second("dv_without_cardinality", Reason(), add("a", dv={"storageType": "u", "pathOrInlineDv": "x"}))


@kind("gap", Reason("missing"))
def _gap(path: Path) -> None:
    HandLog(path).start().commit(add("a"), version=2)


@kind("log_is_a_file", Reason("_delta_log"))
def _log_is_a_file(path: Path) -> None:
    path.mkdir()
    (path / "_delta_log").write_text("no folder")


@kind("log_link_dangles", Reason("_delta_log"))
def _log_link_dangles(path: Path) -> None:
    path.mkdir()
    (path / "_delta_log").symlink_to("nowhere")


@kind("log_link_loops", Reason("_delta_log"))
def _log_link_loops(path: Path) -> None:
    path.mkdir()
    (path / "_delta_log").symlink_to("_delta_log")


@kind("empty_log", Reason("not a Delta table"))
def _empty_log(path: Path) -> None:
    (path / "_delta_log").mkdir(parents=True)


@kind("commit_is_a_folder", Reason())
def _commit_is_a_folder(path: Path) -> None:
    (path / "_delta_log" / FIRST).mkdir(parents=True)


@kind("commit_is_a_pipe", Reason())
def _commit_is_a_pipe(path: Path) -> None:
    os.mkfifo(HandLog(path).log / FIRST)


@kind("commit_link_outside", Reason("outside"))
def _commit_link_outside(path: Path) -> None:
    (HandLog(path).log / FIRST).symlink_to("/etc/hostname")


@kind("nested_table_inside", ONE)
def _nested(path: Path) -> None:
    HandLog(path).start().commit(add("a"))
    HandLog(path / "inner").start().commit(add("b"))


@kind("many_commits_without_info", Counts(30, 3000, 300, 30))
def _many(path: Path) -> None:
    log = HandLog(path).start()
    for number in range(30):
        log.commit(add(f"f{number}"))


@kind("checkpoint_and_cleaned", Counts(2, 200, 20, 3))
def _cleaned(path: Path) -> None:
    log = HandLog(path)
    log.checkpoint(2, [protocol(), metadata(), add("a")]).commit(add("b"), version=3)


@kind("checkpoint_garbage_but_commits", Counts(2, 200, 20, 2))
def _fallback(path: Path) -> None:
    log = HandLog(path).start().commit(add("a")).commit(add("b"))
    log.raw(f"{1:020d}.checkpoint.parquet", b"garbage")


@kind("real", Counts(2, 0, 3))
def _real(path: Path) -> None:
    write(path, {"id": [1, 2]})
    write(path, {"id": [3]})


NAMES = (
    "a b",
    "50%",
    "a%20b",
    "ünï",
    "日本",
    "new\nline",
    "tab\t",
    "[x](y)",
    "*",
    "q?#&",
    "'\"",
    "-rf",
    "x" * 255,
    "a\\b",
)
for odd in NAMES:
    KINDS[odd] = (lambda path: HandLog(path).start().commit(add("a")), ONE)


# deltalake lets the first of two actions on one file in one commit count, or sums beyond 64 bits.
APART = {"add_after_remove", "remove_after_add", "sum_beyond_64_bits", "linked"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("odd") / "lake"
    root.mkdir()
    for name, (make, _) in KINDS.items():
        make(root / name)
    (root / "round").mkdir()
    (root / "round" / "loop").symlink_to(root)
    (root / "linked").symlink_to(root / "plain")
    return root


Rows = dict[str, dict[str, Any]]


def listed(roots: list[Path], capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    patch.setenv("WEIR_HOME", str(roots[0].parent))
    patch.setenv("WEIR_LAKE__ROOTS", json.dumps([str(each) for each in roots]))
    services.forget()
    with pytest.raises(SystemExit) as left:
        main(["tables", "--json"])
    services.forget()
    out, err = capsys.readouterr()
    assert not left.value.code and not err and "Traceback" not in out
    document: list[dict[str, Any]] = json.loads(out)
    return document


@pytest.fixture(scope="module")
def rows(root: Path) -> Rows:
    lake = Lake(load_settings(home=root.parent, lake={"roots": [str(root)]}))
    return {card.ref.name: encoded(card, SHAPES) for card in lake.cards()}


def test_every_odd_table_is_in_the_document_once(root, capsys, monkeypatch, rows):
    found = listed([root], capsys, monkeypatch)
    names = [row["name"] for row in found]
    assert sorted(names) == sorted([*KINDS, "linked"])
    for row in found:
        assert row.keys() >= set(NUMBERS) or (row["reason"] and row["hint"] and row["uri"]), row


@pytest.mark.parametrize("name", KINDS)
def test_an_odd_table_gives_right_numbers_or_a_named_reason(name, rows):
    row, want = rows[name], KINDS[name][1]
    if isinstance(want, Reason):
        assert "reason" in row, row
        assert want.words in row["reason"] and "Weir failed" not in row["reason"], row
    else:
        assert "reason" not in row, row
        assert (row["num_files"], row["num_rows"], row["version"]) == (want.num_files, want.num_rows, want.version)
        assert row["size_bytes"] == want.size_bytes or name == "real"


def test_where_deltalake_opens_a_table_the_numbers_agree(root, rows):
    theirs = {}
    for name, row in rows.items():
        if "reason" in row or name in APART:
            continue
        with contextlib.suppress(Exception):  # it opens fewer of these than Weir does, and fails in many ways
            table = DeltaTable(str(root / name))
            sizes = table.get_add_actions(flatten=True)["size_bytes"].to_pylist()
            theirs[name] = (table.version(), len(sizes), sum(sizes))
    ours = {name: (rows[name]["version"], rows[name]["num_files"], rows[name]["size_bytes"]) for name in theirs}
    assert ours == theirs and len(theirs) > 30


@pytest.mark.parametrize("schema", [..., None])
def test_a_table_whose_schema_is_not_there_yet_is_read_from_its_first_version_on(tmp_path, open_lake, schema):
    write(tmp_path / "lake" / "t", {"id": [1, 2]})
    log = tmp_path / "lake" / "t" / "_delta_log"
    first_write = (log / FIRST).rename(log / f"{1:020d}.json")
    made = next(action for line in first_write.read_text().splitlines() if "metaData" in (action := json.loads(line)))
    bare = (protocol(1, 2), changed(made, schemaString=schema), commit_info("CREATE TABLE"))
    (log / FIRST).write_text("".join(json.dumps(action) + "\n" for action in bare))
    lake = open_lake(tmp_path / "lake")
    ref = lake.find("t")
    before, after = (columns(lake.snapshot(ref, version).metadata) for version in (0, 1))
    assert (before, [(column.path, column.type) for column in after]) == ((), [("id", "bigint")])
    assert first_rows(lake, ref, version=0, limit=5).rows.num_rows == 0
    assert first_rows(lake, ref, limit=5).rows.to_pydict() == {"id": [1, 2]}


@pytest.mark.parametrize("name", ["no_schema", "schema_null"])
def test_a_table_whose_schema_is_not_there_yet_says_that_it_has_no_columns(root, capsys, monkeypatch, name):
    monkeypatch.setenv("WEIR_HOME", str(root.parent))
    monkeypatch.setenv("WEIR_LAKE__ROOTS", json.dumps([str(root)]))
    services.forget()
    with pytest.raises(SystemExit) as left:
        main(["table", name])
    services.forget()
    assert (left.value.code, "No columns yet" in capsys.readouterr().out) == (0, True)


# roots -----------------------------------------------------------------------------------------------------------


def test_the_same_root_twice_lists_a_table_once(tmp_path, capsys, monkeypatch):
    HandLog(tmp_path / "lake" / "t").start()
    found = listed([tmp_path / "lake", Path(f"{tmp_path}/lake/")], capsys, monkeypatch)
    assert [row["name"] for row in found] == ["t"]


def test_one_root_inside_another_lists_a_table_once_under_the_first(tmp_path, capsys, monkeypatch):
    HandLog(tmp_path / "lake" / "silver" / "t").start()
    for roots in (["lake", "lake/silver"], ["lake/silver", "lake"]):
        found = listed([tmp_path / each for each in roots], capsys, monkeypatch)
        assert [row["name"] for row in found] == ["silver/t" if roots[0] == "lake" else "t"]


def test_same_names_under_two_roots_stay_apart_and_the_short_one_says_so(tmp_path, open_lake):
    for name in ("a", "b"):
        HandLog(tmp_path / name / "silver" / "t").start()
    lake = open_lake(tmp_path / "a", tmp_path / "b")
    assert [ref.name for ref in lake.tables()] == [f"{tmp_path}/a/silver/t", f"{tmp_path}/b/silver/t"]
    with pytest.raises(TableNotFoundError, match="several"):  # a link made before the second one came
        lake.find("silver/t")


def test_a_root_that_is_missing_or_may_not_be_read_hides_no_other(tmp_path, capsys, monkeypatch):
    HandLog(tmp_path / "lake" / "t").start()
    found = listed([tmp_path / "lake", tmp_path / "nowhere"], capsys, monkeypatch)
    assert [row["name"] for row in found] == ["t"]


def test_a_folder_without_permission_is_a_reason(tmp_path, capsys, monkeypatch):
    HandLog(tmp_path / "lake" / "open").start()
    HandLog(tmp_path / "lake" / "closed").start()
    with unreadable(tmp_path / "lake" / "closed"):
        found = listed([tmp_path / "lake"], capsys, monkeypatch)
    assert [("reason" in row, row["name"]) for row in found] == [(False, "open"), (True, "closed")]


def test_a_table_that_vanishes_while_it_is_listed_is_a_reason_and_then_gone(tmp_path, open_lake):
    for name in ("goes", "stays"):
        HandLog(tmp_path / "lake" / name).start()
    lake = open_lake()
    refs = lake.tables()
    shutil.rmtree(tmp_path / "lake" / "goes" / "_delta_log")
    found = {table.ref.name: table for table in lake.read_cards(refs)}
    assert isinstance(found["goes"], UnreadableTable) and isinstance(found["stays"], TableCard)
    assert [card.ref.name for card in lake.cards()] == ["stays"]


# cards are kept --------------------------------------------------------------------------------------------------


def test_a_kept_card_notices_a_commit_a_new_table_in_its_place_and_a_mended_one(tmp_path, open_lake):
    log = HandLog(tmp_path / "lake" / "t").start().commit(add("a"))
    bad = HandLog(tmp_path / "lake" / "bad")
    bad.raw(FIRST, HEAD[:-30])
    lake = open_lake()

    def now(name: str) -> Any:
        return next(card for card in lake.cards() if card.ref.name == name)

    assert now("t").num_files == 1 and now("t") is now("t")
    assert isinstance(now("bad"), UnreadableTable)
    log.commit(add("b"))
    bad.raw(FIRST, HEAD)
    assert (now("t").version, now("t").num_files, now("bad").version) == (2, 2, 0)
    shutil.rmtree(tmp_path / "lake" / "t")
    HandLog(tmp_path / "lake" / "t").start(table_id="2").commit(remove("x")).commit(add("c", size=7))
    assert (now("t").version, now("t").size_bytes) == (2, 7)


def test_what_a_history_tells_of_a_table_that_cannot_be_read_is_in_its_row(rows):
    row = rows["unknown_reader_feature"]
    assert row["version"] == 0 and row["last_operation"] == "WRITE"
    assert row["last_commit_at"] == "2023-11-14T22:13:20Z"
