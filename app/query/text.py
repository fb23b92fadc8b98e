"""What a query read, in words, for page and terminal alike.

Rule: pure, and light: commands load it.
"""

import shlex

from backend.format import bytes_text, things
from backend.lake.table.schema import CASELESS
from backend.query.plan import QueryPlan


def read_text(plan: QueryPlan) -> str:
    """ " from silver/orders v118, gold/totals v9": what to name to get the same again."""
    names = dict.fromkeys(r.table if r.version is None else f"{r.table} v{r.version}" for r in plan.reads)
    return f" from {', '.join(names)}" if names else ""


def cost_text(plan: QueryPlan) -> str:
    """ "3 files, 1.2 MB from silver/orders v118": what it reads at most, and what Spark would compare otherwise."""
    others = [column for read in plan.reads for column in read.collated if column.collation != CASELESS]
    names = dict.fromkeys(f"{column.name} ({column.collation})" for column in others)
    by_bytes = f"; compared by bytes, not by collation: {', '.join(names)}" if names else ""
    return f"{things(plan.num_files, 'file')}, {bytes_text(plan.size_bytes)}{read_text(plan)}{by_bytes}"


def command(text: str, pins: str, on: str = "") -> str:
    """The same rows from a terminal, as CSV."""
    options = [*(["--versions", pins] if pins else []), *(["--on", on] if on else [])]
    return shlex.join(["weir", "query", text, *options, "--csv"]) + " > query.csv"
