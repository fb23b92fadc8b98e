"""Values of a filter and of partitions, in the type of their column.

Rule: pure; a value that its column cannot hold or be compared with exactly is a `ValueError` in a person's words.
"""

import re
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation

Literal = str | int | float | bool | bytes | Decimal | date | datetime

INTEGERS = {"bigint": 63, "int": 31, "smallint": 15, "tinyint": 7}
MOST_DIGITS = 38
_MOMENT = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?))?\s*(Z|UTC|[+-]\d{2}:?\d{2})?")


def typed(kind: str, text: str, column_type: str) -> Literal:
    """A token of a filter (`kind` number, text, binary, true, false) as a value of a column's type."""
    if kind == "number":
        return _number(text, column_type)
    if kind in ("true", "false"):
        if column_type != "boolean":
            raise ValueError(f"TRUE and FALSE do not fit a column of type {column_type}")
        return kind == "true"
    if kind == "binary":
        if column_type != "binary":
            raise ValueError(f"X'…' does not fit a column of type {column_type}")
        return bytes.fromhex(text[2:-1])
    if kind == "text":
        return _text(text[1:-1].replace("''", "'"), column_type)
    raise ValueError("expected a number, a text in single quotes, TRUE or FALSE")


def from_log(text: str, column_type: str) -> Literal | None:
    """A partition value as the log writes it; None where this type is not compared here."""
    try:
        if column_type == "boolean":
            return {"true": True, "false": False}.get(text.lower())
        if column_type in INTEGERS or column_type.startswith("decimal"):
            return _number(text, column_type)
        return _text(text, column_type) if column_type in ("string", "date", "timestamp", "timestamp_ntz") else None
    except ValueError:
        return None


def _number(text: str, column_type: str) -> Literal:
    if column_type in ("double", "float"):
        return float(text)
    if column_type not in INTEGERS and not column_type.startswith("decimal"):
        raise ValueError(f"a number does not fit a column of type {column_type}: put it in single quotes")
    try:
        value = Decimal(text)
    except InvalidOperation as exc:
        raise ValueError(f"{text} is no number") from exc
    digits, exponent = value.as_tuple().digits, int(value.as_tuple().exponent)
    if len(digits) + max(0, exponent) > MOST_DIGITS or -exponent > MOST_DIGITS:
        raise ValueError(f"{text} has more than {MOST_DIGITS} digits")
    if column_type in INTEGERS and value == int(value):
        bits = INTEGERS[column_type]
        if not -(2**bits) <= value < 2**bits:
            raise ValueError(f"{text} is beyond what a column of type {column_type} can hold")
        return int(value)
    return value


def _text(text: str, column_type: str) -> Literal:
    if column_type == "string":
        return text
    if column_type == "date":
        try:
            return date.fromisoformat(text)
        except ValueError as exc:
            raise ValueError(f"{text!r} is no date: write '2026-01-31'") from exc
    if column_type in ("timestamp", "timestamp_ntz"):
        return _moment(text, zoned=column_type == "timestamp")
    if column_type in ("double", "float") or column_type in INTEGERS or column_type.startswith("decimal"):
        try:
            return _number(text.strip(), column_type)
        except ValueError as exc:
            raise ValueError(f"{text!r} is no number that fits {column_type}") from exc
    raise ValueError(f"a text does not fit a column of type {column_type}")


def _moment(text: str, *, zoned: bool) -> datetime:
    match = _MOMENT.fullmatch(text.strip())
    example = "'2026-01-31 10:04:31' (UTC) or '2026-01-31T10:04:31+01:00'" if zoned else "'2026-01-31 10:04:31'"
    if match is None:
        raise ValueError(f"{text!r} is no time: write {example}")
    day, clock, zone = match.groups()
    if zone and not zoned:
        raise ValueError(f"the column holds times without a zone: write {example}")
    try:
        moment = datetime.fromisoformat(
            f"{day}T{clock or '00:00:00'}{'+00:00' if zone in ('Z', 'UTC') else zone or ''}"
        )
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC) if zoned else moment
    except (ValueError, OverflowError) as exc:
        raise ValueError(f"{text!r} is no time: write {example}") from exc
