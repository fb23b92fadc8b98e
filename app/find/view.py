"""What a search over the whole lake found, in words, and what of Weir itself can be found beside it.

Rule: pure; tables are searched by `backend.lake.find` alone.
"""

from collections.abc import Iterable, Sequence

from app.ui.view.words import LinkTarget
from backend.format import cut, things
from backend.jobs.model import JobKind
from backend.lake.find import FoundTable, Where

MOST_TABLES = 12
MOST_PLACES = 6
# Acts on tables, and the page of a table where each is done; without a table there are those on dropped ones.
ACTS = {
    **dict.fromkeys((JobKind.OPTIMIZE, JobKind.VACUUM), "health"),
    **dict.fromkeys((JobKind.RESTORE, JobKind.REWIND, JobKind.CLONE), "versions"),
    JobKind.REPAIR: "changes",
    **dict.fromkeys((JobKind.ALTER, JobKind.DROP), "properties"),
    **dict.fromkeys((JobKind.UNDROP, JobKind.PURGE), "acts"),
}


def matching(places: Iterable[LinkTarget], words: str) -> list[LinkTarget]:
    """The first few of those whose label holds every word."""
    wanted = words.casefold().split()
    return [place for place in places if wanted and all(w in place.label.casefold() for w in wanted)][:MOST_PLACES]


def found_sentence(results: Sequence[FoundTable], words: str, *, num_read: int, num_found: int) -> str:
    """ "14 of 3,000 tables hold customer_id", and what of the lake is not read yet."""
    unread = f"; {things(num_found - num_read, 'table')} not read yet" if num_read < num_found else ""
    verb = "holds" if len(results) == 1 else "hold"
    where = "" if results else " in a name, column, comment, owner or property: rows were not looked through"
    return f"{len(results):,} of {things(num_read, 'table')} {verb} “{cut(words.strip(), 40)}”{where}{unread}"


def leads_to(result: FoundTable) -> str:
    """The page that shows the best match: properties for a property, else the summary with its schema."""
    return "properties" if result.matches()[0].where is Where.PROPERTY else "table"
