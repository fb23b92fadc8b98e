"""What a stream host is told to compare, as a JSON document, and what it tells of the result beside its rows.

Rule: plain values that both processes read alike; the same question about the same tables is the same text, so its
hash names the job that answers it.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from backend.diff.model import DiffMethod
from backend.errors import DiffError

FORMAT = 2  # grows when a former host or page would misread the document
SUMMARY, COMMON = "summary", "common"  # besides these, `what` is a bucket of rows: insert, update, delete …


@dataclass(frozen=True, slots=True)
class StateWanted:
    """One side: a version of the table of that id."""

    uri: str
    version: int
    table_id: str


@dataclass(frozen=True, slots=True)
class DiffWork:
    """Two states and how to compare them. `methods` can answer, best first; with `is_chosen` only that one may.
    `own_schemas`: each side is read with its own schema, else both with the newer one's. `key` may be (); one that was
    given goes before the row tracking's ids."""

    first: StateWanted
    second: StateWanted
    columns: tuple[str, ...]
    key: tuple[str, ...]
    is_key_given: bool
    methods: tuple[DiffMethod, ...]
    is_chosen: bool
    own_schemas: bool
    row_limit: int
    tolerance: float
    size_bytes: int  # of the data files to read
    num_rows: tuple[int | None, int | None]  # of both states, None where statistics do not say
    where: str | None = None  # SQL over one row, in DuckDB's dialect: only changes with such a row, before or after

    @property
    def is_one_table(self) -> bool:
        return self.first.uri == self.second.uri

    @property
    def is_reverse(self) -> bool:
        return self.is_one_table and self.first.version > self.second.version

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(to_json(self).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SoFar:
    """How much of a comparison the counts speak of: rows of both states, and about how many keys differ in all (rows,
    without a key), None where that cannot be told."""

    rows_read: int
    rows_total: int
    differing: int | None


@dataclass(frozen=True, slots=True)
class DiffSummary:
    """The counts of a comparison. `columns` names c0, c1 … of its rows; `failed` are better methods that were
    tried; `gross` is (commit version, change type, rows) where the method tells it."""

    method: DiffMethod
    columns: tuple[str, ...]
    key: tuple[str, ...]
    net: tuple[int | None, int | None, int | None]
    apart: tuple[int, int, int, int, int]
    changed_cells: Mapping[str, int]
    truncated: bool
    failed: Mapping[DiffMethod, str] = field(default_factory=dict)
    gross: tuple[tuple[int, str, int], ...] | None = None
    by: str = ""  # who computed it
    so_far: SoFar | None = None  # None: all was compared


def to_json(value: DiffWork | DiffSummary) -> str:
    return orjson.dumps(
        {"format": FORMAT, **asdict(value)}, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
    ).decode()


def work_of(text: str) -> DiffWork:
    """Raises `DiffError` for a document of another Weir."""
    body = _body(text)
    sides = {name: StateWanted(**body[name]) for name in ("first", "second")}
    lists = {name: tuple(body[name]) for name in ("columns", "key", "num_rows")}
    return DiffWork(**{**body, **sides, **lists, "methods": tuple(map(DiffMethod, body["methods"]))})


def summary_of(text: str) -> DiffSummary:
    """Raises `DiffError` for a document of another Weir."""
    body = _body(text)
    lists = {name: tuple(body[name]) for name in ("columns", "key", "net", "apart")}
    failed = {DiffMethod(name): reason for name, reason in body["failed"].items()}
    gross = None if body["gross"] is None else tuple((v, t, n) for v, t, n in body["gross"])
    so_far = SoFar(**body["so_far"]) if body["so_far"] else None
    whole = {"method": DiffMethod(body["method"]), "failed": failed, "gross": gross, "so_far": so_far}
    return DiffSummary(**{**body, **lists, **whole})


def _body(text: str) -> dict[str, Any]:
    body = orjson.loads(text)
    if body.pop("format", None) != FORMAT:
        raise DiffError("this comparison was asked for or made by another version of Weir", hint="compare again")
    return dict(body)
