"""Frames that several subjects show: ages, and what was changed of a table.

Rule: pure; before and after are whole, an unknown or absent side is a dash.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import pandas as pd

from app.ui.view.table_changes import meaning, word
from backend.format import UNKNOWN, age_s
from backend.lake.table.metadata_diff import TableChange


def ages(moments: Iterable[datetime | None], now: datetime) -> pd.Series:
    """Seconds since each moment, so that sorting goes by age; unknown stays missing."""
    return pd.Series([age_s(moment, now) for moment in moments], dtype="Float64")


def changes_frame(changes: Sequence[TableChange]) -> pd.DataFrame:
    """One row a change, before and after whole, with what it means."""
    rows = [
        {
            "What": change.kind.value.capitalize(),
            "Name": f"{change.subject} ({change.trait})" if change.trait else change.subject,
            "Change": word(change),
            "Before": change.before or UNKNOWN,
            "After": change.after or UNKNOWN,
            "Meaning": meaning(change),
        }
        for change in changes
    ]
    frame = pd.DataFrame(rows, columns=["What", "Name", "Change", "Before", "After", "Meaning"])
    return frame if frame["Meaning"].any() else frame.drop(columns="Meaning")
