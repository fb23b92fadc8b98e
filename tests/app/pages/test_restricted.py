"""Restricted rows and columns on pages: two viewers of one server, of whom one fills every cache first."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app import services
from backend.access import Actor
from backend.expectations.model import ExpectationKind, Finding, Judgement, State, TableExpectation
from backend.expectations.shown import as_shown
from backend.lake.lake import Lake
from backend.search.notice import Measure, Notice
from backend.sql.saved import Chart
from backend.store.store import ControlStore
from tests.worlds.lake.restricted import CUSTOMERS, GRANTS, PEOPLE, leaked, restricted_lake
from tests.worlds.pages.fixtures import Place
from tests.worlds.pages.opened import again, keys, open_page, param, press, send, words
from tests.worlds.processes import wait_until

By = Callable[..., AppTest]


@pytest.fixture
def by(home: Path, place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[By]:
    """`by("bob", "table", …)`: a page that this person opens, of one server."""
    place(restricted_lake, "")
    monkeypatch.setenv("WEIR_AUTH__GRANTS", GRANTS)
    monkeypatch.setenv("WEIR_AUTH__TERMINAL_ROLE", "viewer")

    def opened(who: str, page: str, **params: str | int) -> AppTest:
        monkeypatch.setenv("LOGNAME", who)
        return open_page(page, **params)

    yield opened


def everything(app: AppTest) -> str:
    """What the browser got of a page, but for what was typed there."""
    frames = [each.value.to_csv() for each in (*app.dataframe, *app.table)]
    rest = [str(each.proto) for each in app.main if hasattr(each, "proto")]
    return "\n".join((words(app), *frames, *rest, *(each.value for each in app.code)))


PAGES = {
    "rows": ("table", {"table": PEOPLE, "view": "Data"}),
    "rows before the tag": ("table", {"table": PEOPLE, "view": "Data", "v": 0}),
    "rows that a filter lets through": ("table", {"table": PEOPLE, "view": "Data", "where": "salary > 900000"}),
    "rows of columns": ("table", {"table": CUSTOMERS, "view": "Data"}),
    "a filter on a column": ("table", {"table": CUSTOMERS, "view": "Data", "where": "email LIKE '%o%'"}),
    "schema": ("table", {"table": PEOPLE}),
    "schema of columns": ("table", {"table": CUSTOMERS}),
    "profile": ("table", {"table": PEOPLE, "view": "Profile"}),
    "profile of columns": ("table", {"table": CUSTOMERS, "view": "Profile"}),
    "difference": ("changes", {"table": PEOPLE, "from": 0, "to": 2}),
    "difference of columns": ("changes", {"table": CUSTOMERS, "from": 0, "to": 1}),
    "files": ("files", {"table": PEOPLE}),
    "versions": ("versions", {"table": PEOPLE}),
    "numbers of a column": ("versions", {"table": PEOPLE, "view": "Numbers", "column": "salary"}),
    "health": ("health", {"table": PEOPLE}),
    "suggested conditions": ("bisect", {"table": PEOPLE}),
    "history": ("history", {"table": PEOPLE}),
    "timeline": ("timeline", {"table": PEOPLE}),
    "overview": ("overview", {}),
    "tables": ("tables", {}),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_one_who_may_has_seen_shows_no_value_to_one_who_may_not(by: By, name: str) -> None:
    page, params = PAGES[name]
    seen = everything(by("ann", page, **params))  # type: ignore[arg-type]
    shown = everything(by("bob", page, **params))  # type: ignore[arg-type]
    assert not leaked(shown), leaked(shown)
    if name.startswith(("rows", "schema", "difference")):
        assert leaked(seen)


MORE_PAGES = {
    "change feed": ("changes", {"table": PEOPLE, "from": 0, "to": 1, "show": "feed"}),
    "condition": ("bisect", {"table": PEOPLE, "condition": "salary < 900000", "good": 0, "bad": 1}),
    "condition with example rows": ("bisect", {"table": CUSTOMERS, "condition": "amount <> 6", "good": 0, "bad": 1}),
    "aggregate of versions": ("versions", {"table": PEOPLE, "over": "sql", "sql": "max(salary)"}),
    "file": ("files", {"table": PEOPLE, "file": "x"}),
    "clustering": ("files", {"table": PEOPLE, "overlap_column": "salary"}),
    "all statistics": ("table", {"table": PEOPLE, "statistics": "true", "version": 1}),
    "an older version's rows": ("table", {"table": CUSTOMERS, "view": "Data", "version": 0}),
    "properties": ("properties", {"table": PEOPLE}),
    "pipeline": ("pipeline", {}),
    "acts": ("acts", {}),
    "incidents": ("incident", {}),
}


@pytest.mark.parametrize("name", MORE_PAGES)
def test_a_link_of_one_who_may_shows_no_value_to_one_who_may_not(by: By, name: str) -> None:
    page, params = MORE_PAGES[name]
    for who in ("ann", "bob", "cem"):
        app = by(who, page, **params)  # type: ignore[arg-type]
        for button in ("search", "start", "read_profile"):
            if button in keys(app.button):
                app = press(app, button)
        assert who == "ann" or not leaked(everything(app)), (who, leaked(everything(app)))


def test_rows_of_a_query_are_those_of_their_viewer(by: By, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "SELECT name, salary FROM people"
    app = press(by("ann", "query", query=text), "query_run")
    assert leaked(everything(app))
    pins = param(app, "versions")
    app = press(by("bob", "query", query=text, versions=pins), "query_run")
    assert not leaked(everything(app)) and "user ann may see them by name" in words(app)
    press(app, "query_run")
    (entry,) = [entry for entry in services.store().audit_entries() if entry.result == "denied"]
    assert (entry.actor, entry.action, entry.subject) == ("bob", "rows refused", "silver/people"), "once an hour"
    # who loses the grant while the page is open keeps no rows
    app = press(by("ann", "query", query=text), "query_run")
    monkeypatch.setenv("LOGNAME", "bob")
    services.forget()
    assert not leaked(everything(again(app)))


def test_a_tile_says_whom_to_ask_and_is_no_one_elses(by: By) -> None:
    by("ann", "tables")
    services.store().saved.save(
        "pay", "SELECT name, salary FROM people", Chart("Bar", "name", "salary"), actor=Actor("ann"), reason="r",
        now=services.now(),
    )  # fmt: skip

    def tile(who: str, until: str) -> str:
        app = by(who, "dashboard", tile="pay:1")

        def shown() -> str:
            return everything(again(app)) + "".join(chart.proto.spec for chart in app.get("plotly_chart"))

        wait_until(lambda: until in shown(), shown, limit_s=120, pause_s=0.3)
        return shown()

    tile("ann", "987")
    refused = tile("bob", "user ann may see them by name")
    assert "user ann may see them by name" in refused and not leaked(refused)


def test_a_file_has_what_its_viewer_may_see_and_is_refused_where_that_is_nothing(by: By) -> None:
    for who in ("ann", "bob"):
        app = press(by(who, "table", table=CUSTOMERS, view="Data"), "export_rows")
        assert not [each.value for each in app.error]
    assert "export_rows" not in keys(by("bob", "table", table=PEOPLE, view="Data").button)


def test_no_page_and_no_command_reads_the_lake_past_the_gate() -> None:
    """What is shared by all viewers stands in `app/cache.py` and `app/viewer.py`; the rest asks for a person's lake."""
    app = Path(services.__file__).parent
    allowed = {"cache.py", "viewer.py", "services.py"}
    reads = {str(file.relative_to(app)) for file in app.rglob("*.py") if "services.lake()" in file.read_text()}
    assert reads <= allowed, reads


def test_findings_and_expectations_say_no_value_and_can_be_marked_as_seen(by: By, store: ControlStore) -> None:
    """A finding of a restricted table, whose repair and condition hold values; an expectation with its examples."""
    now = datetime.now(UTC)
    ref = services.lake().find(PEOPLE)
    finding = Notice(
        ref.uri, PEOPLE, 1, Measure.HIGHEST, "salary", "10", "987,654", "salary < 987654", "WRITE by zzoe", now,
        rows=1, where="name = 'zzoe'", repair="salary = 987654 / 100",
    )  # fmt: skip
    shares = replace(finding, kind=Measure.VALUE, subject="name = 'yyuri'", by="WRITE")
    finding = replace(finding, by="WRITE")
    store.noticed.keep([finding, shares], now=now)
    unique = TableExpectation(ref.uri, PEOPLE, ExpectationKind.UNIQUE, columns=("name",))
    found = Finding(State.BROKEN, version=1, broken_keys=1, broken_rows=2, examples=("zzoe",))
    assert as_shown([Judgement(unique, found, "host", now)], seen_by("bob").hidden_at)[0].finding.examples != ("zzoe",)
    of_table: dict[str, str | int] = {"table": PEOPLE}
    pages: list[tuple[str, dict[str, str | int]]] = [(page, {**of_table}) for page in ("table", "bisect", "timeline")]
    pages += [("overview", {}), ("changes", of_table | {"from": 0, "to": 1}), ("incident", of_table | {"at": 1})]
    assert any(leaked(everything(by("ann", page, **params))) for page, params in pages)
    for page, params in pages:
        shown = everything(by("bob", page, **params))  # type: ignore[arg-type]
        assert not leaked(shown), (page, [line for line in shown.splitlines() if leaked(line)])
    app = by("bob", "table", table=PEOPLE)
    assert "highest salary (restricted) → (restricted)" in words(app).lower(), words(app)
    button = next(each for each in keys(app.button) if each.startswith("seen_1_highest"))
    app = send(press(app, button), "seen", "it is known")
    (entry,) = [each for each in store.audit_entries(limit=9) if each.action == "seen"]
    assert entry.actor == "bob" and not leaked(entry.detail)
    assert [notice.kind for notice in store.noticed.open()] == [Measure.VALUE]
    kept = store.noticed.of_table(ref.uri, since=datetime(2000, 1, 1, tzinfo=UTC), until=datetime.now(UTC))
    assert {notice.after for notice in kept} == {"987,654"}  # whole


def seen_by(who: str) -> Lake:
    return services.lake().seen_by(services.settings().auth.actor(who))
