"""The one composition root: the settings, the lake and the control store of this process, for pages, routes and `weir`.

Rule: each is opened by whoever asks first, once for all threads; one that cannot be opened raises its own error, and is
tried again by who asks next. Nothing here knows a screen: `weir` starts fast.
"""

import atexit
import getpass
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Generic, TypeVar

from backend.access import Actor, grant_problems
from backend.errors import StoreError
from backend.settings import Settings, load_settings
from backend.stream_model.stream import AuditEntry
from backend.times import Clock

if TYPE_CHECKING:
    from backend.lake.lake import Lake
    from backend.lake.model import TableRef
    from backend.query.views import World
    from backend.store.store import ControlStore

Value = TypeVar("Value")
_SQLITE = "sqlite:///"
_once: "list[once[object]]" = []


class once(Generic[Value]):
    """A function without arguments whose value is made by the first call, for every thread of the process."""

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make, self._lock, self._values = make, RLock(), list[Value]()
        _once.append(self)  # type: ignore[arg-type]

    def __call__(self) -> Value:
        with self._lock:
            values = self._values
            if not values:
                values.append(self._make())
            return values[0]

    @property
    def made(self) -> Value | None:
        return self._values[0] if self._values else None

    def clear(self) -> None:
        """The next call makes another value, also while one is being made."""
        self._values = []


@once
def settings() -> Settings:
    """The settings that this process was started with; raises `SettingsError`."""
    return load_settings()


@once
def lake() -> "Lake":
    """The lake; thread-safe, shared by all viewers."""
    from backend.lake.lake import Lake

    return Lake(settings(), named_versions)


def own_lake() -> "Lake":
    """The lake as who runs this process may see it."""
    return lake().seen_by(actor())


def public_lake() -> "Lake":
    """The lake as somebody without a grant sees it: for what everybody reads."""
    return lake().seen_by(settings().auth.actor(""))


def named_versions(ref: "TableRef") -> dict[str, int]:
    """The table's versions that are pinned under a name; raises `StoreError`."""
    store = existing_store()
    return {pin.name: pin.version for pin in store.pins.of_table(ref) if pin.name} if store else {}


@once
def store() -> "ControlStore":
    """The control store, made where there is none; raises `StoreError` when it does not answer."""
    from backend.store.store import ControlStore

    return ControlStore.open(settings())


def existing_store() -> "ControlStore | None":
    """The control store; None where its SQLite file does not exist: a question does not make it."""
    url = settings().store_url
    if url.startswith(_SQLITE) and not Path(url.removeprefix(_SQLITE).partition("?")[0]).exists():
        return None
    return store()


def world(seen: "Lake", actor: Actor | None = None) -> "World":
    """What a query may ask of a lake as somebody sees it, as it is now; `actor`: who asks, None for nobody."""
    from backend.query.views import World

    return World(seen, existing_store(), now(), settings(), actor)


def note_refused(name: str, table: str, message: str) -> None:
    """In the audit trail, where there is one: to whom rows of which table were not shown."""
    with suppress(StoreError):
        if (kept := existing_store()) is not None:
            kept.note_of_viewer(AuditEntry(now(), name, "rows refused", table, "", message))


def access_problems() -> list[str]:
    """What grants name that neither lake nor store has; raises `StorageError` and `StoreError`."""
    if not (grants := settings().auth.grants):
        return []
    tables, known = [ref.name for ref in lake().tables()], existing_store()
    return list(grant_problems(grants, tables, list(known.declarations()) if known else ()))


def now() -> datetime:
    """The clock of pages and commands, aware, in UTC."""
    return datetime.now(UTC)


def clock() -> Clock:
    """The clock of who types a command: this process's zone."""
    return Clock(now(), None)


def actor() -> Actor:
    """The person who runs this process, as the operating system knows them."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user without a name
        name = f"uid {os.getuid()}"
    return settings().auth.actor(name, of_terminal=True)


@atexit.register
def forget() -> None:
    """Close the store, and have everything opened anew: at the end of the process, and between tests."""
    if store.made is not None:
        store.made.close()
    for function in _once:
        function.clear()
