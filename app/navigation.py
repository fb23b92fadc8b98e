"""The pages, their groups, and links to them that carry what was chosen.

Rule: pages are files; a link is made here, so that a page's path and its parameters are written once.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NoReturn

import streamlit as st
from streamlit.navigation.page import Page
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app import services, state
from app.ui.view.words import markdown_safe
from backend.format import cut

Params = Mapping[str, state.Value]

_FOLDER = Path(__file__).resolve().parents[1] / "pages"

# group → (file, title, icon)
_GROUPS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Lake": (
        ("overview", "Overview", ":material/dashboard:"),
        ("tables", "Tables", ":material/database:"),
        ("query", "Query", ":material/terminal:"),
        ("dashboard", "Dashboard", ":material/space_dashboard:"),
    ),
    "Table": (
        ("table", "Summary", ":material/table:"),
        ("history", "History", ":material/history:"),
        ("timeline", "Timeline", ":material/timeline:"),
        ("versions", "Versions", ":material/restore_page:"),
        ("files", "Files", ":material/folder_copy:"),
        ("properties", "Properties", ":material/tune:"),
        ("changes", "Changes", ":material/difference:"),
        ("bisect", "First bad version", ":material/troubleshoot:"),
        ("health", "Health", ":material/monitor_heart:"),
    ),
    "Operate": (
        ("streams", "Streams", ":material/water:"),
        ("stream", "Stream", ":material/waves:"),
        ("pipeline", "Pipeline", ":material/account_tree:"),
        ("acts", "Acts", ":material/build:"),
        ("incident", "Incidents", ":material/emergency:"),
        ("access", "Access", ":material/key:"),
        ("audit", "Audit", ":material/fact_check:"),
    ),
}


def pages() -> dict[str, list[Page]]:
    """Every page, by group, for `st.navigation`."""
    return {group: [_page(name) for name, _, _ in entries] for group, entries in _GROUPS.items()}


def titles() -> dict[str, str]:
    """The title of every page, by its name."""
    return {name: title for entries in _GROUPS.values() for name, title, _ in entries}


def title(name: str) -> str:
    """The title of a page."""
    return titles()[name]


def table_pages() -> list[str]:
    """The names of the pages of one table."""
    return [name for name, _, _ in _GROUPS["Table"]]


def page_link(page: str, label: str, params: Params | None = None, *, icon: str | None = None) -> None:
    """A link to a page with its query parameters, keys of `state`; None leaves one out. `label` is shown as it is;
    `icon`: not the page's."""
    st.page_link(_link_to(page), label=markdown_safe(label), icon=icon, query_params=_given(params or {}))


def table_link(table: str, label: str | None = None, params: Params | None = None, *, page: str = "table") -> None:
    """A link to a page of a table."""
    page_link(page, label or table, {state.TABLE: table, **(params or {})})


def incident_link(table: str, good: int | None, bad: int) -> None:
    """Beside a finding of the commit `bad`: to the incident about it, or to where one is opened. `good`: the last good
    version."""
    params: Params = {state.TABLE: table, state.FROM: good, state.TO: bad}
    page_link("incident", "Open an incident…", params, icon=":material/emergency:")


def query_link(statement: str) -> None:
    """A link to a statement, which runs once somebody there says so."""
    page_link("query", "Open in Query", {state.QUERY: statement})


def has_roles() -> bool:
    """Whether anything says who may do what."""
    auth = services.settings().auth
    return bool(auth.grants or auth.default_role or auth.terminal_role)


def go(page: str, params: Params | None = None) -> NoReturn:
    """Leaves for another page with its query parameters."""
    _forget_live_regions()
    st.switch_page(_page(page), query_params=_given(params or {}))


def _forget_live_regions() -> None:
    """Makes Streamlit drop what this page's timers ask for from now on.

    Until the next page has run once, the browser goes on to ask for the live regions of this one. Streamlit 1.67 would
    run them after the next page, as part of this one, and leave the browser with an empty page.
    """
    context = get_script_run_ctx()
    if context is not None:
        context.fragment_storage.clear()


def _given(params: Params) -> dict[str, str]:
    return {key: str(value) for key, value in params.items() if value is not None}


@cache
def _link_to(name: str) -> Page:
    """A page as something to lead to; one that is to run belongs to one run alone."""
    return _page(name)


def _page(name: str) -> Page:
    label, icon = next(entry[1:] for entries in _GROUPS.values() for entry in entries if entry[0] == name)
    if name == "stream" and (chosen := state.stream()) and chosen == markdown_safe(chosen):  # a title is Markdown
        label = cut(chosen)
    is_hidden = state.table() is None if name in table_pages() else name in ("access", "audit") and not has_roles()
    return st.Page(
        _FOLDER / f"{name}.py", title=label, icon=icon, url_path=name, default=name == "overview",
        visibility="hidden" if is_hidden else "visible",
    )  # fmt: skip
