"""A list of many tables reads each commit once and lists each log once, also where their health is judged."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from app import services
from app.cli.tables import health
from backend.lake.lake import Lake
from backend.lake.log import commits
from backend.lake.log.commits import parse_commits
from backend.lake.storage.folder import Content
from backend.settings import load_settings
from bench import large
from tests.worlds.lake.builders import HandLog, add, commit_info
from tests.worlds.lake.log_reads import log_reads

AT = datetime(2026, 1, 1, tzinfo=UTC)
MANY = 300  # more than the logs that a lake keeps open
COMMITS = [f"{version:020d}.json" for version in range(large.VERSIONS)]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = large.make_lake(tmp_path, MANY)
    monkeypatch.setenv("WEIR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WEIR_LAKE__ROOTS", f'["{made}"]')
    services.forget()
    yield made
    services.forget()


def test_cards_read_each_log_once(lake: Path) -> None:
    with log_reads() as reads:
        services.lake().cards()
    assert [reads[name] for name in (*COMMITS, "listdir")] == [MANY] * (large.VERSIONS + 1)


def test_the_health_of_all_tables_reads_each_log_once(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with log_reads() as reads:
        assert health.everything(as_json=False) == 0
    assert [reads[name] for name in (*COMMITS, "listdir")] == [MANY] * (large.VERSIONS + 1)
    out = capsys.readouterr().out
    assert all(large.table_name(number) in out for number in range(MANY))


def test_what_is_read_at_one_moment_knows_of_no_later_commit(tmp_path: Path) -> None:
    log = HandLog(tmp_path / "t").start().commit(commit_info(), add("a", size=1))
    lake = Lake(load_settings(home=tmp_path / "home", lake={"roots": [str(tmp_path)]}))
    (ref,) = lake.tables()
    with lake.at_one_moment(ref):
        log.commit(commit_info(), add("b", size=1))
        log.checkpoint(1, [])
        assert (lake.latest_version(ref), lake.snapshot(ref).num_files, lake.last_checkpoint(ref)) == (1, 1, None)
    assert (lake.latest_version(ref), lake.snapshot(ref).num_files, lake.last_checkpoint(ref)) == (2, 2, 1)


def test_commits_of_many_files_are_several_blocks_and_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = HandLog(tmp_path / "t").start()
    for version in range(6):
        log.commit(commit_info(), add(f"a{version}", size=version), add(f"b{version}", size=10))
    contents = [(v, "", Content((log.log / f"{v:020d}.json").read_bytes(), AT)) for v in range(7)]
    whole = parse_commits(contents)
    monkeypatch.setattr(commits, "BLOCK_ROWS", 3)
    pieces = parse_commits(contents)
    assert [each.actions.to_pylist() for each in pieces] == [each.actions.to_pylist() for each in whole]
    assert [each.block.num_rows for each in pieces] == [4, 4, 4, 4, 4, 4, 4] and whole[0].block.num_rows == 12
