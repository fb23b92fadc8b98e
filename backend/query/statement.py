"""One SELECT that a person typed: which tables it names, what of each it needs, and itself over tables that Weir hands
to DuckDB.

Rule: nothing but this and `translate.py` imports sqlglot, whose errors leave as `QueryError`. A statement runs only as
it is written anew, and after DuckDB's own parser found in that text nothing but what `functions.py` allows. Reading the
longest one takes seconds, not minutes: no step looks at the whole statement for each of its parts, and sqlglot goes
back in a text no more often, and reads no longer, than `MOST_READINGS` and `LONGEST_READ_S` allow.
"""

import logging
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from backend.errors import QueryError
from backend.query.functions import require_allowed
from backend.sql.quoting import folded

if TYPE_CHECKING:  # sqlglot takes 0.2 s to load
    from sqlglot import exp

MOST_CHARACTERS = 50_000
MOST_TABLES = 64
MOST_CONDITIONS = 50  # of a table, by which files are pruned
MOST_READINGS = 5  # of each character, where a word may be a type or a join
LEAST_READ = 20_000  # characters that any statement may take
MOST_WRITTEN = 500_000  # characters
LONGEST_READ_S = 1.5  # of processor time: some characters cost a hundred times what others do
VIEWS = ("history", "properties", "files", "partitions", "changes")
_ONE = "a query is one SELECT over tables of the lake, such as SELECT status, count(*) FROM silver.orders GROUP BY 1"
_DIALECT = "duckdb"


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
    """A statement that may run: `sql` is DuckDB's, over tables called as the sources are. `with_names`: what its WITH
    parts are called there, and as they were written."""

    text: str
    sql: str
    sources: tuple[Source, ...]
    with_names: Mapping[str, str] = field(default_factory=dict)


def read_statement(text: str, *, most_rows: int | None = None) -> Statement:
    """One SELECT, of `most_rows` at most where it sets no limit of its own; raises `QueryError` for anything else."""
    if len(text) > MOST_CHARACTERS:
        message = f"the statement has {len(text):,} characters, more than {MOST_CHARACTERS:,}"
        raise QueryError(message, hint="keep a long list of values in a table, and join it")
    if "\x00" in text:
        raise QueryError("the statement holds a null character", hint="type it anew")
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of each statement that is none of ours
    with readable():
        return _read(text, most_rows)


def _read(text: str, most_rows: int | None) -> Statement:
    from sqlglot import exp

    trees = parsed(text.removeprefix("\ufeff"))  # a file's byte order mark
    if len(trees) != 1:
        raise QueryError(f"there are {len(trees) or 'no'} statements; one is run at a time", hint=_ONE)
    tree = trees[0]
    if not isinstance(tree, exp.Query):
        raise _refused(text.split()[0].upper()[:40])
    tables = list(tree.find_all(exp.Table))
    if len(tables) > MOST_TABLES:
        raise QueryError(f"the statement names {len(tables):,} tables, more than {MOST_TABLES}", hint="join fewer")
    with_parts = [(table, _with_part(table)) for table in tables]
    uses, write = [table for table, part in with_parts if part is None], writer(_DIALECT)
    names = _Names(tree, text, write)
    sources = tuple(names.source(number, table) for number, table in enumerate(uses))
    _rename(tree, list(zip(uses, sources, strict=True)))
    if most_rows is not None and not tree.args.get("limit"):
        tree.set("limit", exp.Limit(expression=exp.Literal.number(most_rows)))
    with_names = _rename_with_parts(tree, with_parts, names.prefix)
    sql = write(tree)
    require_allowed(sql, {source.name for source in sources} | set(with_names))
    return Statement(text, sql, sources, with_names)


def parsed(text: str) -> "list[exp.Expr]":
    """The statements of a text. Where sqlglot cannot tell what a word is, it reads on, and again: twice as often with
    each `ROW(` within another, or each JOIN without ON. Raises `QueryError` for a text that it reads too often."""
    from sqlglot import exp
    from sqlglot.dialects.duckdb import DuckDB
    from sqlglot.parsers.duckdb import DuckDBParser

    left, ends_at = LEAST_READ + MOST_READINGS * len(text), time.thread_time() + LONGEST_READ_S

    class Parser(DuckDBParser):
        def _advance(self, times: int = 1) -> None:
            nonlocal left
            super()._advance(times)
            left -= 1 + len(self._curr.text)
            if left < 0 or time.thread_time() > ends_at:
                raise _too_long()

    dialect = DuckDB()
    # Of this dialect alone: what is read inside a quoted type counts as well.
    dialect.parser_class = Parser  # type: ignore[assignment]
    trees = dialect.parse(text)
    return [tree for tree in trees if tree is not None and not isinstance(tree, exp.Semicolon)]  # that: a comment


def writer(dialect: str, *, pretty: bool = False) -> "Callable[[exp.Expr], str]":
    """Writes parts of one statement. Of some functions sqlglot writes an argument two or three times, and each within
    another as often again: raises `QueryError` for what grows too long."""
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import ErrorLevel

    into, ends_at = Dialect.get_or_raise(dialect), time.thread_time() + LONGEST_READ_S

    class Generator(into.generator_class):  # type: ignore[misc, name-defined]
        def sql(self, *args: Any, **more: Any) -> str:
            text: str = super().sql(*args, **more)
            if len(text) > MOST_WRITTEN or time.thread_time() > ends_at:
                raise _too_long()
            return text

    into.generator_class = Generator
    return partial(into.generate, comments=False, pretty=pretty, unsupported_level=ErrorLevel.RAISE)


def _too_long() -> QueryError:
    what = "the statement takes too long to read: its types, brackets, calls or joins are too many or too deep"
    return QueryError(what, hint="say it with fewer of them, or in WITH parts")


@contextmanager
def readable() -> Iterator[None]:
    """sqlglot's errors as `QueryError`."""
    from sqlglot.errors import SqlglotError

    try:
        yield
    except RecursionError as exc:
        hint = "say it with fewer parentheses, or in WITH parts"
        raise QueryError("the statement is nested too deeply", hint=hint) from exc
    except SqlglotError as exc:
        raise QueryError(f"the statement cannot be read: {_first_error(exc)}", hint=_ONE) from exc
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as exc:  # sqlglot's, of broken input
        raise QueryError("the statement cannot be read", hint=_ONE) from exc


class _Names:
    """What a statement says of each table that it names."""

    def __init__(self, tree: "exp.Expr", text: str, write: "Callable[[exp.Expr], str]") -> None:
        from sqlglot import exp

        longest = max(map(len, re.findall("lake_(_*)", text.lower())), default=-1)
        self.prefix = f"lake_{'_' * (longest + 1)}"  # which no name of the statement begins with
        self._identifiers = frozenset(node.name.lower() for node in tree.find_all(exp.Identifier))
        stars = [star for star in tree.find_all(exp.Star, exp.Columns) if not isinstance(star.parent, exp.Count)]
        self._whole = {id(star.find_ancestor(exp.Select)) for star in stars}  # SELECTs of every column
        qualified = (star.parent for star in stars if isinstance(star.parent, exp.Column))
        rows = (column.name for column in tree.find_all(exp.Column) if not column.table)  # a table's name is its row
        self._rows = {*(column.table.lower() for column in qualified), *map(str.lower, rows)}
        self._is_natural = any(join.method == "NATURAL" for join in tree.find_all(exp.Join))
        self._conditions = {id(select): _conditions(select, write) for select in tree.find_all(exp.Select)}

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
            f"{self.prefix}{number}",
            (*above, own),
            view.lower(),
            None if version is None else _literal(version.expression),
            version is not None and version.name == "TIMESTAMP",
            tuple(map(_literal, arguments or ())),
            None if is_whole else self._identifiers,
            () if view or select is None else self._of(table, select),
        )

    def _of(self, table: "exp.Table", select: "exp.Select") -> tuple[str, ...]:
        """What WHERE asks of rows of this table alone. Nothing where a join keeps rows that do not match, or matches by
        their order."""
        joins = select.args.get("joins") or ()
        joined = next((join for join in joins if join.this is table), None)
        is_plain = table.parent is select.args.get("from_") or (joined and joined.kind in ("", "INNER", "CROSS"))
        if not is_plain or (joined and joined.side) or any(j.method or j.side in ("RIGHT", "FULL") for j in joins):
            return ()
        is_alone, found = not joins and not select.args.get("laterals"), self._conditions[id(select)]
        own = [*found.get(folded(_alias(table)), ()), *(found.get("", ()) if is_alone else ())]
        return tuple(own[:MOST_CONDITIONS])


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


def _with_part(table: "exp.Table") -> "exp.CTE | None":
    """The part of a WITH around a table that has its name. What that part itself defines comes later."""
    from sqlglot import exp

    if table.args.get("db") or not isinstance(table.this, exp.Identifier):
        return None
    below: exp.Expr = table
    named: list[exp.CTE]
    while (above := below.parent) is not None:
        if isinstance(above, exp.With):
            named = above.expressions[: next(i for i, cte in enumerate(above.expressions) if cte is below)]
        else:
            within = above.args.get("with_")
            named = within.expressions if within is not None and within is not below else []
        for part in named:
            if folded(part.alias) == folded(table.name):
                return part
        below = above
    return None


def _rename_with_parts(
    tree: "exp.Query", tables: "Sequence[tuple[exp.Table, exp.CTE | None]]", prefix: str
) -> dict[str, str]:
    """Each part of a WITH under a name that no table and no catalogue of DuckDB has; the written names by the new."""
    from sqlglot import exp

    parts = {id(part): (f"{prefix}with_{number}", part) for number, part in enumerate(tree.find_all(exp.CTE))}
    for table, named in tables:
        if named is not None:
            alias = table.args.get("alias") or exp.TableAlias()
            if not alias.name:
                alias.set("this", exp.to_identifier(table.name, quoted=True))
            table.set("alias", alias)
            table.set("this", exp.to_identifier(parts[id(named)][0]))
    written = {name: part.alias for name, part in parts.values()}
    for name, part in parts.values():
        part.args["alias"].set("this", exp.to_identifier(name))
    return written


def _conditions(select: "exp.Select", write: "Callable[[exp.Expr], str]") -> Mapping[str, list[str]]:
    """Those parts of WHERE that columns of one table decide, by how the columns name it."""
    from sqlglot import exp

    found, where = defaultdict[str, list[str]](list), select.args.get("where")
    if where is None:
        return found
    for part in where.this.flatten() if isinstance(where.this, exp.And) else (where.this,):
        tables = {folded(column.table) for column in part.find_all(exp.Column)}
        if len(tables) == 1 and not part.find(exp.Query, exp.Window):
            found[tables.pop()].append(write(part.transform(_unqualified)))
    return found


def _unqualified(node: "exp.Expr") -> "exp.Expr":
    from sqlglot import exp

    return exp.Column(this=node.this.copy()) if isinstance(node, exp.Column) else node


def _rename(tree: "exp.Expr", sources: "Sequence[tuple[exp.Table, Source]]") -> None:
    """`silver.orders VERSION AS OF 3 o` as `lake_0 AS o`; columns that name the layer too lose it."""
    from sqlglot import exp

    layered = {(table.db, table.name) for table, _ in sources if table.db}
    for column in tree.find_all(exp.Column):
        if (column.db, column.table) in layered:
            column.set("db", None)
            column.set("catalog", None)
    for table, source in sources:
        alias = table.args.get("alias") or exp.TableAlias()
        if not alias.name:  # none, or columns alone
            alias.set("this", exp.to_identifier(_alias(table), quoted=True))
        for name in ("db", "catalog", "version"):
            table.set(name, None)
        table.set("this", exp.to_identifier(source.name))
        table.set("alias", alias)


def _alias(table: "exp.Table") -> str:
    """By which columns name it: its own, or the end of its name as it is written."""
    return str(table.alias or _parts(table)[0][-1])


def _kind(node: "exp.Expr") -> str:
    """A part of a statement in words: TABLE SAMPLE."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).upper()


def _refused(what: str) -> QueryError:
    return QueryError(f"{what} is not allowed", hint=_ONE)


def _first_error(exc: Exception) -> str:
    errors = getattr(exc, "errors", None)
    if not errors:
        return str(exc).splitlines()[0][:200]
    what = re.sub(r"<class '[\w.]+\.(\w+)'>", r"\1", errors[0]["description"])
    return f"{what} (line {errors[0]['line']}, character {errors[0]['col']})"
