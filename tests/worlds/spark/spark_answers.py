"""What Spark itself says of tables, in plain Python values: the other side of every comparison with our reader.

Random tables among them: every type with the ends of what it holds, odd names, column mapping, deletion vectors,
moments as INT96 and by the calendar before 1582.
Rule: nothing here calls Weir. Values are compared as whole numbers, texts and floats, never as Python's days: `Values`
of Spark's rows and of Arrow's are made side by side.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import DataFrame, Row, SparkSession

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class SparkFile:
    path: str
    size_bytes: int
    partition: str
    dv: Mapping[str, Any] | None
    stats: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SparkAnswers:
    """`rows` counts the data, per combination of partition values as text; `checksums` are the `.crc` files."""

    detail: Row
    history: tuple[Row, ...]
    properties: Mapping[str, str]
    files: tuple[SparkFile, ...]
    rows: tuple[int, ...]
    schema_json: str
    checksums: Mapping[int, Mapping[str, Any]]


def ask(spark: SparkSession, folder: Path) -> SparkAnswers:
    session = spark.newSession()
    # Else a count is answered from the log's statistics, which is what is to be checked.
    session.conf.set("spark.databricks.delta.optimizeMetadataQuery.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", "1")
    table = f"delta.`{folder}`"
    detail = session.sql(f"DESCRIBE DETAIL {table}").collect()[0]
    state = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTableWithSnapshot(
        session._jsparkSession, str(folder)
    )._2()
    schema_json = state.metadata().schemaString()
    checksums = {int(p.stem): json.loads(p.read_bytes()) for p in folder.glob("_delta_log/[0-9]*.crc")}
    adds = checksums.get(state.version(), {}).get("allFiles")
    if adds is None:
        adds = [json.loads(add) for add in DataFrame(state.allFiles().toDF(), session).toJSON().collect()]
    return SparkAnswers(
        detail=detail,
        history=tuple(session.sql(f"DESCRIBE HISTORY {table}").collect()),
        properties={row.key: row.value for row in session.sql(f"SHOW TBLPROPERTIES {table}").collect()},
        files=tuple(_files(adds, detail.partitionColumns, schema_json)),
        rows=_rows(session.read.format("delta").load(str(folder)), detail.partitionColumns),
        schema_json=schema_json,
        checksums=checksums,
    )


def _files(adds: Sequence[Mapping[str, Any]], columns: list[str], schema_json: str) -> Iterator[SparkFile]:
    physical = {
        field["name"]: field["metadata"].get("delta.columnMapping.physicalName", field["name"])
        for field in json.loads(schema_json)["fields"]
    }
    for add in adds:
        values = add.get("partitionValues", {})
        yield SparkFile(
            path=add["path"],
            size_bytes=add["size"],
            partition="/".join(f"{c}={_shown(values.get(physical[c]))}" for c in columns),
            dv=add.get("deletionVector"),
            stats=json.loads(add.get("stats") or "{}"),
        )


def _shown(value: str | None) -> str:
    return value.replace("%", "%25").replace("/", "%2F") if value else HIVE_NULL


def _rows(data: DataFrame, columns: list[str]) -> tuple[int, ...]:
    """Rows per partition, in no order; a timestamp is asked for as text, which has no zone to lose."""
    keys = [data[f"`{name}`"].cast("string") for name in columns]
    counts = Counter(str(row) for row in data.select(*keys).collect()) if keys else {"": data.count()}
    return tuple(sorted(count for count in counts.values() if count))


Values = dict[int, tuple[Any, ...]]  # rows by their id, as values of the other columns

_DAYS = (0, -1, 19_723, 2_932_896, 2_932_897, 100_000_000, -141_427, -141_428, -171_594, -719_162, -719_163, -735_525)
_MOMENTS = (
    0, -1, 1_717_243_200_123_456, 253_402_300_799_999_999, 253_402_300_800_000_000, 9_000_000_000_000_000_000,
    -2_208_988_800_000_001, -2_208_988_799_999_999, -12_219_292_800_000_000, -12_219_292_800_000_001,
    -62_135_596_800_000_000, -62_167_219_200_000_001, 9_223_372_037_000_000, -9_223_372_037_000_000,
)  # fmt: skip
_DOUBLES = ("double('NaN')", "double('Infinity')", "double('-Infinity')", "-0.0D", "0.0D", "0.1D", "-2.5D",
            "1.7976931348623157E308D", "4.9E-324D")  # fmt: skip
_TEXTS = ("''", "'a'", "'null'", "'a b/c=%20'", "repeat('x', 70)", "repeat('é', 33)", "'it''s \"so\"'", "'日本 🎉'")


def _whole(bits: int, name: str) -> tuple[str, ...]:
    return tuple(f"CAST({n} AS {name})" for n in ("0", "1", "-1", f"{2 ** (bits - 1) - 1}", f"-{2 ** (bits - 1)}"))


FLAT: Mapping[str, Sequence[str]] = {
    "BOOLEAN": ("true", "false"),
    "TINYINT": _whole(8, "TINYINT"),
    "SMALLINT": _whole(16, "SMALLINT"),
    "INT": _whole(32, "INT"),
    "BIGINT": _whole(64, "DECIMAL(20,0)"),
    "FLOAT": tuple(text.replace("double", "float").replace("D", "F") for text in _DOUBLES[:7]),
    "DOUBLE": _DOUBLES,
    "DECIMAL(5,2)": ("0BD", "999.99BD", "-999.99BD", "0.01BD"),
    "DECIMAL(38,10)": (
        "0BD",
        "9999999999999999999999999999.9999999999BD",
        "-1234567890123456789012345678.0000000001BD",
    ),
    "STRING": _TEXTS,
    "BINARY": ("X''", "X'00FF'", "X'61'"),
    "DATE": tuple(f"date_from_unix_date({n})" for n in _DAYS),
    "TIMESTAMP": tuple(f"timestamp_micros({n})" for n in _MOMENTS),
    "TIMESTAMP_NTZ": tuple(f"CAST(timestamp_micros({n}) AS TIMESTAMP_NTZ)" for n in _MOMENTS),
}
_UNREADABLE = ("(100000000)", "(9000000000000000000)")  # beyond year 262,143 no partition value is read by deltalake
_PARTITIONS = tuple(kind for kind in FLAT if kind != "BINARY")
_NAMES = ("a.b", "Amount", "rows", "at", "t", "é", "select", "filename", "file_row_number", "c0", "n", "sign")
_MAPPED_NAMES = (*_NAMES, "a b", "x,y", "k=v", "(p)", "{q};")
_KINDS = tuple(FLAT)
Write = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RandomTable:
    """`columns` are names and types beside `id`; `conf` are Spark's settings of the session that writes."""

    seed: int
    columns: Mapping[str, str]
    partition: str | None
    properties: Mapping[str, str]
    conf: Mapping[str, str]
    statements: Sequence[str] = field(repr=False)

    @property
    def is_old(self) -> bool:
        """Whether Spark counts by the calendar before 1582."""
        return "LEGACY" in self.conf.values()


def random_table(seed: int, folder: Path) -> RandomTable:
    draw = Random(seed)
    mapping = draw.choice(("none", "none", "name", "id"))
    names = draw.sample(_NAMES if mapping == "none" else _MAPPED_NAMES, draw.randint(2, 5))
    columns = {name: draw.choice((*_KINDS, "DATE", "TIMESTAMP", "TIMESTAMP", "nested")) for name in names}
    columns = {name: _nested(draw) if kind == "nested" else kind for name, kind in columns.items()}
    flat = [name for name, kind in columns.items() if kind in _PARTITIONS]
    partition = draw.choice(flat) if flat and len(columns) > len(flat[:1]) and draw.random() < 0.4 else None
    properties = {
        "delta.columnMapping.mode": mapping,
        "delta.enableDeletionVectors": draw.choice(("true", "false")),
        "delta.enableChangeDataFeed": draw.choice(("true", "false")),
        "delta.checkpointInterval": draw.choice(("2", "10")),
        "delta.checkpoint.writeStatsAsJson": draw.choice(("true", "false")),
        "delta.checkpoint.writeStatsAsStruct": "true",
    }
    rebase = draw.choice(("CORRECTED", "CORRECTED", "LEGACY"))
    conf = {
        "spark.sql.session.timeZone": "UTC" if rebase == "CORRECTED" else draw.choice(("UTC", "UTC", "Europe/Paris")),
        "spark.sql.parquet.outputTimestampType": draw.choice(("INT96", "INT96", "TIMESTAMP_MICROS")),
        "spark.sql.parquet.int96RebaseModeInWrite": rebase,
        "spark.sql.parquet.datetimeRebaseModeInWrite": rebase,
    }
    statements = _statements(draw, f"delta.`{folder}`", columns, partition, properties)
    return RandomTable(seed, columns, partition, properties, conf, statements)


def _nested(draw: Random) -> str:
    inner = draw.choice(_KINDS)
    return draw.choice((f"ARRAY<{inner}>", f"STRUCT<x: {inner}, `y.z`: ARRAY<{inner}>>", f"MAP<STRING, {inner}>"))


def _statements(
    draw: Random, table: str, columns: Mapping[str, str], partition: str | None, properties: Mapping[str, str]
) -> list[str]:
    described = ", ".join(["id BIGINT", *(f"{quoted(name)} {kind}" for name, kind in columns.items())])
    by = f"PARTITIONED BY ({quoted(partition)})" if partition else ""
    texts = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    made = [f"CREATE TABLE {table} ({described}) USING delta {by} TBLPROPERTIES ({texts})"]
    for first in (0, 20):
        rows = ", ".join(f"({_row(draw, first + n, columns, partition)})" for n in range(draw.randint(1, 12)))
        made.append(f"INSERT INTO {table} VALUES {rows}")
    name = draw.choice(list(columns))
    fresh = _value(draw, columns[name], is_partition=name == partition)
    changes = [
        f"DELETE FROM {table} WHERE id % 3 = {draw.randint(0, 2)}",
        f"UPDATE {table} SET {quoted(name)} = {fresh} WHERE id % 2 = {draw.randint(0, 1)}",
        f"OPTIMIZE {table}",
        f"INSERT INTO {table} VALUES ({_row(draw, 40, columns, partition)})",
    ]
    return [*made, *draw.sample(changes, draw.randint(1, 3))]


def _row(draw: Random, number: int, columns: Mapping[str, str], partition: str | None) -> str:
    values = (_value(draw, kind, is_partition=name == partition) for name, kind in columns.items())
    return ", ".join([str(number), *values])


def _value(draw: Random, kind: str, *, is_partition: bool = False) -> str:
    if draw.random() < 0.15:
        return f"CAST(NULL AS {kind})"
    if kind in FLAT:
        texts = [text for text in FLAT[kind] if not (is_partition and any(far in text for far in _UNREADABLE))]
        return f"CAST({draw.choice(texts)} AS {kind})"
    inner = kind.partition("<")[2].removesuffix(">")
    if kind.startswith("ARRAY"):
        return f"CAST(array({', '.join(_value(draw, inner) for _ in range(draw.randint(0, 2)))}) AS {kind})"
    if kind.startswith("MAP"):
        inner = inner.removeprefix("STRING, ")
        pairs = ", ".join(f"'{key}', {_value(draw, inner)}" for key in "ab"[: draw.randint(0, 2)])
        return f"CAST(map({pairs}) AS {kind})"
    inner = inner.removeprefix("x: ").partition(", `y.z`")[0]
    return f"CAST(named_struct('x', {_value(draw, inner)}, 'y.z', array({_value(draw, inner)})) AS {kind})"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def write(spark: SparkSession, table: RandomTable) -> None:
    session = _session(spark)
    for key, value in table.conf.items():
        session.conf.set(key, value)
    for statement in table.statements:
        session.sql(statement)


def _session(spark: SparkSession) -> SparkSession:
    """By UTC's clock; of a few rows nothing is compiled."""
    session = spark.newSession()
    for key, value in {
        "session.timeZone": "UTC",
        "codegen.wholeStage": "false",
        "codegen.factoryMode": "NO_CODEGEN",
    }.items():
        session.conf.set(f"spark.sql.{key}", value)
    return session


# what Spark reads ----------------------------------------------------------------------------------------------------


def spark_rows(spark: SparkSession, folder: Path, version: int, columns: Mapping[str, str]) -> Values:
    """The rows of a version, days and moments as whole numbers."""
    session = _session(spark)
    names = ", ".join(
        f"{_plain(quoted(name), kind)} AS v{number}" for number, (name, kind) in enumerate(columns.items())
    )
    rows = session.sql(f"SELECT id, {names} FROM delta.`{folder}` VERSION AS OF {version}").collect()
    return {row.id: tuple(_of_spark(value) for value in row[1:]) for row in rows}


def spark_ends(
    spark: SparkSession, folder: Path, version: int, columns: Mapping[str, str]
) -> dict[str, tuple[Any, Any]]:
    """The lowest and highest value of each column that has an order."""
    session = _session(spark)
    asked = {name: kind for name, kind in columns.items() if kind in FLAT and kind != "BINARY"}
    ends = [_plain(f"{end}({quoted(name)})", kind) for name, kind in asked.items() for end in ("min", "max")]
    if not ends:
        return {}
    named = ", ".join(f"{end} AS e{number}" for number, end in enumerate(ends))
    (row,) = session.sql(f"SELECT {named} FROM delta.`{folder}` VERSION AS OF {version}").collect()
    values = [_of_spark(value) for value in row]
    return dict(zip(asked, zip(values[::2], values[1::2], strict=True), strict=True))


def _plain(expression: str, kind: str) -> str:
    """An expression whose days and moments are whole numbers."""
    if kind == "DATE":
        return f"unix_date({expression})"
    if kind.startswith("TIMESTAMP"):
        return f"unix_micros(CAST({expression} AS TIMESTAMP))"
    inner = kind.partition("<")[2].removesuffix(">")
    if kind.startswith("ARRAY"):
        return f"transform({expression}, each -> {_plain('each', inner)})"
    if kind.startswith("MAP"):
        value = _plain("each.value", inner.removeprefix("STRING, "))
        return f"transform(map_entries({expression}), each -> named_struct('k', each.key, 'v', {value}))"
    if kind.startswith("STRUCT"):
        inner = inner.removeprefix("x: ").partition(", `y.z`")[0]
        x, y = _plain(f"{expression}.x", inner), _plain(f"{expression}.`y.z`", f"ARRAY<{inner}>")
        return f"CASE WHEN {expression} IS NOT NULL THEN named_struct('x', {x}, 'y', {y}) END"
    return expression


def _of_spark(value: Any) -> Any:
    if isinstance(value, Row | tuple | list):
        return tuple(_of_spark(item) for item in value)
    return _scalar(value)


def _scalar(value: Any) -> Any:
    """Floats as texts: NaN is equal to itself, and −0.0 is not 0.0."""
    if isinstance(value, float):
        return repr(value)
    return bytes(value) if isinstance(value, bytearray) else value


# what Arrow holds ----------------------------------------------------------------------------------------------------


def arrow_rows(table: pa.Table, columns: Mapping[str, str]) -> Values:
    values = [[of_arrow(item) for item in table[name]] for name in columns]
    return dict(zip(table["id"].to_pylist(), zip(*values, strict=True), strict=True))


def of_arrow(value: pa.Scalar) -> Any:
    """An Arrow value as `spark_rows` has it."""
    kind = value.type
    if not value.is_valid:
        return None
    if pt.is_date(kind) or pt.is_timestamp(kind):
        assert not pt.is_timestamp(kind) or kind.unit == "us"
        return value.value
    if pt.is_struct(kind):
        return tuple(of_arrow(value[number]) for number in range(kind.num_fields))
    if pt.is_map(kind) or pt.is_list(kind):
        return tuple(of_arrow(item) for item in value.values)
    return _scalar(value.as_py())


Differing = Callable[[Any], Any]


def without_zero_signs(rows: Values) -> Values:
    """As a comparison has them: −0.0 is 0.0."""
    return {key: _zeros(row) for key, row in rows.items()}


def _zeros(value: Any) -> Any:
    return tuple(map(_zeros, value)) if isinstance(value, tuple) else "0.0" if value == "-0.0" else value
