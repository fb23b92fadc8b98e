"""One SELECT that a person typed: which tables it names, what of each it needs, and itself over tables that Weir hands
to DuckDB.

Rule: nothing else imports sqlglot, whose errors leave as `QueryError`. A statement runs only as it is written anew from
a tree each node of which is of an allowed type, and after DuckDB's own parser found in that text no other table and no
function but those on `functions.py`'s list.
"""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from backend.errors import QueryError
from backend.query.functions import require_allowed

if TYPE_CHECKING:  # sqlglot takes 0.2 s to load
    from sqlglot import exp

MOST_CHARACTERS = 100_000
VIEWS = ("history", "properties", "files", "partitions", "changes")
_ONE = "a query is one SELECT over tables of the lake, such as SELECT status, count(*) FROM silver.orders GROUP BY 1"
_DIALECT = "duckdb"
# What a SELECT is made of. Values are families: operators, predicates and functions, which `functions.py` looks at.
_PARTS = (
    *("Select", "Union", "Intersect", "Except", "Subquery", "With", "CTE", "Table", "TableAlias", "From", "Join"),
    *("Where", "Group", "GroupingSets", "Rollup", "Cube", "Having", "Qualify", "Window", "WindowSpec", "Order"),
    *("Ordered", "Limit", "LimitOptions", "Offset", "Fetch", "Distinct", "Values", "Tuple", "Lateral", "Version"),
    *("Column", "Identifier", "Star", "Alias", "Literal", "Boolean", "Null", "Paren", "Bracket", "Slice", "Lambda"),
    *("Comprehension", "DataType", "DataTypeParam", "ColumnDef", "Interval", "IntervalSpan", "Var", "Filter"),
    *("WithinGroup", "IgnoreNulls", "RespectNulls", "AtTimeZone", "JSONPath", "JSONPathKey", "JSONPathRoot"),
    *("JSONPathSubscript", "Binary", "Unary", "Predicate", "Func"),
)


@dataclass(frozen=True, slots=True)
class Source:
    """One place where a statement names a table.

    `name`: of the table that DuckDB gets for it; `parts`: as it is written, `view` ("history") split off; `version`: as
    written, `is_time` for TIMESTAMP AS OF; `arguments`: of `$changes`. `columns`: those that may be needed, in lower
    case, None for all. `conditions`: true of each row that counts, in SQL over the table's columns alone.
    """

    name: str
    parts: tuple[str, ...]
    view: str = ""
    version: str | None = None
    is_time: bool = False
    arguments: tuple[str, ...] = ()
    columns: frozenset[str] | None = None
    conditions: tuple[str, ...] = ()

    @property
    def written(self) -> str:
        return ".".join(self.parts) + (f"${self.view}" if self.view else "")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that may run: `sql` is DuckDB's, over tables called as the sources are."""

    text: str
    sql: str
    sources: tuple[Source, ...]


def read_statement(text: str, *, most_rows: int | None = None) -> Statement:
    """One SELECT, of `most_rows` at most where it sets no limit of its own; raises `QueryError` for anything else."""
    from sqlglot import exp

    tree = _parsed(text)
    if not isinstance(tree, exp.Query):
        raise _refused(text.split()[0].upper()[:40])
    for node in tree.walk():
        if not isinstance(node, _allowed()):
            raise _refused(_kind(node))
        if isinstance(node, exp.With) and node.recursive:
            raise _refused("WITH RECURSIVE")  # it may have no end
        if isinstance(node, exp.Join) and node.method == "POSITIONAL":
            raise _refused("POSITIONAL JOIN")  # rows of a table have no order
    names = _Names(tree, text)
    uses = [table for table in tree.find_all(exp.Table) if not _is_cte(table)]
    sources = tuple(names.source(number, table) for number, table in enumerate(uses))
    for table, source in zip(uses, sources, strict=True):
        _rename(tree, table, source)
    if most_rows is not None and not tree.args.get("limit"):
        tree.set("limit", exp.Limit(expression=exp.Literal.number(most_rows)))
    with_names = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    sql = _written(tree)
    require_allowed(sql, {source.name for source in sources} | with_names)
    return Statement(text, sql, sources)


def _parsed(text: str) -> "exp.Expr":
    import sqlglot
    from sqlglot.errors import SqlglotError

    if not text.strip(" \t\r\n;"):
        raise QueryError("there is no statement", hint=_ONE)
    if len(text) > MOST_CHARACTERS:
        message = f"the statement has {len(text):,} characters, more than {MOST_CHARACTERS:,}"
        raise QueryError(message, hint="keep a long list of values in a table, and join it")
    if "\x00" in text:
        raise QueryError("the statement holds a null character", hint="type it anew")
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of each statement that is none of ours
    try:
        trees = [tree for tree in sqlglot.parse(text, read=_DIALECT) if tree is not None]
    except RecursionError as exc:
        raise _too_deep() from exc
    except SqlglotError as exc:
        raise QueryError(f"the statement cannot be read: {_first_error(exc)}", hint=_ONE) from exc
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as exc:  # of broken input, not of SQL
        raise QueryError("the statement cannot be read", hint=_ONE) from exc
    if len(trees) != 1:
        raise QueryError(f"there are {len(trees)} statements; one is run at a time", hint=_ONE)
    return trees[0]


def _written(tree: "exp.Expr") -> str:
    from sqlglot.errors import SqlglotError

    try:
        return tree.sql(dialect=_DIALECT, comments=False)
    except RecursionError as exc:
        raise _too_deep() from exc
    except (SqlglotError, ValueError, TypeError) as exc:
        raise QueryError("the statement cannot be written for DuckDB", hint=_ONE) from exc


class _Names:
    """What a statement says of each table that it names."""

    def __init__(self, tree: "exp.Expr", text: str) -> None:
        from sqlglot import exp

        self._prefix = "lake_"
        while self._prefix in text.lower():
            self._prefix += "_"
        self._identifiers = frozenset(node.name.lower() for node in tree.find_all(exp.Identifier))
        stars = [star for star in tree.find_all(exp.Star, exp.Columns) if not isinstance(star.parent, exp.Count)]
        self._whole = {id(star.find_ancestor(exp.Select)) for star in stars}  # SELECTs of every column
        qualified = (star.parent for star in stars if isinstance(star.parent, exp.Column))
        rows = (column.name for column in tree.find_all(exp.Column) if not column.table)  # a table's name is its row
        self._rows = {*(column.table.lower() for column in qualified), *map(str.lower, rows)}
        self._is_natural = any(join.method == "NATURAL" for join in tree.find_all(exp.Join))

    def source(self, number: int, table: "exp.Table") -> Source:
        from sqlglot import exp

        parts, arguments = _parts(table)
        version = table.args.get("version")
        *above, last = parts
        own, _, view = last.rpartition("$")
        if not own or view.lower() not in VIEWS:
            own, view = last, ""
        if arguments is not None and view.lower() != "changes":
            raise _refused(f"the table function {last}")
        if view.lower() == "changes" and (arguments is None or len(arguments) != 2 or version):
            raise QueryError(f'"{last}" takes two versions', hint=f"such as \"{last}\"(118, 'latest')")
        select = table.find_ancestor(exp.Select)
        is_whole = self._is_natural or id(select) in self._whole or _alias(table).lower() in self._rows
        return Source(
            f"{self._prefix}{number}",
            (*above, own),
            view.lower(),
            None if version is None else _literal(version.expression),
            version is not None and version.name == "TIMESTAMP",
            tuple(map(_literal, arguments or ())),
            None if is_whole else self._identifiers,
            () if view or select is None else tuple(_conditions(table, select)),
        )


def _parts(table: "exp.Table") -> tuple[list[str], "list[exp.Expr] | None"]:
    """A table's name as written, with its arguments where it is called as a function."""
    from sqlglot import exp

    above = [part.name for part in (table.args.get("catalog"), table.args.get("db")) if part]
    this = table.this
    if isinstance(this, exp.Anonymous):
        return [*above, this.name], this.expressions
    names = [part.name for part in this.flatten()] if isinstance(this, exp.Dot) else [this.name]
    if not isinstance(this, exp.Identifier | exp.Dot):
        raise _refused(f"the table function {_kind(this)}")
    if table.args.get("when") or not all(names):
        raise QueryError("a version is named by VERSION AS OF or TIMESTAMP AS OF", hint=_ONE)
    return [*above, *names], None


def _literal(node: "exp.Expr") -> str:
    from sqlglot import exp

    inner = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(inner, exp.Literal):
        raise QueryError("a version is a number or a text in single quotes", hint="VERSION AS OF 118, or 'yesterday'")
    return f"{'-' if inner is not node else ''}{inner.name}"


def _is_cte(table: "exp.Table") -> bool:
    """Whether a WITH around a table gives it its name. What it itself defines comes later."""
    from sqlglot import exp

    if table.args.get("db") or not isinstance(table.this, exp.Identifier):
        return False
    below: exp.Expr = table
    while (above := below.parent) is not None:
        if isinstance(above, exp.With):
            named = above.expressions[: next(i for i, cte in enumerate(above.expressions) if cte is below)]
        else:
            within = above.args.get("with_")
            named = within.expressions if within is not None and within is not below else []
        if any(cte.alias.lower() == table.name.lower() for cte in named):
            return True
        below = above
    return False


def _conditions(table: "exp.Table", select: "exp.Select") -> Iterator[str]:
    """What WHERE asks of rows of this table alone. Nothing where a join keeps rows that do not match, or matches by
    their order."""
    from sqlglot import exp

    where, joins = select.args.get("where"), select.args.get("joins") or ()
    joined = next((join for join in joins if join.this is table), None)
    is_plain = table.parent is select.args.get("from_") or (joined and joined.kind in ("", "INNER", "CROSS"))
    if where is None or not is_plain or (joined and joined.side) or any(join.method for join in joins):
        return
    if any(join.side in ("RIGHT", "FULL") for join in joins):
        return
    is_alone, alias = not joins and not select.args.get("laterals"), _alias(table).lower()
    condition = where.this
    for part in condition.flatten() if isinstance(condition, exp.And) else (condition,):
        columns = list(part.find_all(exp.Column))
        is_own = all(c.table.lower() == alias if c.table else is_alone for c in columns)
        if columns and is_own and not part.find(exp.Query, exp.Window):
            yield part.transform(_unqualified).sql(dialect=_DIALECT, comments=False)


def _unqualified(node: "exp.Expr") -> "exp.Expr":
    from sqlglot import exp

    return exp.Column(this=node.this.copy()) if isinstance(node, exp.Column) else node


def _rename(tree: "exp.Expr", table: "exp.Table", source: Source) -> None:
    """`silver.orders VERSION AS OF 3 o` as `lake_0 AS o`; columns that name the layer too lose it."""
    from sqlglot import exp

    alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(_alias(table), quoted=True))
    if not alias.name:  # columns alone
        alias.set("this", exp.to_identifier(_alias(table), quoted=True))
    for column in tree.find_all(exp.Column) if table.db else ():
        if (column.db, column.table) == (table.db, table.name):
            column.set("db", None)
            column.set("catalog", None)
    for name in ("db", "catalog", "version"):
        table.set(name, None)
    table.set("this", exp.to_identifier(source.name))
    table.set("alias", alias)


def _alias(table: "exp.Table") -> str:
    """By which columns name it: its own, or the end of its name as it is written."""
    return str(table.alias or _parts(table)[0][-1])


@cache
def _allowed() -> tuple[type, ...]:
    from sqlglot import exp

    return tuple(getattr(exp, name) for name in _PARTS)


def _kind(node: "exp.Expr") -> str:
    """A part of a statement in words: TABLE SAMPLE."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).upper()


def _refused(what: str) -> QueryError:
    return QueryError(f"{what} is not allowed", hint=_ONE)


def _too_deep() -> QueryError:
    return QueryError("the statement is nested too deeply", hint="say it with fewer parentheses, or in WITH parts")


def _first_error(exc: Exception) -> str:
    errors = getattr(exc, "errors", None)
    if not errors:
        return str(exc).splitlines()[0][:200]
    what = re.sub(r"<class '[\w.]+\.(\w+)'>", r"\1", errors[0]["description"])
    return f"{what} (line {errors[0]['line']}, character {errors[0]['col']})"
