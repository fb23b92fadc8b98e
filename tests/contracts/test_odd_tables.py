"""Odd tables as the reader and the commands take them: right numbers or a named reason, never a traceback.

Rule: exit code 0 comes with one valid JSON document, any other with `error:` and `hint:` on stderr and nothing on
stdout; "unexpected" is Weir's word for a fault of its own and is never said.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from app import services
from app.cli import main
from app.cli.lake import SHAPES
from app.cli.output import encoded
from backend.errors import TableCorruptError
from backend.lake.lake import Lake
from backend.lake.table.schema import columns
from backend.settings import load_settings
from tests.worlds.cases import MORE
from tests.worlds.lake.builders import commit_info, first_rows, protocol, write
from tests.worlds.lake.odd_tables import FIRST, KINDS, NAMES, ONE, SECOND, SECOND_COMMITS, Counts, Reason, changed


@pytest.fixture(scope="module")
def lake(odd_lake: Path) -> Lake:
    return Lake(load_settings(home=odd_lake.parent, lake={"roots": [str(odd_lake)]}))


@pytest.fixture(scope="module")
def rows(lake: Lake) -> dict[str, dict[str, Any]]:
    """The cards as `weir tables --json` prints them."""
    return {card.ref.name: encoded(card, SHAPES) for card in lake.cards()}


# the reader -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_an_odd_table_gives_right_numbers_or_a_named_reason(rows, name):
    row, wanted = rows[name], KINDS[name][1]
    if isinstance(wanted, Reason):
        assert wanted.words in row["reason"] and row["hint"] and row["uri"], row
    elif wanted is not None:
        assert (row["num_files"], row["num_rows"], row["version"]) == (
            wanted.num_files,
            wanted.num_rows,
            wanted.version,
        ), row
        assert wanted.size_bytes in (None, row["size_bytes"])
    elif "reason" not in row:
        assert row["size_bytes"] >= 0 and (row["num_rows"] is None or row["num_rows"] >= 0), row
    assert "Weir failed" not in row.get("reason", "")


@pytest.mark.parametrize("name", SECOND_COMMITS)
def test_of_an_odd_commit_the_history_and_the_version_before_it_stay(lake, name):
    """Damage is named with its file and the way out; what a commit says wrongly of itself hides nothing else."""
    ref, wanted = lake.find(name), KINDS[name][1]
    commits = lake.history(ref)
    assert [commit.version for commit in commits] == [1, 0] and commits[1].problem is None
    assert lake.snapshot(ref, 0).num_files == 0
    if name.startswith("info") and wanted == ONE:
        assert commits[0].committed_at is not None
        assert (commits[0].metrics.files_added, commits[0].metrics.bytes_added) == (1, 100)
    elif isinstance(wanted, Reason) and "outside" not in name:
        with pytest.raises(TableCorruptError) as error:
            lake.snapshot(ref)
        assert SECOND in error.value.message and commits[0].problem
        assert error.value.hint == "restore the file; versions before it can still be read"


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_read_whatever_a_table_is_called(lake, name):
    assert sorted(first_rows(lake, lake.find(name), limit=5).rows["id"].to_pylist()) == [1, 2, 3]


def test_where_deltalake_opens_a_table_the_numbers_agree(odd_lake, rows):
    """It lets the first of two actions on one file in one commit count, and sums beyond 64 bits."""
    theirs = {}
    read = {name for name, (_, wanted) in KINDS.items() if isinstance(wanted, Counts)}
    for name in read - {"add_after_remove", "remove_after_add", "sum_beyond_64_bits"}:
        with contextlib.suppress(Exception):  # it opens fewer of these than Weir does, and fails in many ways
            table = DeltaTable(str(odd_lake / name))
            sizes = table.get_add_actions(flatten=True)["size_bytes"].to_pylist()
            theirs[name] = (table.version(), len(sizes), sum(sizes))
    ours = {name: (rows[name]["version"], rows[name]["num_files"], rows[name]["size_bytes"]) for name in theirs}
    assert ours == theirs and len(theirs) > 30


@pytest.mark.parametrize("schema", [..., None])
def test_a_table_whose_schema_is_not_there_yet_is_read_from_its_first_version_on(tmp_path, open_lake, schema):
    log = write(tmp_path / "lake" / "t", {"id": [1, 2]}) / "_delta_log"
    first_write = (log / FIRST).rename(log / SECOND)
    made = next(action for line in first_write.read_text().splitlines() if "metaData" in (action := json.loads(line)))
    bare = (protocol(1, 2), changed(made, schemaString=schema), commit_info("CREATE TABLE"))
    (log / FIRST).write_text("".join(json.dumps(action) + "\n" for action in bare))
    lake = open_lake()
    ref = lake.find("t")
    before, after = (columns(lake.snapshot(ref, version).metadata) for version in (0, 1))
    assert (before, [(column.path, column.type) for column in after]) == ((), [("id", "bigint")])
    assert first_rows(lake, ref, version=0, limit=5).rows.num_rows == 0
    assert first_rows(lake, ref, limit=5).rows.to_pydict() == {"id": [1, 2]}


# the commands ---------------------------------------------------------------------------------------------------------

COMMANDS = (["history"], ["files"], ["properties", "--compare", "0"], ["versions"], ["table"])


def environment(odd_lake: Path) -> dict[str, str]:
    return {"WEIR_HOME": str(odd_lake.parent), "WEIR_LAKE__ROOTS": json.dumps([str(odd_lake)])}


@pytest.fixture(scope="module")
def settings(odd_lake: Path) -> Iterator[None]:
    """One reader for all of them, as for a viewer who looks at one table after the other."""
    with pytest.MonkeyPatch.context() as patch:
        for key, value in environment(odd_lake).items():
            patch.setenv(key, value)
        services.forget()
        yield
        services.forget()


def fault_of(code: object, out: str, err: str) -> str:
    """What is wrong with an answer, or nothing."""
    if "Traceback" in out + err or "unexpected" in err or "Weir failed" in out:
        return err or out
    if code in (0, None):
        json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
        return err
    lines = err.splitlines()
    is_named = len(lines) == 2 and lines[0].startswith("error: ") and lines[1].startswith("hint: ")
    return "" if is_named and not out and code in (1, 3, 4) else f"exit {code}: {out}{err}"


@pytest.mark.drawn
@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_command_on_every_odd_table_gives_json_or_a_named_reason(capsys, command):
    """Every fourth table, the next ones by the next command; by each command all of them in `make soak`."""
    names = list(KINDS) if MORE > 1 else list(KINDS)[COMMANDS.index(command) % 4 :: 4]
    faults, answered = {}, 0
    for name in names:
        with pytest.raises(SystemExit) as left:
            main([*command, "--json", "--", name])
        answered += not left.value.code
        faults[name] = fault_of(left.value.code, *capsys.readouterr())[:300]
    assert {name: fault for name, fault in faults.items() if fault} == {}
    assert answered > len(names) / 3, "else this test would say nothing"


@pytest.mark.usefixtures("settings")
def test_the_list_of_all_of_them_is_one_document(capsys):
    with pytest.raises(SystemExit) as left:
        main(["tables", "--json"])
    out, err = capsys.readouterr()
    assert fault_of(left.value.code, out, err) == ""
    assert sorted(row["name"] for row in json.loads(out)) == sorted([*KINDS, "linked"])


def run(odd_lake: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "app.cli", *args]
    environ = os.environ | environment(odd_lake) | environ
    return subprocess.run(command, env=environ, capture_output=True, timeout=600, check=False)


@pytest.mark.parametrize(("name", "code"), [("outside_add", 4), ("encoded_twice", 0), ("no such table", 3)])
def test_a_fresh_process_says_the_same(odd_lake, name, code):
    ran = run(odd_lake, "files", "--json", "--", name)
    assert (ran.returncode, fault_of(ran.returncode, ran.stdout.decode(), ran.stderr.decode())) == (code, "")


@pytest.mark.parametrize("args", [["tables"], ["table", "paths_in_unicode"]])
def test_a_terminal_that_knows_no_unicode_gets_words_all_the_same(odd_lake, args):
    ran = run(odd_lake, *args, PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stderr) == (0, b"") and ran.stdout.isascii() and ran.stdout
