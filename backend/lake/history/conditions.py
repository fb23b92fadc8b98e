"""Conditions on rows as people read and write them.

Rule: pure, and free of pandas, which the terminal does without.
"""

import re
from collections.abc import Mapping
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
    return without_ids(_predicate(commit))


def _predicate(commit: Commit) -> str:
    found = commit.parameters.get("predicate") or commit.parameters.get("mergePredicate") or ""
    if isinstance(found, str) and found.startswith("[") and found.endswith("]"):
        with suppress(orjson.JSONDecodeError):
            found = " AND ".join(str(part) for part in orjson.loads(found))
    return str(found)


def without_ids(condition: str) -> str:
    """A condition of Spark's without the ids of its plan: `order_id#53397` is `order_id`, and what a merge
    finds by it the `same order_id`."""
    return _IDS.sub(lambda match: match[1] or (f"same {match[2]}" if match[2] else ""), condition)


# what conditions have in common ----------------------------------------------------------------------------------

_CLAUSES = ("matchedPredicates", "notMatchedPredicates", "notMatchedBySourcePredicates")
_TOKEN = re.compile(
    r"(?P<text>'(?:[^'\\]|\\.|'')*')|(?P<column>[\w.`]*\w`?#\d+L?(?:\.\w+)*|`[^`]+`|\"[^\"]+\")"
    r"|(?P<call>[a-z_]\w*(?=\s*\())|(?P<number>[-+]?\d[\w.:+-]*)|(?P<word>[a-z_][\w.`-]*)|[<>=!]+|\S",
    re.IGNORECASE,
)
_WORDS = re.compile(r"and|or|not|in|inset|is|null|like|between|case|when|then|else|end|as|true|false")


def clauses_text(commit: Commit) -> str:
    """What a MERGE does with the rows it found, each with its condition: "update if s.at > t.at, insert"."""
    return ", ".join(f"{act} if {without_ids(condition)}" if condition else act for act, condition in _clauses(commit))


def condition_shape(commit: Commit) -> str | None:
    """The condition of a MERGE, UPDATE or DELETE without what changes from run to run: values, aliases, blanks,
    brackets and how often a term is repeated. None for other commits, and where a MERGE names none."""
    if commit.operation not in ("MERGE", "UPDATE", "DELETE"):
        return None
    predicate = _predicate(commit)
    if commit.operation == "MERGE" and not predicate:
        return None
    return "; ".join([_shape(predicate), *(f"{act} {_shape(condition)}" for act, condition in _clauses(commit))])


def _clauses(commit: Commit) -> list[tuple[str, str]]:
    found = []
    for name in _CLAUSES:
        with suppress(orjson.JSONDecodeError, TypeError):  # Spark and delta-rs write a list as text
            found += [each for each in orjson.loads(commit.parameters.get(name, "[]")) if isinstance(each, Mapping)]
    return [(str(each.get("actionType") or ""), str(each.get("predicate") or "")) for each in found]


def _shape(condition: str) -> str:
    # Spark writes texts without quotes beside columns with their ids: what has no id there is no column.
    is_plan = "#" in condition
    tokens = [_token(match, is_plan=is_plan) for match in _TOKEN.finditer(condition) if match[0] not in "()"]
    text = re.sub(r"\?(?: (?:, )?\?)+", "?", " ".join(tokens))
    terms = re.split(r"\b(?=(?:and|or)\b)", text)
    return " ".join(dict.fromkeys(term.strip() for term in terms))


def _token(match: re.Match[str], *, is_plan: bool) -> str:
    if match["text"] or match["number"]:
        return "?"
    token = match[0].lower()
    if match["column"] or (match["word"] and not _WORDS.fullmatch(token)):
        if is_plan and not match["column"]:
            return "?"
        name = re.sub(r"#\d+l?", "", token)
        return name.rpartition(".")[2].strip('`"')
    return {"==": "=", "<>": "!="}.get(token, token)
