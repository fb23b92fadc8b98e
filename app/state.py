"""What the viewer chose, kept in the URL: table, version, range, stream and view.

Rule: a URL that names a table is the whole truth about it; the session only remembers the table for a click on the
navigation, which carries no parameters. `table` and `version` are never bound to widgets, so that links can set them.
"""

from collections.abc import Mapping

import streamlit as st

TABLE = "table"
VERSION = "version"
FROM = "from"
TO = "to"
GOOD = "good"
BAD = "bad"
STREAM = "stream"
VIEW = "view"

# What means something for one table alone: parameters, and widgets bound to such, with what they hold when empty.
_OF_ONE_TABLE = (FROM, TO, GOOD, BAD, "against", "method", "on", "key_of", "page")
_EMPTY = {"key": list, "without": list, "column": list, "rows_where": str}
_REMEMBERED = {TABLE: "_table", VERSION: "_version", STREAM: "_stream"}


def text(key: str) -> str | None:
    """A query parameter; None when absent or empty."""
    return st.query_params.get(key) or None


def whole(key: str) -> int | None:
    """A query parameter as a whole number ≥ 0; None when absent or not one."""
    value = text(key)
    return int(value) if value and value.isascii() and value.isdigit() and len(value) < 19 else None


def put(values: Mapping[str, str | int | None]) -> None:
    """Sets query parameters, removing those that are None."""
    for key, value in values.items():
        if value is None:
            st.query_params.pop(key, None)
        elif st.query_params.get(key) != str(value):
            st.query_params[key] = str(value)


def table() -> str | None:
    """The chosen table, from the URL, else as last looked at in this session."""
    return text(TABLE) or st.session_state.get(_REMEMBERED[TABLE])


def version() -> int | None:
    """The pinned version, None for the latest. A URL that names a table but no version means the latest."""
    if text(TABLE):
        return whole(VERSION)
    return st.session_state.get(_REMEMBERED[VERSION])


def stream() -> str | None:
    """The chosen stream, from the URL, else as last looked at in this session."""
    return text(STREAM) or st.session_state.get(_REMEMBERED[STREAM])


def choose_table(name: str | None, version: int | None = None) -> None:
    """Makes a table and a version the chosen ones; what was asked of another table is forgotten."""
    if name != table():
        put(dict.fromkeys(_OF_ONE_TABLE))
        for widget in _EMPTY.keys() & set(st.session_state):
            st.session_state[widget] = _EMPTY[widget]()
    st.session_state[_REMEMBERED[TABLE]] = name
    st.session_state[_REMEMBERED[VERSION]] = version
    put({TABLE: name, VERSION: version})


def choose_stream(name: str | None) -> None:
    """Makes a stream the chosen one."""
    st.session_state[_REMEMBERED[STREAM]] = name
    put({STREAM: name})


def settle_table() -> tuple[str | None, int | None]:
    """The chosen table and version, written back to URL and session so that both agree."""
    name, pinned = table(), version()
    choose_table(name, pinned)
    return name, pinned
