"""`weir incident`: what went wrong with tables, what is known and done, and what people noted."""

from typing import Annotated, Literal

import typer

from app import services
from app.cli.commands import AsJson, Reason
from app.cli.health import notices_at
from app.cli.output import print_json, print_list, say
from app.cli.store import required_store, streams_and_hosts
from app.incidents.text import incident_markdown, incident_text, proposed, report_lines
from app.timeline.text import event_columns
from backend.lake.history.history import resolve_version
from backend.streams.timeline import load_incident


def incident(
    what: Annotated[Literal["list", "show", "open", "note", "close"], typer.Argument(help="What to do.")] = "list",
    subject: Annotated[str, typer.Argument(metavar="[ID|T]", help="An incident; of open: a table.")] = "",
    more: Annotated[str, typer.Argument(metavar="[TEXT|VERSION]", help="Of note; of open: the first bad one.")] = "",
    reason: Reason = "",
    title: Annotated[str, typer.Option("--title", help="Of open: the cause; else what the finding says.")] = "",
    into: Annotated[int, typer.Option("--into", metavar="ID", help="Of open: an incident that gets it.")] = 0,
    pins: Annotated[bool, typer.Option("--pin/--no-pin", help="Of open: keep it and the version before.")] = True,
    as_markdown: Annotated[bool, typer.Option("--md", help="Of show: for the incident channel.")] = False,
    as_json: AsJson = False,
) -> None:
    lake, actor, now = services.own_lake(), services.actor(), services.now()
    number = int(subject) if subject.isdecimal() else 0
    match what:
        case "list":
            every = required_store().incidents.all()
            if as_json or not every:
                print_json(every) if as_json else say("No incident: `weir incident open T VERSION` opens one.")
            for each in every if not as_json else ():
                say(incident_text(each))
            return
        case "show":
            report = load_incident(lake, required_store(), streams_and_hosts()[0], number, now=now)
            if as_json or as_markdown:
                print_json(report) if as_json else typer.echo(incident_markdown(report, lake))
                return
            for line in (incident_text(report.incident), *report_lines(report)):
                say(line)
            print_list(event_columns(now), report.events)
            return
        case "open":
            ref = lake.find(subject)
            bad = resolve_version(lake, ref, more, services.clock())
            notices = notices_at(lake, ref, bad)
            cause, table = proposed(services.public_lake(), ref, bad - 1 if bad else None, bad, notices, now)
            made = services.store().incidents.act(
                "add to incident" if into else "open incident", reason, number=into, title=title or cause,
                table=table, notices=notices, pins=pins, actor=actor, now=now,
            )  # fmt: skip
        case "note":
            made = required_store().incidents.act("note on incident", more, number=number, actor=actor, now=now)
        case "close":
            made = required_store().incidents.act("close incident", reason, number=number, actor=actor, now=now)
    print_json(made) if as_json else say(incident_text(made))
