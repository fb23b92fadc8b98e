"""Restricted rows and columns at the lake's gate and in what is kept for all viewers: filled by one who may, asked by
one who may not."""

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from backend.access import Actor, Grant
from backend.changes.cache import Differences
from backend.changes.host_job import DiffJobs
from backend.changes.model import DiffMethod, Question
from backend.errors import LakehouseError, RowsRefusedError
from backend.expectations.looks import Looks
from backend.expectations.model import ExpectationKind, TableExpectation
from backend.lake.files.file_sizes import FileChoice, file_page, partition_codes, partition_files
from backend.lake.files.stats import column_stats, column_totals
from backend.lake.lake import Lake
from backend.lake.rows.rows import RowQuery
from backend.lake.table.schema import columns
from backend.query.plan import plan_query
from backend.query.tiles import tiles_of
from backend.query.views import World
from backend.search.search import BisectRequest, Bisects
from backend.search.suggest import held_numbers, load_held
from backend.settings import Settings, load_settings
from backend.sql.filters import parse_filter
from backend.sql.numbers import aggregates, column_numbers, profiles
from backend.sql.session import CancelToken
from backend.times import Clock
from tests.worlds.lake import builders
from tests.worlds.lake.object_store import bucket_of, lake_on
from tests.worlds.lake.restricted import CUSTOMERS, GRANTS, ORDERS, PEOPLE, TAG, leaked, restricted_lake
from tests.worlds.processes import wait_until


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))
    monkeypatch.setenv("WEIR_CONFIG", os.devnull)
    monkeypatch.setenv("WEIR_AUTH__GRANTS", GRANTS)
    restricted_lake(tmp_path / "lake")
    return load_settings()


@pytest.fixture
def lake(settings: Settings) -> Lake:
    return Lake(settings)


def seen(lake: Lake, settings: Settings, who: str) -> Lake:
    return lake.seen_by(settings.auth.actor(who))


@pytest.fixture
def may(lake: Lake, settings: Settings) -> Lake:
    return seen(lake, settings, "ann")


@pytest.fixture
def may_not(lake: Lake, settings: Settings) -> Lake:
    return seen(lake, settings, "bob")


def last(steps: Iterator[object]) -> object:
    *_, step = steps
    return step


def test_who_may_see_the_same_has_the_same_lake(lake: Lake, settings: Settings) -> None:
    assert lake.seen_by(Actor("ann")) is lake  # nothing is configured
    assert seen(lake, settings, "cem") is seen(lake, settings, "dan") is not seen(lake, settings, "ann")
    assert seen(lake, settings, "cem").seen_by(settings.auth.actor("ann")) is seen(lake, settings, "ann")
    assert seen(lake, settings, "cem").found() is lake.found()


READS: dict[str, Callable[[Lake], object]] = {
    "files": lambda lake: lake.read_files(lake.snapshot(lake.find(PEOPLE))).read_all(),
    "rows": lambda lake: lake.find_rows(lake.snapshot(lake.find(PEOPLE)), RowQuery(None)),
    "rows of a version before the tag": lambda lake: lake.find_rows(
        lake.snapshot(lake.find(PEOPLE), 0), RowQuery(None)
    ),
    "by its address": lambda lake: lake.read_files(lake.snapshot(lake.find(lake.find(PEOPLE).uri))).read_all(),
    "changes": lambda lake: lake.changes(lake.find(PEOPLE), 0, 2).read_all(),
    "one column of changes": lambda lake: lake.changes(lake.find(PEOPLE), 0, 1, columns=["town"]).read_all(),
    "local files": lambda lake: lake.local_files(
        lake.snapshot(lake.find(PEOPLE)), lake.snapshot(lake.find(PEOPLE)).files
    ),
}


@pytest.mark.parametrize("name", READS)
def test_no_row_of_a_restricted_table_is_read(may: Lake, may_not: Lake, name: str) -> None:
    with pytest.raises(RowsRefusedError, match=f"the rows of {PEOPLE} are restricted: user ann may"):
        READS[name](may_not)
    READS[name](may)


def test_a_snapshot_of_one_who_may_opens_nothing_to_one_who_may_not(may: Lake, may_not: Lake) -> None:
    with pytest.raises(RowsRefusedError):
        may_not.read_files(may.snapshot(may.find(PEOPLE)))
    (nulls,) = {*may_not.read_files(may.snapshot(may.find(CUSTOMERS))).read_all()["email"].to_pylist()}
    assert nulls is None


def test_restricted_columns_are_nulls_also_where_they_are_asked_for(may: Lake, may_not: Lake) -> None:
    for version in (0, 1):
        snapshot = may_not.snapshot(may_not.find(CUSTOMERS), version)
        whole = may_not.read_files(snapshot).read_all()
        asked = may_not.read_files(snapshot, snapshot.files, columns=["email", "id"], numbered="file").read_all()
        page = may_not.find_rows(snapshot, RowQuery(("address", "email", "amount"))).rows
        for rows in (whole, asked, page):
            assert not leaked(str(rows.to_pylist()))
            assert rows.schema.field("email").type == pa.string() and rows["email"].null_count == rows.num_rows
        assert whole["amount"].null_count == 0
        with may_not.local_files(snapshot, snapshot.files) as files:
            assert files is None


@pytest.mark.parametrize(
    "text",
    ["email = 'zzoe@secret.example'", "email IS NULL", "length(email) > 3", "id = 1 OR email > 'a'", "EMAIL LIKE 'z%'",
     "address.street = '1 hush lane'", "address.city = 'Ulm'", "NOT (email < 'b')", "id IN (1) AND upper(email) = 'Z'"],
)  # fmt: skip
def test_a_filter_on_a_restricted_column_is_refused(may: Lake, may_not: Lake, text: str) -> None:
    snapshot = may_not.snapshot(may_not.find(CUSTOMERS))
    where = parse_filter(text, columns(snapshot.metadata))
    for read in (
        lambda: may_not.find_rows(snapshot, RowQuery(("id",), where)),
        lambda: may_not.read_files(snapshot, columns=["id"], where=where),
    ):
        with pytest.raises(RowsRefusedError, match=f"of {CUSTOMERS} is restricted"):
            read()
    may.find_rows(snapshot, RowQuery(("id",), where))


def test_statistics_say_nulls_and_rows_and_no_bound(may: Lake, may_not: Lake) -> None:
    names = ("id", "name", "salary", "town")
    assert leaked(str(column_totals(may.snapshot(may.find(PEOPLE)), names)))
    snapshot = may_not.snapshot(may_not.find(PEOPLE))
    totals = column_totals(snapshot, names)
    assert not leaked(str(totals)) and {(each.lowest, each.highest) for each in totals} == {(None, None)}
    assert totals[0].rows_with_nulls == 3 and totals[0].nulls == 0
    assert column_stats(snapshot, "salary").min.null_count == snapshot.num_files
    other = may_not.snapshot(may_not.find(CUSTOMERS))
    street, city, amount = column_totals(other, ("address.street", "address.city", "amount"))
    assert (street.lowest, city.highest, amount.highest) == (None, None, 7)
    footer = may_not.footer(other, other.files["path"][0].as_py())
    assert not leaked(str(footer)) and leaked(str(may.footer(other, other.files["path"][0].as_py())))


def test_partitions_are_counted_and_not_named(may: Lake, may_not: Lake) -> None:
    snapshot = may_not.snapshot(may_not.find(PEOPLE))
    named = partition_files(snapshot, 0)
    assert not leaked(str(named)) and sum(part.num_files for part in named) == snapshot.num_files
    for choice in (FileChoice(), FileChoice(partition="town=Nowhere")):  # nobody guesses, and paths tell
        with pytest.raises(RowsRefusedError):
            file_page(snapshot, choice)
    assert file_page(may.snapshot(may.find(PEOPLE)), FileChoice(partition="town=Nowhere")).total
    assert "town=Nowhere" in partition_codes(may.snapshot(may.find(PEOPLE)))[1]


def test_a_renamed_column_and_a_dropped_tag_are_the_same_column(tmp_path: Path, settings: Settings) -> None:
    """Under column mapping; 0 `mail`, not tagged; 1 it is called `contact`, and tagged."""
    table = tmp_path / "lake" / "silver" / "mapped"
    action = builders.put(table, "part.parquet", {"c1": [1, 2], "c2": ["zzoe", "yyuri"]})

    def state(name: str, **tags: str) -> dict[str, Any]:
        action = builders.mapped_metadata({"id": ("c1", "long", 1), name: ("c2", "string", 2)})
        schema = json.loads(action["metaData"]["schemaString"])
        schema["fields"][1]["metadata"] |= tags
        action["metaData"]["schemaString"] = json.dumps(schema)
        return action

    log = builders.HandLog(table)
    log.commit(builders.protocol(2, 5), state("mail"), action)
    open_lake = Lake(settings)
    may_not = seen(open_lake, settings, "bob")
    ref = may_not.find("silver/mapped")
    assert leaked(str(may_not.read_files(may_not.snapshot(ref)).read_all().to_pylist()))
    log.commit(state("contact", classification="restricted"))
    for version in (0, 1):
        rows = may_not.read_files(may_not.snapshot(ref, version)).read_all()
        assert rows.num_rows == 2 and not leaked(str(rows.to_pylist())), version
    log.commit(state("contact"))  # declassified
    assert leaked(str(may_not.read_files(may_not.snapshot(ref)).read_all().to_pylist()))
    assert not leaked(str(may_not.read_files(may_not.snapshot(ref, 1)).read_all().to_pylist()))


@pytest.mark.parametrize("tag", ["RESTRICTED", "restricted ", "ｒestricted", "Restricted"])
def test_a_tag_counts_in_any_case_and_form(tmp_path: Path, settings: Settings, tag: str) -> None:
    log = builders.HandLog(tmp_path / "lake" / "silver" / "twin")
    log.start(configuration={"Catalog.Table.Classification": tag})
    log.commit(builders.put(log.table, "part.parquet", {"id": [1]}))
    may_not = seen(Lake(settings), settings, "bob")
    with pytest.raises(RowsRefusedError, match="nobody may see"):
        may_not.read_files(may_not.snapshot(may_not.find("silver/twin")))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"fields": [1]}', '{"fields": [{"metadata": 3}]}'])
def test_a_schema_that_cannot_be_read_stops_nothing(tmp_path: Path, settings: Settings, text: str) -> None:
    log = builders.HandLog(tmp_path / "lake" / "silver" / "odd")
    action = builders.metadata({"id": "long"})
    action["metaData"]["schemaString"] = text
    log.commit(builders.protocol(), action)
    may_not = seen(Lake(settings), settings, "bob")
    assert may_not.snapshot(may_not.find("silver/odd")).hidden is None


def test_a_table_whose_latest_version_cannot_be_read_is_closed(tmp_path: Path, settings: Settings) -> None:
    log = tmp_path / "lake" / ORDERS / "_delta_log"
    (log / f"{1:020}.json").write_text("{ no json")
    may_not = seen(Lake(settings), settings, "bob")
    with pytest.raises(RowsRefusedError, match="its latest version cannot be read"):
        may_not.read_files(may_not.snapshot(may_not.find(ORDERS), 0))


# what is kept for all viewers -----------------------------------------------------------------------------------------


def test_differences_are_kept_by_what_one_may_see(may: Lake, may_not: Lake) -> None:
    differences, ref = Differences(), may.find(PEOPLE)
    for method in (None, DiffMethod.MULTISET):
        question = Question(ref, 0, 1, method=method, row_limit=9)
        assert leaked(str(last(differences.over(may, question))))
        assert differences.known(may_not, question) is None
        answer = last(differences.over(may_not, question))
        assert "restricted" in str(answer) and not leaked(str(answer).replace("town=Nowhere", ""))  # of its history
        assert not leaked(str(differences.soon(may_not, question, 60.0)).replace("town=Nowhere", ""))
        assert leaked(str(differences.known(may, question)))
    of_columns = Question(may.find(CUSTOMERS), 0, 1, row_limit=9)
    assert leaked(str(last(differences.over(may, of_columns))))
    answer = last(differences.over(may_not, of_columns))
    assert not leaked(str(answer)) and "left out of the comparison: email, address" in str(answer)
    for wrong in ({"columns": ("email",)}, {"where": "email LIKE 'z%'"}):
        with pytest.raises(LakehouseError):
            last(differences.over(may_not, Question(may.find(CUSTOMERS), 0, 1, **wrong)))  # type: ignore[arg-type]


def test_a_tag_that_is_set_closes_what_was_kept_before(tmp_path: Path, settings: Settings) -> None:
    may_not, differences, bisects = seen(Lake(settings), settings, "bob"), Differences(), Bisects()
    path = tmp_path / "lake" / "silver" / "late"
    for number, name in enumerate(("zzoe", "yyuri")):
        builders.write(path, {"id": [number], "name": [name]})
    ref = may_not.find("silver/late")
    question, asked = Question(ref, 0, 1, row_limit=9), BisectRequest("name <> 'yyuri'", bad=1)
    assert leaked(str(last(differences.over(may_not, question))))
    assert leaked(str(last(bisects.over(may_not, ref, asked))))
    DeltaTable(str(path)).alter.set_table_properties(TAG, raise_if_not_exists=False)
    assert differences.known(may_not, question) is None and bisects.known(may_not, ref, asked) is None
    assert not leaked(str(last(differences.over(may_not, question))))


def test_searches_and_their_example_rows_are_kept_by_what_one_may_see(may: Lake, may_not: Lake) -> None:
    bisects, asked = Bisects(), BisectRequest("salary < 900000 OR id = 1", good=0, bad=1)
    asked = BisectRequest("id < 3", good=0, bad=1)
    result = last(bisects.over(may, may.find(PEOPLE), asked))
    assert leaked(str(result))  # its example rows
    assert bisects.known(may, may.find(PEOPLE), asked) is not None
    assert bisects.known(may_not, may_not.find(PEOPLE), asked) is None
    with pytest.raises(RowsRefusedError):
        last(bisects.over(may_not, may_not.find(PEOPLE), asked))
    of_columns = BisectRequest("amount <> 6", good=0, bad=1)
    assert leaked(str(last(bisects.over(may, may.find(CUSTOMERS), of_columns))))
    assert not leaked(str(last(bisects.over(may_not, may_not.find(CUSTOMERS), of_columns))))
    counted = BisectRequest("count(*) < 3", good=0, bad=1)
    last(bisects.over(may_not, may_not.find(PEOPLE), counted))  # counts are open


def test_numbers_profiles_and_suggestions_are_kept_by_what_one_may_see(may: Lake, may_not: Lake) -> None:
    ref = may.find(PEOPLE)
    for numbers, asked in (
        (aggregates(), "max(salary)"), (column_numbers(), "salary"), (profiles(), ""),
    ):  # fmt: skip
        assert leaked(str(last(numbers.over(may, ref, asked, [0, 1]))))
        assert not numbers.known(may_not.snapshot(ref), asked, [0, 1])
        try:
            found = last(numbers.over(may_not, ref, asked, [0, 1]))
        except RowsRefusedError:
            continue
        assert not leaked(str(found))
    held = held_numbers()
    assert leaked(str(load_held(held, may, ref, (0, 2)))) and not leaked(str(load_held(held, may_not, ref, (0, 2))))
    of_columns = profiles()
    last(of_columns.over(may, may.find(CUSTOMERS), "", [1]))
    found = last(of_columns.over(may_not, may.find(CUSTOMERS), "", [1]))
    assert not leaked(str(found)) and "left_out=('email', 'address')" in str(found)


def test_what_hosts_are_asked_for_is_checked_when_it_is_asked(may: Lake, may_not: Lake, settings: Settings) -> None:
    ann, bob = settings.auth.actor("ann"), settings.auth.actor("bob")
    question = Question(may.find(PEOPLE), 0, 1, on_host=True)
    assert DiffJobs(settings, may).request(question, actor=ann).subject == PEOPLE
    with pytest.raises(LakehouseError, match="restricted"):
        DiffJobs(settings, may_not).request(question, actor=bob)
    of_columns = Question(may.find(CUSTOMERS), 0, 1, on_host=True, key=("id",))
    whole = DiffJobs(settings, may).request(of_columns, actor=ann)
    part = DiffJobs(settings, may_not).request(of_columns, actor=bob)
    assert whole.fingerprint != part.fingerprint and "email" in whole.request and "email" not in part.request


def test_a_tile_of_one_who_may_is_none_of_one_who_may_not(lake: Lake, settings: Settings, tmp_path: Path) -> None:
    text, now = "SELECT name, salary FROM people", datetime.now(UTC)

    def world(who: str) -> Callable[[], World]:
        return lambda: World(seen(lake, settings, who), None, now, settings)

    whole, part = tiles_of(world("ann")), tiles_of(world("bob"))
    wait_until(lambda: whole.state(text).rows is not None, "the tile ran")
    wait_until(lambda: part.state(text).problem is not None, "the tile ran")
    assert part.state(text).rows is None and "user ann may see" in str(part.state(text).problem)
    # what was open is no longer shown once it is tagged
    open_text = "SELECT order_id FROM orders"
    wait_until(lambda: part.state(open_text).rows is not None, "the tile ran")
    DeltaTable(str(tmp_path / "lake" / ORDERS)).alter.set_table_properties(TAG, raise_if_not_exists=False)
    wait_until(lambda: part.state(open_text).problem is not None, "the tile ran")
    assert part.state(open_text).rows is None


def test_an_expectation_finds_nothing_of_a_restricted_column(may_not: Lake) -> None:
    ref, now = may_not.find(CUSTOMERS), datetime.now(UTC)
    by_key = TableExpectation(ref.uri, ref.name, ExpectationKind.UNIQUE, columns=("email",))
    holds = TableExpectation(ref.uri, ref.name, ExpectationKind.HOLDS, condition="max(email) < 'z'")
    for expected in (by_key, holds):
        assert not leaked(str(Looks(may_not, 10**9).look(expected, None, CancelToken(), now=now)))


def test_one_without_a_login_sees_no_more_than_one_with_it(lake: Lake, settings: Settings) -> None:
    for who in (settings.auth.actor(""), settings.auth.actor("user ann"), settings.auth.actor("ANN")):
        stranger = lake.seen_by(who)
        with pytest.raises(RowsRefusedError):
            stranger.read_files(stranger.snapshot(stranger.find(PEOPLE)))
    group = Grant.model_validate({"role": "viewer", "group": "a, b", "on": [PEOPLE]})
    twins = settings.auth.model_copy(update={"grants": [group]})
    for groups in (["a"], ["b"], ["a,b"], ["A, B"]):
        with pytest.raises(RowsRefusedError):
            stranger = lake.seen_by(twins.actor("x", groups))
            stranger.read_files(stranger.snapshot(stranger.find(PEOPLE)))
    member = lake.seen_by(twins.actor("x", ["a, b"]))
    assert member.read_files(member.snapshot(member.find(PEOPLE))).read_all().num_rows == 3


def test_another_persons_eyes_show_no_more_than_ones_own(lake: Lake, settings: Settings) -> None:
    ann, bob = settings.auth.actor("ann"), settings.auth.actor("bob")
    for people in ((ann, bob), (bob, ann), (bob, bob), (Actor("os"), bob)):
        view = lake.seen_by(*people)
        with pytest.raises(RowsRefusedError):
            view.read_files(view.snapshot(view.find(PEOPLE)))
    assert lake.seen_by(ann, ann) is lake.seen_by(ann) and lake.seen_by(Actor("os"), Actor("os")) is lake


def test_plans_name_the_table_and_who_may(may_not: Lake, settings: Settings) -> None:
    world = World(may_not, None, datetime.now(UTC), settings)
    with pytest.raises(RowsRefusedError) as refused:
        plan_query(world, "SELECT * FROM orders, people", Clock(world.now, None))
    assert refused.value.exit_code == 4 and "silver/people" in refused.value.message


def test_an_object_store_has_the_same_gate(tmp_path: Path, settings: Settings) -> None:
    lake = lake_on(f"s3://{bucket_of('restricted', tmp_path / 'lake', 'root/')}/root", tmp_path / "home")
    may, may_not = seen(lake, settings, "ann"), seen(lake, settings, "bob")
    for name in READS:
        with pytest.raises(RowsRefusedError):
            READS[name](may_not)
        READS[name](may)
    for version in (0, 1):
        snapshot = may_not.snapshot(may_not.find(CUSTOMERS), version)
        rows = may_not.read_files(snapshot).read_all(), may_not.find_rows(snapshot, RowQuery(None)).rows
        assert not leaked(str([each.to_pylist() for each in rows]))
        assert leaked(str(may.read_files(snapshot).read_all().to_pylist()))
