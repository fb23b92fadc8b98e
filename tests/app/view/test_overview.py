"""The first screen in words: totals, order, what needs attention and where it leads."""

from dataclasses import replace
from datetime import timedelta

import pytest

from app.overview import view as overview
from app.overview.visit import GAP, Visit, visit_before
from app.tables import view as tables
from app.ui.lake import lake_totals, totals_sentence
from backend.health.groups import grouped
from backend.health.model import AttentionItem, Cause, Severity
from backend.jobs.model import Job, JobKind, JobState
from backend.lake.model import TableCard, TableRef, UnreadableTable
from tests.worlds.lake.made import NOW, REF


def test_totals_say_what_they_could_not_count() -> None:
    known = TableCard(REF, 3, 10, 1000, 50, 9, NOW, "WRITE")
    rowless = TableCard(REF, 3, 10, 1000, None, 0, NOW, "WRITE")
    broken = UnreadableTable(REF, "cut off", "restore it")
    text = totals_sentence(lake_totals([known, rowless, broken]))
    assert text == "3 tables · 50 rows (unknown in 1 table) · 20 files · 2 kB · 1 unreadable"


def test_rows_that_no_table_knows_are_unknown_and_not_nothing() -> None:
    totals = lake_totals([TableCard(REF, 3, 10, 1000, None, 0, NOW, "WRITE")] * 3)
    assert totals_sentence(totals) == "3 tables · rows unknown · 30 files · 3 kB"
    rows = next(figure for figure in overview.key_figures(totals, []) if figure.label == "Rows")
    assert (rows.value, rows.help) == ("–", "Unknown in 3 tables whose files lack statistics.")


def test_tables_stand_in_the_order_of_the_medallion_and_the_broken_among_them() -> None:
    def named(name: str, layer: str | None) -> UnreadableTable:
        return UnreadableTable(TableRef(f"/{name}", name, "/", layer), "no", "")

    tables = [named("a", None), named("b", "gold"), named("d", "bronze"), named("c", "bronze")]
    ordered = overview.by_layer(tables)
    assert [t.ref.name for t in ordered] == ["c", "d", "b", "a"]
    assert overview.tables_frame(ordered, NOW)["Version"].tolist() == ["unreadable"] * 4


def test_the_heading_tells_urgent_from_notes_and_never_praises_what_is_unknown() -> None:
    note = AttentionItem(Severity.NOTE, Cause.QUIET_TABLE, "t", "old", "look")
    urgent = AttentionItem(Severity.CRITICAL, Cause.FAILED_STREAM, "s", "failed", "restart")
    assert overview.attention_sentence([]) == "Nothing needs attention"
    assert overview.attention_sentence(grouped([note])) == "Nothing urgent, 1 note"
    assert overview.attention_sentence(grouped([urgent, urgent, note])) == "1 thing needs attention, 1 note"
    assert overview.attention_sentence([], ["streams"]) == "Not known: streams could not be read"


@pytest.mark.parametrize(
    ("cause", "one", "many"),
    [
        (Cause.FAILED_STREAM, ("stream", {"stream": "a"}), ("streams", {})),
        (Cause.STOPPED_STREAM, ("stream", {"stream": "a"}), ("streams", {})),
        (Cause.UNREADABLE, ("table", {"table": "a"}), ("tables", {"show": "Cannot be read"})),
        (
            Cause.SMALL_FILES,
            ("health", {"table": "a"}),
            ("tables", {"show": "Worth merging", "sort": "Most to merge"}),
        ),
        (Cause.QUIET_TABLE, ("table", {"table": "a"}), ("tables", {"show": "Stale", "sort": "Stalest"})),
        (Cause.NO_HOST, ("streams", {}), ("streams", {})),
        (Cause.FAILING_WEBHOOK, ("streams", {}), ("streams", {})),
    ],
)
def test_one_thing_leads_to_its_page_and_several_to_their_list(
    cause: Cause, one: tuple[str, dict[str, str]], many: tuple[str, dict[str, str]]
) -> None:
    items = [AttentionItem(Severity.WARNING, cause, name, "what", "step") for name in "ab"]
    for wanted, number in ((one, 1), (many, 2)):
        (group,) = grouped(items[:number])
        found = overview.destination(group)
        assert (found.page, dict(found.params)) == wanted
    if "show" in many[1]:
        assert many[1]["show"] in tables.SHOWN and many[1].get("sort", "Name") in tables.ORDERS


def test_unusual_commits_to_several_tables_lead_to_each_that_is_named_the_first_one_first() -> None:
    ages = (("gold/b", 1), ("gold/a", 9), ("gold/b", 5), ("silver/b", 6), ("t_d", 3), ("t_c", 2), ("t_e", 7))
    commits = [
        AttentionItem(Severity.WARNING, Cause.UNUSUAL_COMMIT, name, "what", "step", NOW - timedelta(minutes=age))
        for name, age in ages
    ]
    (one,) = grouped(commits[:1])
    assert overview.destinations(one) == [overview.LinkTarget("table", "Open table", {"table": "gold/b"})]
    named = [["gold/a", "gold/b"], ["gold/a", "silver/b", "gold/b"], ["gold/a", "silver/b", "gold/b", "t_d"]]
    for number, wanted in ((3, named[0]), (4, named[1]), (5, named[2]), (7, ["gold/a", "t_e", "silver/b", "gold/b"])):
        (group,) = grouped(commits[:number])
        links = overview.destinations(group)
        assert [link.label for link in links] == wanted, "whole: layers may have tables of one name"
        assert all((link.page, link.params) == ("table", {"table": link.label}) for link in links)
        places = [group.what.index(name) for name in wanted]
        assert places == sorted(places), "in the order in which the sentence names them"


def test_small_files_that_can_wait_lead_to_all_tables_that_have_them() -> None:
    items = [AttentionItem(Severity.NOTE, Cause.SMALL_FILES, name, "what", "step") for name in "ab"]
    (group,) = grouped(items)
    assert overview.destination(group).params["show"] == tables.SMALL


def test_a_line_begins_with_its_name_or_with_how_many() -> None:
    failed = AttentionItem(Severity.CRITICAL, Cause.FAILED_STREAM, "s", "s failed.", "restart", NOW)
    small = AttentionItem(Severity.NOTE, Cause.SMALL_FILES, "t", "9 of 9 files are small.", "wait", spared=8)
    lines = [overview.group_words(group, NOW) for group in (*grouped([failed]), *grouped([small]))]
    assert lines == [("s", "failed · just now"), ("t", "· 9 of 9 files are small.")]
    (many,) = grouped([small, replace(small, subject="u")])
    assert overview.group_words(many, NOW) == ("2 tables", "hold mostly small files: merging would spare 16 files.")


def test_figures_of_a_lake_that_no_one_can_read_are_dashes_and_no_zeros() -> None:
    broken = UnreadableTable(REF, "cut off", "restore it")
    figures = {figure.label: figure for figure in overview.key_figures(lake_totals([broken]), [])}
    assert (figures["Tables"].value, figures["Tables"].help) == ("1", "0 can be read.")
    assert (figures["Rows"].value, figures["Rows"].help) == ("–", "No table can be read.")
    assert figures["Streams running"].value == "–"


def test_a_visit_ends_when_nobody_looked_for_half_an_hour() -> None:
    def cookie(*ends: tuple[float, int]) -> str:
        return ".".join(f"{(NOW - timedelta(minutes=minutes)).timestamp():.0f}.{tables}" for minutes, tables in ends)

    def ended(minutes: float, tables: int) -> Visit:
        return Visit((NOW - timedelta(minutes=minutes)).replace(microsecond=0), tables)

    assert visit_before(cookie((500, 3), (31, 5)), NOW) == ended(31, 5)
    assert visit_before(cookie((500, 3), (29, 5)), NOW) == ended(500, 3), "this visit goes on"
    assert visit_before(f"0.0.{cookie((29, 5))}", NOW) is None, "the first goes on"
    assert visit_before(f"0.0.{cookie((31, 5))}", NOW) == ended(31, 5)
    for odd in ("", "1.2.3", "1.2.3.x", "1.2.3.-4", "1..2.3", "9" * 400, "1.2.3.4.5"):
        assert visit_before(odd, NOW) is None
    assert timedelta(minutes=30) == GAP


def test_what_is_new_since_a_visit_leads_to_where_it_is_told() -> None:
    def item(cause: Cause, subject: str, minutes: int | None) -> AttentionItem:
        since = None if minutes is None else NOW - timedelta(minutes=minutes)
        return AttentionItem(Severity.WARNING, cause, subject, "what", "step", since)

    def act(state: JobState, minutes: int | None) -> Job:
        ended = None if minutes is None else NOW - timedelta(minutes=minutes)
        given = ("1", JobKind.OPTIMIZE, "t", "", "", "ana", "", 1.0, state, NOW)
        return Job(*given, ended_at=ended)

    groups = grouped(
        [
            item(Cause.UNUSUAL_COMMIT, "late", 5),
            item(Cause.UNUSUAL_COMMIT, "early", 50),
            item(Cause.UNUSUAL_COMMIT, "early", 50),
            item(Cause.UNUSUAL_COMMIT, "known", 61),
            item(Cause.STOPPED_STREAM, "s", 3),
            item(Cause.NO_HOST, "h", 3),
            item(Cause.SLOW_STREAM, "slow", 3),
            item(Cause.SMALL_FILES, "t", None),
        ]
    )
    acts = [act(JobState.DONE, 3), act(JobState.FAILED, 4), act(JobState.DONE, 60), act(JobState.RUNNING, None)]
    new = overview.news(NOW - timedelta(hours=1), -2, groups, acts)
    assert {(link.label, link.page, *link.params.values()) for link in new} == {
        ("2 unusual commits", "table", "early"),
        ("1 stopped stream", "stream", "s"),
        ("1 silent host", "streams"),
        ("2 acts, 1 failed", "acts"),
        ("2 tables fewer", "tables"),
    }
    assert overview.news(NOW, 0, groups, acts) == []
    assert [link.label for link in overview.news(NOW, 1, [], [])] == ["1 table more"]
