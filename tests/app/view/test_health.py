"""Health as figures and lists, against naive recounts."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from app.health.text import log_sentence
from app.tables import view
from app.ui.lists import list_frame
from backend.health.attention import attention
from backend.health.health import JudgedTable
from backend.health.model import LogHealth, MaintenanceRun, SmallFileRule, TableHealth
from backend.health.rules import recommend
from backend.lake.model import TableCard, TableRef, UnreadableTable, VersionTotals
from backend.settings import load_settings
from tests.backend.health.test_health import WELL

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
RULE = SmallFileRule(1_000, "table size", 0.5, 500, 16, "A file is small below 500 B.")


def health() -> TableHealth:
    """Five versions, the fourth of which is an OPTIMIZE."""
    operations = ("WRITE", "WRITE", "WRITE", "OPTIMIZE", "WRITE")
    points = tuple(
        VersionTotals(v, NOW - timedelta(minutes=10 - v), operation, v + 1, 100 * (v + 1), None, 0 if v == 3 else v)
        for v, operation in enumerate(operations)
    )
    evidence = replace(WELL, log=LogHealth(0, 4, NOW - timedelta(hours=2), None, None, 10))
    return TableHealth(TableRef("/lake/a", "a", "/lake"), 4, evidence, points, False, ())


def card(name: str, *, files: int = 40, small: int = 0, size_bytes: int = 10_000, after: int = 40) -> TableCard:
    ref = TableRef(f"/lake/{name}", name, "/lake")
    return TableCard(ref, 4, files, size_bytes, 9, small, NOW, "WRITE", files_after_merge=after)


def judged(table: TableCard) -> JudgedTable:
    """As the judge makes it of what the lake says."""
    evidence = replace(
        WELL,
        now=NOW - timedelta(hours=1),
        num_files=table.num_files,
        size_bytes=table.size_bytes,
        small_files=table.small_files,
        small_bytes=table.size_bytes,
        files_after_merge=table.files_after_merge or 0,
        rule=RULE,
        physical_rows=9,
        last_optimize=MaintenanceRun(3, NOW - timedelta(hours=2)),
        log=LogHealth(0, 4, NOW - timedelta(hours=2), None, None, 10),
    )
    return JudgedTable(table, evidence, recommend(evidence)[0].severity)


FINE, NOTED = card("a"), card("b", small=30, after=11)
SLOW, SLOWER = card("c", files=900, small=900, after=1), card("d", files=5_000, small=5_000, after=1)
BROKEN = UnreadableTable(TableRef("/lake/e", "e", "/lake"), "broken", "mend it")
TABLES = [FINE, NOTED, SLOW, SLOWER, BROKEN]
JUDGED = {table.ref.uri: judged(table) for table in TABLES[:4]}


def test_a_table_is_as_urgent_as_the_overview_says() -> None:
    """Of each table the most urgent item of Overview, where maintenance and reading alone are judged."""
    items = attention(TABLES, (), (), now=NOW, settings=load_settings(health={"stale_after_s": 1e9}))
    overview = {item.subject: item.severity.value for item in reversed(items)}
    frame = list_frame(view.catalog_columns(TABLES, NOW, 0.5, judged=JUDGED), TABLES).set_index("Table")
    listed = {name: judgement.split()[1].lower() for name, judgement in frame["Judgement"].items()}
    assert overview == {name: word for name, word in listed.items() if word != "ok"}


def test_before_a_table_is_judged_its_card_says_what_is_urgent() -> None:
    columns = view.catalog_columns(TABLES, NOW, 0.5, judged={NOTED.ref.uri: judged(NOTED)})
    frame = list_frame(columns, TABLES).set_index("Table")
    assert frame.loc["d", "Judgement"] == "▲ Warning" and frame.loc["a", "Judgement"] == "… being judged"
    assert frame.loc["d", "Finding"] == "5,000 of 5,000 files are small; merging would spare 4,999."
    assert frame.loc["d", "Spared"] == 4_999 and frame.isna().loc["a", ["Finding", "Last OPTIMIZE"]].all()


def test_the_log_says_how_far_it_goes_back_and_what_the_change_feed_weighs() -> None:
    found = health()
    log = "The log holds 5 versions over 2 h, since 2026-11-20 10:00:00 UTC; it has no checkpoint."
    assert log_sentence(found.evidence.log, now=NOW) == log
    fed = replace(found.evidence.log, feed_bytes=38_214_551, feed_commits=5)
    feed = "The newest 5 commits wrote 38.2 MB of change feed; VACUUM deletes what is old of it."
    assert log_sentence(fed, now=NOW) == f"{log} {feed}"
