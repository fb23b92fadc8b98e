"""`weir expectations`: what pipelines and people expect of tables, and what the stream host found; `weir expect T`.

Rule: hosts judge, and what no living host judges says so; a condition is judged here once, as soon as it is expected.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

import typer

from app import services
from app.cli.commands import AsJson, DryRun, OneOrAll, Reason, TableName
from app.cli.lake import opened
from app.cli.output import Document, only, print_json, print_list, say
from app.cli.store import NO_HOST_HINT, is_host_alive, judgements_and_hosts, required_store
from app.columns import Column
from app.ui.view.theme import state_text
from app.ui.view.words import sentence
from backend.expectations.model import (
    ExpectationKind,
    Judgement,
    State,
    TableExpectation,
    away,
    expected_text,
    found_text,
    judged_text,
    standing,
)
from backend.expectations.shown import as_shown
from backend.format import ago, duration_text, things
from backend.search.condition import check_condition

_BROKEN = 1


def expectations(name: OneOrAll = None, as_json: AsJson = False) -> int:
    """All of them, or those on one table; 1 where one is broken."""
    lake, (found, hosts) = services.own_lake(), judgements_and_hosts()
    judgements = list(as_shown(found, lake.hidden_at))
    if name is not None:
        ref = lake.find(name)
        judgements = [judgement for judgement in judgements if judgement.expectation.uri == ref.uri]
    names = {ref.uri: ref.name for ref in lake.found().refs}
    silent = away(judgements, hosts, now=services.now(), stale_s=services.settings().host.heartbeat_stale_s)
    code = _BROKEN if any(judgement.state is State.BROKEN for judgement in judgements) else 0
    if as_json:
        print_json([judgement_document(judgement, names, is_stale=judgement in silent) for judgement in judgements])
        return code
    if not judgements:
        say(f"Nothing is expected of {name or 'any table'}: `shop.expect_table(…)` or `weir expect` does.")
        return code
    print_list(judgement_columns(names, silent, services.now()), judgements)
    if silent:
        count = things(len(silent), "table expectation")
        say(f"No living host judges {count}: what stands here is what it was.", style="yellow")
        say(NO_HOST_HINT, style="dim")
    return code


_DOCUMENT = only(
    "state",
    "broken_since",
    "judged_at",
    "host_id",
    empty_is_null=("reason", "within_s", "day", "usual_of_days", "condition", "by", "why"),
    expectation="expectation.name",
    usual_rows="finding.usual",
    usual_of_days="finding.days",
    **{key: f"expectation.{key}" for key in ("table", "uri", "kind", "pipeline", "within_s", "condition", "by", "why")},
    **{key: f"finding.{key}" for key in ("reason", "version", "other_version", "last_data_at", "day", "rows")},
    **{key: f"finding.{key}" for key in ("broken_keys", "broken_rows", "examples")},
)


def judgement_document(judgement: Judgement, names: Mapping[str, str], *, is_stale: bool) -> Document:
    """`is_stale`: the host that judged it is away. What does not belong to its kind is null."""
    document = _DOCUMENT(judgement) | {"is_stale": is_stale}
    return document | {"table": names.get(judgement.expectation.uri, judgement.expectation.table)}


def judgement_columns(names: Mapping[str, str], silent: Sequence[Judgement], now: datetime) -> list[Column[Judgement]]:
    """What is expected, and what was found. `names` of tables by URI; `silent`: whom no living host judges."""

    def table(judgement: Judgement) -> str:
        return names.get(judgement.expectation.uri, judgement.expectation.table)

    def since(judgement: Judgement) -> str:
        return ago(judgement.broken_since, now) if judgement.state is State.BROKEN else ""

    return [
        Column("Table", table, key="table"),
        Column("Expected", lambda judgement: expected_text(judgement.expectation)),
        Column("State", lambda judgement: state_text(standing(judgement, silent))),
        Column("Since", since),
        Column("Found", lambda judgement: found_text(judgement, now)),
        Column("Judged", lambda judgement: judged_text(judgement, now).removeprefix("judged ")),
    ]


def expect(
    name: TableName,
    condition: Annotated[str, typer.Argument(metavar="CONDITION", help="What holds, as for `weir bisect --assert`.")],
    no_more: Annotated[bool, typer.Option("--no-more", help="Take it back.")] = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Keeps or takes back what a person expects, which is judged at once; raises `QueryError` for a condition that no
    host could judge."""
    from backend.expectations.looks import Looks, hindsight_text, judged_now  # with DuckDB, which a list does without

    lake, ref = opened(name)
    store, actor, now, host = required_store(), services.actor(), services.now(), services.settings().host
    expected = TableExpectation(ref.uri, ref.name, ExpectationKind.HOLDS, condition=condition.strip())
    is_expected, verb = not (no_more or dry_run), "would be" if dry_run else "is"
    document: Document = {"table": ref.name, "uri": ref.uri, "expectation": expected.name, "is_expected": is_expected}
    document |= dict.fromkeys(("state", "found", "version", "past"))
    if no_more:
        if not dry_run:
            store.expect_no_more(expected, actor=actor, reason=reason, now=now)
        lines = [f"{ref.name}: {expected.condition} {verb} no longer expected."]
    else:
        check_condition(expected.condition, lake.snapshot(ref))
        if not dry_run:
            store.expect_by_hand(expected, actor=actor, reason=reason, now=now)
        judgement, past = judged_now(Looks(lake, host.keys_max_bytes), expected, now=now)
        found = found_text(judgement, now)
        document |= {"state": judgement.state, "found": found, "version": judgement.finding.version, "past": past}
        lines = [
            f"{ref.name}: {expected.condition} {verb} expected from now on.",
            f"{state_text(judgement.state)} now: {found}. {sentence(hindsight_text(past, now))}",
            f"A host judges it every {duration_text(host.expectations_interval_s)}: `weir expectations {ref.name}`.",
        ]
        if not is_host_alive(store.hosts(now=now)):
            lines[-1] = "No host is alive: it is judged again when one starts (`weir host`)."
    if as_json:
        print_json(document)
        return
    for line in lines:
        say(line)
