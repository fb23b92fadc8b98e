"""Statements that people keep, how their rows are drawn, and dashboards of them: files beside `weir.toml`, each with
its tiles.

Why files: a dashboard is reviewed and deployed as code is. Rule: one that is wrong says so and hides no other. Light:
the store keeps saved statements, commands load this; it runs none.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from backend.errors import QueryError, SettingsError
from backend.format import cut
from backend.redaction import without_secrets

LONGEST_NAME = 60
MOST_TEXT = 2_000  # of a statement, in the audit trail
WIDEST = 3  # columns of a dashboard's grid
_HINT = "docs/query.md shows a dashboard's file"
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


# dashboards -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tile:
    """A statement that is drawn. `board`: the dashboard whose file holds it, "" for a saved query."""

    title: Annotated[str, Field(min_length=1, max_length=120)]
    sql: str
    chart: Chart
    width: Annotated[int, Field(ge=1, le=WIDEST)] = 1
    board: str = ""

    @property
    def name(self) -> str:
        """By which a link names it: a saved query's has no slash."""
        return f"{self.board}/{self.title}" if self.board else self.title


class Dashboard(BaseModel):
    """What a file says; `name` is the file's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    tile: tuple[Tile, ...]


def read_dashboards(folders: Sequence[Path]) -> tuple[list[Dashboard], list[SettingsError]]:
    """By name, the first folder's where several have one; and what cannot be read."""
    files: dict[str, Path] = {}
    for folder in folders:
        for file in folder.expanduser().glob("*.toml"):
            files.setdefault(file.stem, file)
    dashboards, problems = list[Dashboard](), list[SettingsError]()
    for name, file in sorted(files.items()):
        try:
            read = Dashboard.model_validate({"title": name, **tomllib.loads(file.read_text("utf-8")), "name": name})
            made = read.model_copy(update={"tile": tuple(replace(tile, board=name) for tile in read.tile)})
            if len(tiles([made], ())) < len(made.tile):
                raise ValueError("two tiles have one title")
            dashboards.append(made)
        except ValidationError as exc:
            wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors(include_input=False))
            problems.append(SettingsError(f"the dashboard {file} is wrong: {wrong}", hint=_HINT))
        except (OSError, ValueError) as exc:
            problems.append(SettingsError(f"the dashboard {file} cannot be read: {exc}", hint=_HINT))
    return dashboards, problems


def tiles(dashboards: Iterable[Dashboard], saved: Iterable[SavedQuery]) -> dict[str, Tile]:
    """All that can be shown, by name: of files, and saved queries with a chart."""
    drawn = (Tile(query.name, query.text, query.chart) for query in saved if query.chart is not None)
    return {tile.name: tile for tile in (*(tile for board in dashboards for tile in board.tile), *drawn)}


def toml_text(title: str, shown: Iterable[Tile]) -> str:
    """A dashboard's file with these tiles."""
    parts = [f"title = {_quoted(title)}\n"]
    for tile in shown:
        columns = {"kind": tile.chart.kind, "x": tile.chart.x, "y": tile.chart.y, "colour": tile.chart.colour}
        chart = ", ".join(f"{key} = {_quoted(text)}" for key, text in columns.items() if text)
        lines = [f"title = {_quoted(tile.title)}", f"width = {tile.width}", f"chart = {{ {chart} }}"]
        parts.append("\n".join(["[[tile]]", *lines, f"sql = {_quoted(tile.sql)}\n"]))
    return "\n".join(parts)


def _quoted(text: str) -> str:
    """A text as TOML has it: over several lines as it is, where nothing in it ends that."""
    if "\n" in text and not re.search(r"'''|[\x00-\x08\x0b-\x1f\x7f]|'$", text):
        return f"'''\n{text}'''"
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
