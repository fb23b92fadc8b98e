"""A statement at the versions that were read as code for other tools.

Rule: pure, and light: commands load it. Code gives the rows that Weir gives, or says why there is none. No login of a
table's address and no storage option stands in it.
"""

from collections.abc import Mapping

from backend.errors import QueryError
from backend.query.plan import QueryPlan, TableRead
from backend.query.statement import translated
from backend.redaction import without_secrets
from backend.sql.values import backticked_name, trino_name

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
    if tool == "Spark":
        tables = {r.name: f"delta.{backticked_name(_uri(r))} VERSION AS OF {r.version}" for r in plan.reads}
        sql = _text(translated(plan.statement, "Spark", tables))
        return f'spark.conf.set("spark.sql.session.timeZone", "UTC")\nframe = spark.sql({sql})'
    tables = {read.name: f"{trino_name(read.table)} FOR VERSION AS OF {read.version}" for read in plan.reads}
    return f"-- catalog and schema as your Trino calls them\n{translated(plan.statement, 'Trino', tables)}"


def _duckdb(plan: QueryPlan) -> str:
    """Tables, not streams: a plan may read one twice."""
    tables = ""
    for read in plan.reads:
        table = f"DeltaTable({_uri(read)!r}, version={read.version})"
        tables += f"{read.name} = pa.table({table}.scan(columns={list(read.columns)!r}))\n"
    return (
        "import duckdb\nimport pyarrow as pa\nfrom deltalake import DeltaTable\n\n"
        f"duckdb.sql(\"SET TimeZone = 'UTC'\")\n{tables}result = duckdb.sql({_text(plan.statement.sql)})\n"
    )


def _uri(read: TableRead) -> str:
    assert read.ref is not None
    return without_secrets(read.ref.uri)


def _text(sql: str) -> str:
    return repr(sql) if "\\" in sql or '"""' in sql or sql.endswith('"') else f'"""{sql}"""'
