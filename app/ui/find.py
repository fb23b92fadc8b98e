"""The search over the whole lake, from every page by a key.

Rule: it opens no table and reads no log: `backend.lake.find` looks through what the catalog keeps fresh.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

import streamlit as st

from app import cache, errors, navigation, state
from app.ui.lake import match_words
from app.ui.view.acts import ACTS
from app.ui.view.words import LinkTarget, markdown_safe
from backend.format import cut, things
from backend.lake.find import FoundTable, Where
from backend.sql.values import quoted_text

MOST_TABLES = 12
MOST_PLACES = 6


def matching(places: Iterable[LinkTarget], words: str) -> list[LinkTarget]:
    """The first few of those whose label holds every word."""
    wanted = words.casefold().split()
    holding = (place for place in places if wanted and all(word in place.label.casefold() for word in wanted))
    return [*islice(holding, MOST_PLACES)]


def act_places(words: str, tables: Sequence[str], streams: Sequence[str]) -> Iterator[LinkTarget]:
    """Where each table and stream is acted on, of the acts that a word begins: "stop silver", "optimize events"."""
    verbs = tuple(words.casefold().split())
    for verb in ("Start", "Stop", "Restart", "Reset", "Requeue rows"):
        if verb.casefold().startswith(verbs):
            yield from (LinkTarget("stream", f"{verb} {name}…", {state.STREAM: name}) for name in streams)
    for label, icon, page in ACTS.values():
        if label.casefold().startswith(verbs) and page == "acts":
            yield LinkTarget(page, f"{label}…", icon=icon)
        elif label.casefold().startswith(verbs):
            yield from (LinkTarget(page, f"{label} {name}…", {state.TABLE: name}, icon) for name in tables)


def found_sentence(results: Sequence[FoundTable], words: str, *, num_read: int, num_found: int) -> str:
    """ "14 of 3,000 tables hold customer_id", and what of the lake is not read yet."""
    unread = f"; {things(num_found - num_read, 'table')} not read yet" if num_read < num_found else ""
    verb = "holds" if len(results) == 1 else "hold"
    where = "" if results else " in a name, column, comment, owner or property: rows are not searched"
    return f"{len(results):,} of {things(num_read, 'table')} {verb} “{cut(words.strip(), 40)}”{where}{unread}"


def commits_by(words: str) -> str:
    """A statement: the commits of a writer or a job, by a part of its name."""
    named = quoted_text(f"%{words.strip()}%")
    return (
        "SELECT table_name, version, timestamp, operation, user_name, job, stream FROM weir.commits "
        f"WHERE concat_ws(' ', user_name, job, stream, engine_info) ILIKE {named} ORDER BY timestamp DESC LIMIT 100"
    )


SHORTCUT = "Mod+K"
# Whoever presses the key begins to type. Without the focus, Streamlit would take an R for "run again". The dialog takes
# the focus for itself some frames after it is drawn, however slow: so this ends once the field has kept the focus.
# Arrows go through the links. Enter opens the first one of what was typed, which may have yet to come.
_KEYS = """
let wanted
export default function ({ data }) {
  let frame, since
  const open = () => {
    wanted = undefined
    document.querySelector('[role="dialog"] [class*="st-key-found_"] a')?.click()
  }
  const onKey = (event) => {
    const dialog = document.querySelector('[role="dialog"]'), input = dialog?.querySelector("input")
    if (!input || !dialog.contains(event.target) || event.isComposing) return
    wanted = event.key === "Enter" && event.target === input ? input.value.trim() : undefined
    if (wanted && wanted === data.words) open()
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (!step) return
    event.preventDefault()
    const stops = [input, ...dialog.querySelectorAll("a")]
    const next = stops.indexOf(document.activeElement) + step
    stops[Math.max(0, Math.min(next, stops.length - 1))].focus()
  }
  const take = () => {
    const dialog = document.querySelector('[role="dialog"]')
    const input = dialog && dialog.querySelector("input")
    if (input && (document.activeElement === dialog || !dialog.contains(document.activeElement))) input.focus()
    if (input && document.activeElement === input) since ??= performance.now()
    if (since === undefined || performance.now() - since < 1000) frame = requestAnimationFrame(take)
  }
  take()
  if (wanted && wanted === data.words) requestAnimationFrame(open)
  document.addEventListener("keydown", onKey, true)
  return () => { cancelAnimationFrame(frame); document.removeEventListener("keydown", onKey, true) }
}
"""


def find_button() -> None:
    """At the head of the sidebar; opens the search."""
    with st.sidebar:
        asked = st.button(
            "Find in the lake", key="lake_find", icon=":material/search:", shortcut=SHORTCUT, width="stretch",
            help="Tables by name, column, comment, owner or property; streams, pages, acts, writers, jobs",
        )  # fmt: skip
    if asked:
        _dialog()


@st.dialog("Find in the lake", width="large", icon=":material/search:")
def _dialog() -> None:
    words = st.text_input(
        "Find", key="lake_find_words", live="150ms", label_visibility="collapsed", type="search",
        placeholder="customer_id, a table, an owner, a property value …", icon=":material/search:",
    )  # fmt: skip
    with st.container(height=420, border=False, key="lake_find_results"), errors.boundary():
        _results(words or "")
    st.components.v2.component("weir_find_keys", js=_KEYS)(
        key="lake_find_keys", height=1, data={"words": (words or "").strip()}
    )


def _results(words: str) -> None:
    if not words.strip():
        st.caption(
            "Finds tables by name, column, comment, description, owner or property; streams, pages, writers and jobs; "
            "and acts, such as “stop silver_orders”. Arrows choose, Enter opens."
        )
        return
    reading, results, chosen = cache.lake_reading(), cache.find(words), state.table()
    streams = [status.declaration.name for status in cache.streams_reading().streams]
    tables = sorted(reading.names, key=lambda name: name != chosen)
    pages = (LinkTarget(name, title) for name, title in navigation.titles().items())
    of_streams = (LinkTarget("stream", f"Stream {name}", {state.STREAM: name}) for name in streams)
    if places := matching(chain(act_places(words, tables, streams), pages, of_streams), words):
        with st.container(horizontal=True, gap="small", key="found_places"):
            for place in places:
                navigation.page_link(place.page, place.label, place.params, icon=place.icon)
    if results or not places:
        told = found_sentence(results, words, num_read=reading.num_read, num_found=reading.num_found)
        st.caption(markdown_safe(told))
    if len(results) > 1:
        label = f"Open all {len(results):,} on Tables"
        navigation.page_link("tables", label, {state.SEARCH: words.strip()}, icon=":material/open_in_full:")
    for result in results[:MOST_TABLES]:
        with st.container(gap=None, key=f"found_{result.table.ref.uri}"):
            best = result.matches()[0]
            page = "properties" if best.where is Where.PROPERTY else "table"
            column = best.subject if best.where in (Where.COLUMN, Where.COMMENT) else None
            navigation.table_link(result.table.ref.name, None, {state.FIND: column}, page=page)
            if matches := match_words(result):
                st.caption(markdown_safe(matches))
    if len(results) > MOST_TABLES:
        st.caption(f"and {len(results) - MOST_TABLES:,} more.")
    if not results and not places:
        label = f"Commits of writers and jobs named “{cut(words.strip(), 40)}”"
        with st.container(key="found_commits"):
            navigation.page_link("query", label, {state.QUERY: commits_by(words)}, icon=":material/person_search:")
