"""Who may do what, in rows and words for page and terminal. Rule: pure; what is allowed is `permission`'s to say."""

from dataclasses import dataclass

from app.columns import Column, Columns
from backend.access import LOOK_AS, NEEDS, STREAM, Permission, Role
from backend.errors import QueryError
from backend.settings import AuthSettings

OPERATIONS = sorted([*NEEDS, LOOK_AS])
EVERYBODY, TERMINAL = "everybody else who is logged in", "whoever has a terminal here"


@dataclass(frozen=True, slots=True)
class RoleRow:
    """`who` has a role `on` what these patterns name; without any on everything."""

    who: str
    role: str
    on: tuple[str, ...] = ()


ROLES: Columns[RoleRow] = (
    Column("Who", lambda row: row.who),
    Column("Role", lambda row: row.role),
    Column("On", lambda row: ", ".join(row.on) or "everything"),
)


def role_rows(auth: AuthSettings, *, who: str, on: str) -> list[RoleRow]:
    """Grants, then the default roles. `who`: part of a name; `on`: a table, or a stream with prefix or without."""
    rows = [
        RoleRow(grant.holder, grant.role, grant.on)
        for grant in auth.grants
        if not on
        or grant.covers(on.removeprefix(STREAM), of_stream=True)
        or (not on.startswith(STREAM) and grant.covers(on, of_stream=False))
    ]
    rows.append(RoleRow(EVERYBODY, auth.default_role or (Role.VIEWER if auth.grants else Role.ADMIN)))
    rows.append(RoleRow(TERMINAL, auth.terminal_role or Role.ADMIN))
    return [row for row in rows if who.casefold() in row.who.casefold()]


def operation_named(typed: str) -> str:
    """One by its name, that of a job also without the word; raises `QueryError`."""
    for name in (typed, f"{typed} job"):
        if name in OPERATIONS:
            return name
    raise QueryError(f"no operation is called {typed!r}", hint=f"there are {', '.join(OPERATIONS)}")


def answer_text(name: str, operation: str, resource: str, found: Permission) -> str:
    """ "No, ann may not drop job silver/orders: maintainers of silver/orders may: group data-platform"."""
    words = "Yes, {} may" if found.allowed else "No, {} may not"
    return f"{words.format(name)} {operation} {resource}: {found.by}"
