"""One SELECT that a person typed: which tables it names, itself over tables that Weir hands to DuckDB, and itself in
another engine's SQL.

Why two readings: VERSION AS OF and the names of the lake are not DuckDB's, so sqlglot reads them and writes the
statement anew; what runs, and what is needed of each table, is taken from DuckDB's own tree of that text. Rule: nothing
else imports sqlglot, whose errors leave as `QueryError`. Reading the longest statement takes seconds, not minutes: no
step looks at the whole of it for each of its parts, and sqlglot goes back in a text no more often, and reads no longer,
than `MOST_READINGS` and `LONGEST_READ_S` allow. It knows no lake: `plan.py` looks tables up.
"""

import logging
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from backend.errors import QueryError
from backend.sql.expression import check_statement, conjuncts, every_node, own_nodes, select_nodes
from backend.sql.values import folded

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
_PRUNED_JOINS = ("INNER", "LEFT", "SEMI", "ANTI")


@dataclass(frozen=True, slots=True)
class Source:
    """One place where a statement names a table.

    `name`: of the table that DuckDB gets for it; `parts`: as it is written, `view` ("history") split off; `version`: as
    written, `is_time` for TIMESTAMP AS OF; `arguments`: of `$changes`. `columns`: those that may be needed, in lower
    case, None for all. `conditions`: true of each row that counts, nodes of DuckDB's tree over the columns of this
    table alone, which they name by its `alias` or by nothing.
    """

    name: str
    parts: tuple[str, ...]
    view: str = ""
    version: str | None = None
    is_time: bool = False
    arguments: tuple[str, ...] = ()
    columns: frozenset[str] | None = None
    conditions: tuple[Mapping[str, Any], ...] = field(default=(), compare=False, repr=False)
    alias: str = ""

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
    with _readable():
        statement, tree = _read(text, most_rows)
    return replace(statement, sources=_with_needs(statement.sources, tree))


def _read(text: str, most_rows: int | None) -> tuple[Statement, Mapping[str, Any]]:
    """The statement as DuckDB gets it, with DuckDB's tree of it."""
    from sqlglot import exp

    trees = _parsed(text.removeprefix("\ufeff"))  # a file's byte order mark
    if len(trees) != 1:
        raise QueryError(f"there are {len(trees) or 'no'} statements; one is run at a time", hint=_ONE)
    tree = trees[0]
    if not isinstance(tree, exp.Query):
        raise _refused(text.split()[0].upper()[:40])
    tables = list(tree.find_all(exp.Table))
    if len(tables) > MOST_TABLES:
        raise QueryError(f"the statement names {len(tables):,} tables, more than {MOST_TABLES}", hint="join fewer")
    with_parts = [(table, _with_part(table)) for table in tables]
    uses = [table for table, part in with_parts if part is None]
    longest = max(map(len, re.findall("lake_(_*)", text.lower())), default=-1)
    prefix = f"lake_{'_' * (longest + 1)}"  # which no name of the statement begins with
    sources = tuple(_source(f"{prefix}{number}", table) for number, table in enumerate(uses))
    _rename(tree, list(zip(uses, sources, strict=True)))
    if most_rows is not None and not tree.args.get("limit"):
        tree.set("limit", exp.Limit(expression=exp.Literal.number(most_rows)))
    with_names = _rename_with_parts(tree, with_parts, prefix)
    sql = _writer(_DIALECT)(tree)
    checked = check_statement(sql, {source.name for source in sources} | set(with_names))
    return Statement(text, sql, sources, with_names), checked


def _parsed(text: str) -> "list[exp.Expr]":
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


def _writer(dialect: str, *, pretty: bool = False) -> "Callable[[exp.Expr], str]":
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
def _readable() -> Iterator[None]:
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


def _source(name: str, table: "exp.Table") -> Source:
    """A table as the statement names it."""
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
    return Source(
        name,
        (*above, own),
        view.lower(),
        None if version is None else _literal(version.expression),
        version is not None and version.name == "TIMESTAMP",
        tuple(map(_literal, arguments or ())),
        alias=_alias(table),
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
        raise _refused(f"the table function {re.sub(r'(?<=[a-z])(?=[A-Z])', ' ', type(this).__name__).upper()}")
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


def _with_needs(sources: Sequence[Source], statement: Mapping[str, Any]) -> tuple[Source, ...]:
    """The tables with the columns that the statement may need of each, and with what WHERE asks of it alone."""
    nodes = list(every_node(statement))
    values = (value for node in nodes for value in node.values())
    texts = (text for value in values for text in (value if isinstance(value, list) else [value]))
    names = frozenset(text.lower() for text in texts if isinstance(text, str))  # more than those of columns
    bare = (node["column_names"] for node in nodes if node.get("class") == "COLUMN_REF")
    rows = {folded(path[0]) for path in bare if len(path) == 1}  # a table's name is its row
    rows |= {folded(node["relation_name"]) for node in nodes if node.get("class") == "STAR"}
    is_natural = any(node.get("ref_type") == "NATURAL" for node in nodes)
    needed = {source.name: source for source in sources}
    for select in select_nodes(statement):
        own = list(own_nodes(select))
        is_whole = is_natural or any(node.get("class") in ("STAR", "POSITIONAL_REFERENCE") for node in own)
        asked = _conditions(select, own)
        for table in own:
            if table.get("type") == "BASE_TABLE" and (source := needed.get(table["table_name"])) is not None:
                is_row = folded(source.alias) in rows or bool(table["column_name_alias"])
                columns = None if is_whole or is_row else names
                conditions = () if source.view or table["column_name_alias"] else asked.get(id(table), ())
                needed[source.name] = replace(source, columns=columns, conditions=tuple(conditions[:MOST_CONDITIONS]))
    return tuple(needed.values())


def _conditions(
    select: Mapping[str, Any], own: Sequence[Mapping[str, Any]]
) -> Mapping[int, Sequence[Mapping[str, Any]]]:
    """Those parts of WHERE that columns of one table decide, by the id of the table's node. None where a join keeps
    rows that do not match, or matches by their order."""
    joins = [node for node in own if node.get("type") == "JOIN"]
    is_plain = all(j["join_type"] in _PRUNED_JOINS and j["ref_type"] in ("REGULAR", "CROSS") for j in joins)
    where = select.get("where_clause")
    if where is None or not is_plain:
        return {}
    by_name = defaultdict[str, list[Mapping[str, Any]]](list)
    for part in conjuncts(where):
        columns = [node["column_names"] for node in every_node(part) if node.get("class") == "COLUMN_REF"]
        tables = {folded(names[0]) if len(names) > 1 else "" for names in columns}
        if len(tables) == 1:
            by_name[tables.pop()].append(part)
    root = select["from_table"]
    if root["type"] == "BASE_TABLE":
        return {id(root): [*by_name[folded(root["alias"])], *by_name[""]]}
    return {id(table): by_name[folded(table["alias"])] for table in _filtered(root)}


def _filtered(table: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The tables of a FROM whose rows all have to pass WHERE."""
    if table["type"] == "BASE_TABLE":
        yield table
    elif table["type"] == "JOIN":
        yield from _filtered(table["left"])
        if table["join_type"] == "INNER":
            yield from _filtered(table["right"])


def _alias(table: "exp.Table") -> str:
    """By which columns name it: its own, or the end of its name as it is written."""
    return str(table.alias or _parts(table)[0][-1])


def _refused(what: str) -> QueryError:
    return QueryError(f"{what} is not allowed", hint=_ONE)


def _first_error(exc: Exception) -> str:
    errors = getattr(exc, "errors", None)
    if not errors:
        return str(exc).splitlines()[0][:200]
    what = re.sub(r"<class '[\w.]+\.(\w+)'>", r"\1", errors[0]["description"])
    return f"{what} (line {errors[0]['line']}, character {errors[0]['col']})"


# in another engine's SQL ----------------------------------------------------------------------------------------------
# An allow-list, as for what runs: a function is on it that sqlglot writes anew with the meaning that DuckDB gives it.
# What is not on it is refused: rows that differ silently are worse than none.

Engine = Literal["Spark", "Trino"]
_TRANSLATED = frozenset(
    """
    and or case if cast trycast coalesce nullif exists count countif sum avg min max stddev stddevpop stddevsamp
    variance variancepop covarpop covarsamp logicaland logicalor rownumber rank denserank percentrank cumedist ntile
    lag lead firstvalue lastvalue nthvalue abs ceil floor round sign sqrt cbrt ln exp pow sin cos tan asin acos atan
    atan2 degrees radians pi lower upper length concat concatws trim substring left right startswith reverse translate
    replace strposition levenshtein pad timestamptrunc datetrunc year quarter month day dayofyear weekofyear hour
    minute second lastday extract currentdate currenttimestamp isnan unhex
    """.split()  # noqa: SIM905 - 80 words, each in quotes, are read by nobody
)
_ALSO_TRANSLATED = {
    "Spark": frozenset(("median", "anyvalue", "contains", "endswith", "splitpart", "greatest", "least", "sha2"))
}
_PARTS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE")  # of a time, which all count alike


def translated(statement: Statement, engine: Engine, tables: Mapping[str, str]) -> str:
    """Its SQL for the engine; `tables`: what stands there for each source, by its name. Raises `QueryError` for what
    means something else there, or cannot be said at all."""
    from sqlglot import exp

    with _readable():
        (tree,) = _parsed(statement.sql)
        if (what := next(_unlike(tree, engine), "")) or (what := "${" if "${" in statement.sql else ""):
            message = f"{what} cannot be said in {engine}'s SQL as DuckDB means it"
            raise QueryError(message, hint="say it with other functions, or run it here")
        if engine == "Spark":
            tree = tree.transform(_with_null_for_null)
        sql = _writer(engine.lower(), pretty=True)(tree)
        # No other word of a statement begins as the names of its sources do.
        with_names = {
            name: exp.to_identifier(written).sql(dialect=engine.lower())
            for name, written in statement.with_names.items()
        }
    names = {**tables, **with_names}
    return re.sub(r"\blake_\w+", lambda name: names.get(name[0], name[0]), sql)


def _with_null_for_null(node: "exp.Expr") -> "exp.Expr":
    """Spark's `isnan` of null is false."""
    from sqlglot import exp

    nan = exp.cast(exp.Literal.string("NaN"), "double")
    return exp.paren(exp.EQ(this=node.this, expression=nan)) if isinstance(node, exp.IsNan) else node


def _unlike(tree: "exp.Expr", engine: Engine) -> Iterator[str]:
    """What of a statement the engine reads otherwise."""
    from sqlglot import exp

    functions, is_trino = _TRANSLATED | _ALSO_TRANSLATED.get(engine, frozenset()), engine == "Trino"
    odd = (exp.Columns, exp.Slice, exp.Comprehension, exp.Glob, exp.SimilarTo, exp.Collate)
    for node in tree.walk():
        args = node.args
        if isinstance(node, exp.Func) and node.key not in functions:
            yield f"the function {(node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()}"
        elif isinstance(node, odd):
            yield type(node).__name__.upper()
        elif isinstance(node, exp.Extract) and node.name.upper() not in _PARTS:
            yield f"extract({node.name} …)"
        elif isinstance(node, exp.Cast) and node.to.is_type(*exp.DataType.INTEGER_TYPES) and not _is_whole(node.this):
            yield "a cast to whole numbers (only of floor(…) or ceil(…), since each engine rounds its own way)"
        elif isinstance(node, exp.Like | exp.ILike) and "\\" in node.expression.sql():
            yield "LIKE with a backslash"
        elif isinstance(node, exp.Star) and any(args.get(k) for k in ("replace", "rename", "except_")[: 2 + is_trino]):
            yield "SELECT * with other columns"
        elif isinstance(node, exp.SetOperation) and args.get("by_name"):
            yield "BY NAME"
        elif isinstance(node, exp.Join) and (node.method == "ASOF" or (is_trino and node.kind in ("SEMI", "ANTI"))):
            yield f"{node.method or node.kind} JOIN"
        elif isinstance(node, exp.Group) and args.get("all") and is_trino:
            yield "GROUP BY ALL"
        elif isinstance(node, exp.Limit) and not node.expression.is_int:
            yield "LIMIT of anything but a number"


def _is_whole(node: "exp.Expr") -> bool:
    from sqlglot import exp

    return isinstance(node, exp.Floor | exp.Ceil | exp.Count) or node.is_int
