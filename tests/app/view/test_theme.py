"""The visual language: a glyph an operation, contrast, and axes with whole ticks."""

from datetime import UTC, datetime, timedelta

import pytest

from app.ui.view import axes, theme


@pytest.mark.parametrize(
    ("operation", "family"),
    [
        ("STREAMING UPDATE", "write"),
        ("UPDATE", "update"),
        ("CREATE TABLE AS SELECT", "write"),
        ("CREATE TABLE", "schema"),
        ("SET TBLPROPERTIES", "schema"),
        ("VACUUM END", "vacuum"),
        ("UNKNOWN", "other"),
        (None, "other"),
    ],
)
def test_an_operation_keeps_its_glyph(operation: str | None, family: str) -> None:
    assert theme.operation_family(operation) == family
    assert theme.operation_style(operation).glyph == theme.operation_style(operation, "dark").glyph


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_words_and_marks_can_be_seen(mode: theme.Mode) -> None:
    surface = theme.SURFACES[mode]
    assert _contrast(surface.text, surface.background) >= 4.5
    assert _contrast(surface.muted, surface.background) >= 4.5
    for colour in theme.LAYER_TEXT[mode].values():
        assert _contrast(colour, surface.background) >= 4.5 and _contrast(colour, surface.panel) >= 4.5
    for state in ("RUNNING", "IDLE", "BACKOFF", "FAILED", "STOPPED"):
        assert _contrast(theme.state_style(state, mode).colour, surface.background) >= 3
    for operation in ("WRITE", "MERGE", "UPDATE", "DELETE", "OPTIMIZE", "VACUUM END", "RESTORE", "SET X", None):
        assert _contrast(theme.operation_style(operation, mode).colour, surface.background) >= 3


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(("values", "ends"), [([], 1.08), ([None, 0], 1.08), ([1, 0], 1.08), ([5, None], 5.4)])
def test_a_few_things_are_counted_one_by_one(values: list[int | None], ends: float) -> None:
    found = axes.count_axis(values)
    assert found["dtick"] == 1 and found["range"] == [0, pytest.approx(ends)]


def test_axes_begin_at_zero_versions_are_whole_and_small_values_have_no_milli() -> None:
    assert axes.count_axis([6, 2_000]) == {"tickformat": "~s", "exponentformat": "SI", "rangemode": "tozero"}
    assert axes.value_axis([0.003, None]) == {"exponentformat": "none"}
    assert axes.value_axis([0.5, -1_000])["tickformat"] == "~s"
    assert axes.version_axis(0, 0)["dtick"] == 1 and axes.version_axis(0, 0)["range"] == [-0.5, 0.5]
    assert "dtick" not in axes.version_axis(3, 300)
    assert axes.time_range([NOON]) == [NOON - timedelta(seconds=30), NOON + timedelta(seconds=30)]
    assert axes.time_range([NOON, NOON + timedelta(seconds=2)]) is None and axes.time_range([]) is None
