"""The only wiring: one settings object, one lake and one control store per server process.

Rule: pages and routes get their services here and nowhere else; a service that cannot be opened raises its own error.
"""

import getpass
import ipaddress
from datetime import UTC, datetime
from typing import Literal

import streamlit as st
from streamlit.logger import set_log_level

from backend.changes.cache import Differences
from backend.changes.host_job import DiffJobs
from backend.changes.key import key_memory
from backend.lake.lake import Lake
from backend.search.cache import Bisects
from backend.settings import Settings, load_settings
from backend.sql.exports import Exports
from backend.sql.numbers import Aggregates, ColumnNumbers
from backend.sql.profile import Profiles
from backend.store.store import ControlStore

# The routes use these services too; Streamlit warns at each such call that no page runs.
set_log_level("error")


@st.cache_resource(show_spinner=False)
def settings() -> Settings:
    """The settings this server was started with; raises `SettingsError`."""
    return load_settings()


@st.cache_resource(show_spinner=False)
def lake() -> Lake:
    """The lake; thread-safe, shared by all viewers."""
    return Lake(settings())


@st.cache_resource(show_spinner=False, on_release=lambda store: store.close())
def store() -> ControlStore:
    """The control store; raises `StoreError` when it does not answer."""
    return ControlStore.open(settings())


@st.cache_resource(show_spinner=False)
def aggregates() -> Aggregates:
    """What SQL aggregates came to, shared by all viewers."""
    return Aggregates()


@st.cache_resource(show_spinner=False)
def column_numbers() -> ColumnNumbers:
    """What columns came to by their statistics, shared by all viewers."""
    return ColumnNumbers()


@st.cache_resource(show_spinner=False)
def profiles() -> Profiles:
    """Profiles that were read from rows, shared by all viewers."""
    return Profiles()


@st.cache_resource(show_spinner=False)
def exports() -> Exports:
    """Files of rows that are offered, or on their way to a browser."""
    return Exports()


@st.cache_resource(show_spinner=False)
def bisects() -> Bisects:
    """Searches for first bad versions that ended, shared by all viewers."""
    return Bisects()


@st.cache_resource(show_spinner=False)
def differences() -> Differences:
    """Differences of versions, found or being found, shared by all viewers."""
    return Differences(settings().lake.diff_time_limit_s, learn=key_memory(settings().home).learn)


@st.cache_resource(show_spinner=False)
def diff_jobs() -> DiffJobs:
    """Differences that stream hosts find, shared by all viewers."""
    return DiffJobs(settings(), lake())


def now() -> datetime:
    """The clock of the pages, aware, in UTC."""
    return datetime.now(UTC)


def mode() -> Literal["light", "dark"]:
    """Whether this viewer looks at the light or the dark theme."""
    return "dark" if st.context.theme.type == "dark" else "light"


def timezone() -> str | None:
    """The viewer's time zone, None when the browser did not say."""
    return st.context.timezone


def actor() -> str:
    """Who acts: the login, else the address, else the user of this machine."""
    user = st.user.to_dict()
    if user.get("is_logged_in") and user.get("email"):
        return str(user["email"])
    address = st.context.ip_address
    if address is None:
        try:
            address = getpass.getuser()
        except (KeyError, OSError):  # a container may run as a user without a name
            address = "local"
    return f"{address} (browser)"


def read_only_reason() -> str | None:
    """Why viewers may not act, None when they may: beyond loopback nobody acts without a login."""
    ui = settings().ui
    if ui.allow_remote_writes or _is_loopback(ui.address):
        return None
    return (
        f"Weir is read-only: it listens on {ui.address} and no login is configured. "
        "`WEIR_UI__ALLOW_REMOTE_WRITES=true` lets every viewer act."
    )


def _is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
