"""Which streams this host may run: one lease each in the control store, and its share of them among hosts.

Rule: a stream runs only under a lease. The store's clock says when a lease ends. A host's own stopwatch says when it
must have been renewed: that begins when the store is asked, so it ends first. Then the stream is cut, since another
host may have it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import structlog

from backend.store.clock import elapsed
from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import Desired, Lease
from backend.streams.balance import Move, plan_shares

RENEW_AFTER = 1 / 3  # of its time
CUT_AFTER = 9 / 10  # what is left is for the cut
SETTLE = 2  # times a lease's length
ANOTHER_HAS_IT = "another host holds its lease"
RAN_OUT = "its lease ran out before it was renewed"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease, and when it was asked for and has run out, by `elapsed`."""

    lease: Lease
    asked_at: float
    until: float

    @property
    def token(self) -> int:
        return self.lease.token


class Ownership:
    """Used by one thread, the host's loop. `hold` is called at each grant: the stream, and until when it may run."""

    def __init__(
        self,
        store: ControlStore,
        owner: str,
        *,
        ttl_s: float,
        hold: Callable[[str, float], None],
        elapsed: Callable[[], float] = elapsed,
    ) -> None:
        self._store, self._owner, self._ttl_s = store, owner, ttl_s
        self._hold, self._elapsed = hold, elapsed
        self._held: dict[str, HeldLease] = {}

    @property
    def held(self) -> Mapping[str, HeldLease]:
        return self._held

    def run_out(self) -> tuple[str, ...]:
        """Those that another host may have by now. The store is not asked."""
        now = self._elapsed()
        return tuple(name for name, held in self._held.items() if held.until <= now)

    def take(self, names: Iterable[str]) -> None:
        """Acquires the leases of these streams that are still free."""
        for name in names:
            asked_at = self._elapsed()
            lease = self._store.acquire(stream_resource(name), self._owner, ttl_s=self._ttl_s)
            if lease is not None:
                self._keep(name, lease, asked_at)

    def renew_due(self) -> Mapping[str, str]:
        """Renews the leases that are due; gives up the others, and says why."""
        due_before = self._elapsed() - self._ttl_s * RENEW_AFTER
        due = [name for name, held in self._held.items() if held.asked_at < due_before]
        lost = {name: why for name in due if (why := self._renew(name))}
        for name in lost:
            self.drop(name)
        return lost

    def drop(self, name: str) -> None:
        """Forget a lease. The store is not asked."""
        self._held.pop(name, None)

    def release(self, name: str) -> None:
        held = self._held.pop(name, None)
        if held is not None:
            self._store.release(held.lease)

    def _renew(self, name: str) -> str | None:
        """Why it is lost, if it is."""
        held, asked_at = self._held[name], self._elapsed()
        renewed = self._store.renew(held.lease, ttl_s=self._ttl_s)
        if renewed is None:
            return ANOTHER_HAS_IT
        if self._elapsed() >= held.until:
            return RAN_OUT  # its query is cut already
        self._keep(name, renewed, asked_at)
        return None

    def _keep(self, name: str, lease: Lease, asked_at: float) -> None:
        held = HeldLease(lease, asked_at, asked_at + self._ttl_s * CUT_AFTER)
        self._held[name] = held
        self._hold(name, held.until)


@dataclass(frozen=True, slots=True)
class Share:
    take: tuple[str, ...]
    give: Move | None


class Sharing:
    """What this host takes, and what it gives up to another one. Used by one thread, the host's loop.

    Decided in `backend.streams.balance` from leases and heartbeats, which every host sees alike. A host gives only when
    that has been uneven for a while, so that one which comes and goes moves nothing.
    """

    def __init__(
        self, store: ControlStore, host_id: str, *, ttl_s: float, elapsed: Callable[[], float] = elapsed
    ) -> None:
        self._store, self._host_id, self._ttl_s, self._elapsed = store, host_id, ttl_s, elapsed
        self._others: dict[str, str] = {}
        self._uneven_since: float | None = None

    def share(self, can: Collection[str], held: Collection[str], desired: Mapping[str, Desired]) -> Share:
        """`can`: what this host is able to run now; `held`: the streams whose lease it has."""
        leases = self._store.leases()
        by_stream = {name: leases[stream_resource(name)] for name in desired if stream_resource(name) in leases}
        self._note(by_stream, can)
        everyone = {host.host_id: host.streams for host in self._store.live_hosts(within_s=self._ttl_s)}
        owners = {name: lease.owner for name, lease in by_stream.items()} | dict.fromkeys(held, self._host_id)
        stopped = {name for name, wanted in desired.items() if wanted.wants_stop}
        plan = plan_shares({**everyone, self._host_id: can}, owners, stopped)
        own = {name for name, lease in by_stream.items() if lease.owner == self._host_id}  # its lease ran out here
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
