"""Questions to `backend.changes` as tests ask them, what is wanted as keywords, and answers made by hand."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from backend.changes import answer
from backend.changes import plan as preparation
from backend.changes.changed_rows import ChangedBatches, Pairing, file_of
from backend.changes.compare import Read, net_changes
from backend.changes.explain import Findings
from backend.changes.model import (
    DiffMethod,
    FilesDiff,
    Limits,
    LogChanges,
    NetCounts,
    Question,
    RowChanges,
    VersionDiff,
)
from backend.changes.plan import PreparedDiff
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.lake.table.metadata_diff import SchemaDiff
from backend.settings import load_settings
from backend.sql.export import FORMATS
from backend.sql.session import CancelToken

NOWHERE = TableRef("/lake/t", "t", "/lake")
Asked = dict[str, Any]  # fields of a `Question`, and of a comparison its `limits` and who takes all rows


def asked(**options: Any) -> Asked:
    return options


def diff(
    lake: Any, ref: TableRef, first: int, last: int, *, token: CancelToken | None = None, **wanted: Any
) -> VersionDiff:
    means = {name: wanted.pop(name) for name in ("take", "limits") if name in wanted}
    return answer.diff(lake, Question(ref, first, last, **wanted), token, **means)


def lake_at(root: Path) -> Lake:
    """The lake of a folder, which looks for a new version at every question."""
    return Lake(load_settings(home=root / "home", lake={"roots": [str(root)], "refresh_s": 0.001}))


def compare(root: Path, first: int, last: int, **wanted: Any) -> VersionDiff:
    """A diff of the only table of a folder."""
    lake = lake_at(root)
    (ref,) = lake.tables()
    return diff(lake, ref, first, last, **wanted)


def prepare(
    lake: Any, ref: TableRef, first: int, last: int, *, limits: Limits = Limits(), **wanted: Any
) -> PreparedDiff:
    return preparation.prepare(lake, Question(ref, first, last, **wanted), limits=limits)


def compared(
    read: Read, columns: Sequence[str], wanted: Asked, token: CancelToken | None = None, **means: Any
) -> tuple[RowChanges, Findings]:
    """Rows that a test hands over; the `key` that is wanted is the one to pair them by."""
    means |= {name: wanted[name] for name in ("take", "limits") if name in wanted}
    question = Question(NOWHERE, 0, 1, **{"row_limit": 10_000} | {k: v for k, v in wanted.items() if k not in means})
    return net_changes(read, Pairing(tuple(columns), question.key or ()), question, token or CancelToken(), **means)


def differ(before: Sequence[Any], after: Sequence[Any], tolerance: float) -> bool:
    """Whether two rows with one key do, floats beyond the tolerance: a recount in plain Python."""
    return any(
        x != y and not (isinstance(x, float) and isinstance(y, float) and abs(x - y) <= tolerance)
        for x, y in zip(before, after, strict=True)
    )


class CountedReads(CancelToken):
    """Remembers how many rows each statement reads."""

    def __init__(self, time_limit_s: float | None = None) -> None:
        super().__init__(time_limit_s)
        self.read: list[int | None] = []

    def reading(self, rows: int | None) -> Any:
        self.read.append(rows)
        return super().reading(rows)


def in_a_file(lake: Any, ref: TableRef, pair: tuple[int, int], **wanted: Any) -> tuple[VersionDiff, list[Any]]:
    """An answer that holds three rows, and all changed rows as its JSON file has them."""
    pieces: list[bytes] = []

    def take(changed: ChangedBatches) -> None:
        pieces.extend(piece for _, piece in file_of(changed, FORMATS["json"]))

    answer = diff(lake, ref, *pair, row_limit=3, take=take, **({"limits": Limits(batch_rows=2)} | wanted))
    return answer, json.loads(b"".join(pieces))


# answers made by hand -------------------------------------------------------------------------------------------------


def answer_of(**fields: Any) -> VersionDiff:
    """By the change feed, of v0 and v1 of a table of which nothing else is known; `fields` as for `but`."""
    changes = RowChanges(NetCounts(0, 0, 0), pa.schema([]))
    log = LogChanges(SchemaDiff(), (), FilesDiff())
    return but(VersionDiff(Question(NOWHERE, 0, 1), DiffMethod.CHANGE_FEED, None, (), True, changes, (), log), **fields)


def but(diff: VersionDiff, **fields: Any) -> VersionDiff:
    """The answer with other fields, whichever of its parts they are of."""
    for part in ("changes", "log", "question"):
        value = getattr(diff, part)
        names = (value.__dataclass_fields__.keys() & fields.keys()) - diff.__dataclass_fields__.keys()
        if names:
            diff = replace(diff, **{part: replace(value, **{name: fields.pop(name) for name in names})})
    return replace(diff, **fields)
