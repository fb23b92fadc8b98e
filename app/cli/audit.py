"""`weir audit`: who did what, as what role and with what result; and whether the trail is whole."""

from typing import Annotated, Literal

import typer

from app import services
from app.cli.commands import TIME, AsJson
from app.cli.output import print_json, print_list, say
from app.cli.store import required_store
from app.ui.view.acts import MOST_AUDIT, log_columns
from backend.times import parse_time


def audit(
    what: Annotated[Literal["list", "verify"], typer.Argument(help="What to do.")] = "list",
    since: Annotated[str, typer.Option("--since", help=f"Not before {TIME}.")] = "7 d",
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="By whom.")] = "",
    on: Annotated[str, typer.Option("--on", metavar="NAME", help="A table or stream, or a pattern of some.")] = "*",
    action: Annotated[str, typer.Option("--action", help="As the trail calls it: stop, `optimize job`, login.")] = "",
    head: Annotated[str, typer.Option("--head", metavar="HASH", help="Of verify: a hash that the head once had.")] = "",
    as_json: AsJson = False,
) -> None:
    store, clock, actor = required_store(), services.clock(), services.actor()
    if what == "verify":
        checked = store.verify_audit(known=head)
        whole = f"rows {checked.first} to {checked.head.number} are as they were written, hash {checked.head.hash}"
        print_json(checked) if as_json else say(f"{checked.problem}; {whole}" if checked.problem else whole)
        raise typer.Exit(bool(checked.problem))
    where, begin = {"actor": by, "action": action}, parse_time(since, clock)
    rows = store.audit_entries(where, since=begin, on=on, limit=MOST_AUDIT, seen_by=actor)
    print_json(rows) if as_json else print_list(log_columns(clock.now, services.settings().roots, of_all=True), rows)
