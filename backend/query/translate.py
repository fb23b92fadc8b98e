"""A checked statement as another engine's SQL, where it means the same there.

Rule: an allow-list, as for what runs: a function is on it that sqlglot writes anew with the meaning that DuckDB gives
it. What is not on it is refused: rows that differ silently are worse than none.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from backend.errors import QueryError
from backend.query.statement import Statement, parsed, readable, writer

if TYPE_CHECKING:  # sqlglot takes 0.2 s to load
    from sqlglot import exp

Engine = Literal["Spark", "Trino"]
_FUNCTIONS = frozenset(
    """
    and or case if cast trycast coalesce nullif exists count countif sum avg min max stddev stddevpop stddevsamp
    variance variancepop covarpop covarsamp logicaland logicalor rownumber rank denserank percentrank cumedist ntile
    lag lead firstvalue lastvalue nthvalue abs ceil floor round sign sqrt cbrt ln exp pow sin cos tan asin acos atan
    atan2 degrees radians pi lower upper length concat concatws trim substring left right startswith reverse translate
    replace strposition levenshtein pad timestamptrunc datetrunc year quarter month day dayofyear weekofyear hour
    minute second lastday extract currentdate currenttimestamp
    """.split()  # noqa: SIM905 - 80 words, each in quotes, are read by nobody
)
_MORE = {"Spark": frozenset(("median", "anyvalue", "contains", "endswith", "splitpart", "greatest", "least", "sha2"))}
_PARTS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE")  # of a time, which all count alike


def translated(statement: Statement, engine: Engine, tables: Mapping[str, str]) -> str:
    """Its SQL for the engine; `tables`: what stands there for each source, by its name. Raises `QueryError` for what
    means something else there, or cannot be said at all."""
    from sqlglot import exp

    with readable():
        (tree,) = parsed(statement.sql)
        if (what := next(_unlike(tree, engine), "")) or (what := "${" if "${" in statement.sql else ""):
            message = f"{what} cannot be said in {engine}'s SQL as DuckDB means it"
            raise QueryError(message, hint="say it with other functions, or run it here")
        sql = writer(engine.lower(), pretty=True)(tree)
        # No other word of a statement begins as the names of its sources do.
        with_names = {
            name: exp.to_identifier(written).sql(dialect=engine.lower())
            for name, written in statement.with_names.items()
        }
    names = {**tables, **with_names}
    return re.sub(r"\blake_\w+", lambda name: names.get(name[0], name[0]), sql)


def _unlike(tree: "exp.Expr", engine: Engine) -> Iterator[str]:
    """What of a statement the engine reads otherwise."""
    from sqlglot import exp

    functions, is_trino = _FUNCTIONS | _MORE.get(engine, frozenset()), engine == "Trino"
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
