"""Every page of a table that is bad in some way works: an error with its way out, or the part that can be known.

Rule: no page raises, shows a traceback or stays empty; the history stays wherever commits are.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.worlds.lake.builders import (
    HandLog,
    add,
    commit_info,
    deletion_vector,
    metadata,
    orders_table,
    protocol,
    remove,
)
from tests.worlds.lake.object_store import Fault, make_bucket, proxy, storage_options
from tests.worlds.lake.permissions import unreadable
from tests.worlds.pages.frames import frame_with, titles
from tests.worlds.pages.opened import forget_caches, home, metrics, open_page, words

__all__ = ["home"]

PAGES: dict[str, dict[str, str]] = {
    "table": {},
    "table ": {"view": "Data"},
    "history": {},
    "files": {},
    "versions": {},
    "properties": {},
}
OUTSIDE = "../../secret.parquet"
SECOND = f"{1:020d}.json"


def good(path: Path) -> HandLog:
    return HandLog(path).start().commit(add("a"), commit_info())


def garbage(path: Path) -> None:
    HandLog(path).raw(f"{0:020d}.json", "{not json\n\x00")


def nothing_in_the_log(path: Path) -> None:
    (path / "_delta_log").mkdir(parents=True)


def commit_of_no_bytes(path: Path) -> None:
    good(path).raw(SECOND, b"")


def wrong_types(path: Path) -> None:
    wrong = {"add": {"path": 5, "size": "many", "partitionValues": [], "modificationTime": {}, "dataChange": "x"}}
    good(path).commit(wrong, {"commitInfo": "WRITE"})


def wrong_metadata(path: Path) -> None:
    spoiled = {"id": 5, "schemaString": [], "configuration": ["a"], "partitionColumns": {}, "createdTime": "now"}
    HandLog(path).commit(protocol(), {"metaData": spoiled}, commit_info())


def schema_of_garbage(path: Path) -> None:
    spoiled = metadata(configuration={"delta.logRetentionDuration": "banana"})["metaData"] | {"schemaString": "{"}
    HandLog(path).commit(protocol(), {"metaData": spoiled}, add("a", stats="{"), commit_info(timestamp=10**40))


def no_schema_yet(path: Path) -> None:
    made = metadata()["metaData"]
    del made["schemaString"]
    HandLog(path).commit(protocol(), {"metaData": made}, commit_info("CREATE TABLE"))


def cut_parquet(path: Path) -> None:
    for file in orders_table(path).glob("*.parquet"):
        file.write_bytes(file.read_bytes()[:100])


def cut_checkpoint(path: Path) -> None:
    log = good(path).checkpoint(1, [protocol(), metadata(), add("a")])
    (log.log / f"{0:020d}.json").unlink()
    checkpoint = log.log / f"{1:020d}.checkpoint.parquet"
    checkpoint.write_bytes(checkpoint.read_bytes()[:200])


def sidecar_outside(path: Path) -> None:
    log = HandLog(path).v2_checkpoint(1, [protocol(), metadata(), add("a")])
    (top,) = log.log.glob("*.checkpoint.*.json")
    (sidecar,) = (log.log / "_sidecars").iterdir()
    top.write_text(top.read_text().replace(sidecar.name, OUTSIDE))
    log.commit(commit_info(), version=2)


def gap(path: Path) -> None:
    good(path).commit(add("b"), commit_info(), version=3)


def unknown_feature(path: Path) -> None:
    HandLog(path).commit(protocol(3, 7, ["fancyFeature"]), metadata(), add("a"), commit_info())


def outside(kind: str) -> Callable[[Path], None]:
    vector = deletion_vector("file:///etc/passwd", cardinality=1, kind="p")
    action = {
        "add": add(OUTSIDE),
        "remove": remove(OUTSIDE),
        "cdc": {"cdc": {"path": OUTSIDE, "partitionValues": {}, "size": 1, "dataChange": False}},
        "vector": add("a", dv=vector),
    }[kind]
    return lambda path: good(path).commit(action, commit_info()) and None


# What is made, the pages that show an error, and whether there are commits to list.
ALL = frozenset(PAGES)
DATA = frozenset({"table "})
KINDS: dict[str, tuple[Callable[[Path], object], frozenset[str], bool]] = {
    "garbage": (garbage, ALL, True),
    "nothing_in_the_log": (nothing_in_the_log, ALL, False),
    "commit_of_no_bytes": (commit_of_no_bytes, ALL, True),
    "wrong_types": (wrong_types, ALL, True),
    "wrong_metadata": (wrong_metadata, ALL, True),
    "schema_of_garbage": (schema_of_garbage, frozenset({"table", "table "}), True),
    "no_schema_yet": (no_schema_yet, frozenset(), True),
    "cut_parquet": (cut_parquet, DATA, True),
    "cut_checkpoint": (cut_checkpoint, ALL, True),
    "sidecar_outside": (sidecar_outside, ALL, True),
    "gap": (gap, ALL, True),
    "unknown_feature": (unknown_feature, ALL, True),
    **{f"outside_{kind}": (outside(kind), ALL, True) for kind in ("add", "remove", "cdc", "vector")},
}


def shown(page: str, table: str) -> AppTest:
    """The page, which must work and say something; what must never be on any page is not on it."""
    app = open_page(page.strip(), table=table, **PAGES[page])
    said = words(app)
    assert "did not expect" not in said and "Traceback" not in said, said
    assert all("arrow_forward" in error.value for error in app.main.error), "every error has a hint"
    assert app.main.error or app.dataframe or app.main.table or metrics(app) or titles(app)
    return app


def pages_of(kind: str) -> list[str]:
    """Every page of the tables that only some pages fail on. Of the others, which all pages refuse alike at their head,
    the history, which does not, and another page in turn."""
    if KINDS[kind][1] != ALL or kind == "garbage":
        return list(PAGES)
    others = [page for page in PAGES if page != "history"]
    return ["history", others[list(KINDS).index(kind) % len(others)]]


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_pages_of_a_bad_table_work(home: Path, kind: str) -> None:
    make, failing, has_commits = KINDS[kind]
    make(home / "lake" / "bad")
    for page in pages_of(kind):
        app = shown(page, "bad")
        assert bool(app.main.error) == (page in failing), (page, words(app))
        if page == "history" and has_commits:
            assert len(frame_with(app, "Version", "Operation")), "the commits are listed whatever the state"


def test_a_table_without_a_schema_says_that_it_has_no_columns_yet(home: Path) -> None:
    no_schema_yet(home / "lake" / "bare")
    assert "no columns yet" in words(open_page("table", table="bare"))


def test_a_folder_that_is_no_table_and_a_good_neighbour(home: Path) -> None:
    (home / "lake" / "empty").mkdir()
    good(home / "lake" / "neighbour")
    for page in ("table", "history"):
        app = open_page(page.strip(), table="empty")
        assert len(app.main.error) == 1 and "There is no table 'empty'" in words(app)
        assert "Tables that are there" in words(app), page
    assert not shown("table", "neighbour").main.error


@pytest.mark.parametrize("name", ["_delta_log", f"_delta_log/{SECOND}"])
def test_what_may_not_be_read_is_said_on_every_page(home: Path, name: str) -> None:
    good(home / "lake" / "bad")
    with unreadable(home / "lake" / "bad" / name):
        for page in ("table", "history"):
            app = shown(page, "bad")
            assert "permission" in app.main.error[0].value, page


def test_an_object_store_that_falls_silent_half_way_is_said_on_every_page(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = good(home / "made").log
    bucket = make_bucket("silent", {f"t/_delta_log/{path.name}": path.read_bytes() for path in log.glob("*.json")})
    with proxy() as server:
        options = storage_options(server.url) | {"max_retries": "0", "timeout": "300ms", "connect_timeout": "300ms"}
        monkeypatch.setenv("WEIR_LAKE__ROOTS", json.dumps([f"s3://{bucket}"]))
        monkeypatch.setenv("WEIR_LAKE__STORAGE_OPTIONS", json.dumps({f"s3://{bucket}": options}))
        server.fail(Fault.HANG, where=SECOND)
        for page in ("history", "files"):
            app = open_page(page, table="t")
            assert any("did not answer in time" in error.value for error in app.main.error), words(app)
        server.heal()
        forget_caches()
        assert not open_page("table", table="t").main.error


@pytest.mark.parametrize("page", ["table", "files"])
def test_a_table_with_a_feature_that_nobody_knows_leads_to_its_history(home: Path, page: str) -> None:
    log = HandLog(home / "lake" / "foreign")
    log.commit(protocol(3, 7, ["quantumLayout"]), metadata(), commit_info("CREATE TABLE"))
    app = open_page(page, table="foreign")
    assert "quantumLayout" in words(app)
    assert "History of the table" in [link.label for link in app.main.page_link]
