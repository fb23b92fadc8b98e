"""`weir expectations`: what pipelines expect of tables, and what the stream host found.

Rule: judges nothing itself; what no living host judges says so.
"""

from app.cli.output import now, print_json, print_table, say
from app.cli.streams import documents
from app.cli.streams.listing import NO_HOST_HINT, control_store
from app.cli.tables.lake import services
from backend.expectations.judge import away
from backend.expectations.model import Judgement, State
from backend.expectations.words import expected_text, found_text
from backend.format import ago, things
from backend.stream_model.stream import HostHeartbeat

_BROKEN = 1


def expectations(name: str | None, *, as_json: bool) -> int:
    """All of them, or those on one table; 1 where one is broken."""
    settings, lake = services()
    judgements, hosts = known()
    if name is not None:
        ref = lake.find(name)
        judgements = [each for each in judgements if each.expectation.uri == ref.uri]
    names = {ref.uri: ref.name for ref in lake.found().refs}
    silent = away(judgements, hosts, now=now(), stale_s=settings.host.heartbeat_stale_s)
    code = _BROKEN if any(each.state is State.BROKEN for each in judgements) else 0
    if as_json:
        named = ((each, names.get(each.expectation.uri)) for each in judgements)
        print_json([documents.judgement(each, table, is_silent=each in silent) for each, table in named])
        return code
    if not judgements:
        say("Nothing is expected of " + (name or "any table") + ": `shop.expect_table(…)` in a pipeline says what is.")
        return code
    rows = ((names.get(each.expectation.uri, each.expectation.table), *_cells(each)) for each in judgements)
    print_table(("table", "expected", "state", "since", "found", "judged"), rows)
    if silent:
        count = things(len(silent), "expectation")
        say(f"No living host judges {count}: what stands here is what it was.", style="yellow")
        say(NO_HOST_HINT, style="dim")
    return code


def known() -> tuple[list[Judgement], list[HostHeartbeat]]:
    """Every judgement and every host; both empty where there is no store yet."""
    with control_store(services()[0]) as store:
        return (store.judgements(), store.hosts(now=now())) if store else ([], [])


def _cells(each: Judgement) -> tuple[str, ...]:
    since = ago(each.broken_since, now()) if each.state is State.BROKEN else ""
    found = found_text(each, now())
    return expected_text(each.expectation), each.state.value, since, found, ago(each.judged_at, now())
