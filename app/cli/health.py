"""`weir health|policies|notices`: what needs attention, what policies do about it, which commits did what none before
them did; `weir seen T VERSION`, all of it or one finding.

Rule: judges here and now, by the rules of hosts, and asks nothing of them; a store that is not there leaves streams out
and says so. A table that cannot be read is named and hides no other.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

import typer

from app import services
from app.cli.commands import TIME, AsJson, OneOrAll, Reason, TableName
from app.cli.lake import opened
from app.cli.output import Shapes, only, print_json, print_list, say, shaped, status_line
from app.cli.store import BacklogLooks, required_store, streams_and_hosts
from app.columns import Column, Columns
from app.health.text import log_sentence, run_text
from app.summary.text import carried_sentence, carried_text
from app.ui.lake import health_columns, table_columns
from backend.errors import LakehouseError
from backend.format import bytes_text, count_text, things, utc_text
from backend.health.attention import attention, finding_text, group_text, grouped, load_attention
from backend.health.health import BACK, JudgedTable, table_health
from backend.health.model import AttentionGroup, AttentionItem, LogHealth, Severity, TableHealth
from backend.health.rules import gain_in, small_files_text
from backend.lake.cards import Table
from backend.lake.lake import Lake
from backend.lake.model import TableCard, TableRef, VersionTotals
from backend.search.carried import is_of_values, load_carried
from backend.search.notice import Notice, notice_text
from backend.search.notices import NoticeLooks
from backend.streams.status import query_names
from backend.times import parse_time

TOLD_EACH = 50  # tables
_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "", Severity.FINE: "green"}
_FACTS = ("num_files", "size_bytes", "small_files", "small_share", "rule", "offenders", "last_optimize", "last_vacuum")
_OF_HEALTH = {"name": "ref.name", "uri": "ref.uri", **{key: f"evidence.{key}" for key in (*_FACTS, "log")}}
_SHAPES: Shapes = {
    AttentionItem: shaped("kind"),
    AttentionGroup: only("severity", "cause", "what", "next_step", "subjects", kind="cause.kind"),
    TableHealth: shaped("severity", without=("ref", "evidence"), **_OF_HEALTH),
    VersionTotals: shaped("small_share", without=("num_rows",)),
    LogHealth: shaped("commits_since_checkpoint"),
    Notice: shaped(without=("seen_by", "seen_reason")),  # which the store knows
}
PLAN = only(
    "kind", "table", "state", "why_not", "next_at",
    empty_is_null=("why_not", "last_error"),
    policy="text", uri="ref.uri", figures="previewed.figures", failures="failures", last_job_id="runs.last.job_id",
    last_state="runs.last.state", last_at="runs.last.requested_at", last_error="runs.last.error",
)  # fmt: skip


def health(name: OneOrAll = None, as_json: AsJson = False) -> None:
    _print_one(name, as_json=as_json) if name else _print_all(as_json=as_json)


def _print_one(name: str, *, as_json: bool) -> None:
    lake, ref = opened(name)
    names = query_names(streams_and_hosts()[0])
    health = table_health(lake, ref, now=services.now(), settings=services.settings().health, stream_names=names)
    if as_json:
        print_json(health, _SHAPES)
        return
    evidence = health.evidence
    say(f"{health.ref.name} · v{health.version}", style="bold")
    say(
        f"{count_text(evidence.num_files)} files · {bytes_text(evidence.size_bytes)} · "
        f"small files: {small_files_text(gain_in(evidence))}"
    )
    say(evidence.rule.text, style="dim")
    now = services.now()
    say(f"last OPTIMIZE {run_text(evidence.last_optimize, now)} · last VACUUM {run_text(evidence.last_vacuum, now)}")
    say(log_sentence(evidence.log, now=now))
    for offender in evidence.offenders:
        say(
            f"  {offender.kind} {offender.name}: {count_text(offender.small_files)} small of "
            f"{count_text(offender.files)} files, {bytes_text(offender.average_bytes)} on average"
        )
    for recommendation in health.recommendations:
        say()
        say(f"{recommendation.severity}: {recommendation.finding}", style=_STYLES[recommendation.severity])
        say(f"  → {recommendation.next_step}")


def _print_all(*, as_json: bool) -> None:
    """Attention items, then every table; a table that cannot be read is an attention item."""
    streams, settings, store = streams_and_hosts(BacklogLooks())[0], services.settings(), services.existing_store()
    cards, tables = _read(query_names(streams))
    if store:
        items = load_attention(
            settings, store, cards, streams, hidden_at=services.own_lake().hidden_at, now=services.now()
        )
    else:
        items = attention(cards, (), (), now=services.now(), settings=settings)
    groups = grouped(items)
    if as_json:
        of_one_alone = "trend", "trend_truncated"  # a table's past takes pages
        of_table = shaped("severity", without=("ref", "evidence", *of_one_alone), **_OF_HEALTH)
        shapes = {**_SHAPES, TableHealth: of_table}
        print_json({"attention": items, "attention_groups": groups, "tables": tables}, shapes)
        return
    if not groups:
        say("Nothing needs attention.", style="green")
    for group in groups:
        say(group_text(group), style=_STYLES[group.severity])
        say(f"  → {group.next_step}")
    say()
    if not tables:
        return
    of_uri = {card.ref.uri: card for card in cards if isinstance(card, TableCard)}
    judged = [JudgedTable(of_uri[health.ref.uri], health.evidence, health.severity) for health in tables]
    now, ratio = services.now(), services.settings().health.small_file_ratio
    name, layer, _, _, files, size, small, _ = table_columns(now, ratio)
    found = health_columns(now, {table.card.ref.uri: table for table in judged})
    print_list((name, *found, files, small, size, layer), [table.card for table in judged])


def _read(names: Mapping[str, str]) -> tuple[list[Table], list[TableHealth]]:
    """Every table, and the health of those that can be read, in the order of their names. A table is judged while what
    its card was read from is at hand."""
    lake = services.own_lake()
    listing = lake.found()
    cards, healths = dict[str, Table](), dict[str, TableHealth]()
    with status_line() as update:
        for card in lake.read_cards(listing.refs):
            cards[card.ref.uri] = card
            if isinstance(card, TableCard) and (health := _readable(card, names)):
                healths[card.ref.uri] = health
            if update and len(cards) % TOLD_EACH == 0:
                update(f"{len(cards):,} of {things(len(listing.refs), 'table')} judged …")
    in_order = [ref.uri for ref in listing.refs]
    return [*(cards[uri] for uri in in_order), *listing.problems], [healths[uri] for uri in in_order if uri in healths]


def _readable(card: TableCard, names: Mapping[str, str]) -> TableHealth | None:
    """None for a table that broke after its card was read; the next look shows it as unreadable."""
    lake, rules = services.own_lake(), services.settings().health
    try:
        with lake.at_one_moment(card.ref):
            return table_health(lake, card.ref, now=services.now(), settings=rules, stream_names=names)
    except LakehouseError as exc:
        say(f"{card.ref.name}: cannot be judged: {exc.message}", style="red", to_stderr=True)
        return None


def policies(as_json: AsJson = False) -> None:
    from app.ui.view.acts import policy_columns
    from backend.maintenance.policies import PolicyPlans  # with every act, which nothing else here needs

    settings, now = services.settings(), services.now()
    plans = PolicyPlans(settings, services.own_lake()).plans(services.existing_store(), now=now)
    if as_json:
        print_json([PLAN(plan) for plan in plans])
        return
    if not plans:
        say("No policies: `[[policies]]` in weir.toml says what hosts do to tables by themselves.")
        return
    print_list(policy_columns(now), plans)


def notices(
    name: Annotated[str | None, typer.Argument(metavar="[T]", help="A table; without it, all of them.")] = None,
    since: Annotated[str, typer.Option("--since", help=f"Commits not before {TIME}.")] = "7 d",
    elsewhere: Annotated[bool, typer.Option("--elsewhere", help="And the rows of other tables that carry it.")] = False,
    as_json: AsJson = False,
) -> None:
    lake, moment = services.own_lake(), parse_time(since, services.clock())
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
        print_list(NOTICES, found)
    else:
        say(f"No commit since {utc_text(moment)} was unusual.")
    for notice in found if elsewhere and not as_json else ():
        if is_of_values(notice, lake.snapshot(lake.find(notice.uri), notice.version)):
            *_, result = load_carried(lake, notice)
            say(f"{notice_text(notice)}:")
            for line in (*map(carried_text, result.found), carried_sentence(result)):
                say(f"  {line}")


NOTICES: Columns[Notice] = (
    Column("Table", lambda notice: notice.table, key="table"),
    Column("When", lambda notice: notice.committed_at, "moment", key="committed_at"),
    Column("What", finding_text),
)


def seen(
    name: TableName,
    version: Annotated[int, typer.Argument(metavar="VERSION", min=0, help="The version of the commit.")],
    reason: Reason = "",
    finding: Annotated[str, typer.Option(help="Only this one: words of its line in `weir notices`.")] = "",
) -> None:
    (lake, ref), store, now = opened(name), required_store(), services.now()
    found = notices_at(lake, ref, version)
    for notice in store.noticed.seen(
        ref.uri, version, lambda notice: finding.lower() in notice_text(notice).lower(), actor=services.actor(),
        reason=reason, now=now, told=found, hidden_at=services.public_lake().hidden_at,
    ):  # fmt: skip
        say(f"Told no more: {notice_text(notice)}.")


def notices_at(lake: Lake, ref: TableRef, version: int) -> list[Notice]:
    """Of one commit, as it is judged here."""
    return [each for each in _judged(_looks(lake), ref, services.now() - BACK) if each.version == version]


def _looks(lake: Lake) -> NoticeLooks:
    names = query_names(streams_and_hosts(BacklogLooks())[0])
    return NoticeLooks(lake, lambda: names)


def _judged(looks: NoticeLooks, ref: TableRef, since: datetime) -> list[Notice]:
    now = services.now()
    return [*looks.look(ref, since, now), *looks.silences(ref, since, now)]
