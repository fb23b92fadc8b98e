"""What needs a person now, over all tables, streams and hosts, most urgent first.

Rule: pure but for `load_attention`; the clock is a parameter; every item names its cause and its next step. Five tables
of small files are one thing to know, not five: a group of many says how many, and what they have in common.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from backend.expectations.model import ExpectationKind, Judgement, Standing, away, expected_text, found_text, standing
from backend.expectations.shown import HiddenAt, as_shown
from backend.format import ago, duration_text, things
from backend.health.model import AttentionGroup, AttentionItem, Cause, Severity
from backend.health.rules import gain_text, layout_text, merge_gain, severity_of
from backend.jobs.model import TRIES, RestingPolicy, resting
from backend.lake.model import TableCard, UnreadableTable
from backend.lake.storage.folder import normal_uri
from backend.search.notice import FIRSTS, Measure, Notice, notice_text
from backend.settings import Settings
from backend.stream_model.backlog import data_loss_sentence, lost_text
from backend.stream_model.stream import DesiredState, HostHeartbeat, StreamState
from backend.streams.graph import streams_reached
from backend.streams.verdict import StreamStatus, Verdict, drained_early

if TYPE_CHECKING:
    from backend.store.store import ControlStore

CALM = timedelta(seconds=60)
MOST_DETAIL = 60  # characters
MOST_NAMES, MOST_DETAILS = 4, 3
MOST_FINDINGS = 10  # that have a line each
CARRIED_WITHIN = timedelta(minutes=30)  # from a table to those that its readers, or the same job, write
MANY = 20  # a few names say nothing of so many
_URGENCY = {severity: number for number, severity in enumerate(Severity)}
_ORDER = {cause: number for number, cause in enumerate(Cause)}
_NEVER_MENDED = {*FIRSTS, Measure.UPDATED, Measure.SILENCE, Measure.ADDED} - {
    Measure.TWICE
}  # no later version is asked
_COMES_AND_GOES = (
    Cause.SLOW_STREAM, Cause.UNWATCHED_STREAM, Cause.BROKEN_EXPECTATION, Cause.UNKNOWN_EXPECTATION,
    Cause.SILENT_TABLE, Cause.QUIET_TABLE,
)  # fmt: skip


def load_attention(
    settings: Settings,
    store: "ControlStore",
    tables: Iterable[TableCard | UnreadableTable],
    streams: Sequence[StreamStatus],
    *,
    hidden_at: HiddenAt,
    now: datetime,
) -> tuple[AttentionItem, ...]:
    """What needs attention, with what the store knows and may be told beside the streams; raises `StoreError`."""
    policies = settings.table_policies
    return attention(
        tables, streams, store.hosts(now=now), judgements=as_shown(store.judgements(), hidden_at),
        resting=resting(policies, store.jobs.acts_on_tables()) if policies else (),
        notices=as_shown(store.noticed.open(), hidden_at), webhook_error=store.told.error(now=now), now=now,
        settings=settings,
    )  # fmt: skip


def attention(
    tables: Iterable[TableCard | UnreadableTable],
    streams: Sequence[StreamStatus],
    hosts: Iterable[HostHeartbeat],
    *,
    judgements: Sequence[Judgement] = (),
    resting: Iterable[RestingPolicy] = (),
    notices: Iterable[Notice] = (),
    are_notices_current: bool = False,
    webhook_error: str = "",
    now: datetime,
    settings: Settings,
) -> tuple[AttentionItem, ...]:
    """Failed and stopped streams, dead hosts, unreadable and stale tables, unusual commits, broken expectations,
    resting policies, many small files; most urgent first. `notices`: those that are open; `are_notices_current`: the
    latest versions were looked at though no host lives. `webhook_error`: why nobody is told of all this."""
    beats = sorted(hosts, key=lambda host: host.beat_at)
    alive = any(host.silent_s(now) <= settings.host.heartbeat_stale_s for host in beats)
    items = [
        *_stream_items(streams, is_host_alive=alive),
        *_expiring(streams, now, settings),
        *(() if alive else _host_items(beats, streams)),
    ]
    fed = {normal_uri(output.uri): s for s in streams for output in s.declaration.outputs if output.uri}
    names, versions = dict[str, str](), dict[str, int]()
    timed = {each.expectation.uri for each in judgements if each.expectation.kind is ExpectationKind.FRESH}
    noticed = [one for one in notices if one.kind is not Measure.SILENCE or not (one.uri in timed or one.uri in fed)]
    timed |= {notice.uri for notice in noticed if notice.kind is Measure.SILENCE}
    for table in tables:
        names[table.ref.uri] = table.ref.name
        if isinstance(table, UnreadableTable):
            what, detail = f"Cannot be read: {table.reason}", in_general(table.reason)
            step = table.hint or "Check that the folder still holds a `_delta_log` and may be read."
            severity, cause = severity_of(table), Cause.UNREADABLE
            items.append(AttentionItem(severity, cause, table.ref.name, what, step, detail=detail))
        else:
            versions[table.ref.uri] = table.version
            feeder = fed.get(table.ref.uri)
            items.extend(_table_items(table, feeder, now, settings, is_timed=table.ref.uri in timed))
    silent = away(judgements, beats, now=now, stale_s=settings.host.heartbeat_stale_s)
    for judgement in judgements:
        name = names.get(judgement.expectation.uri, judgement.expectation.table)
        items.extend(_expectation_items(judgement, name, now, silent))
    for rest in resting:
        what = f"Its policy ({rest.policy}) rests after {things(TRIES, 'failure')} in a row: {rest.error}."
        severity, cause = Severity.WARNING, Cause.RESTING_POLICY
        step = "Remove the cause and do the act by hand once: then the policy goes on."
        items.append(AttentionItem(severity, cause, rest.table, what, step, rest.since, detail=str(rest.kind)))
    items.extend(_findings(noticed, streams, versions if alive or are_notices_current else {}, now))
    if webhook_error:
        what, step = f"The webhook cannot be reached: {webhook_error}.", "It is tried again by itself."
        items.append(AttentionItem(Severity.WARNING, Cause.FAILING_WEBHOOK, "notify.webhook", what, step))
    return _in_order(items)


def _stream_items(streams: Sequence[StreamStatus], *, is_host_alive: bool) -> Iterator[AttentionItem]:
    for status in streams:
        name, failure = status.declaration.name, status.observed.last_failure if status.observed else None
        failed_at, wish = failure.failed_at if failure else None, status.desired
        if status.state is StreamState.FAILED:
            what = f"{name} failed: {failure.error_class}: {failure.message}" if failure else f"{name} failed."
            step = "Read the error on the stream's page, remove its cause, then restart it."
            yield AttentionItem(Severity.CRITICAL, Cause.FAILED_STREAM, name, what, step, failed_at)
        elif status.state is StreamState.BACKOFF:
            why = failure.error_class if failure else "no error"
            what = f"{name} keeps failing and is restarted by its host: {why}."
            step = "Read the error on the stream's page before the host gives up."
            yield AttentionItem(Severity.WARNING, Cause.FAILING_STREAM, name, what, step, failed_at)
        elif status.verdict in (Verdict.STALLED, Verdict.SLOW):
            step = "Look at input, batch duration and state on the stream's page."
            since = status.progress.progressed_at if status.progress else None
            yield AttentionItem(Severity.WARNING, Cause.SLOW_STREAM, name, status.because, step, since)
        elif status.state is StreamState.STOPPED and wish and wish.wants_stop:
            by, why = f" by {wish.actor}" if wish.actor else "", f": {wish.reason}" if wish.reason else "."
            why += " (its drain ended early: what is unread is older)" if drained_early(wish, status.backlog) else ""
            starved = [stream.declaration.name for stream in streams if stream.starved_by == name]
            why += f" It starves {', '.join(starved)}." if starved else ""
            what, step = f"{name} was stopped{by}{why}", "Start it when it is wanted again."
            yield AttentionItem(Severity.NOTE, Cause.STOPPED_STREAM, name, what, step, wish.requested_at)
        is_lost = status.state is StreamState.UNKNOWN and wish and wish.state is DesiredState.RUNNING
        if is_host_alive and is_lost:  # its host is dead, and no living one has taken it over
            step = "Start its host again, or let a living one run it by declaring it there."
            since = status.observed.observed_at if status.observed else None
            yield AttentionItem(Severity.WARNING, Cause.UNWATCHED_STREAM, name, status.because, step, since)


def _expiring(streams: Iterable[StreamStatus], now: datetime, settings: Settings) -> Iterator[AttentionItem]:
    """Unread input that is lost, or will be soon: half of the time that its retention gives has passed."""
    for status in streams:
        name, backlog = status.declaration.name, status.backlog
        if backlog is None:
            continue
        loss = backlog.data_loss
        left_s = (loss.at - now).total_seconds() if loss else None
        if backlog.lost:
            what = f"{name} was too late: {lost_text(backlog)} were deleted before it read them."
            step = "Its page says which source; a reset reads what is still there."
            yield AttentionItem(Severity.CRITICAL, Cause.EXPIRING_STREAM, name, what, step, backlog.oldest_unread_at)
        elif loss and left_s is not None and left_s < min(settings.health.data_loss_within_s, backlog.behind_s or 0.0):
            what = f"{name}: {data_loss_sentence(loss, now=now)}."
            step = f"Let it catch up before that, or raise {loss.setting} of its source."
            yield AttentionItem(Severity.WARNING, Cause.EXPIRING_STREAM, name, what, step, backlog.oldest_unread_at)


def _host_items(beats: Sequence[HostHeartbeat], streams: Sequence[StreamStatus]) -> Iterator[AttentionItem]:
    """One item, and only when no host is alive: a dead host whose work another one took over is nobody's concern."""
    wanted = [s.declaration.name for s in streams if s.desired and s.desired.state is DesiredState.RUNNING]
    if not beats and not streams:
        return
    last = beats[-1] if beats else None
    what = f"{last.host_id} (stream host) is silent." if last else "No stream host has ever reported."
    if wanted:
        many = len(wanted) > 1
        what += f" {len(wanted)} stream{'s' * many} should run and nobody runs {'them' if many else 'it'}."
    step = "Start it: `weir host` (or `weir up` for everything)."
    severity = Severity.CRITICAL if wanted else Severity.NOTE
    since = last.beat_at if last else None
    yield AttentionItem(severity, Cause.NO_HOST, last.host_id if last else "host", what, step, since)


def in_general(reason: str) -> str:
    """A reason without what is of one table alone, so that equal ones can be counted: names, paths and numbers."""
    if feature := re.search(r"reader (?:feature .+(?=, which)|version \d+)", reason):
        return feature[0]
    plain = re.sub(r"'[^']*'|\S*/\S*|\d+(?:\.\w+)*", "…", re.sub(r"^line \d+ of \S+: ", "", reason))
    return plain if len(plain) <= MOST_DETAIL else f"{plain[: MOST_DETAIL - 1].rstrip()}…"


_STEPS = {
    ExpectationKind.FRESH: "Look at whoever writes the table: History says who last did.",
    ExpectationKind.ROWS_PER_DAY: "Look at that day on History, and at whoever writes the table.",
    ExpectationKind.UNIQUE: "First bad version finds the commit: count(*) = count(DISTINCT …) with the key's columns.",
    ExpectationKind.REFERENCES: "Look for these keys in both tables, and whether one is written later than the other.",
    ExpectationKind.HOLDS: "First bad version finds the commit; Summary says who expects it, and why.",
}


def _expectation_items(
    judgement: Judgement, name: str, now: datetime, silent: Sequence[Judgement]
) -> Iterator[AttentionItem]:
    now_it_is, is_old = standing(judgement, silent), judgement in silent
    expected, found = expected_text(judgement.expectation), found_text(judgement, now)
    old = f" Last judged {ago(judgement.judged_at, now)}: its host is away." if is_old else ""
    detail = f"{expected}, last judged {ago(judgement.judged_at, now)}" if is_old else expected
    if now_it_is is Standing.BROKEN:
        what, step = f"Expected: {expected}. Found: {found}.{old}", _STEPS[judgement.expectation.kind]
        severity, cause, since = Severity.WARNING, Cause.BROKEN_EXPECTATION, judgement.broken_since
        yield AttentionItem(severity, cause, name, what, step, since, detail=detail)
    elif now_it_is is Standing.UNKNOWN:
        what = f"Expected: {expected}.{old or f' It is {found}.'}"
        step = "Start a host that declares it: `weir host`." if is_old else "Summary says why."
        severity, cause, since = Severity.NOTE, Cause.UNKNOWN_EXPECTATION, judgement.judged_at if is_old else None
        yield AttentionItem(severity, cause, name, what, step, since, detail=detail)


def severity_of_notice(notice: Notice) -> Severity:
    """A warning where rows were deleted, falsified or copied, or may have been; what is only new may well be meant."""
    is_only_new = notice.kind in FIRSTS and notice.kind is not Measure.TWICE and not notice.rows
    return Severity.NOTE if is_only_new else Severity.WARNING


def most_hurt(notice: Notice) -> tuple[int, int]:
    """What notices are sorted by: the most urgent first, of these the one that hurt most rows."""
    return _URGENCY[severity_of_notice(notice)], -(notice.rows or 0)


def finding_text(notice: Notice, latest: int | None = None) -> str:
    """The rows that a notice hurt, what it is, "still so at v79" or "mended at v31", and its job. `latest`: the newest
    version that was looked at."""
    is_counted = notice.rows and not notice.after.startswith(f"{notice.rows:,}")
    parts = [f"{things(notice.rows, 'row')}: {notice_text(notice)}" if is_counted else notice_text(notice)]
    if notice.mended_at is not None:
        parts.append(f"mended at v{notice.mended_at}")
    elif latest is not None and latest > notice.version and notice.kind not in _NEVER_MENDED:
        parts.append(f"still so at v{latest}")
    if notice.job and f" {notice.job}" not in notice.by:
        parts.append(notice.job)
    return " · ".join(parts)


def _findings(
    notices: Iterable[Notice], streams: Sequence[StreamStatus], versions: Mapping[str, int], now: datetime
) -> Iterator[AttentionItem]:
    """One item a commit, or for all commits by which one writer did the same to a table. What a stream wrote from that
    table soon after, or the same job to another, has the same origin. `versions`: that were looked at, by address."""
    worst_of, findings = dict[tuple[str, int], Notice](), dict[tuple[str, ...], list[Notice]]()
    for notice in sorted(notices, key=most_hurt):
        worst = worst_of.setdefault((notice.uri, notice.version), notice)  # of the commit
        findings.setdefault((worst.uri, worst.kind, worst.subject, worst.by), []).append(notice)
    began = dict[str, tuple[datetime, str, str]]()  # by the stream or job that may carry it on: when, origin, table
    for finding in sorted(findings.values(), key=lambda finding: finding[0].committed_at or now):
        worst, severity = finding[0], severity_of_notice(finding[0])
        by_version = {notice.version: notice for notice in reversed(finding)}  # of each commit its worst
        first, last = min(by_version), max(by_version)
        rows = sum(notice.rows or 0 for notice in by_version.values())
        text = finding_text(replace(worst, rows=rows), versions.get(worst.uri))
        text = text if first == last else f"v{first}–v{last}, {text}"
        if more := len({(notice.kind, notice.subject) for notice in finding}) - 1:
            text += f" · and {more} more"
        origin, readers = f"{worst.table} v{first}", streams_reached(worst.uri, streams)
        if severity is Severity.WARNING and (at := worst.committed_at):
            for writer in (worst.by.partition(" by ")[2], worst.job):
                begun_at, earlier, uri = began.get(writer, (at, origin, worst.uri))
                if uri != worst.uri and at - begun_at <= CARRIED_WITHIN:
                    origin = earlier
            carriers = [*(f"stream {reader}" for reader in readers), *filter(None, [worst.job])]
            began |= dict.fromkeys(carriers, (at, origin, worst.uri))
        since, downstream = by_version[last].committed_at, f" Downstream: {', '.join(readers)}." if readers else ""
        what = f"{text} · {ago(since, now)}.{downstream}"
        step = "Its page says what that commit changed; once marked as seen there, it leaves this list."
        yield AttentionItem(
            severity, Cause.UNUSUAL_COMMIT, worst.table, what, step, since, detail=text, rows=rows or None,
            origin=origin,
        )  # fmt: skip


def _table_items(
    card: TableCard, feeder: StreamStatus | None, now: datetime, settings: Settings, *, is_timed: bool
) -> Iterator[AttentionItem]:
    """`is_timed`: an expectation says how fresh it has to be, or a notice that it is silent."""
    stale = None if is_timed else _stale(card, feeder, now, settings)
    if stale:
        yield stale
    gain = merge_gain(card)
    if gain.merge_severity is not Severity.FINE:
        what, step = gain_text(gain), "See the Health page for where they come from; OPTIMIZE merges them."
        if gain.merge_severity is not Severity.WARNING:
            step = "Readers lose little by them: OPTIMIZE can wait."
        yield AttentionItem(gain.merge_severity, Cause.SMALL_FILES, card.ref.name, what, step, spared=gain.spared)
    if gain.layout_severity is not Severity.FINE:
        what = "partitions that hold too little" if gain.small_partitions else "files far above the target size"
        step = "Its Health page says what would help: OPTIMIZE alone does not."
        yield AttentionItem(gain.layout_severity, Cause.LAYOUT, card.ref.name, layout_text(gain), step, detail=what)


def _stale(card: TableCard, feeder: StreamStatus | None, now: datetime, settings: Settings) -> AttentionItem | None:
    """A table that a wanted stream feeds and that has no fresh commit. Without a feeder quiet may be meant: a note."""
    if card.last_commit_at is None or (now - card.last_commit_at).total_seconds() <= settings.health.stale_after_s:
        return None
    if feeder and feeder.starved_by:
        return None  # told once, where its cause is
    age = duration_text((now - card.last_commit_at).total_seconds())
    if feeder and feeder.desired and feeder.desired.state is DesiredState.RUNNING:
        name = feeder.declaration.name
        what, step = f"No commit for {age} although {name} should write it.", f"Look at the stream {name}."
        return AttentionItem(Severity.WARNING, Cause.SILENT_TABLE, card.ref.name, what, step, card.last_commit_at)
    what, step = f"No commit for {age}.", "Nothing to do if it is not written any more; otherwise look at its writer."
    return AttentionItem(Severity.NOTE, Cause.QUIET_TABLE, card.ref.name, what, step, card.last_commit_at)


# by cause -------------------------------------------------------------------------------------------------------------


_Words = Callable[[Sequence[AttentionItem]], str]


class CalmList:
    """What needs attention, read again and again, for people: what comes and goes is listed once it has stood for
    `CALM`, and until it has been away for as long. Whoever begins to read, or reads again after a pause, sees all."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Cause, str, str], tuple[datetime, datetime, AttentionItem]] = {}  # shown from, last seen
        self._read_at: datetime | None = None

    def listed(self, items: Sequence[AttentionItem], now: datetime) -> tuple[AttentionItem, ...]:
        """Of the items of a reading, most urgent first; what is away for the moment keeps its place."""
        begins = self._read_at is None or now - self._read_at > CALM
        kept = {} if begins else {key: each for key, each in self._kept.items() if now - each[1] < CALM}
        self._read_at, self._kept = now, kept
        for item in items:
            if item.cause in _COMES_AND_GOES:
                key = item.cause, item.subject, item.detail
                stands = begins or (item.since is not None and now - item.since >= CALM)
                shown_from, *_ = kept.get(key, (now if stands else now + CALM,))
                kept[key] = shown_from, now, item
        steady = [item for item in items if item.cause not in _COMES_AND_GOES]
        return _in_order([*steady, *(item for shown_from, _, item in kept.values() if shown_from <= now)])


def _in_order(items: Iterable[AttentionItem]) -> tuple[AttentionItem, ...]:
    return tuple(
        sorted(items, key=lambda item: (_URGENCY[item.severity], _ORDER[item.cause], -(item.rows or 0), item.subject))
    )


def grouped(items: Sequence[AttentionItem]) -> tuple[AttentionGroup, ...]:
    """The items by severity and cause, in the order in which they come (most urgent first); of unusual commits the
    first `MOST_FINDINGS` each by itself, with what carried it on."""
    alone = list(dict.fromkeys(item.origin for item in items if item.origin))[:MOST_FINDINGS]
    groups: dict[tuple[Severity, Cause, str], list[AttentionItem]] = {}
    for item in items:
        of_its_own = item.origin if item.origin in alone else ""
        groups.setdefault((item.severity, item.cause, of_its_own), []).append(item)
    return tuple(_group(severity, cause, tuple(of_it)) for (severity, cause, _), of_it in groups.items())


def group_text(group: AttentionGroup) -> str:
    """ "warning: table orders: No commit for 3 h."."""
    about = f"{group.only.kind} {group.only.subject}: " if group.only else ""
    return f"{group.severity}: {about}{group.what}"


def _group(severity: Severity, cause: Cause, items: tuple[AttentionItem, ...]) -> AttentionGroup:
    items = tuple(sorted(items, key=lambda item: not item.origin.startswith(f"{item.subject} v")))  # the origin first
    group = AttentionGroup(severity, cause, items, items[0].what, items[0].next_step)
    if group.only:
        return replace(group, what=f"{group.what} Then also: {_names(items[1:])}.") if items[1:] else group
    what, step = _WORDS[cause]
    many = things(len({item.subject for item in items}), cause.kind)
    words = _with_names(what, items) if isinstance(what, str) else what(items)
    return AttentionGroup(severity, cause, items, f"{many} {words}.", step if isinstance(step, str) else step(items))


def _with_names(words: str, items: Sequence[AttentionItem]) -> str:
    return words if len(items) >= MANY else f"{words}: {_names(items)}"


def _names(items: Sequence[AttentionItem]) -> str:
    subjects = list(dict.fromkeys(item.subject for item in items))
    names = ", ".join(subjects[:MOST_NAMES])
    return names if len(subjects) <= MOST_NAMES else f"{names} and {len(subjects) - MOST_NAMES:,} more"


def _details(items: Sequence[AttentionItem]) -> str:
    """ "reader feature catalogOwned (40), … (12) and 3 other reasons"."""
    counts = Counter(item.detail for item in items).most_common()
    if len(counts) == 1:
        return counts[0][0]
    details = ", ".join(f"{detail} ({count:,})" for detail, count in counts[:MOST_DETAILS])
    rest = len(counts) - MOST_DETAILS
    return details if rest <= 0 else f"{details} and {things(rest, 'other reason')}"


def _expectations(items: Sequence[AttentionItem], one: str, many: str, rest: str = "") -> str:
    """Expectations of several tables by their names; of one table, each of them."""
    broken = f"{things(len(items), 'table expectation')}{rest}"
    if len({item.subject for item in items}) == 1:
        return f"{one} {broken}: {items[0].subject} ({'; '.join(item.detail for item in items[:MOST_NAMES])})"
    return _with_names(f"{many} {broken}", items)


# Of each cause what several have in common, followed by their names where it is a text; and the next step.
_WORDS: dict[Cause, tuple[str | _Words, str | _Words]] = {
    Cause.FAILED_STREAM: ("failed", "Read each error on its stream's page, remove its cause, then restart it."),
    Cause.NO_HOST: ("are silent", "Start one: `weir host` (or `weir up` for everything)."),
    Cause.UNREADABLE: (
        lambda items: f"cannot be read: {_details(items)}",
        "The list says for each why, and what to do.",
    ),
    Cause.FAILING_WEBHOOK: ("cannot be told", "The log of their host says why."),
    Cause.FAILING_STREAM: (
        "keep failing and are restarted by their host",
        "Read each error on its stream's page before the host gives up.",
    ),
    Cause.EXPIRING_STREAM: (
        "lose unread input to retention, or soon will",
        "Each stream's page says when, and which setting moves that.",
    ),
    Cause.SLOW_STREAM: (
        "are slow or stalled",
        "Look at input, batch duration and state on each stream's page.",
    ),
    Cause.UNWATCHED_STREAM: (
        "should run and no living host runs them",
        "Start their host again, or let a living one run them by declaring them there.",
    ),
    Cause.UNUSUAL_COMMIT: (
        lambda items: f"had unusual commits: {_names(items)}",
        "The page of each says what that commit changed; once marked as seen there, it leaves this list.",
    ),
    Cause.BROKEN_EXPECTATION: (
        lambda items: _expectations(items, "breaks", "break"),
        "Summary says since when.",
    ),
    Cause.UNKNOWN_EXPECTATION: (
        lambda items: _expectations(items, "has", "have", " that cannot be judged now"),
        "Summary says why.",
    ),
    Cause.SILENT_TABLE: (
        "have no fresh commit although streams should write them",
        "Look at the streams that feed them.",
    ),
    Cause.RESTING_POLICY: (
        "have policies that rest after failures",
        "Acts says why each failed; done by hand once, its policy goes on.",
    ),
    Cause.SMALL_FILES: (
        lambda items: f"hold mostly small files: merging would spare {sum(item.spared for item in items):,} files",
        lambda items: (
            "OPTIMIZE merges them; each table's Health page says where they come from."
            if items[0].severity is Severity.WARNING
            else "Readers lose little by them: OPTIMIZE can wait."
        ),
    ),
    Cause.LAYOUT: (
        lambda items: _with_names(f"have {_details(items)}", items),
        "Each table's Health page says what would help: OPTIMIZE alone does not.",
    ),
    Cause.QUIET_TABLE: (
        "have had no commit for long",
        "Nothing to do if they are not written any more; otherwise look at their writers.",
    ),
    Cause.STOPPED_STREAM: ("were stopped by a person", "Start them when they are wanted again."),
}
