"""Which commits are chosen: one for its detail, two to compare them.

Rule: the choice lives in the URL (`commit`, once or twice); list and figure only write it there.
"""

from collections.abc import Sequence

import streamlit as st

COMMIT = "commit"  # query parameter, once or twice


def chosen_versions() -> list[int]:
    """The versions in the URL, lowest first, at most two."""
    texts = st.query_params.get_all(COMMIT)
    return sorted({int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 19})[:2]


def choose(versions: Sequence[int]) -> None:
    """Writes the chosen versions into the URL: the first and last of more than two."""
    ordered = sorted(set(versions))
    if ordered:
        st.query_params[COMMIT] = [str(version) for version in dict.fromkeys([ordered[0], ordered[-1]])]
    else:
        st.query_params.pop(COMMIT, None)
