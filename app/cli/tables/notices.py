"""`weir notices [T]`: which commits did what none before them did, and `weir seen T VERSION`.

Rule: judged here and now from the log, as a host judges what comes: no store is needed. A table that cannot be read is
named and hides no other.
"""

from datetime import datetime

from app import services
from app.cli.output import Shapes, print_json, print_table, say, shaped
from app.cli.store import BacklogLooks, required_store, streams_and_hosts
from app.cli.tables.lake import opened
from backend.errors import LakehouseError
from backend.format import utc_text
from backend.health.health import BACK
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.search.notice import Notice, notice_text
from backend.search.notices import NoticeLooks
from backend.streams.status import query_names
from backend.times import parse_time

_SHAPES: Shapes = {Notice: shaped(without=("seen_by", "seen_reason"))}  # which the store knows


def notices(name: str | None, since: str, *, as_json: bool) -> int:
    lake, moment = services.lake(), parse_time(since, services.clock())
    looks, found = _looks(lake), list[Notice]()
    for ref in lake.tables() if name is None else [opened(name)[1]]:
        try:
            found += _judged(looks, ref, moment)
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
    (lake, ref), store, now = opened(name), required_store(), services.now()
    found = [notice for notice in _judged(_looks(lake), ref, now - BACK) if notice.version == version]
    told = store.noticed.seen(ref.uri, version, actor=services.actor(), reason=reason, now=now, told=found)
    for notice in told:
        say(f"Told no more: {notice_text(notice)}.")
    return 0


def _looks(lake: Lake) -> NoticeLooks:
    names = query_names(streams_and_hosts(BacklogLooks())[0])
    return NoticeLooks(lake, lambda: names)


def _judged(looks: NoticeLooks, ref: TableRef, since: datetime) -> list[Notice]:
    now = services.now()
    return [*looks.look(ref, since, now), *looks.silences(ref, since, now)]
