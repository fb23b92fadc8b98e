"""`weir access`: who may do what, why somebody may or not, and what is wrong with grants."""

from typing import Annotated, Literal

import typer

from app import services
from app.access.text import ROLES, answer_text, operation_named, role_rows
from app.cli.commands import AsJson
from app.cli.output import fields_of, print_json, print_list, say
from backend.access import STREAM, permission
from backend.errors import LakehouseError, StreamRefusedError


def access(
    what: Annotated[Literal["list", "why", "check"], typer.Argument(help="What to do.")] = "list",
    user: Annotated[str, typer.Argument(metavar="[USER]", help="Of why: the name of a login.")] = "",
    operation: Annotated[str, typer.Argument(metavar="[OPERATION]", help="Of why: start, optimize, pin, …")] = "",
    resource: Annotated[str, typer.Argument(metavar="[RESOURCE]", help="Of why: a table or stream.")] = "",
    group: Annotated[
        list[str] | None, typer.Option("--group", help="Of why: a group of theirs; again for more.")
    ] = None,
    who: Annotated[str, typer.Option("--who", help="Of list: a part of a person's or group's name.")] = "",
    on: Annotated[str, typer.Option("--on", help="Of list: a table, or a stream.")] = "",
    as_json: AsJson = False,
) -> None:
    auth = services.settings().auth
    if what == "list":
        rows = role_rows(auth, who=who, on=on)
        print_json(rows) if as_json else print_list(ROLES, rows)
    elif what == "check":
        problems = services.access_problems()
        if as_json:
            print_json(problems)
        for line in (problems or ["Every grant names what is there."]) if not as_json else ():
            say(line)
        raise typer.Exit(LakehouseError.exit_code if problems else 0)
    else:
        name, subject = operation_named(operation), resource.removeprefix(STREAM)
        found = permission(auth.actor(user, group or ()), name, subject)
        asked = {"user": user, "groups": group or [], "operation": name, "resource": subject}
        print_json(asked | fields_of(found)) if as_json else say(answer_text(user, name, subject, found))
        raise typer.Exit(0 if found.allowed else StreamRefusedError.exit_code)
