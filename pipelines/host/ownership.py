"""Which streams this host may run: one lease each in the control store, and its share of them among hosts.

Rule: a stream runs only under a lease. The store's clock says when a lease ends. A host's own stopwatch says when it
must have been renewed: that begins when the store is asked, so it ends first. Then the stream is cut, since another
host may have it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import structlog

from backend.store.leases import stream_resource
from backend.store.notices import KeptAnswer, NoticeTopic
from backend.store.store import ControlStore
from backend.stream_model.stream import Desired, HostHeartbeat, Lease
from backend.streams.reconcile import Move, Shares, plan_shares
from backend.work import elapsed

RENEW_AFTER = 1 / 3  # of its time
LOOK_AFTER = 1 / 3  # of it, where no notice came
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


def leases_of(
    store: ControlStore, *, ttl_s: float, elapsed: Callable[[], float] = elapsed
) -> KeptAnswer[dict[str, Lease]]:
    """Whose the leases are."""
    every_s = ttl_s * LOOK_AFTER
    return KeptAnswer(
        store.notices, store.leases, NoticeTopic.LEASES, every_s=every_s, sign=store.lease_sign, elapsed=elapsed
    )


def wanted_of(
    store: ControlStore, *, ttl_s: float, elapsed: Callable[[], float] = elapsed
) -> KeptAnswer[dict[str, Desired]]:
    """What people want of streams."""
    every_s = ttl_s * LOOK_AFTER
    return KeptAnswer(
        store.notices, store.desired, NoticeTopic.DESIRED, every_s=every_s, sign=store.desired_sign, elapsed=elapsed
    )


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
        by_resource = {stream_resource(name): name for name in names}
        if by_resource:
            asked_at = self._elapsed()
            acquired = self._store.acquire_all(by_resource, self._owner, ttl_s=self._ttl_s)
            for resource, lease in acquired.items():
                self._keep(by_resource[resource], lease, asked_at)

    def renew_due(self) -> Mapping[str, str]:
        """Renews all leases once one is due; gives up those that are lost, and says why."""
        asked_at = self._elapsed()
        if all(held.asked_at >= asked_at - self._ttl_s * RENEW_AFTER for held in self._held.values()):
            return {}
        renewed = self._store.renew_all([held.lease for held in self._held.values()], ttl_s=self._ttl_s)
        now, lost = self._elapsed(), dict[str, str]()
        for name, held in list(self._held.items()):
            lease = renewed.get(stream_resource(name))
            if lease is None or now >= held.until:
                lost[name] = ANOTHER_HAS_IT if lease is None else RAN_OUT  # its query is cut already
                self.drop(name)
            else:
                self._keep(name, lease, asked_at)
        return lost

    def drop(self, name: str) -> None:
        """Forget a lease. The store is not asked."""
        self._held.pop(name, None)

    def release(self, name: str) -> None:
        held = self._held.pop(name, None)
        if held is not None:
            self._store.release(held.lease)

    def _keep(self, name: str, lease: Lease, asked_at: float) -> None:
        held = HeldLease(lease, asked_at, asked_at + self._ttl_s * CUT_AFTER)
        self._held[name] = held
        self._hold(name, held.until)


class Sharing:
    """What this host takes, and what it gives up to another one. Used by one thread, the host's loop.

    Decided in `backend.streams.reconcile` from leases and heartbeats, which every host sees alike. A host gives only
    when that has been uneven for a while and no host came or went, so that one which comes and goes moves nothing.
    """

    def __init__(
        self,
        store: ControlStore,
        heartbeat: HostHeartbeat,
        *,
        ttl_s: float,
        elapsed: Callable[[], float] = elapsed,
    ) -> None:
        self._host_id, self._ttl_s, self._elapsed = heartbeat.host_id, ttl_s, elapsed
        self._leases = leases_of(store, ttl_s=ttl_s, elapsed=elapsed)
        self.alive = KeptAnswer(
            store.notices,
            lambda: store.live_hosts(within_s=ttl_s),
            NoticeTopic.HOSTS,
            every_s=ttl_s * LOOK_AFTER,
            elapsed=elapsed,
        )
        self._most = heartbeat.max_streams
        self._others: dict[str, str] = {}
        self._hosts: Collection[str] = ()
        self._uneven_since: float | None = None

    def share(
        self, can: frozenset[str], held: Collection[str], giving: Collection[str], desired: Mapping[str, Desired]
    ) -> tuple[tuple[str, ...], tuple[Move, ...]]:
        """What to take, and what to give.

        `can`: what this host is able to run now; `held`: the streams whose lease it has, also those of `giving` that
        are on their way to other hosts.
        """
        leases = self._leases()
        by_stream = {name: leases[stream_resource(name)] for name in desired if stream_resource(name) in leases}
        for name in by_stream.keys() & can:
            lease = by_stream[name]
            if self._others.get(name) != lease.owner:  # said once
                self._others[name] = lease.owner
                if lease.owner != self._host_id:
                    log.info("stream_refused", stream=name, owner=lease.owner, until=lease.expires_at.isoformat())
        alive = self.alive()
        everyone: dict[str, Collection[str]] = {host.host_id: host.streams for host in alive}
        everyone[self._host_id] = can
        limits = {host.host_id: host.max_streams for host in alive} | {self._host_id: self._most}
        owners = {name: lease.owner for name, lease in by_stream.items()} | dict.fromkeys(held, self._host_id)
        owners = {name: owner for name, owner in owners.items() if name not in giving}
        stopped = {name for name, wanted in desired.items() if wanted.wants_stop}
        plan = plan_shares(everyone, owners, stopped, limits)
        own = {name for name, lease in by_stream.items() if lease.owner == self._host_id}  # its lease ran out here
        mine = {name for name, host in plan.placed.items() if host == self._host_id} | own
        return tuple(sorted((mine & can) - set(held))), self._settled(plan, everyone.keys())

    def _settled(self, plan: Shares, hosts: Collection[str]) -> tuple[Move, ...]:
        """The moves of this host, when it has been uneven among these hosts for long enough."""
        now = self._elapsed()
        if plan.is_even or set(hosts) != self._hosts:
            self._uneven_since, self._hosts = None, set(hosts)
        if plan.moves and self._uneven_since is None:
            self._uneven_since = now
        if self._uneven_since is None or now - self._uneven_since < SETTLE * self._ttl_s:
            return ()
        return tuple(move for move in plan.moves if move.host == self._host_id)
