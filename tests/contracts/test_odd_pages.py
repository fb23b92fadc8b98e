"""Every page of an odd table works: an error with its way out, or the part that can be known.

Rule: no page raises, shows a traceback or stays empty; the history stays wherever commits are.
"""

import json

import pytest
from streamlit.testing.v1 import AppTest

from tests.backend.search.test_replaced_table import nightly, replaced
from tests.worlds.lake.object_store import Fault, make_bucket, proxy, storage_options
from tests.worlds.lake.odd_tables import SECOND, good
from tests.worlds.pages.frames import frame_with, titles
from tests.worlds.pages.opened import again, forget_caches, home, metrics, open_page, press, words

__all__ = ["home", "nightly", "replaced"]

PAGES: dict[str, dict[str, str]] = {
    "table": {},
    "table ": {"view": "Data"},
    "history": {},
    "files": {},
    "versions": {},
    "properties": {},
}
# The pages that show an error, of tables that only some pages fail on; of the others one page beside the history.
SOME_FAIL = {
    "schema_garbage": {"table", "table "},
    "no_schema": set(),
    "data_files_are_cut": {"table "},
    "garbage_0": set(PAGES),
}
ALL_FAIL = {
    "empty_log": "table",
    "bad_commit_0": "files",
    "add_0": "versions",
    "configuration_is_a_list": "properties",
    "checkpoint_cut_and_cleaned": "table ",
    "sidecar_outside": "table",
    "gap": "versions",
    "unknown_reader_feature": "files",
    "outside_add": "properties",
    "outside_vector": "table ",
}


def shown(page: str, table: str) -> AppTest:
    """The page, which must work and say something; what must never be on any page is not on it."""
    app = open_page(page.strip(), table=table, **PAGES[page])
    text = words(app)
    assert "did not expect" not in text and "Traceback" not in text, text
    assert all("arrow_forward" in error.value for error in app.main.error), "every error has a hint"
    assert app.main.error or app.dataframe or app.main.table or metrics(app) or titles(app)
    return app


@pytest.mark.parametrize("kind", [*SOME_FAIL, *ALL_FAIL])
def test_the_pages_of_an_odd_table_work(home, odd_lake, monkeypatch, kind):
    monkeypatch.setenv("WEIR_LAKE__ROOTS", json.dumps([str(odd_lake / kind)]))
    failing = SOME_FAIL.get(kind, set(PAGES))
    for page in PAGES if kind in SOME_FAIL else ("history", ALL_FAIL[kind]):
        app = shown(page, kind)
        assert bool(app.main.error) == (page in failing), (page, words(app))
        if page == "history" and kind != "empty_log":
            assert len(frame_with(app, "Version", "Operation")), "the commits are listed whatever the state"
        if page == "table" and kind == "no_schema":
            assert "no columns yet" in words(app)
        if kind == "unknown_reader_feature" and page != "history":
            assert "fancyFeature" in words(app)
            assert "History of the table" in [link.label for link in app.main.page_link]


@pytest.mark.ci
def test_an_object_store_that_falls_silent_half_way_is_said_on_every_page(home, monkeypatch):
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


# tables that are replaced ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("replaced")
def test_the_switch_compares_a_replaced_table_as_two():
    app = open_page("changes", table="dim", from_=0, to=1)
    assert "--across-replace" in words(app)
    app.multiselect(key="key").set_value(["id"])
    app.toggle(key="across_replace").set_value(True)
    again(app)
    shown = metrics(app)
    assert (shown["Inserted (net)"], shown["Updated (net)"], shown["Deleted (net)"]) == ("+1", "1", "0")
    assert "compared as two tables" in words(app).lower()
    linked = open_page("changes", table="dim", from_=0, to=1, across_replace="true")
    assert "compared as two tables" in words(linked).lower()


@pytest.mark.usefixtures("nightly")
def test_the_first_bad_version_of_a_table_that_was_replaced_since():
    app = press(open_page("bisect", table="nightly", condition="v >= 0", good=0, bad=2), "find")
    assert "is the first version that breaks" in words(app)
    links = {link.label: link.proto.query_string for link in app.main.page_link}
    for label in ("What v2 changed", "What going back to v1 changes"):
        assert "across_replace=true" in links[label]


@pytest.mark.usefixtures("nightly")
def test_numbers_of_a_replaced_table_say_whose_they_are():
    app = open_page("versions", table="nightly", number="SQL aggregate", sql="sum(v)")
    press(app, "compute")
    for _ in range(2):  # with the work done, the values that were kept
        assert "re-created 3 times, last by v3" in words(app)
        assert list(frame_with(app, "Value")["Value"]) == ["17", "13", "15", "10"]
        again(app)
