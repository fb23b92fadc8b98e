"""The visual language: a glyph an operation, and contrast."""

import pytest

from app.ui.view import theme


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


@pytest.mark.parametrize(("state", "word"), [("CATCHING UP", "Catching up"), ("OK", "OK"), ("warning", "Warning")])
def test_a_state_is_one_word_on_every_page(state: str, word: str) -> None:
    assert theme.state_word(state) == word
