"""JSON text as columns: of every type, what fits is the value and what does not is told; nothing in a text is lost."""

import json
from collections.abc import Sequence

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from pipelines.sources.json_text import FITS, TEXT, WHOLE, columns_of, documents, judged, reason
from pipelines.specs.tables import parse_schema

pytestmark = pytest.mark.spark
STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
WHY = "does not fit the schema: a"

# of each type: values that are of it, as text of the column; and JSON that is none of it
OF_TYPE: dict[str, tuple[dict[str, str], Sequence[str]]] = {
    "TINYINT": ({"127": "127", "-128": "-128"}, ("128", "200", "255", "-129", "1.0", '"1"', "true")),
    "SMALLINT": ({"-32768": "-32768"}, ("32768", '""')),
    "INT": ({"1": "1"}, ("2147483648", "1.5", "[]")),
    "BIGINT": ({"9223372036854775807": "9223372036854775807"}, ("9223372036854775808", "1e3")),
    "FLOAT": ({"1.5": "1.5", "1": "1.0"}, ("1e39", "-1e300", '"1.5"', '"Infinity"')),
    "DOUBLE": ({"1e308": "1.0E308"}, ("1e309", "-1e400", '"x"')),
    "DECIMAL(7,2)": ({"1.50": "1.50", '"12.5"': "12.50"}, ("123456", "1e400", '"x"')),
    "BOOLEAN": ({"true": "true"}, ('"true"', "1")),
    "DATE": ({'"2026-01-31"': "2026-01-31"}, ('"2026-02-30"', '"tomorrow"', "20000", '"20000"')),
    "TIMESTAMP": (
        {'"2026-01-01T00:00:00Z"': "2026-01-01 00:00:00", "1700000000": "2023-11-14 22:13:20"},
        ('"2026-02-30T00:00:00Z"', '"soon"', "1700000000000", "-1700000000000", "true"),
    ),
    "TIMESTAMP_NTZ": ({'"2026-01-01T00:00:00"': "2026-01-01 00:00:00"}, ('"2026-01-01T00:00:00Z"', "1700000000")),
    "BINARY": ({'"aGk="': "hi"}, ('"%%%"', "5")),
    "STRUCT<b: TINYINT, c: DOUBLE>": ({'{"b": 1}': "{1, null}"}, ('{"b": 200}', '{"c": 1e400}', "7", "[]", '""')),
    "ARRAY<INT>": ({"[1, null]": "[1, null]"}, ('[1, "x"]', "{}", "1")),
    "ARRAY<STRUCT<x: ARRAY<FLOAT>>>": ({'[{"x": [1]}, null]': "[{[1.0]}, null]"}, ('[{"x": [1, 1e300]}]',)),
    "MAP<STRING, TINYINT>": ({'{"x": 1}': "{x -> 1}"}, ('{"x": 300}', '{"x": "y"}', "[1]")),
}


def judge(spark: SparkSession, ddl: str, texts: Sequence[str]) -> dict[str, Row]:
    """By each text: whether it is whole and fits, why not, and its columns as text."""
    schema = parse_schema(spark, ddl)
    rows = judged(spark.createDataFrame([(text,) for text in texts], f"{TEXT} STRING"), schema, STRICT)
    columns = [column.cast("string").alias(name) for column, name in zip(columns_of(schema), schema.names, strict=True)]
    return {row[TEXT]: row for row in rows.select(TEXT, WHOLE, FITS, reason(schema).alias("why"), *columns).collect()}


@pytest.mark.parametrize("kind", OF_TYPE)
def test_a_value_is_of_its_type_or_a_misfit(spark: SparkSession, kind: str) -> None:
    right, wrong = OF_TYPE[kind]
    found = judge(spark, f"a {kind}", [f'{{"a": {value}}}' for value in (*right, *wrong, "null")])
    of = {text.removeprefix('{"a": ').removesuffix("}"): row for text, row in found.items()}
    assert all(row[WHOLE] for row in of.values())
    assert {value: (of[value].a, of[value][FITS]) for value in right} == {
        value: (text, True) for value, text in right.items()
    }
    assert {value: of[value][FITS] for value in wrong} == dict.fromkeys(wrong, False)
    assert {of[value].why for value in wrong} <= {WHY, "does not fit the schema"}
    assert (of["null"].a, of["null"][FITS]) == (None, True)
    if "STRUCT" not in kind:  # whose other fields stay
        assert {of[value].a for value in wrong} == {None}


def test_a_column_that_must_have_a_value_has_one_or_is_a_misfit(spark: SparkSession) -> None:
    found = judge(spark, "a INT NOT NULL, b INT", ['{"a": 1}', '{"b": 1}', '{"a": null}', "null"])
    assert {text: row[FITS] for text, row in found.items()} == {
        '{"a": 1}': True,
        '{"b": 1}': False,
        '{"a": null}': False,
        "null": True,
    }
    assert found['{"b": 1}'].why == found['{"a": null}'].why == WHY


def test_a_text_that_closes_what_it_is_wrapped_in_is_not_whole(spark: SparkSession) -> None:
    closes = [
        '{"a": 2}], "more": [{"a": 3}',
        '{"a": 2}],"end":1,"x":[',
        '{"a": 2}],"all":[{"a": 9}',
        '{"a": 2}],"end":1} {"all":[{"a": 3}',
        '{"a": 2}], "more": [{"a": NaN}',
        "null],[",
        '{"a": 2}]',
        '{"a": 2},{"a": 3}',
    ]
    found = judge(spark, "a BIGINT", [*closes, '{"a": 1, "l": [1, {"m": []}]}'])
    assert {text for text, row in found.items() if row[WHOLE]} == {'{"a": 1, "l": [1, {"m": []}]}'}
    assert {found[text].a for text in closes} == {None}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('{"a":1}{"a":2}\n {"a":3}', ['{"a":1}', '{"a":2}', '{"a":3}']),
        ('{"a":"}{"}', ['{"a":"}{"}']),
        ('{"a":"x\\"}{"}', ['{"a":"x\\"}{"}']),
        ('{"a":"}{"}{"b":1}', ['{"a":"}{"}{"b":1}']),  # not to be told apart: whole, and so rescued
        ("{'a':'}{}{'}", ["{'a':'}{}{'}"]),
        ('{"a":1}{"b":', ['{"a":1}', '{"b":']),
        ('[{"a":1}, {"b":[1,2]}, 3, null]', ['{"a":1}', '{"b":[1,2]}', "3", "null"]),
        ('\n[ {"a":0.12345678901234567890} ]', ['{"a":0.1234567890123456789}']),
        ('[{"a":1}][{"b":2}]', ['[{"a":1}][{"b":2}]']),
        ('[{"a":1}],"x":[{"b":1}]', ['[{"a":1}],"x":[{"b":1}]']),
        ('[{"a":1}', ['[{"a":1}']),
        ("[]", []),
        ("12", ["12"]),
    ],
)
def test_objects_in_one_text_are_told_apart_or_left_together(spark: SparkSession, text: str, parts: list[str]) -> None:
    (row,) = spark.createDataFrame([(text,)], "t STRING").select(documents(F.col("t")).alias("parts")).collect()
    assert [part.strip() for part in row.parts] == parts


def test_a_long_line_is_told_apart_without_a_deep_stack(spark: SparkSession) -> None:
    escapes = json.dumps('"\\' * 200_000)
    text = "".join(f'{{"id":{number},"t":{escapes}}}' for number in range(4))
    rows = spark.createDataFrame([(text,)], "t STRING").select(F.explode(documents(F.col("t"))).alias("part"))
    assert [json.loads(row.part)["id"] for row in rows.collect()] == [0, 1, 2, 3]
