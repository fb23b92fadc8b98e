"""`weir notices [T]`: which commits did what none before them did, and `weir seen T VERSION`.

Rule: judged here and now from the log, as a host judges what comes: no store is needed. A table that cannot be read is
named and hides no other.
"""

from app import services
from app.cli.output import Shapes, print_json, print_table, say, shaped
from app.cli.store import BacklogLooks, required_store, streams_and_hosts
from app.cli.tables.lake import opened
from backend.errors import LakehouseError
from backend.format import utc_text
from backend.search.notice import Notice, notice_text
from backend.search.notices import NoticeLooks
from backend.streams.status import query_names
from backend.times import parse_time

_SHAPES: Shapes = {Notice: shaped(without=("seen_by", "seen_reason"))}  # which the store knows


def notices(name: str | None, since: str, *, as_json: bool) -> int:
    lake, moment = services.lake(), parse_time(since, services.clock())
    names = query_names(streams_and_hosts(BacklogLooks())[0])
    looks, found = NoticeLooks(lake, lambda: names), list[Notice]()
    for ref in lake.tables() if name is None else [opened(name)[1]]:
        try:
            found += [*looks.look(ref, moment), *looks.silences(ref, moment, services.now())]
        except LakehouseError as exc:
            if name is not None:
                raise
            say(f"{ref.name}: cannot be judged: {exc.message}", style="red", to_stderr=True)
    if as_json:
        print_json(found, _SHAPES)
    elif found:
        print_table(("table", "when", "what", "mended"), map(_row, found))
    else:
        say(f"No commit since {utc_text(moment)} did what none before it did.")
    return 0


def _row(notice: Notice) -> tuple[str, ...]:
    mended = "" if notice.mended_at is None else f"at v{notice.mended_at}"
    return notice.table, utc_text(notice.committed_at), notice_text(notice), mended


def seen(name: str, version: int, reason: str) -> int:
    _, ref = opened(name)
    told = required_store().noticed.seen(ref.uri, version, actor=services.actor(), reason=reason, now=services.now())
    for notice in told:
        say(f"Told no more: {notice_text(notice)}.")
    return 0
