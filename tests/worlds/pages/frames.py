"""Finds the list a test means: lists without selection carry no key in Streamlit's test runner."""

import pandas as pd
from streamlit.testing.v1 import AppTest


def frame_with(app: AppTest, *columns: str) -> pd.DataFrame:
    """The first list on the page that has these columns; fails when there is none."""
    shown = [frame.value for frame in app.dataframe]
    found = [frame for frame in shown if set(columns) <= set(frame.columns)]
    assert found, f"no list with {columns} among {[list(frame.columns) for frame in shown]}"
    return found[0]


def titles(app: AppTest) -> str:
    """What every figure on the page says of itself: its title, which is also its alternative text."""
    return "\n".join(chart.proto.alt for chart in app.get("plotly_chart"))
