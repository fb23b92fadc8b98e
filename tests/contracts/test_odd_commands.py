"""`weir history|files|properties|versions|table T` on tables no writer of ours made: JSON or a named reason.

Rule: exit code 0 comes with one valid JSON document, any other with `error:` and `hint:` on stderr and nothing on
stdout; "unexpected" is Weir's word for a fault of its own and is never said.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app import services
from app.cli import main
from tests.contracts.test_odd_tables_on_tables import FIRST, KINDS, changed
from tests.worlds.cases import MORE
from tests.worlds.lake.builders import HandLog, add, commit_info, deletion_vector, metadata, protocol, remove

SECOND = f"{1:020d}.json"
INLINE = "ab^-aqEH.-t@S}K{vb[*"
ODD: dict[str, Callable[[Path], object]] = {name: make for name, (make, _) in KINDS.items()}
OPERATIONS = (
    "WRITE",
    "MERGE",
    "DELETE",
    "OPTIMIZE",
    "VACUUM START",
    "VACUUM END",
    "RESTORE",
    "STREAMING UPDATE",
    "",
    "☃",
)


def table(name: str, *second: Any, columns: dict[str, str] | None = None, keys: tuple[str, ...] = ()) -> None:
    """A good first commit, and a second one of these actions (text as it is)."""
    text = "".join(each if isinstance(each, str) else json.dumps(each) + "\n" for each in second)
    first = (protocol(), metadata(columns, partition_by=keys), commit_info("CREATE TABLE"))
    ODD[name] = lambda path: HandLog(path).commit(*first).raw(SECOND, text)


def described(name: str, **fields: Any) -> None:
    """A table whose metaData has these fields."""
    ODD[name] = lambda path: HandLog(path).commit(protocol(), changed(metadata(), **fields), add("a"), commit_info())


def beside(name: str, file: str, content: str | bytes) -> None:
    """A good table of two versions with one more file in its log."""
    ODD[name] = lambda path: HandLog(path).start().commit(add("a"), commit_info()).raw(file, content)


DAY = {"id": "long", "p": "date"}
NULLS = dict.fromkeys(("remove", "metaData", "protocol", "commitInfo", "txn", "cdc", "domainMetadata"))
table("extra_fields", add("a", foo={"x": [1, None]}), commit_info("X", tags=5, operationParameters={"a": {"b": [1]}}))
table("nulls", add("a", stats=None, tags=None, deletionVector=None) | NULLS)
table("no_row_count", add("a", rows=None, stats='{"minValues": {"id": 1}}'))
table("row_count_beyond_64_bits", add("a", rows=2**70), add("b", rows=2**63 - 1), add("c", rows=2**63 - 1))
table("statistics_of_other_types", add("a", stats='{"numRecords":3,"minValues":{"id":{"x":1}},"maxValues":{"id":[2]}}'))
table(
    "statistics_not_a_number", add("a", stats='{"numRecords": 3, "minValues": {"id": NaN}, "maxValues": {"id": 1e400}}')
)
table(
    "statistics_nested_deep", add("a", stats='{"numRecords":1,"minValues":' + '{"a":' * 2000 + "1" + "}" * 2000 + "}")
)
table("encoded_in_capitals_and_not", add("p=%C3%9C/a%2Fb"), add("p=%c3%9c/a"))
table("encoded_twice", add("p=%2525/a"), add("p=%25/a"), remove("p=%25/a"))
table("encoding_cut_off", add("b%"), add("c%2"), add("p=%ZZ/a"), add("%FF%FE"))
table("paths_in_unicode", add("日本/ü 🎉.parquet"), add("a\u0301"), add("\u00e1"))
table("path_with_half_a_character", '{"add":{"path":"a\\ud800","partitionValues":{},"size":1,"modificationTime":1}}\n')
table("info_with_half_a_character", '{"commitInfo":{"timestamp":1,"operation":"a\\ud800"}}\n', add("a"))
table(
    "info_that_moves_the_cursor", add("a"), commit_info("W\x00\x1b[31m\n\t", userName="\u202eevil", userMetadata="[b]x")
)
table("info_of_infinity", add("a"), '{"commitInfo":{"timestamp":1e400,"operationMetrics":{"numOutputRows":1e400}}}\n')
table("info_twice", commit_info("A"), add("a"), commit_info("B"))
table("partition_value_missing", add("a"), add("b", partitionValues={"zzz": "y"}), columns=DAY, keys=("p",))
table("partition_value_no_date", add("a", partitionValues={"p": "99999-99-99"}), columns=DAY, keys=("p",))
table("partition_key_unknown", add("a", partitionValues={"q": "x\n/=%"}), keys=("q", "q"))
table("size_in_exponents", '{"add":{"path":"a","partitionValues":{},"size":1e3,"modificationTime":1e12}}\n')
table("vector_of_more_rows_than_the_file", add("a", rows=2, dv=deletion_vector(INLINE, cardinality=99)))
table("vector_beyond_64_bits", add("a", dv=deletion_vector(INLINE, cardinality=2**70)))
table(
    "features_of_wrong_types", {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [5, None]}}
)
table(
    "domain_of_garbage", {"domainMetadata": {"domain": "delta.clustering", "configuration": '{"clusteringColumns":5}'}}
)
table("transaction_beyond_64_bits", {"txn": {"appId": "", "version": 2**70}}, add("a"))
table("sidecar_in_a_commit", {"sidecar": {"path": "x"}}, {"checkpointMetadata": {"version": 1}}, add("a"))
table("line_of_megabytes", add("a", tags={"x": "y" * 2_000_000}))
table("line_ends_of_another_system", json.dumps(add("a")) + "\r\n" + json.dumps(commit_info()) + "\r\n")
table("mark_before_the_second_commit", "\ufeff" + json.dumps(add("a")) + "\n")
table("garbage_at_the_end", add("a"), "}}}")
for number, schema in enumerate(
    ("", "null", "[]", "5", "{}", '{"type":"struct","fields":[null]}', '{"type":"struct","fields":[{}]}',
     '{"type":"struct","fields":[{"name":null,"type":null}]}', '{"type":"struct","fields":{"a":"long"}}',
     '{"type":"struct","fields":[{"name":"a","type":{"type":"array"},"metadata":[1]}]}',
     '{"type":"struct","fields":[{"name":"a","type":"long"},{"name":"a","type":"decimal(99,99)"}]}',
     '{"type":"struct","fields":[{"name":"a","type":' + '{"type":"array","elementType":' * 900 + '"long"' + "}" * 902,
     '{"type":"struct","fields":[{"name":"a","type":' + '{"type":"array","elementType":' * 900 + '"long"' + "}" * 900
     + "}]}"),
):  # fmt: skip
    described(f"schema_{number}", schemaString=schema)
described("schema_missing", schemaString=...)
described("schema_no_text", schemaString={"type": "struct", "fields": []})
described("no_properties", configuration=...)
described("properties_of_null", configuration={"delta.appendOnly": None, "": ""})
described("format_orc", format={"provider": "orc"}, partitionColumns=[1, None, {}], createdTime="2020", id={"a": 1})
for number, duration in enumerate(("interval 9999999999 days", "interval -1 day", "P7D", "", "interval nan days")):
    described(
        f"retention_{number}",
        configuration={"delta.logRetentionDuration": duration, "delta.deletedFileRetentionDuration": duration,
                       "delta.targetFileSize": "1" + "0" * 40, "delta.checkpointInterval": "-1"},
    )  # fmt: skip
beside("parts_by_the_billion", f"{1:020d}.checkpoint.{1:010d}.{9_999_999_999:010d}.parquet", b"")
beside("part_0_of_0", f"{1:020d}.checkpoint.{0:010d}.{0:010d}.parquet", b"")
beside("far_commit", f"{10**12:020d}.json", json.dumps(add("b")))
beside("far_compaction", f"{1:020d}.{10**15:020d}.compacted.json", json.dumps(add("b")))
beside("compaction_backwards", f"{2:020d}.{1:020d}.compacted.json", "garbage")
beside("checksum_of_a_later_version", f"{9:020d}.crc", '{"numFiles": 77}')
beside("last_checkpoint_lies", "_last_checkpoint", '{"version": 99, "size": 1}')
beside("sidecars_are_a_file", "_sidecars", "x")
beside("digits_of_another_script", "٠" * 20 + ".json", "")


def odd(make: Callable[[Path], object]) -> Callable[[Path], object]:
    ODD[make.__name__] = make
    return make


@odd
def files_by_their_address(path: Path) -> None:
    HandLog(path).start().commit(add(f"file://{path}/a"), add(f"file:{path}/b"), add(str(path / "c")))


@odd
def checkpoint_newer_than_any_commit(path: Path) -> None:
    HandLog(path).start().checkpoint(5, [protocol(), metadata(), add("a")])


@odd
def version_0_in_a_checkpoint_alone(path: Path) -> None:
    HandLog(path).checkpoint(0, [protocol(), metadata(), add("a")])


@odd
def version_of_64_bits(path: Path) -> None:
    HandLog(path).checkpoint(2**63, [protocol(), metadata(), add("a")])


@odd
def clock_that_runs_backwards(path: Path) -> None:
    log = HandLog(path).start()
    for number, millis in enumerate((1.7e12, 1.6e12, 0, -5)):
        log.commit(add(f"f{number}"), commit_info(timestamp=int(millis)))


@odd
def files_of_year_1900(path: Path) -> None:
    first = HandLog(path).raw(FIRST, "".join(json.dumps(a) + "\n" for a in (protocol(), metadata())))
    os.utime(first, (-(3 * 10**9), -(3 * 10**9)))


@odd
def metrics_of_wrong_types(path: Path) -> None:
    log = HandLog(path).start()
    metrics = {"numFiles": "1e3", "numOutputRows": -1, "numOutputBytes": 1.5, "filesAdded": "{", "numDeletedRows": None}
    parameters = {"predicate": "[", "specifiedRetentionMillis": 10**25, "queryId": 5, "epochId": "x", "version": None}
    for operation in OPERATIONS:
        log.commit(commit_info(operation, operationMetrics=metrics, operationParameters=parameters))


@odd
def schemas_that_change_to_garbage(path: Path) -> None:
    log = HandLog(path).start()
    for schema in ("{", "null", '{"type":"struct","fields":[5]}', '{"type":"struct","fields":[]}'):
        log.commit(changed(metadata(), schemaString=schema, partitionColumns=["a"]), commit_info("CHANGE"))
    log.commit(changed(metadata(), configuration=None, description="\x1b[31m"), protocol(3, 7, ["deletionVectors"]))


COMMANDS = (["history"], ["files"], ["properties", "--compare", "0"], ["versions"], ["table"])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("commands") / "lake"
    root.mkdir()
    for name, make in ODD.items():
        make(root / name)
    return root


def environment(lake: Path) -> dict[str, str]:
    return {"WEIR_HOME": str(lake.parent), "WEIR_LAKE__ROOTS": json.dumps([str(lake)])}


@pytest.fixture(autouse=True, scope="module")
def settings(lake: Path) -> Any:
    """One reader for all of them, as for a viewer who looks at one table after the other."""
    with pytest.MonkeyPatch.context() as patch:
        for key, value in environment(lake).items():
            patch.setenv(key, value)
        services.forget()
        yield
        services.forget()


def judged(code: object, out: str, err: str) -> str:
    """What is wrong with an answer, or nothing."""
    if "Traceback" in out + err or "unexpected" in err or "Weir failed" in out:
        return err or out
    if code in (0, None):
        json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
        return err
    lines = err.splitlines()
    named = len(lines) == 2 and lines[0].startswith("error: ") and lines[1].startswith("hint: ")
    return "" if named and not out and code in (1, 3, 4) else f"exit {code}: {out}{err}"


@pytest.mark.drawn
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_command_on_every_odd_table_gives_json_or_a_named_reason(lake, capsys, command):
    """Every other table, those between by the next command; by each command all of them in `make soak`."""
    wrong, answered, names = {}, 0, list(ODD) if MORE > 1 else list(ODD)[COMMANDS.index(command) % 2 :: 2]
    for name in names:
        with pytest.raises(SystemExit) as left:
            main([*command, "--json", "--", name])
        found = judged(left.value.code, *capsys.readouterr())
        answered += not left.value.code
        if found:
            wrong[name] = found[:300]
    assert wrong == {}
    assert answered > len(names) / 3, "else this test would say nothing"


def test_the_list_of_all_of_them_is_one_document(lake, capsys):
    with pytest.raises(SystemExit) as left:
        main(["tables", "--json"])
    out, err = capsys.readouterr()
    assert judged(left.value.code, out, err) == ""
    rows = {row["name"]: row for row in json.loads(out)}
    assert rows.keys() == ODD.keys()
    for name, row in rows.items():
        assert "reason" in row or ((row["num_rows"] is None or row["num_rows"] >= 0) and row["size_bytes"] >= 0), name


def test_a_fresh_process_says_the_same(lake):
    for name, code in (("path_outside", 4), ("encoded_twice", 0), ("no such table", 3)):
        ran = subprocess.run(
            [sys.executable, "-m", "app.cli", "files", "--json", "--", name],
            env=os.environ | environment(lake), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (ran.returncode, judged(ran.returncode, ran.stdout, ran.stderr)) == (code, "")


def test_a_terminal_that_knows_no_unicode_gets_words_all_the_same(lake):
    ascii_only = os.environ | environment(lake) | {"PYTHONIOENCODING": "ascii"}
    for args in (["tables"], ["table", "paths_in_unicode"]):
        command = [sys.executable, "-m", "app.cli", *args]
        ran = subprocess.run(command, env=ascii_only, capture_output=True, timeout=60, check=False)
        assert (ran.returncode, ran.stderr) == (0, b"") and ran.stdout.isascii() and ran.stdout, args
