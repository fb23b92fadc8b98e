"""Odd tables, each of a kind of its own, by name: what is made, and what its card must say.

Rule: `odd_lake` builds all of them once a session, below one root; tests read them alone.
"""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.lake.builders import (
    HandLog,
    add,
    commit_info,
    deletion_vector,
    metadata,
    orders_table,
    protocol,
    remove,
    write,
)


@dataclass(frozen=True)
class Reason:
    """The table cannot be read; the reason holds these words."""

    words: str = ""


@dataclass(frozen=True)
class Counts:
    """The table is read."""

    num_files: int
    size_bytes: int | None  # None: as the writer makes it
    num_rows: int | None
    version: int = 1


Make = Callable[[Path], object]
KINDS: dict[str, tuple[Make, Reason | Counts | None]] = {}  # None: a reason or any numbers
SECOND_COMMITS: list[str] = []  # kinds with a good version 0
FIRST, SECOND = f"{0:020d}.json", f"{1:020d}.json"
HEAD = "".join(json.dumps(action) + "\n" for action in (protocol(), metadata(), commit_info("CREATE TABLE")))
DV = deletion_vector("vBn[lx{q8@P<9BNH/isA", cardinality=2)
INLINE = "ab^-aqEH.-t@S}K{vb[*"
OUTSIDE = "../../secret.parquet"
NONE, ONE, EMPTY = Counts(0, 0, 0), Counts(1, 100, 10), Counts(0, 0, 0, 0)
UNKNOWN_ROWS = Counts(1, 100, None)


def kind(want: Reason | Counts | None = None, name: str = "") -> Callable[[Make], Make]:
    def keep(make: Make) -> Make:
        KINDS[name or make.__name__] = (make, want)
        return make

    return keep


def numbered(name: str, make: Callable[..., None], want: Reason | Counts | None, contents: Sequence[Any]) -> None:
    """Tables of one kind, which differ in a value alone."""
    for number, content in enumerate(contents):
        make(f"{name}_{number}", want, content)


def raw(name: str, want: Reason | Counts, content: str | bytes, file: str = FIRST) -> None:
    """A log of one file with this content."""
    KINDS[name] = (lambda path: HandLog(path).raw(file, content), want)


def first(name: str, want: Reason | Counts | None, *actions: dict[str, Any]) -> None:
    """Version 0 of these actions alone."""
    KINDS[name] = (lambda path: HandLog(path).commit(*actions), want)


def described(name: str, want: Reason | Counts | None, **fields: Any) -> None:
    """Version 0 whose metaData has these fields."""
    first(name, want, protocol(), changed(metadata(), **fields))


def second(name: str, want: Reason | Counts | None, *actions: Any, **columns: Any) -> None:
    """A good version 0, and version 1 with these actions (bytes and text as they are)."""
    lines = (a if isinstance(a, bytes) else a.encode() if isinstance(a, str) else line(a) for a in actions)
    content = b"".join(lines)
    KINDS[name] = (lambda path: HandLog(path).start(**columns).raw(SECOND, content), want)
    SECOND_COMMITS.append(name)


def line(action: dict[str, Any]) -> bytes:
    return json.dumps(action).encode() + b"\n"


def beside(name: str, file: str, content: str | bytes) -> None:
    """A good table of two versions with one more file in its log."""
    KINDS[name] = (lambda path: good(path).raw(file, content), None)


def good(path: Path) -> HandLog:
    return HandLog(path).start().commit(add("a"), commit_info())


def changed(action: dict[str, Any], **values: Any) -> dict[str, Any]:
    """The action with some of its fields replaced; `...` takes one away."""
    ((name, body),) = action.items()
    return {name: {key: value for key, value in (body | values).items() if value is not ...}}


# the log as files
GARBAGE = ("{not json\n", "<html><body>404</body></html>", bytes(range(256)), b"\x00" * 300, HEAD.encode("utf-16"))
TORN = (HEAD[:-30], json.dumps([protocol(), metadata()]), "[" * 100_000, HEAD.replace("\n", "", 1))
numbered("garbage", raw, Reason(FIRST), [*GARBAGE, *TORN])
numbered("nothing", raw, Reason(), (b"", "\n\n  \n", "1\n2\n3\n", '{"hello": {"world": 1}}\n'))
WRITTEN_ODDLY = ("\ufeff" + HEAD, HEAD.replace("\n", "\r\n"), HEAD.replace("\n", "\n\n"), HEAD.rstrip("\n"))
numbered("written_oddly", raw, EMPTY, WRITTEN_ODDLY)
raw("no_commit_name", Reason("log is empty"), HEAD, "0.json")
raw("short_name", Reason("log is empty"), HEAD, "00000000000000000000.jsn")
raw("missing_commit_0", Reason("missing"), HEAD, SECOND)
raw("huge_version", Reason("missing"), HEAD, f"{10**19:020d}.json")
raw("checkpoint_is_garbage", Reason(), b"PAR1 no parquet PAR1", f"{5:020d}.checkpoint.parquet")
raw("checkpoint_is_empty", Reason(), b"", f"{5:020d}.checkpoint.parquet")
raw("last_checkpoint_only", Reason("log is empty"), '{"version":5,"size":1}', "_last_checkpoint")

# protocol and metadata
FEATURES_5 = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": 5}
first("no_protocol", Reason("protocol"), metadata(), add("a"))
first("no_metadata", Reason("metaData"), protocol(), add("a"))
first("commit_info_only", Reason(), commit_info())
first("reader_99", Reason("99"), protocol(99, 99), metadata(), commit_info("CREATE TABLE"))
first("unknown_reader_feature", Reason("fancyFeature"), protocol(3, 7, ["fancyFeature"]), metadata(), commit_info())
first("unknown_writer_feature", EMPTY, protocol(1, 7), metadata())
TEXT_VERSIONS = {"minReaderVersion": "1", "minWriterVersion": "2"}
ODD_PROTOCOLS = ("1/2", None, FEATURES_5, TEXT_VERSIONS, *protocol(-1, -1).values())
numbered("protocol", lambda name, want, odd: first(name, want, {"protocol": odd}, metadata()), Reason(), ODD_PROTOCOLS)
first("metadata_is_a_list", Reason(), protocol(), {"metaData": []})
described("schema_garbage", EMPTY, schemaString="{no schema")
described("schema_is_a_number", Reason(), schemaString=5)
described("no_schema", EMPTY, schemaString=...)
described("schema_null", EMPTY, schemaString=None)
described("configuration_of_numbers", EMPTY, configuration={"delta.appendOnly": True, "catalog.team_name": 5})
described("configuration_is_a_list", Reason(), configuration=["a"])
described("partition_columns_are_text", EMPTY, partitionColumns="day")
described("created_in_year_50000", EMPTY, createdTime=1_500_000_000_000_000)
described("id_missing", EMPTY, id=...)
described("target_size_banana", EMPTY, configuration={"delta.targetFileSize": "banana"})
ARRAYS = '{"type":"array","elementType":' * 900
FIELDS = (
    "[null]", "[{}]", '[{"name":null,"type":null}]', '{"a":"long"}',
    '[{"name":"a","type":{"type":"array"},"metadata":[1]}]',
    '[{"name":"a","type":"long"},{"name":"a","type":"decimal(99,99)"}]',
    *('[{"name":"a","type":' + ARRAYS + '"long"' + "}" * 900 + end for end in ("}}", "}]}")),
)  # fmt: skip
SCHEMAS = ("", "null", "[]", "5", "{}", *(f'{{"type":"struct","fields":{columns}}}' for columns in FIELDS))
numbered("schema", lambda name, want, odd: described(name, want, schemaString=odd), None, SCHEMAS)
RETENTIONS = ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration")
DURATIONS = ("interval 9999999999 days", "interval -1 day", "P7D", "", "interval nan days")
CONFIGURATIONS = [dict.fromkeys(RETENTIONS, duration) for duration in DURATIONS]
numbered("retention", lambda name, want, odd: described(name, want, configuration=odd), None, CONFIGURATIONS)

# actions
DAY = {"columns": {"id": "long", "p": "date"}, "partition_by": ("p",)}
second("plain", ONE, add("a"))
second("empty_commit", NONE, b"")
DEEP = b'{"a":' * 5000 + b"1" + b"}" * 5000
BAD_COMMITS = (b"\n \n", b"\x00\x01\x02garbage", b"[1,2]", b'{"add":{"path":"\xff\xfe","size":1}}', DEEP)
OF_WRONG_TYPES = ({"metaData": {"id": "x", "schemaString": 1}}, {"protocol": TEXT_VERSIONS}, {"add": [1]})
numbered("bad_commit", second, Reason(), [*BAD_COMMITS, *OF_WRONG_TYPES])
second("half_line", Reason(SECOND), add("a"), '{"add": {"path": "b", "si')
second("garbage_at_the_end", Reason(), add("a"), "}}}")
second("duplicate_keys", Counts(1, 7, 10), json.dumps(add("a")).replace('"size": 100', '"size": 5, "size": 7') + "\n")
second("same_file_twice", ONE, add("a"), add("a"))
# The protocol leaves the order within a commit open; as in Spark the last one counts.
second("add_after_remove", ONE, remove("a"), add("a"))
second("remove_after_add", NONE, add("a"), remove("a"))
second("remove_of_nothing", NONE, remove("never"))
SIZES = [{"size": size} for size in ("100", 1.5, None, ..., -5, 2**70)]
PATHS = [{"path": path} for path in (5, ..., "")]
VECTORS = [{"deletionVector": vector} for vector in ("xyz", {"storageType": "u", "pathOrInlineDv": "x"})]
REFUSED = [*SIZES, *PATHS, *VECTORS, {"partitionValues": ["x"]}]
numbered("add", lambda name, want, odd: second(name, want, changed(add("a"), **odd)), Reason(), REFUSED)
TAKEN = [{"partitionValues": values} for values in ({"p": 5}, ...)]
TAKEN += [{"modificationTime": time} for time in (1_500_000_000_000_000, "yesterday")]
numbered("odd_add", lambda name, want, odd: second(name, want, changed(add("a"), **odd)), ONE, TAKEN)
second("size_in_exponents", None, '{"add":{"path":"a","partitionValues":{},"size":1e3,"modificationTime":1e12}}\n')
second("sum_beyond_64_bits", Counts(2, 2**64 - 2, 20), add("a", size=2**63 - 1), add("b", size=2**63 - 1))
second("outside_add", Reason("outside"), add(OUTSIDE))
second("outside_vector", Reason("outside"), add("a", dv=deletion_vector("file:///etc/passwd", cardinality=1, kind="p")))
second("add_null", NONE, {"add": None})
second("partition_value_missing", None, add("a"), add("b", partitionValues={"zzz": "y"}), **DAY)
second("partition_value_no_date", None, add("a", partitionValues={"p": "99999-99-99"}), **DAY)
second("partition_key_unknown", None, add("a", partitionValues={"q": "x\n/=%"}), partition_by=("q", "q"))
second("unknown_actions", ONE, {"banana": {"x": 1}}, add("a", banana={"y": [1, {}]}))
second("txn_wrong", ONE, {"txn": {"appId": 5, "version": "x"}}, add("a"))
second("domain_wrong", ONE, {"domainMetadata": 5}, add("a"))
CLUSTERED_BY_5 = {"domain": "delta.clustering", "configuration": '{"clusteringColumns":5}'}
second("domain_of_garbage", None, {"domainMetadata": CLUSTERED_BY_5})
second("sidecar_in_a_commit", None, {"sidecar": {"path": "x"}}, {"checkpointMetadata": {"version": 1}}, add("a"))
NULLS = dict.fromkeys(("remove", "metaData", "protocol", "commitInfo", "txn", "cdc", "domainMetadata"))
second("nulls", None, add("a", stats=None, tags=None, deletionVector=None) | NULLS)
second("extra_fields", None, add("a", foo={"x": [1, None]}), commit_info("X", tags=5, operationParameters={"a": [1]}))
second("line_of_megabytes", None, add("a", tags={"x": "y" * 2_000_000}))
second("line_ends_of_another_system", None, json.dumps(add("a")) + "\r\n" + json.dumps(commit_info()) + "\r\n")
second("mark_before_the_second_commit", None, "\ufeff" + json.dumps(add("a")) + "\n")

# deletion vectors and statistics
second("dv_counts", Counts(1, 100, 8), add("a", dv=DV))
second("dv_of_more_rows_than_the_file", None, add("a", rows=2, dv=deletion_vector(INLINE, cardinality=99)))
STATS = ("", "[]", "{}", "{oops", 5, {"a": 1}, '{"numRecords": null}', '{"numRecords": "10"}', '{"numRecords": -3}')
numbered("stats", lambda name, want, odd: second(name, want, add("a", stats=odd)), UNKNOWN_ROWS, STATS)
second("stats_missing", UNKNOWN_ROWS, add("a", rows=None))
second("stats_without_rows", UNKNOWN_ROWS, add("a", rows=None, stats='{"minValues": {"id": 1}}'))
second("stats_beyond_64_bits", None, add("a", rows=2**70), add("b", rows=2**63 - 1), add("c", rows=2**63 - 1))
OTHER_TYPES = '{"numRecords":3,"minValues":{"id":{"x":1}},"maxValues":{"id":[2]}}'
second("stats_of_other_types", None, add("a", stats=OTHER_TYPES))
NOT_A_NUMBER = '{"numRecords": 3, "minValues": {"id": NaN}, "maxValues": {"id": 1e400}}'
second("stats_not_a_number", None, add("a", stats=NOT_A_NUMBER))
NESTED = '{"numRecords":1,"minValues":' + '{"a":' * 2000 + "1" + "}" * 2000 + "}"
second("stats_nested_deep", None, add("a", stats=NESTED))

# what a commit says of itself
WRONG_TYPES = {"timestamp": "now", "operation": 5, "operationParameters": 7, "operationMetrics": "x"}
WRONG_VALUES = {"timestamp": -1, "operationMetrics": {"numOutputRows": "many", "numDeletedRows": True}}
WRONG_REST = {"userMetadata": {"a": 1}, "engineInfo": {}, "readVersion": "x", "isBlindAppend": "yes"}
INFO_NULLS = dict.fromkeys(("inCommitTimestamp", "operationParameters", "operationMetrics"))
INFOS = [None, 5, [], {}, "WRITE", WRONG_TYPES, WRONG_VALUES, WRONG_REST, INFO_NULLS]
INFOS += [commit_info(timestamp=millis)["commitInfo"] for millis in (1_500_000_000_000_000, -(10**17), 10**40)]
numbered("info", lambda name, want, odd: second(name, want, add("a"), {"commitInfo": odd}), ONE, INFOS)
second("info_none", ONE, add("a"))
HALF = '{"timestamp":1,"operation":"a\\ud800"}'
second("info_with_half_a_character", None, f'{{"commitInfo":{HALF}}}\n', add("a"))
CURSOR = commit_info("W\x00\x1b[31m\n\t", userName="\u202eevil", userMetadata="[b]x")
second("info_that_moves_the_cursor", None, add("a"), CURSOR)
INFINITE = '{"timestamp":1e400,"operationMetrics":{"numOutputRows":1e400}}'
second("info_of_infinity", None, add("a"), f'{{"commitInfo":{INFINITE}}}\n')
second("info_twice", None, commit_info("A"), add("a"), commit_info("B"))

# paths
second("encoded_in_capitals_and_not", None, add("p=%C3%9C/a%2Fb"), add("p=%c3%9c/a"))
second("encoded_twice", None, add("p=%2525/a"), add("p=%25/a"), remove("p=%25/a"))
second("encoding_cut_off", None, add("b%"), add("c%2"), add("p=%ZZ/a"), add("%FF%FE"))
second("paths_in_unicode", None, add("日本/ü 🎉.parquet"), add("a\u0301"), add("\u00e1"))
HALF_PATH = '{"path":"a\\ud800","partitionValues":{},"size":1,"modificationTime":1}'
second("path_with_half_a_character", None, f'{{"add":{HALF_PATH}}}\n')

# beside the commits
CHECKPOINT = f"{1:020d}.checkpoint"
beside("parts_by_the_billion", f"{CHECKPOINT}.{1:010d}.{9_999_999_999:010d}.parquet", b"")
beside("part_0_of_0", f"{CHECKPOINT}.{0:010d}.{0:010d}.parquet", b"")
beside("far_commit", f"{10**12:020d}.json", json.dumps(add("b")))
beside("far_compaction", f"{1:020d}.{10**15:020d}.compacted.json", json.dumps(add("b")))
beside("compaction_backwards", f"{2:020d}.{1:020d}.compacted.json", "garbage")
beside("checksum_of_a_later_version", f"{9:020d}.crc", '{"numFiles": 77}')
beside("last_checkpoint_lies", "_last_checkpoint", '{"version": 99, "size": 1}')
beside("last_checkpoint_is_garbage", "_last_checkpoint", "garbage")
beside("sidecars_are_a_file", "_sidecars", "x")
beside("digits_of_another_script", "٠" * 20 + ".json", "")
STATE = [protocol(), metadata(), add("a")]
kind(Reason("missing"), "gap")(lambda path: HandLog(path).start().commit(add("a"), version=2))
kind(Reason("not a Delta table"), "empty_log")(lambda path: (path / "_delta_log").mkdir(parents=True))
kind(Reason(), "commit_is_a_folder")(lambda path: (path / "_delta_log" / FIRST).mkdir(parents=True))
kind(Reason(), "commit_is_a_pipe")(lambda path: os.mkfifo(HandLog(path).log / FIRST))
kind(Reason("outside"), "commit_link_outside")(lambda path: (HandLog(path).log / FIRST).symlink_to("/etc/hostname"))
kind(Counts(2, 200, 20, 3), "checkpoint_and_cleaned")(
    lambda path: HandLog(path).checkpoint(2, STATE).commit(add("b"), version=3)
)
kind(None, "checkpoint_newer_than_any_commit")(lambda path: HandLog(path).start().checkpoint(5, STATE))
kind(None, "version_0_in_a_checkpoint_alone")(lambda path: HandLog(path).checkpoint(0, STATE))
kind(None, "version_of_64_bits")(lambda path: HandLog(path).checkpoint(2**63, STATE))
kind(None, "files_of_year_1900")(lambda path: os.utime(HandLog(path).raw(FIRST, HEAD), (-(3 * 10**9), -(3 * 10**9))))


@kind(Reason("_delta_log"))
def log_is_a_file(path: Path) -> None:
    path.mkdir()
    (path / "_delta_log").write_text("no folder")


@kind(Reason("_delta_log"))
def log_link_dangles(path: Path) -> None:
    path.mkdir()
    (path / "_delta_log").symlink_to("nowhere")


@kind(Reason("_delta_log"))
def log_link_loops(path: Path) -> None:
    path.mkdir()
    (path / "_delta_log").symlink_to("_delta_log")


@kind(ONE)
def nested_table_inside(path: Path) -> None:
    HandLog(path).start().commit(add("a"))
    HandLog(path / "inner").start().commit(add("b"))


@kind(Counts(30, 3000, 300, 30))
def many_commits_without_info(path: Path) -> None:
    log = HandLog(path).start()
    for number in range(30):
        log.commit(add(f"f{number}"))


@kind(Counts(2, 200, 20, 2))
def checkpoint_garbage_but_commits(path: Path) -> None:
    HandLog(path).start().commit(add("a")).commit(add("b")).raw(f"{CHECKPOINT}.parquet", b"garbage")


@kind(Reason("checkpoint"))
def checkpoint_cut_and_cleaned(path: Path) -> None:
    log = good(path).checkpoint(1, STATE)
    (log.log / FIRST).unlink()
    checkpoint = log.log / f"{CHECKPOINT}.parquet"
    checkpoint.write_bytes(checkpoint.read_bytes()[:200])


@kind(Reason("outside"))
def sidecar_outside(path: Path) -> None:
    log = HandLog(path).v2_checkpoint(1, STATE)
    (top,) = log.log.glob("*.checkpoint.*.json")
    (sidecar,) = (log.log / "_sidecars").iterdir()
    top.write_text(top.read_text().replace(sidecar.name, OUTSIDE))
    log.commit(commit_info(), version=2)


@kind()
def files_by_their_address(path: Path) -> None:
    HandLog(path).start().commit(add(f"file://{path}/a"), add(f"file:{path}/b"), add(str(path / "c")))


@kind()
def clock_that_runs_backwards(path: Path) -> None:
    log = HandLog(path).start()
    for number, millis in enumerate((1.7e12, 1.6e12, 0, -5)):
        log.commit(add(f"f{number}"), commit_info(timestamp=int(millis)))


@kind()
def metrics_of_wrong_types(path: Path) -> None:
    log = HandLog(path).start()
    metrics = {"numFiles": "1e3", "numOutputRows": -1, "numOutputBytes": 1.5, "filesAdded": "{", "numDeletedRows": None}
    parameters = {"predicate": "[", "specifiedRetentionMillis": 10**25, "queryId": 5, "epochId": "x", "version": None}
    operations = "WRITE,MERGE,DELETE,OPTIMIZE,VACUUM START,VACUUM END,RESTORE,STREAMING UPDATE,,☃"
    for operation in operations.split(","):
        log.commit(commit_info(operation, operationMetrics=metrics, operationParameters=parameters))


@kind()
def schemas_that_change_to_garbage(path: Path) -> None:
    log = HandLog(path).start()
    for schema in ("{", "null", '{"type":"struct","fields":[5]}', '{"type":"struct","fields":[]}'):
        log.commit(changed(metadata(), schemaString=schema, partitionColumns=["a"]), commit_info("CHANGE"))
    log.commit(changed(metadata(), configuration=None, description="\x1b[31m"), protocol(3, 7, ["deletionVectors"]))


@kind()
def data_files_are_cut(path: Path) -> None:
    for file in orders_table(path).glob("*.parquet"):
        file.write_bytes(file.read_bytes()[:100])


@kind(Counts(2, None, 3))
def real(path: Path) -> None:
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
for name in (*NAMES, "a:b", "a+b"):
    KINDS[name] = (lambda path: shutil.copytree(path.parent / "real", path), Counts(2, None, 3))


@pytest.fixture(scope="session")
def odd_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of all of them; also a link to one, and one that leads back to the root."""
    root = tmp_path_factory.mktemp("odd") / "lake"
    root.mkdir()
    for name, (make, _) in KINDS.items():
        make(root / name)
    (root / "round").mkdir()
    (root / "round" / "loop").symlink_to(root)
    (root / "linked").symlink_to(root / "plain")
    return root
