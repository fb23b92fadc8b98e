"""Restricted rows and columns at the terminal: whoever no grant names the table to gets no value of it, by no way."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app import services
from backend.access import Actor
from backend.settings import load_settings
from backend.sql.saved import Chart
from backend.store.store import ControlStore
from tests.worlds.lake.restricted import CUSTOMERS, GRANTS, PEOPLE, leaked, restricted_lake
from tests.worlds.terminal import Answer, Weir

As = Callable[..., Answer]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return restricted_lake(tmp_path_factory.mktemp("restricted"))


@pytest.fixture
def by(home: Path, made: Path, weir: Weir, monkeypatch: pytest.MonkeyPatch) -> As:
    """`by("bob", "query", …)`: a command of that person."""
    monkeypatch.setenv("WEIR_LAKE__ROOTS", json.dumps([str(made)]))
    monkeypatch.setenv("WEIR_AUTH__GRANTS", GRANTS)
    monkeypatch.setenv("WEIR_AUTH__TERMINAL_ROLE", "viewer")

    def run(who: str, *args: str) -> Answer:
        monkeypatch.setenv("LOGNAME", who)
        return weir(*args)

    return run


STATEMENTS = {
    "star": "SELECT * FROM people",
    "one column": "SELECT name FROM silver.people",
    "count": "SELECT count(*) FROM people",
    "join": "SELECT p.name FROM orders o JOIN people p ON p.id = o.person_id",
    "semi join": "SELECT order_id FROM orders SEMI JOIN people ON id = person_id",
    "with": "WITH x AS (SELECT * FROM people) SELECT name FROM x",
    "subquery": "SELECT * FROM (SELECT salary FROM people) AS s",
    "exists": "SELECT order_id FROM orders WHERE EXISTS (SELECT 1 FROM people WHERE salary > 900000)",
    "scalar": "SELECT order_id, (SELECT max(salary) FROM people) AS most FROM orders",
    "lateral": "SELECT * FROM orders o, LATERAL (SELECT name FROM people p WHERE p.id = o.person_id)",
    "union": "SELECT order_id::VARCHAR FROM orders UNION ALL SELECT name FROM people",
    "before its tag": "SELECT * FROM people VERSION AS OF 0",
    "as of a time": "SELECT * FROM people TIMESTAMP AS OF '2099-01-01'",
    "quoted": 'SELECT * FROM "silver/people"',
    "changes": """SELECT * FROM "silver/people$changes"(0, 1)""",
    "changes by files": """SELECT name FROM "silver/people$changes"(1, 3)""",
    "bounds": 'SELECT lower_bounds FROM "silver/people$files"',
    "upper bounds": 'SELECT upper_bounds FROM "silver/people$files" VERSION AS OF 0',
    "files": 'SELECT * FROM "silver/people$files"',
    "paths of partitions": 'SELECT file_path FROM "silver/people$files"',
    "partitions": 'SELECT partition FROM "silver/people$partitions"',
    "column": "SELECT email FROM customers",
    "every column": "SELECT * FROM customers",
    "nested": "SELECT address.street FROM customers",
    "sibling of a nested one": "SELECT address FROM customers",
    "filter": "SELECT id FROM customers WHERE email LIKE 'zzoe%'",
    "order": "SELECT id FROM customers ORDER BY email",
    "group": "SELECT count(*) FROM customers GROUP BY EMAIL",
    "joined by": "SELECT a.id FROM customers a JOIN customers b USING (email)",
    "changed column": """SELECT email FROM "silver/customers$changes"(0, 1)""",
    "bounds of a column": 'SELECT upper_bounds FROM "silver/customers$files"',
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_query_that_touches_them_is_refused_by_name_before_it_runs(by: As, name: str) -> None:
    table = PEOPLE if "people" in STATEMENTS[name] else CUSTOMERS
    for who in ("bob", "cem", "eve"):  # patterns, another case and everything name no table
        for more in (["--json"], ["--dry-run"]) if who == "bob" else (["--csv"],):
            answer = by(who, "query", STATEMENTS[name], *more)
            assert answer.code == 4 and f"{table} " in answer.err and "user ann may see" in answer.err, answer
            assert not leaked(answer.out + answer.err)
    assert by("ann", "query", STATEMENTS[name], "--json").code == 0
    with closing(ControlStore.open(load_settings())) as store:  # made by the first query that was answered
        by("bob", "query", STATEMENTS[name])
        entry = store.audit_entries()[0]
        assert (entry.actor, entry.action, entry.subject, entry.result) == ("bob", "rows refused", table, "denied")


def test_what_is_open_of_them_stays_open(by: As) -> None:
    for statement in (
        "SELECT id, amount FROM customers",
        "SELECT count(*) AS n FROM customers",
        'SELECT record_count, file_size_in_bytes FROM "silver/people$files"',
        'SELECT record_count, null_value_counts FROM "silver/customers$files"',
        'SELECT file_count FROM "silver/people$partitions"',
        'SELECT * FROM "silver/people$history"',
        'SELECT id, amount, _change_type FROM "silver/customers$changes"(0, 1) WHERE amount = 6',
        "SELECT * FROM weir.tables",
        "SELECT * FROM weir.columns",
        "SELECT * FROM weir.commits",
        "SELECT * FROM weir.notices",
    ):
        answer = by("bob", "query", statement, "--json")
        assert answer.code == 0 and not leaked(answer.out), (statement, answer.err, answer.out)


def test_a_saved_query_of_one_who_may_shows_nothing_to_one_who_may_not(by: As, home: Path) -> None:
    by("ann", "tables")
    services.store().saved.save(
        "pay", "SELECT name, salary FROM people", Chart("Bar", "name", "salary"), actor=Actor("ann"), reason="r",
        now=services.now(),
    )  # fmt: skip
    assert leaked(by("ann", "query", "--saved", "pay").out)
    answer = by("bob", "query", "--saved", "pay")
    assert answer.code == 4 and not leaked(answer.out + answer.err)


REFUSED = {
    "export": ("export", PEOPLE, "-o", "x.csv"),
    "export of a version before its tag": ("export", PEOPLE, "-o", "x.parquet", "--version", "0"),
    "export of a filter": ("export", CUSTOMERS, "-o", "x.csv", "--where", "email LIKE 'zzoe%'"),
    "export of a filter that is computed": ("export", CUSTOMERS, "-o", "x.csv", "--where", "length(email) > 17"),
    "profile": ("profile", PEOPLE),
    "change feed": ("changes", PEOPLE, "--from", "0", "--to", "1"),
    "condition": ("bisect", PEOPLE, "--assert", "salary < 100"),
    "condition on an aggregate": ("bisect", PEOPLE, "--assert", "max(salary) < 100"),
    "condition on a key": ("bisect", PEOPLE, "--assert", "(name)"),
    "condition on a column": ("bisect", CUSTOMERS, "--assert", "email NOT LIKE 'ann%'"),
    "condition on a nested column": ("bisect", CUSTOMERS, "--assert", "address.street IS NULL"),
    "expectation": ("expect", PEOPLE, "max(salary) < 900000", "--dry-run"),
    "expectation of a column": ("expect", CUSTOMERS, "max(email) < 'z'", "--reason", "r"),
    "condition in another case": ("bisect", CUSTOMERS, "--assert", "EMAIL NOT LIKE 'ann%'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_command_that_reads_them_is_refused(by: As, home: Path, name: str) -> None:
    by("ann", "tables")
    services.store()
    answer = by("bob", *REFUSED[name])
    assert answer.code in (1, 4) and "user ann may see" in answer.err + answer.out, answer
    assert not leaked(answer.out + answer.err) and not [*home.glob("x.*")]


SHOWN = {
    "statistics": ("profile", PEOPLE, "--statistics", "--json"),
    "statistics of columns": ("profile", CUSTOMERS, "--statistics", "--json"),
    "profile of columns": ("profile", CUSTOMERS, "--json"),
    "two profiles": ("profile", CUSTOMERS, "--against", "0", "--json"),
    "difference": ("diff", PEOPLE, "--from", "0", "--to", "2", "--json"),
    "difference by a method": ("diff", PEOPLE, "--from", "0", "--to", "1", "--method", "change_feed", "--json"),
    "difference of columns": ("diff", CUSTOMERS, "--from", "0", "--to", "1", "--json"),
    "difference of columns by a key": ("diff", CUSTOMERS, "--from", "0", "--to", "1", "--key", "id", "--json"),
    "difference by a closed key": ("diff", CUSTOMERS, "--from", "0", "--to", "1", "--key", "email"),
    "table": ("table", PEOPLE, "--json"),
    "files": ("files", PEOPLE, "--json"),
    "files for people": ("files", PEOPLE),
    "history": ("history", PEOPLE, "--json"),
    "properties": ("properties", PEOPLE, "--json"),
    "versions": ("versions", PEOPLE, "--json"),
    "health": ("health", PEOPLE, "--json"),
    "health of the lake": ("health", "--json"),
    "notices": ("notices", "--json"),
    "timeline": ("timeline", PEOPLE, "--json"),
    "search": ("find", "restricted"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_command_that_says_more_than_values_says_no_value(by: As, name: str) -> None:
    answer = by("bob", *SHOWN[name])
    assert not leaked(answer.out + answer.err), answer
    assert answer.code in ((1, 4) if "difference" in name and PEOPLE in SHOWN[name] else (0, 10)), answer


def test_an_export_has_nulls_in_the_place_of_restricted_columns(by: As, home: Path) -> None:
    assert by("bob", "export", CUSTOMERS, "-o", "some.csv").code == 0
    assert (home / "some.csv").read_text().splitlines()[1] in ("1,,,6", "2,,,7")
    assert not leaked((home / "some.csv").read_text())
    assert by("ann", "export", CUSTOMERS, "-o", "all.csv").code == 0 and leaked((home / "all.csv").read_text())


def test_without_grants_everything_is_as_it_was(by: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEIR_AUTH__GRANTS")
    monkeypatch.delenv("WEIR_AUTH__TERMINAL_ROLE")
    assert leaked(by("bob", "query", "SELECT * FROM people", "--json").out)


def test_another_word_restricts_where_settings_say_so(by: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_AUTH__RESTRICTED", '["secret"]')
    assert leaked(by("bob", "query", "SELECT * FROM people", "--json").out)
