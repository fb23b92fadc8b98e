"""What a commit, or two versions, changed of a table: one row a change.

Rule: pure; before and after are whole, an unknown or absent side is a dash.
"""

from collections.abc import Sequence

import pandas as pd

from app.history.view.change_words import meaning, word
from app.ui.format import UNKNOWN
from backend.lake.history.metadata_changes import TableChange


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
