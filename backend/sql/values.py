"""Names, texts and cell values as SQL and JSON write them, and cell values compared, without losing any of them.

Rule: pure; whatever a name or a text holds, it stays one. NaN equals NaN; no number changes its digits on the way out
(decimals leave as text, so do NaN and infinities).
"""

import base64
import math
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from backend.format import number_word

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


# cell values ------------------------------------------------------------------------------------------------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def same(a: Any, b: Any, tolerance: float = 0.0) -> bool:
    """Whether two cell values are equal, deep, with NaN = NaN and null = null; floats within the tolerance are."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b)) or abs(a - b) <= tolerance
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key], tolerance) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def json_value(value: Any) -> Any:
    """A cell as JSON can hold it: times ISO 8601 UTC, decimals and integers beyond 64 bits as text, binary as base64,
    "NaN" and "Infinity" where JSON has no number."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if -(2**63) <= value < 2**64 else str(value)
        case float():
            return number_word(value) or value
        case Decimal():
            return str(value)
        case datetime():
            utc = value if value.tzinfo is None else value.astimezone(UTC)  # one without a zone stays without
            return utc.isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(bytes(value)).decode("ascii")
        case dict():
            return {str(key): json_value(item) for key, item in value.items()}
        case list() | tuple() | set():
            return [json_value(item) for item in value]
    return str(value)


def as_number(value: Any) -> float | None:
    """A bound as a place on a line: times in seconds since 1970, dates in days; None where it has none."""
    if isinstance(value, datetime):
        return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH).total_seconds()
    if isinstance(value, date):
        return float((value - _EPOCH.date()).days)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
