"""Cell values are compared and printed without losing any of them."""

from datetime import UTC, datetime

from backend.sql.values import json_value, same


def test_values_leave_as_json_without_losing_digits() -> None:
    assert [json_value(float(text)) for text in ("nan", "inf", "-inf")] == ["NaN", "Infinity", "-Infinity"]
    assert json_value({"x": [float("inf"), None, 2**63 - 1]}) == {"x": ["Infinity", None, 2**63 - 1]}
    assert str(json_value(-0.0)) == "-0.0" and json_value(0.0) == 0.0
    assert json_value(datetime(2026, 1, 1, 2, tzinfo=UTC)) == "2026-01-01T02:00:00Z"
    assert json_value(b"\x00\xff") == "AP8="
    assert same({"x": [float("nan")]}, {"x": [float("nan")]})
    assert not same(None, 0.0)
