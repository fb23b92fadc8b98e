"""Who looks at a page: their name, their clock, their theme, and whether they may act.

Rule: asked anew in every run of a page, since viewers of one server differ.
"""

import ipaddress
from typing import Literal

import streamlit as st

from app import services
from backend.access import Actor


def mode() -> Literal["light", "dark"]:
    """Whether this viewer looks at the light or the dark theme."""
    return "dark" if st.context.theme.type == "dark" else "light"


def timezone() -> str | None:
    """The viewer's time zone, None when the browser did not say."""
    return st.context.timezone


def actor() -> Actor:
    """Who acts: the address, else the user of this machine."""
    name = st.context.ip_address or services.actor().name
    return Actor(f"{name} (browser)", read_only_reason() or "")


def read_only_reason() -> str | None:
    """Why viewers may not act, None when they may: beyond loopback nobody acts without a login."""
    ui = services.settings().ui
    if ui.allow_remote_writes or is_loopback(ui.address):
        return None
    return (
        f"Weir is read-only: it listens on {ui.address} and no login is configured. "
        "`WEIR_UI__ALLOW_REMOTE_WRITES=true` lets every viewer act."
    )


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches this address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
