"""Which streams this host may run: one lease each in the control store.

Rule: a stream is started only under a lease. While the store is silent, running streams go on, since an
outage hits every host alike. When it answers again, its leases decide.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.streams.model import Lease

RENEW_SHARE = 2 / 3  # a lease with less than this share of its time left is renewed

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Changes:
    """What one refresh changed: leases that this host won, and leases that it lost to another host."""

    won: tuple[str, ...]
    lost: tuple[str, ...]


class Ownership:
    """Used by one thread, the host's loop."""

    def __init__(self, store: ControlStore, owner: str, *, ttl_s: float) -> None:
        self._store, self._owner, self._ttl_s = store, owner, ttl_s
        self._held: dict[str, Lease] = {}
        self._others: dict[str, str] = {}

    @property
    def held(self) -> Mapping[str, Lease]:
        return self._held

    def refresh(self, names: Iterable[str], now: datetime) -> Changes:
        """Renews the leases that are due. Acquires those of `names` that no host holds."""
        lost = self.renew_due(now)
        missing = [name for name in names if name not in self._held and name not in lost]
        free = self._free(missing, now) if missing else []
        return Changes(tuple(name for name in free if self._acquire(name, now)), lost)

    def renew_due(self, now: datetime) -> tuple[str, ...]:
        """Renews the leases that are due; returns the streams whose lease another host has."""
        due_before = now + timedelta(seconds=self._ttl_s * RENEW_SHARE)
        due = [name for name, lease in self._held.items() if lease.expires_at < due_before]
        return tuple(name for name in due if not self._renew(name, now))

    def drop(self, name: str) -> None:
        """Forget a lease that another host has. The store is not asked."""
        self._held.pop(name, None)

    def release(self, name: str) -> None:
        lease = self._held.pop(name, None)
        if lease is not None:
            self._store.release(lease)

    def _renew(self, name: str, now: datetime) -> bool:
        renewed = self._store.renew(self._held[name], ttl_s=self._ttl_s, now=now)
        if renewed is None:
            del self._held[name]
            return False
        self._held[name] = renewed
        return True

    def _free(self, names: Iterable[str], now: datetime) -> list[str]:
        """Reads before it writes: a waiting host would otherwise write once a second for each stream."""
        leases = self._store.leases()
        free = []
        for name in names:
            lease = leases.get(stream_resource(name))
            if lease is None or lease.expires_at <= now:
                free.append(name)
            elif self._others.get(name) != lease.owner:
                self._others[name] = lease.owner
                log.info("stream_refused", stream=name, owner=lease.owner, until=lease.expires_at.isoformat())
        return free

    def _acquire(self, name: str, now: datetime) -> bool:
        lease = self._store.acquire(stream_resource(name), self._owner, ttl_s=self._ttl_s, now=now)
        if lease is None:
            return False
        self._others.pop(name, None)
        self._held[name] = lease
        return True
