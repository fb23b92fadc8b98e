"""What happened to a table, and to what lies up- and downstream of it, on one time axis.

Rule: one bounded window is read, of each log its tail alone. What was left out is said, never shown as nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from backend.errors import LakehouseError
from backend.expectations.shown import as_shown
from backend.format import count_text, cut, duration_text, things, utc_text
from backend.lake.history.history import look_back, stream_of
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.lake.storage.folder import normal_uri
from backend.search.notice import Notice, notice_text
from backend.store.incidents import Incident
from backend.store.schema import EPOCH, LATEST
from backend.store.store import ControlStore
from backend.stream_model.progress import is_batch
from backend.stream_model.rollup import HOUR_S, MINUTE_S, rollup_of
from backend.stream_model.stream import StreamState
from backend.streams.graph import around
from backend.streams.status import query_names
from backend.streams.verdict import StreamStatus

MOST_COMMITS, MOST_BATCHES, MOST_ACTS = 1_000, 500, 1_000  # of one table or stream
MOST_AROUND = 12  # tables and streams on each side
_MINUTES = timedelta(days=2)  # of a longer time, many batches are added up per hour

Kind = Literal["commit", "batch", "start", "stop", "note", "act", "failure", "notice"]


@dataclass(frozen=True, slots=True)
class Event:
    """`lane`: its table, or "stream" and its stream. `version`: that was committed or noticed; `operation`: a commit's.
    `ended_at`: of batches."""

    at: datetime
    lane: str
    kind: Kind
    what: str
    ended_at: datetime | None = None
    version: int | None = None
    operation: str | None = None


@dataclass(frozen=True, slots=True)
class EventTimeline:
    """`lanes` from up- to downstream, `events` oldest first, `left_out` in words. `versions`: of the table before (0 if
    there was none) and after the commits of this time; None without any."""

    table: str
    versions: tuple[int, int] | None
    since: datetime
    until: datetime
    lanes: tuple[str, ...]
    events: tuple[Event, ...]
    left_out: tuple[str, ...]


def load_timeline(
    lake: Lake, store: ControlStore | None, streams: Sequence[StreamStatus], ref: TableRef, *,
    since: datetime, until: datetime | None, now: datetime,
) -> EventTimeline:  # fmt: skip
    """`until` None: all that came since. What cannot be read of a table is in `left_out`. Raises `StoreError`."""
    since, until = max(since, EPOCH), until and min(until, LATEST)  # what is drawn needs room on both sides
    end, here, statuses = until or LATEST, normal_uri(ref.uri), {each.declaration.name: each for each in streams}
    above, below = around(here, streams)
    below = tuple(node for node in below if node not in above)  # of a circle, each once
    lanes, events, left_out = list[str](), list[Event](), [] if store else ["all but commits: no control store is read"]
    if more := len(above[MOST_AROUND:] + below[MOST_AROUND:]):
        left_out.append(f"{count_text(more)} tables and streams further away")
    grain_s = MINUTE_S if (until or now) - since <= _MINUTES else HOUR_S
    for node in (*reversed(above[:MOST_AROUND]), here, *below[:MOST_AROUND]):
        lane = name = node
        if status := statuses.get(node):
            lane = f"stream {name}"
            events += _of_stream(store, status, since, end, grain_s) if store else ()
        else:
            try:
                table = ref if node == here else lake.find(node)
                lane = name = table.name
                events += _commits(lake, table, query_names(streams), left_out, since, until)
            except LakehouseError as exc:
                left_out.append(f"commits of {name}: {exc.message}")
        lanes.append(lane)
        acts = store.audit_entries(subject=name, limit=MOST_ACTS, acts_only=True) if store else []
        if len(acts) == MOST_ACTS and acts[-1].at > since:
            left_out.append(f"acts of {lane} before {utc_text(acts[-1].at)}")
        for act in acts:
            what = f"{act.action} by {act.actor}: {act.reason}{act.detail and f' ({act.detail})'}"
            kind: Kind = "note" if act.action == "note on incident" else "act"
            events.append(Event(act.at, lane, "failure" if act.action.endswith(" failed") else kind, what))
        noticed = store.noticed.of_table(node, since=since, until=end) if store else ()
        for notice in as_shown(noticed, lake.hidden_at):
            what = notice_text(notice) + ("" if notice.mended_at is None else f"; mended at v{notice.mended_at}")
            events.append(Event(notice.committed_at or since, lane, "notice", what, version=notice.version))
    shown = [each for each in events if since <= (each.ended_at or each.at) and each.at <= end]
    shown.sort(key=lambda each: (each.at, lanes.index(each.lane), each.version or 0))
    here_done = [each.version or 0 for each in shown if (each.lane, each.kind) == (ref.name, "commit")]
    versions = (max(0, min(here_done) - 1), max(here_done)) if here_done else None
    return EventTimeline(ref.name, versions, since, until or now, tuple(lanes), tuple(shown), tuple(left_out))


def _commits(
    lake: Lake, ref: TableRef, names: Mapping[str, str], left_out: list[str], since: datetime, until: datetime | None
) -> Iterator[Event]:
    newest = lake.version_at(ref, until) if until else lake.latest_version(ref)
    if newest is None:
        return
    look = look_back(lake, ref, newest=newest, most=MOST_COMMITS, since=since, progress=lambda _: None)
    timed = [(commit.committed_at, commit) for commit in look.looked_at if commit.committed_at]
    if len(timed) < len(look.looked_at) or not (look.is_whole or timed[-1][0] < since):
        oldest = utc_text(timed[-1][0] if timed else None)
        left_out.append(f"commits of {ref.name} before {oldest}, or whose time is not known")
    for at, commit in timed:
        stream, metrics = stream_of(commit, names), commit.metrics
        who = f"stream {stream}" if stream else ", ".join(filter(None, (commit.user, commit.job)))
        counts = (("+", metrics.rows_inserted), ("~", metrics.rows_updated), ("−", metrics.rows_deleted))
        rows = " ".join(f"{sign}{count_text(count)}" for sign, count in counts if count)
        what = f"v{commit.version} {commit.operation or 'a commit'}{f' by {who}' if who else ''}"
        what = "; ".join(filter(None, (what, rows and f"{rows} rows", commit.problem)))
        yield Event(at, ref.name, "commit", what, version=commit.version, operation=commit.operation)


def _of_stream(
    store: ControlStore, status: StreamStatus, since: datetime, until: datetime, grain_s: int
) -> Iterator[Event]:
    """Batches one by one; where some are not kept any more, or they are too many, added up per minute or hour. Of a run
    before the present one, its last batch is what is known of its end."""
    name, seen, lane = status.declaration.name, status.observed, f"stream {status.declaration.name}"
    newest = store.progress(name, since=since, until=until, limit=MOST_BATCHES, raw=False)
    parts = [rollup_of([batch]) for batch in newest if is_batch(batch)]
    sums = store.rollups(name, grain_s=grain_s, since=since - timedelta(seconds=grain_s), until=until)
    in_sums = sum(each.batches for each in sums if since <= each.first_at and each.last_at <= until)
    for part in sums if len(parts) < max(1, in_sums) else parts:
        which, longest = f"batch {part.last_batch}", part.longest_ms
        if part.batches > 1:
            which = f"{things(part.batches, 'batch', 'batches')}, {part.first_batch} to {part.last_batch}"
        took = f" in {'at most ' if part.batches > 1 else ''}{duration_text(longest / 1_000)}" if longest else ""
        what = f"{which}: {things(part.input_rows, 'row')}{took}"
        yield Event(part.first_at, lane, "batch", what, ended_at=part.ended_at)
    for run in store.runs(name):
        if not (seen and run.run_id == seen.run_id):
            yield Event(run.first_at, lane, "start", f"run {cut(run.run_id, 9)} began")
            yield Event(run.last_at, lane, "stop", f"run {cut(run.run_id, 9)} ended with batch {run.last_batch}")
    if seen and seen.started_at:
        yield Event(seen.started_at, lane, "start", f"run {cut(seen.run_id or '', 9)} began")
    if seen and seen.state in (StreamState.STOPPED, StreamState.COMPLETED):
        yield Event(seen.observed_at, lane, "stop", seen.state.lower())
    for failure in seen.failures if seen else ():
        batch = "" if failure.batch_id is None else f" in batch {failure.batch_id}"
        what = f"{failure.error_class}{batch}: {cut(failure.message, 300)}"
        yield Event(failure.failed_at, lane, "failure", what)


# an incident ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IncidentReport:
    """An incident, its notices as hosts judge them now, what happened since then around its tables, oldest first and
    without commits and batches, and the tables and streams downstream."""

    incident: Incident
    findings: tuple[Notice, ...]
    events: tuple[Event, ...]
    downstream: tuple[str, ...]
    left_out: tuple[str, ...]


def load_incident(
    lake: Lake, store: ControlStore, streams: Sequence[StreamStatus], number: int, *, now: datetime
) -> IncidentReport:
    """Raises `IncidentNotFoundError`."""
    incident, findings, downstream = store.incidents.get(number), list[Notice](), list[str]()
    events, left_out = dict[Event, None](), list[str]()
    until = incident.acted_at if incident.state == "over" else None
    for table in incident.tables:
        ref = TableRef(table.uri, table.name, "")
        happened = load_timeline(lake, store, streams, ref, since=table.since, until=until, now=now)
        events |= dict.fromkeys(event for event in happened.events if event.kind not in ("commit", "batch"))
        left_out += happened.left_out
        downstream += happened.lanes[happened.lanes.index(table.name) + 1 :]
        noticed = store.noticed.of_table(table.uri, since=table.since, until=LATEST)
        ours = [notice for notice in noticed if notice.key in incident.findings]
        findings += [notice for notice in as_shown(ours, lake.hidden_at) if notice not in findings]
    in_order = sorted(events, key=lambda event: event.at)
    below, missing = (tuple(dict.fromkeys(words)) for words in (downstream, left_out))
    return IncidentReport(incident, tuple(findings), tuple(in_order), below, missing)
