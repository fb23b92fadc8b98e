"""What a query read, in words, for page and terminal alike; and its statement as code for other tools.

Rule: pure, and light: commands load it. Code gives the rows that Weir gives, or says why there is none. No login of a
table's address and no storage option stands in it.
"""

import shlex
from collections.abc import Mapping

from backend.errors import QueryError
from backend.format import bytes_text, things
from backend.lake.model import TableRef
from backend.lake.table.schema import CASELESS
from backend.query.plan import QueryPlan
from backend.query.statement import Engine, Statement, translated
from backend.redaction import without_secrets
from backend.sql.values import backticked_name, trino_name


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


# as code --------------------------------------------------------------------------------------------------------------


# With the language of the code.
TOOLS: Mapping[str, str] = {"pandas": "python", "Arrow": "python", "Spark": "python", "Trino": "sql"}


def code(plan: QueryPlan, tool: str) -> str:
    """`plan`: of every row. Raises `QueryError` where the tool cannot give the same rows."""
    for read in plan.reads:
        if read.snapshot is None:
            hint = "open its query here: Weir reads it of the table's log, or of its own store"
            raise QueryError(f"{tool} has no {read.table} with these rows", hint=hint)
    if tool == "pandas":
        return f"{_duckdb(plan)}frame = result.df()"
    if tool == "Arrow":
        return f"{_duckdb(plan)}rows = result.to_arrow_table()"
    tables = {read.name: (read.ref, read.version) for read in plan.reads if read.ref and read.version is not None}
    return sql_code(plan.statement, "Spark" if tool == "Spark" else "Trino", tables)


def sql_code(statement: Statement, engine: Engine, tables: Mapping[str, tuple[TableRef, int]]) -> str:
    """The same in the engine's SQL, over tables at their versions, by what the statement calls them."""
    if engine == "Spark":
        names = {
            name: f"delta.{backticked_name(without_secrets(ref.uri))} VERSION AS OF {version}"
            for name, (ref, version) in tables.items()
        }
        sql = _text(translated(statement, engine, names))
        return f'spark.conf.set("spark.sql.session.timeZone", "UTC")\nframe = spark.sql({sql})'
    names = {name: f"{trino_name(ref.name)} FOR VERSION AS OF {version}" for name, (ref, version) in tables.items()}
    return f"-- catalog and schema as your Trino calls them\n{translated(statement, engine, names)}"


def _duckdb(plan: QueryPlan) -> str:
    """Tables, not streams: a plan may read one twice."""
    tables = ""
    for read in plan.reads:
        assert read.ref is not None
        table = f"DeltaTable({without_secrets(read.ref.uri)!r}, version={read.version})"
        tables += f"{read.name} = pa.table({table}.scan(columns={list(read.columns)!r}))\n"
    return (
        "import duckdb\nimport pyarrow as pa\nfrom deltalake import DeltaTable\n\n"
        f"duckdb.sql(\"SET TimeZone = 'UTC'\")\n{tables}result = duckdb.sql({_text(plan.statement.sql)})\n"
    )


def _text(sql: str) -> str:
    return repr(sql) if "\\" in sql or '"""' in sql or sql.endswith('"') else f'"""{sql}"""'
