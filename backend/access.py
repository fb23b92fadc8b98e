"""Who may do what: each act of a person is one value, checked at the store's door and written to its audit trail.

Rule: `check` alone says who may act. An operation that `NEEDS` does not name is an admin's.
"""

import ipaddress
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from backend.errors import StreamRefusedError

STREAM = "stream:"  # before the name of a stream in grants


class Role(StrEnum):
    """What somebody may do; each also all that those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    MAINTAINER = "maintainer"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        return _RANKS[self]


_RANKS = {role: rank for rank, role in enumerate(Role)}
_JOBS_OF_STREAMS = ("reset", "requeue", "requeue preview", "rewind")
OF_STREAMS = frozenset(
    ["start", "stop", "drain", "drain through", "restart"]
    + [f"{cancel}{kind} job" for kind in _JOBS_OF_STREAMS for cancel in ("", "cancel ")]
)
LOOK_AS = "look as"  # through another person's eyes
OF_NO_TABLE = frozenset([LOOK_AS, "query", "query job", "cancel query job", "save query", "remove query"])
OF_OWNERS = frozenset(["cancel query job", "cancel diff job", "remove query"])  # of others: an admin's
NEEDS: Mapping[str, Role] = (
    dict.fromkeys(("query", "query job", "diff job", "save query", *sorted(OF_OWNERS)), Role.VIEWER)
    | dict.fromkeys(("start", "stop", "drain", "drain through", "restart", "requeue job", "seen"), Role.OPERATOR)
    | dict.fromkeys(("requeue preview job", "cancel requeue preview job", "cancel requeue job"), Role.OPERATOR)
    | dict.fromkeys(("open incident", "add to incident", "note on incident", "close incident"), Role.OPERATOR)
    | dict.fromkeys(("pin", "unpin", "expect", "expect no more", "reset job", "cancel reset job"), Role.MAINTAINER)
    | {
        f"{cancel}{kind} job": Role.MAINTAINER
        for kind in ("optimize", "vacuum", "restore", "rewind", "repair", "alter", "clone", "drop", "undrop", "purge")
        for cancel in ("", "cancel ")
    }
)


class Grant(BaseModel):
    """A role for a user or a group, for everything or for what its patterns name. One of `auth.grants`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Annotated[Role, Field(description="`viewer`, `operator`, `maintainer` or `admin`.")]
    user: Annotated[str, Field(description="The name by which a login knows the person.")] = ""
    group: Annotated[str, Field(description="A group that the login or the proxy says the person is in.")] = ""
    on: Annotated[
        tuple[str, ...],
        Field(description="Tables (`silver/*`) and streams (`stream:silver_*`), as patterns. Empty: everything."),
    ] = ()

    @field_validator("on")
    @classmethod
    def _patterns_name_something(cls, on: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in on:
            name = pattern.removeprefix(STREAM)
            if not name or ".." in name or not name.isprintable() or name != name.strip():
                raise ValueError(f"{pattern!r} is no pattern of tables (`silver/*`) or streams (`stream:silver_*`)")
        return on

    @model_validator(mode="after")
    def _is_for_somebody(self) -> "Grant":
        if bool(self.user) == bool(self.group):
            raise ValueError("a grant names either a user or a group")
        return self

    @property
    def holder(self) -> str:
        return f"user {self.user}" if self.user else f"group {self.group}"

    def covers(self, resource: str, *, of_stream: bool) -> bool:
        """Whether it is for this table or stream."""
        return not self.on or any(
            pattern.startswith(STREAM) == of_stream and fnmatchcase(resource, pattern.removeprefix(STREAM))
            for pattern in self.on
        )

    def names(self, table: str) -> bool:
        """Whether it names this very table: patterns and grants for everything do not."""
        return table in self.on

    def __str__(self) -> str:
        return f"{self.role} of {', '.join(self.on) or 'everything'}: {self.holder}"


@dataclass(frozen=True, slots=True)
class Actor:
    """A person, by the name that the audit trail keeps. `refused`: why they may not act; empty where they may.

    `grants`: all that are configured; None where nothing is, and everybody may do everything. `default_role`: what the
    person may do anywhere without a grant; None for nothing. `looks_as`: by whose grants they look, where not by their
    own.
    """

    name: str
    refused: str = ""
    groups: frozenset[str] = frozenset()
    grants: tuple[Grant, ...] | None = None
    default_role: Role | None = None
    looks_as: str = ""

    @property
    def own_grants(self) -> tuple[Grant, ...]:
        name = self.looks_as or self.name
        return tuple(g for g in self.grants or () if (g.user == name if g.user else g.group in self.groups))

    @property
    def may_look(self) -> bool:
        """Whether anything of Weir is for them."""
        return self.grants is None or self.default_role is not None or bool(self.own_grants)


@dataclass(frozen=True, slots=True)
class Access:
    """One act: who does what to which stream or table, why, and with which parameters. `owner`: whose query or job it
    is about."""

    actor: Actor
    resource: str
    operation: str
    reason: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Permission:
    """What allows an operation (`by`: a grant or the default role), or why it is not allowed and who may."""

    allowed: bool
    by: str


def permission(actor: Actor, operation: str, resource: str, *, owner: str = "") -> Permission:
    """Whether the actor may do this to a table or stream, and by which grant. `owner`: as of `Access`."""
    if actor.refused:
        return Permission(False, actor.refused)
    if actor.grants is None:
        return Permission(True, "no grants are configured")
    needed, of_stream = NEEDS.get(operation, Role.ADMIN), operation in OF_STREAMS
    if operation in OF_OWNERS and owner != actor.name:
        needed = Role.ADMIN
    if actor.default_role is not None and actor.default_role.rank >= needed.rank:
        return Permission(True, f"auth.default_role = {actor.default_role}")
    of_no_table, rank = operation in OF_NO_TABLE, needed.rank

    def is_enough(grant: Grant) -> bool:
        if grant.role.rank < rank or not of_no_table:
            return grant.role.rank >= rank and grant.covers(resource, of_stream=of_stream)
        return needed is Role.VIEWER or not grant.on

    if by := next(filter(is_enough, actor.own_grants), None):
        return Permission(True, str(by))
    holders = ", ".join({grant.holder: None for grant in actor.grants if is_enough(grant)}) or "nobody was granted it"
    return Permission(False, f"{needed}s{'' if of_no_table else f' of {resource}'} may: {holders}")


def check(access: Access) -> None:
    """Raises `StreamRefusedError` where the actor may not do this, or does not say why."""
    act = f"{access.operation} {access.resource}"
    allowed = permission(access.actor, access.operation, access.resource, owner=access.owner)
    if not allowed.allowed:
        raise StreamRefusedError(f"{act}: {allowed.by}", hint="ask somebody who may")
    if not access.reason.strip():
        raise StreamRefusedError(f"{act}: a reason is required", hint="say why: it is kept in the audit trail")


def grant_problems(grants: Sequence[Grant], tables: Collection[str], streams: Collection[str]) -> Iterator[str]:
    """What grants name that is not there; one that is there under a name that looks alike among it."""
    for grant in grants:
        for pattern in grant.on:
            kind, names = ("stream", streams) if pattern.startswith(STREAM) else ("table", tables)
            if not any(fnmatchcase(name, pattern.removeprefix(STREAM)) for name in names):
                yield f"grant {grant}: no {kind} is named {pattern.removeprefix(STREAM)!a}"


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches this address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
