"""Statements that people keep by a name, and how their rows are drawn.

Rule: pure, and light: the store keeps them, commands load it.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from backend.errors import QueryError
from backend.format import cut
from backend.redaction import without_secrets

LONGEST_NAME = 60
MOST_TEXT = 2_000  # of a statement, in the audit trail
Kind = Literal["Line", "Bar", "Area", "Scatter", "Figure"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Chart:
    """Columns of a statement as a chart: along the bottom, as height, and to tell lines apart; `y` alone of a "Figure",
    which is the first row's value. Raises `ValueError` where one is missing."""

    kind: Kind
    x: str = ""
    y: str = ""
    colour: str | None = None

    def __post_init__(self) -> None:
        if not self.y or not (self.x or self.kind == "Figure"):
            raise ValueError(f"a {self.kind} needs {'y' if self.x or self.kind == 'Figure' else 'x and y'}")


@dataclass(frozen=True, slots=True)
class SavedQuery:
    """A statement by its name, for everybody; one with a chart can be a tile of a dashboard."""

    name: str
    owner: str
    text: str
    chart: Chart | None
    saved_at: datetime


def audit_text(sql: str) -> str:
    """A statement as the audit trail keeps it: on one line, without secrets."""
    return cut(without_secrets(" ".join(sql.split())), MOST_TEXT)


def require_name(name: str) -> str:
    """The name without spaces around it; raises `QueryError` for one that a link or a line cannot hold."""
    name = name.strip()
    if not name or len(name) > LONGEST_NAME or not name.isprintable() or "/" in name:
        raise QueryError(
            "a saved query needs a name", hint=f"one line of at most {LONGEST_NAME} characters, without a slash"
        )
    return name
