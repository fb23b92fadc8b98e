"""A filter as people write it (`amount > 10 AND status IN ('new', 'paid')`), read into typed tests on columns.

Rule: pure. What is not this grammar over the table's own columns is a `FilterError` that says where. Nothing of the
text is passed on: the predicate for a reader is written anew from typed values.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from backend.errors import FilterError
from backend.lake.model import SchemaField
from backend.lake.rows.literals import Literal, typed

MOST_CHARACTERS = 10_000
MOST_DEPTH = 50
COMPARISONS = ("=", "<", "<=", ">", ">=")
HINT = "for example: `amount >= 10 AND status IN ('new', 'paid') AND note IS NOT NULL`"


@dataclass(frozen=True, slots=True)
class Column:
    """A column or a field of a struct: `path` from the top, `type` Spark's simple string."""

    path: tuple[str, ...]
    type: str


@dataclass(frozen=True, slots=True)
class Test:
    """`operator` is one of `COMPARISONS`, "LIKE", "ILIKE", "IS NULL" or "IS NAN" (the last two without a value)."""

    column: Column
    operator: str
    value: "Literal | Column | None" = None


@dataclass(frozen=True, slots=True)
class Not:
    operand: "Node"


@dataclass(frozen=True, slots=True)
class All:
    operands: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class AnyOf:
    operands: "tuple[Node, ...]"


Node = Test | Not | All | AnyOf

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<binary>[xX]'(?:[0-9a-fA-F]{2})*')
  | (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
  | (?P<text>'(?:[^']|'')*')
  | (?P<name>"(?:[^"]|"")+"|`(?:[^`]|``)+`|[^\W\d]\w*)
  | (?P<sign><>|!=|<=|>=|==|=|<|>|\(|\)|,|\.)
    )""",
    re.VERBOSE,
)
WORDS = frozenset(
    ("AND", "OR", "NOT", "IN", "IS", "NULL", "NAN", "LIKE", "ILIKE", "BETWEEN", "TRUE", "FALSE", "DATE", "TIMESTAMP")
)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        """A keyword in capitals; "" for a quoted name, a value or a sign."""
        plain = self.kind == "name" and self.text[0] not in '"`'
        return self.text.upper() if plain and self.text.upper() in WORDS else ""


def parse_filter(text: str, fields: Sequence[SchemaField]) -> Node | None:
    """The filter over a table's columns, None for an empty text; raises `FilterError` that says where."""
    if not text.strip():
        return None
    if len(text) > MOST_CHARACTERS:
        raise FilterError(f"the filter is longer than {MOST_CHARACTERS:,} characters", hint="filter by a range instead")
    parser = _Parser(text, tuple(_tokens(text)), fields)
    node = parser.any_of(0)
    if parser.next.kind != "end":
        raise parser.wrong("expected AND, OR or the end", parser.next)
    return node


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            start = at + len(text[at:]) - len(text[at:].lstrip())
            what = "a text without its closing '" if text[start] == "'" else f"{text[start]!r} is not understood"
            raise FilterError(_said_at(what, text, start), hint=HINT)
        yield _Token(match.lastgroup, match.group(match.lastgroup), match.start(match.lastgroup))
        at = match.end()
    yield _Token("end", "", len(text))


def _said_at(what: str, text: str, at: int) -> str:
    near = text[at : at + 20].strip()
    where = f"at character {at + 1}, near `{near.replace('`', ' ')}`" if near else "at its end"
    return f"the filter is not understood {where}: {what}"


class _Parser:
    def __init__(self, text: str, tokens: tuple[_Token, ...], fields: Sequence[SchemaField]) -> None:
        self._text, self._tokens, self._at = text, tokens, 0
        self._types: dict[tuple[str, ...], str] = {(field.path,): field.type for field in fields if not field.depth}
        self._types |= {tuple(field.path.split(".")): field.type for field in fields if field.depth}

    @property
    def next(self) -> _Token:
        return self._tokens[self._at]

    def wrong(self, what: str, token: _Token, hint: str = HINT) -> FilterError:
        return FilterError(_said_at(what, self._text, token.at), hint=hint)

    def _take(self) -> _Token:
        token = self.next
        self._at += token.kind != "end"
        return token

    def _is(self, *words: str) -> bool:
        """Steps over these words or signs when they come next."""
        coming = self._tokens[self._at : self._at + len(words)]
        found = [token.word or (token.text if token.kind == "sign" else "") for token in coming]
        if found != list(words):
            return False
        self._at += len(words)
        return True

    def _need(self, sign: str) -> None:
        if not self._is(sign):
            raise self.wrong(f"expected {sign}", self.next)

    def any_of(self, depth: int) -> Node:
        operands = [self._all(depth)]
        while self._is("OR"):
            operands.append(self._all(depth))
        return operands[0] if len(operands) == 1 else AnyOf(tuple(operands))

    def _all(self, depth: int) -> Node:
        operands = [self._one(depth)]
        while self._is("AND"):
            operands.append(self._one(depth))
        return operands[0] if len(operands) == 1 else All(tuple(operands))

    def _one(self, depth: int) -> Node:
        if depth > MOST_DEPTH:
            raise self.wrong("nested too deep", self.next)
        if self._is("NOT"):
            return Not(self._one(depth + 1))
        if self._is("("):
            inside = self.any_of(depth + 1)
            self._need(")")
            return inside
        return self._test()

    def _test(self) -> Node:
        column = self._column()
        if self._is("IS"):
            return self._negated(lambda: self._is_state(column))
        if self.next.word in ("NOT", "IN", "LIKE", "ILIKE", "BETWEEN"):
            return self._negated(lambda: self._among(column))
        token = self.next
        if token.kind == "sign" and token.text in (*COMPARISONS, "<>", "!=", "=="):
            self._take()
            return self._compared(column, token.text)
        if column.type == "boolean":
            return Test(column, "=", True)
        raise self.wrong(f"expected a comparison after {'.'.join(column.path)}", token)

    def _negated(self, read: Callable[[], Node]) -> Node:
        negative = self._is("NOT")
        node = read()
        return Not(node) if negative else node

    def _is_state(self, column: Column) -> Node:
        if self._is("NULL"):
            return Test(column, "IS NULL")
        if self.next.word == "NAN" and column.type in ("float", "double"):
            self._take()
            return Test(column, "IS NAN")
        raise self.wrong("expected NULL, NOT NULL, or NAN for a float column", self.next)

    def _among(self, column: Column) -> Node:
        token = self._take()
        if token.word == "IN":
            self._need("(")
            values = [self._value(column)]
            while self._is(","):
                values.append(self._value(column))
            self._need(")")
            tests = tuple(Test(column, "=", value) for value in values)
            return tests[0] if len(tests) == 1 else AnyOf(tests)
        if token.word == "BETWEEN":
            low = self._value(column)
            if not self._is("AND"):
                raise self.wrong("expected AND and the upper end", self.next)
            return All((Test(column, ">=", low), Test(column, "<=", self._value(column))))
        if token.word in ("LIKE", "ILIKE") and column.type == "string":
            return Test(column, token.word, self._value(column))
        raise self.wrong(f"{token.word or token.text!r} does not fit a column of type {column.type}", token)

    def _compared(self, column: Column, sign: str) -> Node:
        token = self.next
        if token.kind == "name" and not token.word:
            other = self._column()
            if _family(other.type) != _family(column.type):
                raise self.wrong(f"{column.type} cannot be compared with {other.type}", token)
            value: Literal | Column = other
        else:
            value = self._value(column)
        if sign in ("<>", "!="):
            return Not(Test(column, "=", value))
        return Test(column, "=" if sign == "==" else sign, value)

    def _value(self, column: Column) -> Literal:
        if self.next.word in ("DATE", "TIMESTAMP"):
            self._take()
        token = self._take()
        if token.word == "NULL":
            raise self.wrong("nothing compares with NULL", token, hint=f"write {'.'.join(column.path)} IS NULL")
        kind = token.word.lower() if token.word in ("TRUE", "FALSE") else token.kind
        try:
            return typed(kind, token.text, column.type)
        except ValueError as exc:
            raise self.wrong(str(exc), token) from exc

    def _column(self) -> Column:
        token = self._take()
        if token.kind != "name" or token.word:
            raise self.wrong("expected the name of a column", token)
        path = [self._known(_unquoted(token.text), (), token)]
        while self._is("."):
            token = self._take()
            if token.kind != "name":
                raise self.wrong("expected the name of a field", token)
            path.append(self._known(_unquoted(token.text), tuple(path), token))
        return Column(tuple(path), self._types[tuple(path)])

    def _known(self, name: str, above: tuple[str, ...], token: _Token) -> str:
        """The table's own spelling of a name."""
        inside = not above or self._types[above].startswith("struct<")
        names = [path[-1] for path in self._types if inside and path[:-1] == above]
        same = [each for each in names if each.lower() == name.lower()]
        if name in names or len(same) == 1:
            return name if name in names else same[0]
        some = ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
        where = f"{'.'.join(above)} has no field" if above else "there is no column"
        raise self.wrong(f"{where} {name!r}", token, hint=f"there are: {some}" if names else HINT)


def _unquoted(name: str) -> str:
    if name[0] in '"`':
        return name[1:-1].replace(name[0] * 2, name[0])
    return name


def _family(kind: str) -> str:
    if kind.startswith("decimal") or kind in ("bigint", "int", "smallint", "tinyint", "float", "double"):
        return "number"
    return kind


# the predicate for a reader --------------------------------------------------------------------------------------


def predicate_sql(node: Node) -> str:
    """DataFusion's SQL of a filter, from quoted names and typed values alone."""
    if isinstance(node, Not):
        return f"NOT ({predicate_sql(node.operand)})"
    if isinstance(node, All | AnyOf):
        word = " AND " if isinstance(node, All) else " OR "
        return "(" + word.join(predicate_sql(operand) for operand in node.operands) + ")"
    name = _column_sql(node.column)
    if node.operator == "IS NULL":
        return f"{name} IS NULL"
    if node.operator == "IS NAN":
        return f"isnan({name})"
    assert node.value is not None
    value = _column_sql(node.value) if isinstance(node.value, Column) else value_sql(node.value, node.column.type)
    return f"{name} {node.operator} {value}"


def _column_sql(column: Column) -> str:
    head = '"' + column.path[0].replace('"', '""') + '"'
    return head + "".join(f"[{_text_sql(operand)}]" for operand in column.path[1:])


def value_sql(value: Literal, kind: str) -> str:
    """A value as a literal of its column's type."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime):
        zone = 'Some("UTC")' if value.tzinfo else "None"
        return f"arrow_cast('{value.isoformat()}', 'Timestamp(Microsecond, {zone})')"
    if isinstance(value, date):
        return f"CAST('{value.isoformat()}' AS DATE)"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS {'FLOAT' if kind == 'float' else 'DOUBLE'})"
    if isinstance(value, Decimal):
        scale = max(0, -int(value.as_tuple().exponent))
        return f"CAST('{value:f}' AS DECIMAL(38, {scale}))"
    return str(value) if isinstance(value, int) else _text_sql(value)


def _text_sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
