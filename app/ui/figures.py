"""Key figures: a row of at most five that wraps where the window is narrow.

Rule: a figure without data shows a dash, and its help says why.
"""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

MOST, NARROWEST_PX = 5, 150


def figure_row(key: str) -> DeltaGenerator:
    """The row to put `metric`s in; two beside each other on a telephone."""
    return st.grid(MOST, min_column_width=NARROWEST_PX, key=key)
