"""Columns as a person types them: what is read of them, and what is refused."""

import pytest

from backend.errors import QueryError
from backend.maintenance.column_types import may_widen, read_column, read_name, read_pair, read_type


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("discount decimal(10, 2)", ("discount", "decimal(10,2)", "")),
        ("`a ``b` LONG COMMENT 'it''s; new'", ("a `b", "bigint", "it's; new")),
        ('"a ""b" array<map<string, Integer>>', ('a "b', "array<map<string,int>>", "")),
        ("x string comment ''", ("x", "string", "")),
        ("x map<decimal(3,1),array<date>>", ("x", "map<decimal(3,1),array<date>>", "")),
    ],
)
def test_a_column_is_read(text: str, column: tuple[str, str, str]) -> None:
    assert read_column(text) == column


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "= int", "x int NOT NULL", "x int, y int", "x int) COMMENT 'a'", "x int COMMENT 'a' 'b'",
        "x decimal(39,2)", "x decimal(2,3)", "x decimal(0,0)", "x struct<a:int>", "x array<>", "x map<array<int>,int>",
        "x int; DROP TABLE t", "x " + "array<" * 60 + "int" + ">" * 60,
    ],
)  # fmt: skip
def test_what_is_no_column_is_refused(text: str) -> None:
    with pytest.raises(QueryError):
        read_column(text)


def test_a_pair_is_cut_behind_its_name() -> None:
    assert read_pair("`a=b` = c=d ", such_as="") == ("a=b", "c=d")
    assert read_name("amount >= 0", such_as="") == ("amount", ">= 0")
    for text in ("a", "a=", "a b=c", "=c"):
        with pytest.raises(QueryError):
            read_pair(text, such_as="")


def test_types_widen_alone() -> None:
    """The pairs of Delta's protocol; all pairs are asked of Spark in a test of its own."""
    assert (
        may_widen("int", "bigint")
        and may_widen("tinyint", "decimal(12,2)")
        and may_widen("decimal(5,2)", "decimal(7,3)")
    )
    assert not any(
        may_widen(before, read_type(after))
        for before, after in (("long", "int"), ("bigint", "double"), ("int", "decimal(9,0)"), ("int", "float"))
    )
    assert not may_widen("decimal(5,2)", "decimal(6,4)") and not may_widen("int", "int")
