"""When this browser looked last, which it remembers by itself in a cookie: the server keeps nothing of it.

Rule: a visit ends when nobody has looked for half an hour, and who has the page hidden does not look.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import urlsplit

import streamlit as st

GAP = timedelta(minutes=30)
_BEFORE = "_visit_before"
_remember = st.components.v2.component(
    "weir.visit",
    js="""export default ({ data }) => {
  if (document.visibilityState === "visible") document.cookie = `${data}; max-age=31536000; samesite=lax`
}
""",
)


class Visit(NamedTuple):
    """When a visit ended, and how many tables there were."""

    ended_at: datetime
    tables: int


def visit_before(cookie: str, now: datetime) -> Visit | None:
    """The visit before the one that goes on, or begins, now; None for the first. `cookie`: that one and the newest."""
    if re.fullmatch(r"[0-9]{1,10}(\.[0-9]{1,10}){3}", cookie) is None:
        return None  # it is none of ours
    at, tables, last_at, last_tables = map(int, cookie.split("."))
    if now - (last := datetime.fromtimestamp(last_at, UTC)) > GAP:
        return Visit(last, last_tables)
    return Visit(datetime.fromtimestamp(at, UTC), tables) if at else None


def remembered(tables: int, now: datetime) -> Visit | None:
    """The visit before this one; the browser remembers that it looks now, and how many tables there are."""
    name = f"weir_looked_{urlsplit(st.context.url or '').port or 0}"  # ports of one machine share their cookies
    if _BEFORE not in st.session_state:
        st.session_state[_BEFORE] = visit_before(str(st.context.cookies.get(name)), now)
    visit: Visit | None = st.session_state[_BEFORE]
    before = f"{visit.ended_at.timestamp():.0f}.{visit.tables}" if visit else "0.0"
    _remember(key="visit", data=f"{name}={before}.{now.timestamp():.0f}.{tables}")
    return visit
