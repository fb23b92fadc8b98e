"""Names and texts as SQL writes them.

Rule: pure; whatever a name or a text holds, it stays one.
"""

import re

# What DuckDB reserves, and what its or sqlglot's grammar takes for something else than a column somewhere.
_RESERVED = frozenset(
    """
    all alter analyse analyze and anti any array as asc asof asymmetric at authorization between binary both by
    case cast check collate collation column concurrently connect_by_root constraint create cross cube
    current_catalog current_date current_time current_timestamp current_user default deferrable desc describe
    distinct do drop else end except false fetch for force foreign freeze from full glob grant group having if
    ilike in initially inner insert install intersect interval into is isnull join lambda lateral leading left
    like limit list localtime localtimestamp lock map natural not notnull null nullable object offset on only or
    order outer overlaps partitioned_by pivot pivot_longer pivot_wider placing positional primary qualify range
    references regexp returning revoke right rlike rollback rollup row select semi session_user show similar some
    struct summarize symmetric table tablesample then to trailing true uncache union unique unpack unpivot using
    variadic verbose when where window with xor
    """.split()  # noqa: SIM905 - words in quotes are read by nobody
)


_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def folded(name: str) -> str:
    """A name as DuckDB compares names: A to Z alone are a to z. `str.lower` makes a k of the Kelvin sign as well."""
    return name.translate(_LOWER)


def quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def plain_name(name: str) -> str:
    """A column's name as a person writes it: in quotes where it needs them."""
    is_plain = re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) and name.lower() not in _RESERVED
    return name if is_plain else quoted_name(name)


def quoted_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def backticked_name(name: str) -> str:
    """As Spark writes it."""
    return "`" + name.replace("`", "``") + "`"


def trino_name(table: str) -> str:
    """ "delta"."silver"."orders" for silver/orders; catalog and schema may be called otherwise."""
    *folders, own = table.split("/")
    return ".".join(map(quoted_name, ("delta", folders[-1] if folders else "default", own)))
