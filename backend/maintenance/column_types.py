"""Columns as a person types them, and which types a table may widen to.

Rule: pure; a type is Spark's simple string, or refused. Nothing of what was typed reaches SQL but a type of this list.
Source: Delta protocol, "Type Widening".
"""

import re

from backend.errors import QueryError

_PLAIN = frozenset((
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp",
    "timestamp_ntz",
))  # fmt: skip
_ALSO = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
_DECIMAL = re.compile(r"decimal\((\d{1,2})(?:,(\d{1,2}))?\)")
_ARRAY = re.compile(r"array<(.+)>")
_MAP = re.compile(r"map<(decimal\(\d+(?:,\d+)?\)|\w+),(.+)>")
_LONGEST = 200  # characters: a type within types is read by recursion
_WIDER = {
    "tinyint": ("smallint", "int", "bigint", "double"),
    "smallint": ("int", "bigint", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
_DIGITS = {"tinyint": 10, "smallint": 10, "int": 10, "bigint": 20}  # that a decimal needs in front of the point
_NAME = re.compile(r'\s*(?:`(?P<ticked>(?:[^`]|``)+)`|"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>[^\s=`"]+))\s*')
_COMMENT = re.compile(r"(?P<type>.*?)\s+COMMENT\s+'(?P<comment>(?:[^']|'')*)'", re.IGNORECASE | re.DOTALL)
_KNOWN = f"one of {', '.join(sorted(_PLAIN))}, decimal(10,2), array<int> or map<string,int>"


def read_name(text: str, *, such_as: str) -> tuple[str, str]:
    """The name that the text begins with, in backticks or double quotes where it is no plain word, and what follows;
    raises `QueryError`."""
    match = _NAME.match(text)
    if match is None:
        raise QueryError(f"{text!r} begins with no name", hint=f"such as {such_as}; an odd name goes into `backticks`")
    name = (match["ticked"] or "").replace("``", "`") or (match["quoted"] or "").replace('""', '"') or match["plain"]
    return name, text[match.end() :]


def read_whole_name(text: str, *, such_as: str) -> str:
    """A name that is all of the text; raises `QueryError`."""
    name, rest = read_name(text, such_as=such_as)
    if rest:
        raise QueryError(f"{text!r} is no name", hint=f"such as {such_as}; an odd name goes into `backticks`")
    return name


def read_pair(text: str, *, such_as: str) -> tuple[str, str]:
    """A name and what stands behind its equals sign; raises `QueryError`."""
    name, rest = read_name(text, such_as=such_as)
    if not rest.startswith("=") or not rest[1:].strip():
        raise QueryError(f"{text!r} says no value for {name!r}", hint=f"such as {such_as}")
    return name, rest[1:].strip()


def read_column(text: str) -> tuple[str, str, str]:
    """ "discount decimal(10,2) COMMENT 'of the order'" as name, type and comment; raises `QueryError`."""
    name, rest = read_name(text, such_as="discount decimal(10,2)")
    match = _COMMENT.fullmatch(rest.strip())
    kind, comment = (match["type"], match["comment"].replace("''", "'")) if match else (rest, "")
    return name, read_type(kind), comment


def read_type(text: str) -> str:
    """A type as Spark's simple string; raises `QueryError` for one that is not offered here."""
    kind = re.sub(r"\s+", "", text.lower())
    read = _read_type(kind) if len(kind) <= _LONGEST else None
    if read is None:
        raise QueryError(f"{text.strip()!r} is no type that can be given here", hint=_KNOWN)
    return read


def _read_type(kind: str) -> str | None:
    kind = _ALSO.get(kind, kind)
    if kind in _PLAIN:
        return kind
    if digits := _digits(kind):
        return "decimal({},{})".format(*digits)
    if match := _ARRAY.fullmatch(kind):
        inner = _read_type(match[1])
        return inner and f"array<{inner}>"
    if match := _MAP.fullmatch(kind):
        key, value = map(_read_type, match.groups())
        return f"map<{key},{value}>" if key and value else None
    return None


def _digits(kind: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal."""
    match = _DECIMAL.fullmatch(kind)
    if match is None:
        return None
    precision, scale = int(match[1]), int(match[2] or 0)
    return (precision, scale) if 0 <= scale <= precision <= 38 and precision else None


def may_widen(before: str, after: str) -> bool:
    """Whether values of one type are read as the other without being written anew."""
    wider, now = _digits(after), _digits(before)
    if wider is None:
        return after in _WIDER.get(before, ())
    front = wider[0] - wider[1]
    if now is not None:
        return before != after and wider[1] >= now[1] and front >= now[0] - now[1]
    return before in _DIGITS and front >= _DIGITS[before]
