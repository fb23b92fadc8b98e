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


COLUMNS = {kind: f"a{number}" for number, kind in enumerate(OF_TYPE)}
SCHEMA = ", ".join(f"{name} {kind}" for kind, name in COLUMNS.items())


def judge(spark: SparkSession, ddl: str, texts: Sequence[str]) -> dict[str, Row]:
    """By each text: whether it is whole and fits, why not, and its columns as text."""
    schema = parse_schema(spark, ddl)
    rows = judged(spark.createDataFrame([(text,) for text in texts], f"{TEXT} STRING"), schema, STRICT)
    columns = [column.cast("string").alias(name) for column, name in zip(columns_of(schema), schema.names, strict=True)]
    return {row[TEXT]: row for row in rows.select(TEXT, WHOLE, FITS, reason(schema).alias("why"), *columns).collect()}


def test_a_value_is_of_its_type_or_a_misfit(spark: SparkSession) -> None:
    right = {(kind, value): text for kind, (values, _) in OF_TYPE.items() for value, text in values.items()}
    wrong = [(kind, value) for kind, (_, values) in OF_TYPE.items() for value in values]
    nulls = [(kind, "null") for kind in OF_TYPE]
    texts = {(kind, value): f'{{"{COLUMNS[kind]}": {value}}}' for kind, value in [*right, *wrong, *nulls]}
    found = judge(spark, SCHEMA, list(texts.values()))
    of = {case: found[text] for case, text in texts.items()}
    assert all(row[WHOLE] for row in of.values())
    assert {case: (of[case][COLUMNS[case[0]]], of[case][FITS]) for case in right} == {
        case: (text, True) for case, text in right.items()
    }
    assert [case for case in wrong if of[case][FITS]] == []
    for kind, value in wrong:
        named = f"does not fit the schema: {COLUMNS[kind]}"
        assert of[kind, value].why in (named, "does not fit the schema"), (kind, value)
        if "STRUCT" not in kind:  # whose other fields stay
            assert of[kind, value][COLUMNS[kind]] is None, (kind, value)
    assert {(of[case][COLUMNS[case[0]]], of[case][FITS]) for case in nulls} == {(None, True)}


def test_a_column_that_must_have_a_value_has_one_or_is_a_misfit(spark: SparkSession) -> None:
    found = judge(spark, "a INT NOT NULL, b INT", ['{"a": 1}', '{"b": 1}', '{"a": null}', "null"])
    assert [text for text, row in found.items() if not row[FITS]] == ['{"b": 1}', '{"a": null}']
    assert found['{"b": 1}'].why == found['{"a": null}'].why == "does not fit the schema: a"


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


DOCUMENTS = {
    '{"a":1}{"a":2}\n {"a":3}': ['{"a":1}', '{"a":2}', '{"a":3}'],
    '{"a":"}{"}': ['{"a":"}{"}'],
    '{"a":"x\\"}{"}': ['{"a":"x\\"}{"}'],
    '{"a":"}{"}{"b":1}': ['{"a":"}{"}{"b":1}'],  # not to be told apart: whole, and so rescued
    "{'a':'}{}{'}": ["{'a':'}{}{'}"],
    '{"a":1}{"b":': ['{"a":1}', '{"b":'],
    '[{"a":1}, {"b":[1,2]}, 3, null]': ['{"a":1}', '{"b":[1,2]}', "3", "null"],
    '\n[ {"a":0.12345678901234567890} ]': ['{"a":0.1234567890123456789}'],
    '[{"a":1}][{"b":2}]': ['[{"a":1}][{"b":2}]'],
    '[{"a":1}],"x":[{"b":1}]': ['[{"a":1}],"x":[{"b":1}]'],
    '[{"a":1}': ['[{"a":1}'],
    "[]": [],
    "12": ["12"],
}


def test_objects_in_one_text_are_told_apart_or_left_together(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(text,) for text in DOCUMENTS], "t STRING").select("t", documents(F.col("t")))
    assert {text: [part.strip() for part in parts] for text, parts in rows.collect()} == DOCUMENTS


def test_a_long_line_is_told_apart_without_a_deep_stack(spark: SparkSession) -> None:
    escapes = json.dumps('"\\' * 200_000)
    text = "".join(f'{{"id":{number},"t":{escapes}}}' for number in range(4))
    rows = spark.createDataFrame([(text,)], "t STRING").select(F.explode(documents(F.col("t"))).alias("part"))
    assert [json.loads(row.part)["id"] for row in rows.collect()] == [0, 1, 2, 3]
