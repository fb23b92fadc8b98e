"""The first screen as frames and sentences: tables by layer, streams, what needs attention and where it leads.

Rule: pure; totals say what they could not count; one bad table never hides the others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from app.columns import Column
from app.ui.lake import (
    MOST_TO_MERGE,
    NOT_AS_EXPECTED,
    SMALL,
    STALE,
    STALEST,
    TO_MERGE,
    UNREADABLE,
    LakeTotals,
    Table,
    table_columns,
)
from app.ui.states import stream_columns
from app.ui.view.words import KeyFigure, LinkTarget
from backend.expectations.model import Judgement, State
from backend.format import UNKNOWN, ago, bytes_exact, bytes_text, count_exact, count_text, things
from backend.health.attention import MOST_NAMES
from backend.health.health import BACK, NoticedSoFar
from backend.health.model import AttentionGroup, Cause, Severity
from backend.jobs.model import Job, JobState
from backend.stream_model.stream import StreamState
from backend.streams.verdict import StreamStatus


def key_figures(totals: LakeTotals | None, streams: Sequence[StreamStatus]) -> list[KeyFigure]:
    """Tables, rows, files, size and running streams. `totals`: None while no table is known."""
    running = sum(status.state is StreamState.RUNNING for status in streams)
    ratio = f"{running:,} of {len(streams):,}" if streams else UNKNOWN
    flowing = KeyFigure("Streams running", ratio, "Observed by a live host.")
    if totals is None:
        return [*(KeyFigure(name, UNKNOWN, "Not read yet.") for name in ("Tables", "Rows", "Files", "Size")), flowing]
    readable = totals.num_tables - totals.unreadable
    rows_help = [] if totals.num_rows is None else [f"{count_exact(totals.num_rows)} rows."]
    if totals.rows_unknown_in:
        rows_help.append(f"Unknown in {things(totals.rows_unknown_in, 'table')} whose files lack statistics.")
    size_help = f"{bytes_exact(totals.size_bytes)} in data files of the latest versions."
    return [
        KeyFigure("Tables", count_text(totals.num_tables), f"{count_exact(readable)} can be read."),
        KeyFigure(
            "Rows", count_text(totals.num_rows) if readable else UNKNOWN, " ".join(rows_help) or "No table can be read."
        ),
        KeyFigure("Files", count_text(totals.num_files), "Data files of the latest versions."),
        KeyFigure("Size", bytes_text(totals.size_bytes), size_help),
        flowing,
    ]


def by_layer(tables: Iterable[Table]) -> list[Table]:
    """Tables in the order of the medallion, those without a layer last, then by name."""
    rank = {layer: index for index, layer in enumerate(("bronze", "silver", "gold"))}
    return sorted(tables, key=lambda table: (rank.get(table.ref.layer or "", len(rank)), table.ref.name))


def most_troubled(tables: Sequence[Table], groups: Sequence[AttentionGroup], most: int) -> list[Table]:
    """Of many tables those that cannot be read, then those that need attention, then the stalest."""
    severities = list(Severity)
    urgency: dict[str, int] = {}
    for group in groups:  # the most urgent first
        for item in group.items:
            if item.kind == "table":
                urgency.setdefault(item.subject, severities.index(group.severity))

    def rank(table: Table) -> tuple[int, float, str]:
        committed_at = table.last_commit_at.timestamp() if table.last_commit_at else float("inf")
        return urgency.get(table.ref.name, len(severities)), committed_at, table.ref.name

    return sorted(tables, key=rank)[:most]


def table_list_columns(now: datetime, small_file_ratio: float) -> list[Column[Table]]:
    """Of each table what fits beside the streams."""
    column = {column.name: column for column in table_columns(now, small_file_ratio)}
    return [
        replace(column["Table"], width=195),
        replace(column["Version"], width=84),
        column["Rows"],
        replace(column["Last commit"], format="ago_short"),
        column["Size"],
        column["Files"],
        column["Small files"],
    ]


def stream_list_columns(now: datetime) -> list[Column[StreamStatus]]:
    """Of each stream what fits beside the tables."""
    column = {column.name: column for column in stream_columns(now)}
    return [
        column["Stream"],
        replace(column["Verdict"], width=108),
        replace(column["Rows in"], width=None),
        replace(column["Last batch"], format="ago_short"),
    ]


def attention_sentence(groups: Sequence[AttentionGroup], unknown: Sequence[str] = (), *, partial: bool = False) -> str:
    """What the attention list comes to, as its heading. `unknown` names what could not be judged; `partial`: tables
    are still being read."""
    urgent = [group for group in groups if group.severity in (Severity.CRITICAL, Severity.WARNING)]
    notes = things(len(groups) - len(urgent), "note")
    if not urgent and unknown:
        return f"Not known: {' and '.join(unknown)} could not be read"
    if partial and not urgent:
        return f"Not known yet: tables are still being looked at{f', {notes} so far' if groups else ''}"
    if not groups:
        return "Nothing needs attention"
    if findings := sum(group.cause is Cause.UNUSUAL_COMMIT for group in groups if not urgent):
        others = f", {things(len(groups) - findings, 'note')}" if len(groups) > findings else ""
        return f"{things(findings, 'finding')} to look at{others}"
    if not urgent:
        return f"Nothing urgent, {notes}"
    needs = "1 thing needs attention" if len(urgent) == 1 else f"{count_text(len(urgent))} things need attention"
    needs = f"{needs}, {notes}" if len(groups) > len(urgent) else needs
    return f"{needs} so far" if partial else needs


def looked_sentence(noticed: NoticedSoFar) -> str:
    """How far a host, or this server by itself, has looked for unusual commits; empty where nothing is left out."""
    if noticed.num_seen == noticed.num_tables:
        return ""
    far = f"{count_text(noticed.num_seen)} of {things(noticed.num_tables, 'table')} looked at"
    if noticed.by_host:
        return f"The stream host looks at what commits did, the newest first: {far}."
    those = "" if noticed.is_partial else ", those written last"
    return f"No host runs, so this server looks for unusual commits of {things(BACK.days, 'day')}: {far}{those}."


def judged_sentence(num_tables: int, num_streams: int, judgements: Sequence[Judgement] = ()) -> str:
    """What was looked at and found in order; empty when there was nothing to look at."""
    parts = []
    if num_tables:
        parts.append(
            f"{things(num_tables, 'table')} could be read and are fresh" if num_tables > 1 else "1 table is fresh"
        )
    if num_streams:
        parts.append("every wanted stream flows")
    if met := sum(judgement.state is State.MET for judgement in judgements):
        parts.append(f"{things(met, 'table expectation')} {'is' if met == 1 else 'are'} OK")
    return f"{', '.join(parts)}." if parts else ""


# cause → which tables the list of tables shows, and in which order
_LISTS = {
    Cause.UNREADABLE: {"show": UNREADABLE},
    Cause.SMALL_FILES: {"show": SMALL, "sort": MOST_TO_MERGE},
    Cause.SILENT_TABLE: {"show": STALE, "sort": STALEST},
    Cause.QUIET_TABLE: {"show": STALE, "sort": STALEST},
    Cause.BROKEN_EXPECTATION: {"show": NOT_AS_EXPECTED},
    Cause.UNKNOWN_EXPECTATION: {"show": NOT_AS_EXPECTED},
}


def destinations(group: AttentionGroup) -> list[LinkTarget]:
    """The page that helps: of one thing its own, of several the list of them. Of unusual commits to several tables each
    that is named."""
    cause, subjects = group.cause, list(dict.fromkeys(group.subjects))
    only = group.only.subject if group.only else subjects[0] if len(subjects) == 1 else None
    if cause is Cause.UNUSUAL_COMMIT and only is None:
        return [LinkTarget("table", subject, {"table": subject}) for subject in subjects[:MOST_NAMES]]
    if cause is Cause.RESTING_POLICY:
        return [LinkTarget("acts", "Open acts")]
    if cause.kind == "stream" and only is not None:
        return [LinkTarget("stream", "Open stream", {"stream": only})]
    if cause.kind != "table":
        return [LinkTarget("streams", "Open streams")]
    if cause is Cause.LAYOUT or (cause is Cause.SMALL_FILES and only is not None):
        return [LinkTarget("health", "Open health", {} if only is None else {"table": only})]
    if only is not None:
        return [LinkTarget("table", "Open table", {"table": only})]
    to_merge = {"show": TO_MERGE} if group.severity is Severity.WARNING and cause is Cause.SMALL_FILES else {}
    return [LinkTarget("tables", "Open the list", _LISTS[cause] | to_merge)]


def group_words(group: AttentionGroup, now: datetime) -> tuple[str, str]:
    """The bold beginning of a line and the rest of it: of one thing its name, of several how many."""
    item = group.only
    if item is None:
        many, _, rest = group.what.partition(" ")
        noun, _, rest = rest.partition(" ")
        return f"{many} {noun}", rest
    dated = bool(item.since) and item.kind != "table"
    what = f"{group.what.removesuffix('.')} · {ago(item.since, now)}" if dated else group.what
    if what.startswith(f"{item.subject} "):
        return item.subject, what.removeprefix(item.subject).strip()
    return item.subject, f"· {what}"


def news(since: datetime, tables_more: int, groups: Iterable[AttentionGroup], acts: Iterable[Job]) -> list[LinkTarget]:
    """What came since then in a few words, each with where it is told."""
    links, new = [], [item for group in groups for item in group.items if item.since and item.since > since]
    for cause in dict.fromkeys(item.cause for item in new):
        if cause is not Cause.SLOW_STREAM:  # since when it is slow nobody knows
            items = tuple(item for item in new if item.cause is cause)
            what = cause.value.replace("no_", "silent_").replace("_", " ")
            words = things(len({(item.subject, item.since) for item in items}), what)
            leads_to, *_ = destinations(AttentionGroup(items[0].severity, cause, items, "", ""))
            links.append(replace(leads_to, label=words))
    if ended := [act.state for act in acts if act.ended_at and act.ended_at > since]:
        failed = ended.count(JobState.FAILED)
        links.append(LinkTarget("acts", things(len(ended), "act") + (f", {failed:,} failed" if failed else "")))
    if tables_more:
        words = f"{things(abs(tables_more), 'table')} {'more' if tables_more > 0 else 'fewer'}"
        links.append(LinkTarget("tables", words))
    return links
