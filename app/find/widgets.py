"""The search over the whole lake, from every page by a key.

Rule: it opens no table and reads no log: it looks through what the catalog keeps fresh.
"""

import streamlit as st

from app import cache, errors, navigation
from app.find import view
from app.ui.view.words import markdown_safe

SHORTCUT = "Mod+K"
# Whoever presses the key begins to type. Without the focus, Streamlit would take an R for "run again". The dialog takes
# the focus for itself some frames after it is drawn, however slow: so this ends once the field has kept the focus.
_FOCUS = """
export default function () {
  let frame, since
  const take = () => {
    const dialog = document.querySelector('[role="dialog"]')
    const input = dialog && dialog.querySelector("input")
    if (input && (document.activeElement === dialog || !dialog.contains(document.activeElement))) input.focus()
    if (input && document.activeElement === input) since ??= performance.now()
    if (since === undefined || performance.now() - since < 1000) frame = requestAnimationFrame(take)
  }
  take()
  return () => cancelAnimationFrame(frame)
}
"""


def find_button() -> None:
    """At the head of the sidebar; opens the search."""
    with st.sidebar:
        asked = st.button(
            "Find in the lake", key="lake_find", icon=":material/search:", shortcut=SHORTCUT, width="stretch",
            help="Tables by name, column, comment, owner or property",
        )  # fmt: skip
    if asked:
        _dialog()


@st.dialog("Find in the lake", width="large", icon=":material/search:")
def _dialog() -> None:
    words = st.text_input(
        "Find", key="lake_find_words", live="150ms", label_visibility="collapsed", type="search",
        placeholder="customer_id, a table, an owner, a property value …", icon=":material/search:",
    )  # fmt: skip
    st.components.v2.component("weir_find_focus", js=_FOCUS)(key="lake_find_focus", height=1)
    with st.container(height=420, border=False, key="lake_find_results"), errors.boundary():
        _results(words or "")


def _results(words: str) -> None:
    if not words.strip():
        st.caption("Looks through names, columns, comments, descriptions, owners and properties of every table.")
        return
    reading, results = cache.lake_reading(), cache.find(words)
    st.caption(
        markdown_safe(view.found_sentence(results, words, num_read=reading.num_read, num_found=reading.num_found))
    )
    for result in results[: view.MOST_TABLES]:
        with st.container(gap=None, key=f"found_{result.table.ref.uri}"):
            navigation.table_link(result.table.ref.name, page=view.leads_to(result))
            if matches := view.match_words(result):
                st.caption(markdown_safe(matches))
    if len(results) > view.MOST_TABLES:
        st.caption(f"and {len(results) - view.MOST_TABLES:,} more: add a word to narrow it down.")
