"""An incident in words, for page, terminal and the incident channel.

Rule: free of Streamlit and pandas, which the terminal does without. In Markdown every text of others is escaped.
"""

from collections.abc import Sequence
from datetime import datetime

from app.changes.text import escaped, to_markdown
from app.timeline.text import event_columns
from app.ui.view.words import sentence
from backend.changes.answer import diff
from backend.changes.cache import SMALL_BYTES
from backend.changes.model import Question
from backend.errors import LakehouseError
from backend.expectations.shown import as_shown
from backend.format import things, utc_text
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.search.notice import Notice, notice_text
from backend.store.incidents import Incident, IncidentTable
from backend.streams.timeline import IncidentReport

_SIGNS = {"open": "✕ Open", "seen": "◑ Seen", "over": "✓ Over"}


def incident_text(incident: Incident) -> str:
    """ "Incident 3: cents for euros · ◑ Seen · silver/orders"."""
    tables = ", ".join(dict.fromkeys(table.name for table in incident.tables))
    return f"Incident {incident.id}: {incident.title} · {_SIGNS[incident.state]} · {tables}"


def proposed(
    lake: Lake, ref: TableRef, good: int | None, bad: int, notices: Sequence[Notice], now: datetime
) -> tuple[str, IncidentTable]:
    """The cause as far as the commit's notices tell, and what the incident is about; for everybody, as is the lake."""
    since = next((notice.committed_at for notice in notices), None) or lake.snapshot(ref, bad).committed_at or now
    title = notice_text(*as_shown(notices[:1], lake.hidden_at)) if notices else f"v{bad} of {ref.name}"
    return title, IncidentTable(ref.uri, ref.name, good, bad, since)


def report_lines(report: IncidentReport) -> list[str]:
    """State, tables with their versions, findings, rows hurt and what lies downstream, each a sentence."""
    incident, counts = report.incident, [notice.rows for notice in report.findings if notice.rows is not None]
    opened = f"opened {utc_text(incident.opened_at)} by {incident.opened_by}: {incident.reason}"
    lines = [f"{_SIGNS[incident.state]}; {opened}"]
    for table in incident.tables:
        good = "no version before it" if table.good is None else f"v{table.good} is the last good one"
        lines.append(f"{table.name}: v{table.bad} is the first bad version, {good}")
    for notice in report.findings:
        still = "still so" if notice.mended_at is None else f"mended at v{notice.mended_at}"
        lines.append(f"{notice.table}: {notice_text(notice)}; {still}")
    lines.append(f"{things(sum(counts), 'row')} hurt" if counts else "the rows that it hurt are not counted")
    downstream = ", ".join(report.downstream)
    lines.append(f"Downstream: {downstream}" if downstream else "no stream is known to read it")
    return [sentence(line) for line in (*lines, *(f"left out: {words}" for words in report.left_out))]


def incident_markdown(report: IncidentReport, lake: Lake) -> str:
    """For the incident channel; of each table with what changed between its two versions, rows where that is little."""
    columns = [column for column in event_columns(report.incident.opened_at) if column.on is None]
    events = (" · ".join(column.text(event) for column in columns) for event in report.events)
    lines = [f"# Incident {report.incident.id}: {escaped(report.incident.title)}", ""]
    lines += [f"- {escaped(line)}" for line in (*report_lines(report), *events)]
    for table in report.incident.tables:
        try:
            asked = Question(
                lake.find(table.uri), table.good or 0, table.bad, max_bytes=SMALL_BYTES, across_replace=True
            )
            lines += ["", to_markdown(diff(lake, asked))]
        except LakehouseError as exc:
            lines += ["", f"{escaped(table.name)} cannot be compared: {escaped(exc.message)}"]
    return "\n".join(lines)
