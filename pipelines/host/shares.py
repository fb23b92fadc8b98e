"""What of the streams this host takes, and what it gives up to another one.

Rule: decided in `backend.streams.balance` from leases and heartbeats, which every host sees alike. A host gives only
when that has been uneven for a while, so that one which comes and goes moves nothing.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import structlog

from backend.store.clock import elapsed
from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import Desired, Lease
from backend.streams.balance import Move, plan_shares

SETTLE = 2  # times a lease's length

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Share:
    take: tuple[str, ...]
    give: Move | None


class Sharing:
    """Used by one thread, the host's loop."""

    def __init__(
        self, store: ControlStore, host_id: str, *, ttl_s: float, elapsed: Callable[[], float] = elapsed
    ) -> None:
        self._store, self._host_id, self._ttl_s, self._elapsed = store, host_id, ttl_s, elapsed
        self._others: dict[str, str] = {}
        self._uneven_since: float | None = None

    def share(self, can: Collection[str], held: Collection[str], desired: Mapping[str, Desired]) -> Share:
        """`can`: what this host is able to run now; `held`: the streams whose lease it has."""
        leases = self._store.leases()
        found = {name: leases[stream_resource(name)] for name in desired if stream_resource(name) in leases}
        self._note(found, can)
        everyone = {host.host_id: host.streams for host in self._store.live_hosts(within_s=self._ttl_s)}
        owners = {name: lease.owner for name, lease in found.items()} | dict.fromkeys(held, self._host_id)
        at_rest = {name for name, wanted in desired.items() if wanted.is_rest}
        plan = plan_shares({**everyone, self._host_id: can}, owners, at_rest)
        own = {name for name, lease in found.items() if lease.owner == self._host_id}  # its lease ran out here
        mine = {name for name, host in plan.placed.items() if host == self._host_id} | own
        return Share(tuple(sorted(mine & set(can) - set(held))), self._settled(plan.move, is_even=plan.is_even))

    def _settled(self, move: Move | None, *, is_even: bool) -> Move | None:
        """The move, when it is this host's and it has been uneven for long enough."""
        now = self._elapsed()
        if is_even:
            self._uneven_since = None
        elif move is not None and self._uneven_since is None:
            self._uneven_since = now
        if move is None or move.host != self._host_id or self._uneven_since is None:
            return None
        return move if now - self._uneven_since >= SETTLE * self._ttl_s else None

    def _note(self, leases: Mapping[str, Lease], can: Collection[str]) -> None:
        """Says once of each stream that another host has it."""
        for name, lease in leases.items():
            if name in can and self._others.get(name) != lease.owner:
                self._others[name] = lease.owner
                if lease.owner != self._host_id:
                    log.info("stream_refused", stream=name, owner=lease.owner, until=lease.expires_at.isoformat())
