"""Small marks that look the same everywhere: layer, classification, state.

Rule: a colour always comes with a word; words of users are escaped.
"""

from html import escape

import streamlit as st

from app.ui.view.theme import LAYER_COLOURS, state_style, state_word
from app.ui.view.words import markdown_safe

_SENSITIVE = ("pii", "confidential", "restricted", "secret", "sensitive")


def layer_badge(layer: str | None) -> None:
    """The medallion layer in its own colour; nothing when a table has none."""
    if layer:
        colour = LAYER_COLOURS.get(layer, "#8592A0")
        st.html(
            f'<span style="background:{colour};color:#0E1418;border-radius:0.5rem;padding:0.1rem 0.55rem;'
            f'font-size:0.85rem;font-weight:600">{escape(layer)}</span>',
            width="content",
        )


def classification_badge(classification: str | None) -> None:
    """The table's classification tag; sensitive ones stand out."""
    if classification:
        sensitive = any(word in classification.lower() for word in _SENSITIVE)
        icon = ":material/lock:" if sensitive else ":material/label:"
        colour = "orange" if sensitive else "gray"
        _badge(classification, icon=icon, colour=colour, help="`catalog.table.classification`")


def team_badge(team: str | None) -> None:
    """Who owns the table."""
    if team:
        _badge(team, icon=":material/group:", colour="gray", help="Owner: `catalog.team_name`")


def _badge(words: str, *, icon: str, colour: str, help: str) -> None:
    # `st.badge` puts a backslash before brackets alone, and so takes back one that stands there already.
    st.markdown(f":{colour}-badge[{icon} {markdown_safe(words)}]", help=help, width="content")


def state_mark(state: str) -> str:
    """A stream state, verdict or severity for the middle of a Markdown line: icon, word and colour."""
    style = state_style(state)
    return f":{style.badge}-badge[{style.icon} {state_word(state)}]"


def state_badge(state: str, *, help: str | None = None) -> None:
    """A stream state, verdict or severity: icon, word and colour."""
    style = state_style(state)
    st.badge(state_word(state), icon=style.icon, color=style.badge, help=help)
