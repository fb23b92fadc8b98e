"""The search over the whole lake, from every page by a key.

Rule: it opens no table and reads no log: `backend.lake.find` looks through what the catalog keeps fresh.
"""

from collections.abc import Iterable, Iterator, Sequence

import streamlit as st

from app import cache, errors, navigation, state
from app.ui.lake import match_words
from app.ui.view.acts import ACTS
from app.ui.view.words import LinkTarget, markdown_safe
from backend.format import cut, things
from backend.lake.find import FoundTable, Where

MOST_TABLES = 12
MOST_PLACES = 6


def matching(places: Iterable[LinkTarget], words: str) -> list[LinkTarget]:
    """The first few of those whose label holds every word."""
    wanted = words.casefold().split()
    return [place for place in places if wanted and all(w in place.label.casefold() for w in wanted)][:MOST_PLACES]


def found_sentence(results: Sequence[FoundTable], words: str, *, num_read: int, num_found: int) -> str:
    """ "14 of 3,000 tables hold customer_id", and what of the lake is not read yet."""
    unread = f"; {things(num_found - num_read, 'table')} not read yet" if num_read < num_found else ""
    verb = "holds" if len(results) == 1 else "hold"
    where = "" if results else " in a name, column, comment, owner or property: rows are not searched"
    return f"{len(results):,} of {things(num_read, 'table')} {verb} “{cut(words.strip(), 40)}”{where}{unread}"


def leads_to(result: FoundTable) -> str:
    """The page that shows the best match: properties for a property, else the summary with its schema."""
    return "properties" if result.matches()[0].where is Where.PROPERTY else "table"


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
            help="Tables by name, column, comment, owner or property; streams, pages, acts",
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
            "Looks through names, columns, comments, descriptions, owners and properties of every table, and through "
            "streams, pages and acts. Arrows choose, Enter opens."
        )
        return
    if places := matching(_places(), words):
        with st.container(horizontal=True, gap="small", key="found_places"):
            for place in places:
                navigation.page_link(place.page, place.label, place.params, icon=place.icon)
    reading, results = cache.lake_reading(), cache.find(words)
    st.caption(markdown_safe(found_sentence(results, words, num_read=reading.num_read, num_found=reading.num_found)))
    if len(results) > 1:
        label = f"Open all {len(results):,} on Tables"
        navigation.page_link("tables", label, {state.SEARCH: words.strip()}, icon=":material/open_in_full:")
    for result in results[:MOST_TABLES]:
        with st.container(gap=None, key=f"found_{result.table.ref.uri}"):
            navigation.table_link(result.table.ref.name, page=leads_to(result))
            if matches := match_words(result):
                st.caption(markdown_safe(matches))
    if len(results) > MOST_TABLES:
        st.caption(f"and {len(results) - MOST_TABLES:,} more.")


def _places() -> Iterator[LinkTarget]:
    """Pages, streams, and acts on the chosen table."""
    yield from (LinkTarget(name, title) for name, title in navigation.titles().items())
    for status in cache.streams_reading().streams:
        name = status.declaration.name
        yield LinkTarget("stream", f"Stream {name}", {state.STREAM: name})
    table = state.table()
    for label, icon, page in ACTS.values():
        if page == "acts":
            yield LinkTarget(page, f"{label}…", icon=icon)
        elif table:
            yield LinkTarget(page, f"{label}… {table}", {state.TABLE: table}, icon)
