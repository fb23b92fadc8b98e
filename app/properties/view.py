"""A table's properties by subject, and its features.

Rule: pure; every value that is set stands beside its default, a problem says what to write instead.
"""

from collections.abc import Iterable, Sequence

from app.columns import Column, Columns
from app.ui.view.words import sentence
from backend.format import count_text, things
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


def grouped(rows: Iterable[PropertyRow]) -> dict[str, list[PropertyRow]]:
    """Properties by subject in a fixed order, in each by key."""
    order = [*(subject for subject, _ in _SUBJECTS), _OTHER_DELTA, _TAGS]
    groups: dict[str, list[PropertyRow]] = {subject: [] for subject in order}
    for row in sorted(rows, key=lambda row: row.key):
        own = (subject for subject, words in _SUBJECTS if any(word in row.key for word in words))
        groups[next(own, _OTHER_DELTA) if row.key.startswith("delta.") else _TAGS].append(row)
    return {subject: group for subject, group in groups.items() if group}


def matching(rows: Iterable[PropertyRow], words: str) -> list[PropertyRow]:
    """Rows whose key, value or meaning holds every word."""
    wanted = words.lower().split()
    texts = ((row, f"{row.key} {row.value or ''} {row.meaning}".lower()) for row in rows)
    return [row for row, text in texts if all(word in text for word in wanted)]


PROPERTIES: Columns[PropertyRow] = (
    Column("Property", lambda row: row.key, key="key"),
    Column("Value", lambda row: row.value, key="value"),
    Column("Default", lambda row: row.default if row.is_set else row.default or "not set"),
    Column("Meaning", lambda row: f"⚠ {row.problem}" if row.problem else row.meaning),
)
FEATURES: Columns[FeatureRow] = (
    Column("Feature", lambda row: row.name, key="name"),
    Column("Readers must know it", lambda row: row.in_reader, "yes", key="in_reader"),
    Column("Writers must know it", lambda row: row.in_writer, "yes", key="in_writer"),
    Column("Meaning", lambda row: row.meaning, key="meaning"),
)


def properties_sentence(rows: Sequence[PropertyRow]) -> str:
    """ "4 of 31 properties are set here, 1 has a problem"."""
    num_set, problems = sum(row.is_set for row in rows), sum(row.problem is not None for row in rows)
    text = f"{count_text(num_set)} of {things(len(rows), 'property', 'properties')} set here"
    return f"{text}, {count_text(problems)} with a problem" if problems else text


def problem_sentence(row: PropertyRow) -> tuple[str, str]:
    """What is wrong with a property, and what to do."""
    repeated = row.suggestion is None or row.suggestion in (row.problem or "")
    return sentence(f"`{row.key}`: {row.problem}"), "" if repeated else f"Write `{row.suggestion}` instead."
