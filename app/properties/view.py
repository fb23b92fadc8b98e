"""A table's properties by subject, and its features.

Rule: pure; every value that is set stands beside its default, a problem says what to write instead.
"""

from collections.abc import Iterable, Sequence

import pandas as pd

from app.ui.view.words import sentence
from backend.format import UNKNOWN, count_text, things
from backend.lake.table.properties import FeatureRow, PropertyRow

# The subject of a property: the first entry one of whose words the key holds.
_SUBJECTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Constraints", ("delta.constraints.",)),
    ("Features", ("delta.feature.", "universalFormat", "delta.min", "columnMapping", "enableTypeWidening")),
    ("Retention", ("Retention", "enableExpiredLogCleanup")),
    (
        "Files and layout",
        ("autoOptimize", "FileSize", "randomizeFile", "randomPrefix", "DeletionVectors", "clustering"),
    ),
    ("Checkpoints and statistics", ("checkpoint", "dataSkipping", "parquet")),
    ("Changes and streaming", ("ChangeDataFeed", "appendOnly", "rowTracking", "RowTracking")),
    ("Commits", ("isolationLevel", "CommitTimestamp", "coordinatedCommits")),
)
_OTHER_DELTA, _TAGS = "Other Delta properties", "Tags"
_ORDER = (
    "Files and layout",
    "Retention",
    "Changes and streaming",
    "Checkpoints and statistics",
    "Features",
    "Constraints",
    "Commits",
    _OTHER_DELTA,
    _TAGS,
)


def grouped(rows: Iterable[PropertyRow]) -> dict[str, list[PropertyRow]]:
    """Properties by subject in a fixed order, in each by key."""
    groups: dict[str, list[PropertyRow]] = {subject: [] for subject in _ORDER}
    for row in sorted(rows, key=lambda row: row.key):
        own = (subject for subject, words in _SUBJECTS if any(word in row.key for word in words))
        groups[next(own, _OTHER_DELTA) if row.key.startswith("delta.") else _TAGS].append(row)
    return {subject: group for subject, group in groups.items() if group}


def matching(rows: Iterable[PropertyRow], words: str) -> list[PropertyRow]:
    """Rows whose key, value or meaning holds every word."""
    wanted = words.lower().split()
    texts = ((row, f"{row.key} {row.value or ''} {row.meaning}".lower()) for row in rows)
    return [row for row, text in texts if all(word in text for word in wanted)]


def set_frame(rows: Sequence[PropertyRow]) -> pd.DataFrame:
    """One row a property that is set: its value, the default beside it, meaning or problem."""
    records = [
        {
            "Property": row.key,
            "Value": row.value,
            "Default": row.default if row.default is not None else UNKNOWN,
            "Meaning": f"⚠ {row.problem}" if row.problem else row.meaning,
        }
        for row in rows
    ]
    return pd.DataFrame(records, columns=["Property", "Value", "Default", "Meaning"])


def defaults_frame(rows: Sequence[PropertyRow]) -> pd.DataFrame:
    """One row a property that is not set: its default and meaning."""
    records = [{"Property": row.key, "Default": row.default or "not set", "Meaning": row.meaning} for row in rows]
    return pd.DataFrame(records, columns=["Property", "Default", "Meaning"])


def properties_sentence(rows: Sequence[PropertyRow]) -> str:
    """ "4 of 31 properties are set here, 1 has a problem"."""
    num_set, problems = sum(row.is_set for row in rows), sum(row.problem is not None for row in rows)
    text = f"{count_text(num_set)} of {things(len(rows), 'property', 'properties')} set here"
    return f"{text}, {count_text(problems)} with a problem" if problems else text


def problem_sentence(row: PropertyRow) -> tuple[str, str]:
    """What is wrong with a property, and what to do."""
    repeated = row.suggestion is None or row.suggestion in (row.problem or "")
    return sentence(f"`{row.key}`: {row.problem}"), "" if repeated else f"Write `{row.suggestion}` instead."


def features_frame(rows: Iterable[FeatureRow]) -> pd.DataFrame:
    """One row a table feature: who must know it, and what it is."""
    records = [
        {
            "Feature": row.name,
            "Readers must know it": "yes" if row.in_reader else "no",
            "Writers must know it": "yes" if row.in_writer else "no",
            "Meaning": row.meaning,
        }
        for row in rows
    ]
    return pd.DataFrame(records, columns=["Feature", "Readers must know it", "Writers must know it", "Meaning"])
