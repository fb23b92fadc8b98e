"""Conditions on rows as people read and write them.

Rule: pure, and free of pandas, which the terminal does without.
"""

import re
from contextlib import suppress

import orjson

from backend.lake.model import Commit, Metadata
from backend.lake.table.metadata_diff import column_types

_NUMBERS = ("byte", "short", "integer", "long", "float", "double", "decimal")
_PLAIN = re.compile(r"[a-z_]\w*", re.IGNORECASE)
# A text in quotes stays; the number that Spark gives a column in a plan goes. A merge's `a#1 = a#2` are its two sides.
_IDS = re.compile(r"('(?:[^'\\]|\\.|'')*')|\b(\w+)#\d+L? = \2#\d+L?\b|(?<=[\w`\])])#\d+L?\b")


def example_condition(metadata: Metadata, *, is_good: bool) -> str:
    """A condition on a column of the table's own, which most good rows satisfy (`is_good`) or few rows do."""
    types = {name: kind for name, kind in column_types(metadata).items() if _PLAIN.fullmatch(name)}
    numbers = [name for name, kind in types.items() if kind.startswith(_NUMBERS)]
    values = [name for name in numbers if not re.search(r"(^|_)(id|key)$|^(year|month|day)$", name)] or numbers
    if values:
        return f"{values[0]} {'>=' if is_good else '<'} 0"
    return f"{next(iter(types), 'column')} IS {'NOT ' if is_good else ''}NULL"


def predicate_text(commit: Commit) -> str:
    """The condition by which the commit found its rows; empty where it names none."""
    found = commit.parameters.get("predicate") or commit.parameters.get("mergePredicate") or ""
    if isinstance(found, str) and found.startswith("[") and found.endswith("]"):
        with suppress(orjson.JSONDecodeError):
            found = " AND ".join(str(part) for part in orjson.loads(found))
    return without_ids(str(found))


def without_ids(condition: str) -> str:
    """A condition of Spark's without the ids of its plan: `order_id#53397` is `order_id`, and what a merge
    finds by it the `same order_id`."""
    return _IDS.sub(lambda match: match[1] or (f"same {match[2]}" if match[2] else ""), condition)
