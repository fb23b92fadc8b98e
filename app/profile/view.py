"""A profile as a list: one row a column.

Rule: pure; what the profile does not know is left out where no column has it, and a dash elsewhere.
"""

from collections.abc import Sequence

import pandas as pd

from app.profile.text import bound_text, differences, top_text
from backend.sql.numbers import Bin, Profile

COLUMNS = ("Column", "Type", "Null share", "Distinct", "Spread", "Lowest", "Highest", "Commonest")


def profile_frame(profile: Profile, before: Profile | None = None) -> pd.DataFrame:
    """The columns of a profile; with another one also what differs from it, those that do first."""
    differing = differences(before, profile) if before else {}
    rows = [
        {
            "Column": column.column,
            "Against": differing.get(column.column, ""),
            "Type": column.type,
            "Null share": column.null_share,
            "Distinct": column.distinct,
            "Lowest": bound_text(column, "lowest"),
            "Highest": bound_text(column, "highest"),
            "Commonest": top_text(column),
            "Spread": spread(column.bins),
        }
        for column in profile.columns
    ]
    rows.sort(key=lambda row: not row["Against"])  # stable: else in the schema's order
    frame = pd.DataFrame(rows, columns=["Column", "Against", *COLUMNS[1:]])
    silent = [] if before else ["Against"]
    return frame.drop(columns=silent if profile.is_read else [*silent, "Distinct", "Commonest", "Spread"])


def spread(bins: Sequence[Bin]) -> list[float]:
    """Rows a bin against the fullest one."""
    most = max((bin_.rows for bin_ in bins), default=0)
    return [bin_.rows / most for bin_ in bins] if most else []
