"""Who may do what: each act of a person is one value, checked at the store's door and written to its audit trail.

Rule: `check` alone says who may act. Roles would be a table here.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from backend.errors import StreamRefusedError


@dataclass(frozen=True, slots=True)
class Actor:
    """A person, by the name that the audit trail keeps. `refused`: why they may not act; empty where they may."""

    name: str
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """One act: who does what to which stream or table, why, and with which parameters."""

    actor: Actor
    resource: str
    operation: str
    reason: str
    parameters: Mapping[str, str] = field(default_factory=dict)


def check(access: Access) -> None:
    """Raises `StreamRefusedError` where the actor may not do this, or does not say why."""
    act = f"{access.operation} {access.resource}"
    if access.actor.refused:
        raise StreamRefusedError(f"{act}: {access.actor.refused}", hint="ask somebody who may act")
    if not access.reason.strip():
        raise StreamRefusedError(f"{act}: a reason is required", hint="say why: it is kept in the audit trail")


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches this address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
