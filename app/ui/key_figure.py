"""A figure with its meaning, as a bordered metric shows it.

Rule: pure; an unknown value is "–" and `help` says why.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """`note` stands under the value, `help` says what it is or why it is missing."""

    label: str
    value: str
    help: str
    note: str = ""
