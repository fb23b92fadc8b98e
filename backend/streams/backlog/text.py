"""How far behind a stream is, in words that pages, commands and verdicts share.

Rule: pure; what nobody knows is "–" or says why, never 0.
"""

from datetime import datetime

from backend.format import UNKNOWN, bytes_text, span_text, things, utc_text
from backend.stream_model.backlog import Backlog, DataLoss, SourceBacklog
from backend.stream_model.stream import InputKind


def behind_text(backlog: Backlog | None) -> str:
    """ "12 min", "caught up", or "–" where nobody knows."""
    if backlog is None or backlog.is_caught_up is None:
        return UNKNOWN
    if backlog.is_caught_up:
        return "caught up"
    return UNKNOWN if backlog.behind_s is None else span_text(backlog.behind_s)


def backlog_text(backlog: Backlog | None) -> str:
    """ "12 min · 4,000 rows · caught up in 5 min": what is known of it; empty where nobody knows."""
    if backlog is None or backlog.is_caught_up is None:
        return ""
    parts = [behind_text(backlog)]
    parts += [things(backlog.rows, "row")] if backlog.rows else []
    parts += [f"caught up in {span_text(backlog.drain_s)}"] if backlog.drain_s else []
    return " · ".join(part for part in parts if part != UNKNOWN)


def waiting(backlog: Backlog | SourceBacklog, *, now: datetime) -> str:
    """What waits: "12 versions, 4,000 rows, 3.1 MB, the oldest 38 min old"."""
    counts = ((backlog.versions, "version"), (backlog.files, "file"), (backlog.rows, "row"))
    parts = [things(count, name) for count, name in counts if count]
    parts += [bytes_text(backlog.size_bytes)] if backlog.size_bytes else []
    if backlog.oldest_unread_at and not backlog.is_caught_up:
        parts.append(f"the oldest {span_text((now - backlog.oldest_unread_at).total_seconds())} old")
    return ", ".join(parts) or "nothing"


def source_sentence(source: SourceBacklog, *, now: datetime) -> str:
    """All that is known of one source: what waits, what was lost, and why a figure is missing."""
    waits = {True: "caught up", False: waiting(source, now=now), None: ""}[source.is_caught_up]
    return "; ".join(part for part in (waits, source.detail, source.unknown) if part)


def lost_text(backlog: Backlog) -> str:
    """ "2 versions", "4 records" of what was deleted before it was read."""
    nouns = {source.name: "record" if source.kind == InputKind.KAFKA else "version" for source in backlog.sources}
    return " and ".join(things(each.lost, nouns[each.name]) for each in backlog.sources if each.lost)


def data_loss_sentence(loss: DataLoss, *, now: datetime) -> str:
    """ "unread input may be deleted from 2026-11-30 06:53 UTC on (in 6 d): the log entry of v12; … moves that"."""
    when = f"in {span_text((loss.at - now).total_seconds())}" if loss.at > now else "now"
    return f"unread input may be deleted from {utc_text(loss.at)} on ({when}): {loss.what}; {loss.setting} moves that"
