"""What a search over the whole lake found, in words.

Rule: pure; a match says in what it lies, and long texts are cut around the word.
"""

from collections.abc import Sequence

from backend.format import cut, things
from backend.lake.find import MOST_MATCHES, FoundTable, Match, Where

MOST_TABLES = 12
MOST_TEXT = 70

_PLACES = {
    Where.NAME: "name",
    Where.COLUMN: "column",
    Where.DESCRIPTION: "description",
    Where.OWNER: "owner",
    Where.COMMENT: "comment of",
    Where.PROPERTY: "property",
    Where.PROBLEM: "problem",
}


def found_sentence(results: Sequence[FoundTable], words: str, *, num_read: int, num_found: int) -> str:
    """ "14 of 3,000 tables hold customer_id", and what of the lake is not read yet."""
    unread = f"; {things(num_found - num_read, 'table')} not read yet" if num_read < num_found else ""
    verb = "holds" if len(results) == 1 else "hold"
    return f"{len(results):,} of {things(num_read, 'table')} {verb} “{cut(words.strip(), 40)}”{unread}"


def match_words(result: FoundTable) -> str:
    """ "column customer_id bigint · comment of id: the customer", without the name, which stands above."""
    matches = [match_text(match) for match in result.matches() if match.where is not Where.NAME]
    left = len(matches) - MOST_MATCHES
    return " · ".join([*matches[:MOST_MATCHES], *([f"and {left:,} more"] if left > 0 else [])])


def match_text(match: Match) -> str:
    place = _PLACES[match.where]
    if match.where is Where.COLUMN:
        return f"{place} {match.subject} {cut(match.text, 30)}"
    if match.where in (Where.COMMENT, Where.PROPERTY):
        return f"{place} {match.subject}: {cut(match.text, MOST_TEXT)}"
    return f"{place}: {cut(match.text, MOST_TEXT)}"


def leads_to(result: FoundTable) -> str:
    """The page that shows the best match: properties for a property, else the summary with its schema."""
    return "properties" if result.matches()[0].where is Where.PROPERTY else "table"
