"""Where a change stands in its database's log: text that sorts as the log does.

Rule: numbers sort as numbers. Two logs have no order but one that was declared: what compares their places ends
the stream instead.
"""

from collections.abc import Sequence
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F

Flavour = Literal["postgresql", "mysql", "mongodb"]
Server = int | str  # a server id, or the UUID of GTIDs
Servers = Sequence[Server | Sequence[Server]]

# MySQL's begin with what sorts behind every name of a binlog: a table may hold places that begin with one.
_MYSQL = "~"
_LOG = r"@(.*)#(\d*)$"
_OTHER_LOG = (
    "a change at %s and one at %s are of two binlogs, and nothing orders them: name MySQL's servers in their order, "
    "debezium(…, servers=[1, 2]), or reset the stream with a full refresh"
)


def position_of(flavour: Flavour, source: Column, total_order: Column, servers: Servers) -> Column:
    """Null where the envelope's `source` does not say. `total_order`: the place in its transaction, if it is sent: one
    moment or one record of the log may hold several changes."""
    within = F.concat(F.lit(":"), _padded(total_order, 10))
    if flavour == "postgresql":
        return F.concat(_padded(source["lsn"], 20), F.coalesce(within, F.lit("")))
    if flavour == "mongodb":
        order = _padded(F.coalesce(source["ord"], F.lit(0)), 10)
        return F.concat(_padded(source["ts_ms"], 20), F.lit(":"), order, F.coalesce(within, F.lit("")))
    file = _padded(F.nullif(F.regexp_extract(source["file"], r"\.(\d+)$", 1), F.lit("")), 20)
    row = _padded(F.coalesce(source["row"], F.lit(0)), 10)
    place = F.concat_ws(":", file, _padded(source["pos"], 20), row)
    place = F.when(file.isNotNull() & source["pos"].isNotNull(), place)
    if servers:
        return F.concat(_declared_log(source, servers), place)
    log = F.concat_ws("/", _uuid(source), _server(source), F.regexp_extract(source["file"], r"^(.*)\.\d+$", 1))
    log = F.when(_server(source) == "0", "").otherwise(log)  # a snapshot
    number = F.coalesce(_padded(_transaction(source), 20), F.lit(""))
    return F.concat(F.lit(f"{_MYSQL}000000:"), place, F.lit("@"), log, F.lit("#"), number)


def newer(new: Column, old: Column) -> Column:
    """Whether one position is behind the other; ends the stream where they are places of two logs."""
    return in_one_log(new, old, new > old)


def in_one_log(new: Column, old: Column, what: Column) -> Column:
    """A condition on two positions; ends the stream where they are places of two logs."""
    clash = F.raise_error(F.format_string(_OTHER_LOG, new, old)).cast("boolean")
    return F.when(_clashes(new, old), clash).otherwise(what)


def _clashes(new: Column, old: Column) -> Column:
    """Whether these are places of two logs, or of one whose transactions stand there in another order."""
    logs, numbers = ([F.regexp_extract(place, _LOG, part) for place in (new, old)] for part in (1, 2))
    two = (logs[0] != "") & (logs[1] != "") & (logs[0] != logs[1])
    numbered = (numbers[0] != "") & (numbers[1] != "") & (numbers[0] != numbers[1])
    turned = numbered & ((numbers[0] > numbers[1]) != (new > old))
    return F.coalesce(new.startswith(_MYSQL) & old.startswith(_MYSQL) & (two | turned), F.lit(False))


def _declared_log(source: Column, servers: Servers) -> Column:
    """Which of the declared logs it is of; by GTIDs where one server's UUID is declared, whatever replica was read."""
    first = F.lit(None).cast("string")
    for number, entry in enumerate(servers):
        names = [str(name) for name in ([entry] if isinstance(entry, int | str) else entry)]
        uuids = [name for name in names if not name.isdigit()]
        log = F.lit(f"{_MYSQL}{number:06}:")
        by_number = F.concat(log, F.lit("g"), _padded(_transaction(source), 20), F.lit(":"))  # behind the snapshot's
        by_uuid = F.when(_uuid(source).isin(uuids), by_number if len(uuids) == 1 else log)
        first = F.coalesce(first, by_uuid, F.when(_server(source).isin(names), log))
    return first


def _uuid(source: Column) -> Column:
    return F.nullif(F.regexp_extract(source["gtid"], "^([^:]+):", 1), F.lit(""))


def _transaction(source: Column) -> Column:
    return F.nullif(F.regexp_extract(source["gtid"], r"^[^:]+:(\d+)$", 1), F.lit(""))


def _server(source: Column) -> Column:
    return F.coalesce(source["server_id"], F.lit("0"))


def _padded(number: Column, digits: int) -> Column:
    return F.lpad(number.cast("string"), digits, "0")
