"""The answer to what changed between two versions: values that page, terminal, exports and stream hosts read alike.

Rule: net (state to state) and gross (per commit) are apart and named; a number that cannot be known is None, and
`reasons` say how everything else is known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa

from backend.jobs.documents import DiffMethod as DiffMethod  # asked of stream hosts too: it lies below
from backend.jobs.documents import Question as Question
from backend.lake.model import Commit
from backend.lake.table.metadata_diff import PropertyChange, SchemaDiff
from backend.sql.session import DIFF_BYTES

ROW_ID = "_row_id"  # the ids as a column of the rows compared


class KeySource(StrEnum):
    """Where a key comes from, strongest first."""

    GIVEN = "given"
    PROPERTY = "weir.primaryKey"
    MERGE = "merge predicate"
    REMEMBERED = "the last comparison"
    ROW_TRACKING = "row tracking"  # the rows' own ids: no key is known


class RowKind(StrEnum):
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


class SetApart(StrEnum):
    """Why a changed row could not be paired by its key."""

    DUPLICATE_KEY = "duplicate key"
    NULL_KEY = "null key"


@dataclass(frozen=True, slots=True)
class KeyChoice:
    """The columns that name a row across versions, and who says so."""

    columns: tuple[str, ...]
    source: KeySource


@dataclass(frozen=True, slots=True)
class NetCounts:
    """Rows that differ between the two states. `inserted - deleted` is always the change of the row count.

    Without a key `updated` may be None: an updated row is then one of `deleted` (before) and one of `inserted` (after).
    """

    inserted: int | None
    updated: int | None
    deleted: int | None

    @property
    def total(self) -> int | None:
        """Changed rows; None when nothing is known."""
        if self.inserted is None or self.deleted is None:
            return None
        return self.inserted + self.deleted + (self.updated or 0)


@dataclass(frozen=True, slots=True)
class CommitChanges:
    """What one commit in between did (gross): counted in the change feed, or as its writer reports it. None where
    neither says."""

    commit: Commit
    inserted: int | None
    updated: int | None
    deleted: int | None
    is_reported: bool = False

    @classmethod
    def reported(cls, commit: Commit) -> "CommitChanges":
        """As its writer reports it."""
        found = commit.metrics
        counts = [found.rows_inserted, found.rows_updated, found.rows_deleted]
        name = (commit.operation or "").upper()
        mode = str(commit.parameters.get("mode") or commit.parameters.get("outputMode") or "").lower()
        only = {"UPDATE": 1, "DELETE": 2}.get(name)  # all that the operation can do to rows
        if name in ("WRITE", "STREAMING UPDATE") and mode == "append":
            only = 0
        if only is not None and counts[only] is not None:  # what such an operation cannot do, its writers leave out
            counts = [0 if count is None else count for count in counts]
        inserted, updated, deleted = counts
        return cls(commit, inserted, updated, deleted, is_reported=True)


@dataclass(frozen=True, slots=True)
class ApartCounts:
    """Net rows whose key is null or occurs more than once. They are part of `NetCounts`, as inserted and deleted."""

    duplicate_keys: int = 0
    duplicate_inserted: int = 0
    duplicate_deleted: int = 0
    null_inserted: int = 0
    null_deleted: int = 0

    @property
    def rows(self) -> int:
        return self.duplicate_inserted + self.duplicate_deleted + self.null_inserted + self.null_deleted


@dataclass(frozen=True, slots=True)
class RowChange:
    """One changed row, before and after side by side; `before` is None for an insert, `after` for a delete.

    `changed` names the columns whose values differ (updates only). `copies` counts identical rows that changed alike.
    """

    kind: RowKind
    key: Mapping[str, Any] | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    changed: tuple[str, ...] = ()
    set_apart: SetApart | None = None
    copies: int = 1


@dataclass(frozen=True, slots=True)
class CommonChange:
    """A change of one column that several updates share."""

    column: str
    before: Any
    after: Any
    updates: int


class Effect(StrEnum):
    """What was done to a column in rows that were updated."""

    REPLACED = "replaced"  # one value by another one
    EMPTIED = "emptied"  # a value by null
    FILLED = "filled"  # null by a value
    SET = "set"  # any value by one
    MULTIPLIED = "multiplied"
    SHIFTED = "shifted"
    SWAPPED = "swapped"  # with another column
    COPIED = "copied"  # from what another column held before
    UPPER = "upper case"
    LOWER = "lower case"
    TRIMMED = "trimmed"


@dataclass(frozen=True, slots=True)
class Alteration:
    """What was done to one column in `rows` of the `changed` updates that touch it, of all `updates`. `before` and
    `after` are the one value each where there is one; `by` is the factor, or what was added (seconds, days of a
    date); `other` the column that it was swapped with or copied from."""

    column: str
    effect: Effect
    rows: int
    changed: int
    updates: int
    before: Any = None
    after: Any = None
    by: float | int | None = None
    is_rounded: bool = False
    unit: str = ""
    other: str = ""


@dataclass(frozen=True, slots=True)
class Trait:
    """One of `values` (null among them as None), or between `bounds`: so many of the changed `rows` have it, and so
    many of the table's (`others`)."""

    column: str
    rows: int
    others: int
    values: tuple[Any, ...] = ()
    bounds: tuple[Any, Any] | None = None


@dataclass(frozen=True, slots=True)
class Common:
    """What rows changed in one way have in common: of `of` such rows `rows` have every trait, and of the table's rows
    `others`. Values are those before the change; of inserted rows, their own. `done`: only rows to which this was done
    are meant, some of the updated ones."""

    kind: RowKind
    of: int
    rows: int
    others: int
    traits: tuple[Trait, ...]
    done: Alteration | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """The rows that a DELETE or UPDATE of several conditions took or changed: of `of` rows so many satisfy each of the
    `branches` of its OR (SQL), and `overlap` more than one."""

    operation: str
    of: int
    branches: tuple[tuple[str, int], ...]
    overlap: int


@dataclass(frozen=True, slots=True)
class Premises:
    """What is known of changed rows before they are looked at, so that it is no finding: columns that the question's
    filter names, and those by which the only `operation` (DELETE, UPDATE) in between chose its rows; its `predicate` as
    DuckDB reads it, empty where rows of it may be filtered out. `joins`: columns that may name rows of a table to look
    in."""

    filtered: frozenset[str] = frozenset()
    chosen: frozenset[str] = frozenset()
    operation: str = ""
    predicate: str = ""
    joins: tuple[str, ...] = ()

    def columns(self, kind: RowKind) -> frozenset[str]:
        """Those of which rows changed in this way say nothing: a condition is on rows as they were."""
        return self.filtered if kind is RowKind.INSERT else self.filtered | self.chosen


@dataclass(frozen=True, slots=True)
class Population:
    """The rows that changed ones are held against: those of a version, or of the files that only it has."""

    version: int
    rows: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class LookIn:
    """What changed rows share in another `table` (its columns as table.column): of `of` such rows `found` name one row
    there `by` a column. `population`: the rows of the first state that name one. `reason`: why it was not looked."""

    table: str
    version: int
    by: str = ""
    of: int = 0
    found: int = 0
    common: tuple[Common, ...] = ()
    population: Population | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Repeats:
    """Of the `of` inserted rows, `rows` have a `key` that the first state (`version`) holds already (without a key: are
    there already, but for columns that another load of them has for itself), and `copies` of them equal such a row in
    every column; None where that is not known. `differs`: how many of the rows no such row equals in which column.
    `keys` are in more than one row of the second state: `listed` are the first of them, each with how many rows.
    `written_by`: the commits whose files hold the rows of the first state; empty where not known."""

    version: int
    of: int
    rows: int | None = None
    copies: int | None = None
    keys: int | None = None
    key: tuple[str, ...] = ()
    listed: tuple[tuple[Mapping[str, Any], int], ...] = ()
    written_by: tuple[Commit, ...] = ()
    differs: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_by_chance(self) -> bool:
        """Whether rows without a key may only look alike: a few of them do in any table."""
        return not self.key and 2 * (self.rows or 0) < self.of


@dataclass(frozen=True, slots=True)
class Explanation:
    """What stands out among the rows that changed; empty where nothing does. Every count is exact."""

    done: tuple[Alteration, ...] = ()
    common: tuple[Common, ...] = ()
    population: Population | None = None
    repeats: Repeats | None = None
    hit: Hit | None = None
    look_in: LookIn | None = None

    @property
    def trait_columns(self) -> set[str]:
        """Those of what the rows have in common."""
        return {trait.column for common in self.common for trait in common.traits}


@dataclass(frozen=True, slots=True)
class FilesDiff:
    """Data files of one state and not of the other, by (path, deletion vector).

    `rows_*` are live rows by statistics, None where a file's do not say it; `vectors_*` are files with a deletion
    vector.
    """

    added: int = 0
    removed: int = 0
    bytes_added: int = 0
    bytes_removed: int = 0
    new_deletion_vectors: int = 0  # of the added: same path, other deletion vector
    rows_added: int | None = 0
    rows_removed: int | None = 0
    vectors_added: int = 0
    vectors_removed: int = 0

    @property
    def more_rows(self) -> int | None:
        """How many rows the second state has more; < 0: fewer."""
        return None if self.rows_added is None or self.rows_removed is None else self.rows_added - self.rows_removed


@dataclass(frozen=True, slots=True)
class Limits:
    """How much memory a comparison takes.

    DuckDB spills to disk beyond `memory_bytes`. A table of more than `many_columns` is read by deltalake and by one
    thread, as each batch holds whole rows. Up to `sorted_rows` changed rows are written out in the order of their key,
    in batches of `batch_rows`. To explain changed rows, at most `values_beside` values are read beside them.
    """

    memory_bytes: int = DIFF_BYTES
    many_columns: int = 500
    sorted_rows: int = 1_000_000
    batch_rows: int = 16_384
    values_beside: int = 50_000_000


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Rows that differ: `net` counts all of them, `rows` are the first ones, `truncated` where there are more.

    `changed_cells` counts, per column, the updates that touch it; `common` are the changes of a column that most
    updates share. `arrow_schema` types the values in `rows`.
    """

    net: NetCounts
    arrow_schema: pa.Schema
    apart: ApartCounts = ApartCounts()
    rows: tuple[RowChange, ...] = ()
    truncated: bool = False
    changed_cells: Mapping[str, int] = field(default_factory=dict)
    common: tuple[CommonChange, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The compared columns, in the table's order."""
        return tuple(self.arrow_schema.names)

    def agree_with(self, num_rows: tuple[int | None, int | None]) -> bool:
        """Whether the row counts of both states, where the log has them, are apart by the rows that came and went."""
        before, after = num_rows
        if before is None or after is None or self.net.inserted is None or self.net.deleted is None:
            return True
        return after - before == self.net.inserted - self.net.deleted


@dataclass(frozen=True, slots=True)
class LogChanges:
    """What differs by the log alone.

    `rewritten`: by version, how many files a commit replaced without changing a row, as its writer says; None where
    that is not known. `first_covered_version` is the oldest version from which the change feed answers up to the end of
    the range; None: unknown or none.
    """

    schema: SchemaDiff
    properties: tuple[PropertyChange, ...]
    files: FilesDiff
    rewritten: Mapping[int, int] | None = None
    first_covered_version: int | None = None


@dataclass(frozen=True, slots=True)
class VersionDiff:
    """The answer to a question: rows that differ (net), what each commit in between did (gross), and what the log
    alone tells.

    `reasons` say how it is known, and why not better; `hint` what would help where rows cannot be compared. `exact`:
    every changed row is counted, and as what it is. `num_rows` are the rows of both states by statistics: None where
    those do not say it, and until rows are compared, as they take the statistics of every file.
    """

    question: Question
    method: DiffMethod
    key: KeyChoice | None
    reasons: tuple[str, ...]
    exact: bool
    changes: RowChanges
    commits: tuple[CommitChanges, ...]
    log: LogChanges
    num_rows: tuple[int | None, int | None] = (None, None)
    hint: str = ""
    explanation: Explanation = Explanation()

    @property
    def is_changed(self) -> bool | None:
        """Whether anything that people mean by a change differs: rows, schema, properties; None when rows are unknown
        and nothing else differs. Other files alone are none: a compaction changes nothing."""
        log, changes = self.log, self.changes
        if changes.net.total or not log.schema.is_empty or log.properties:
            return True
        if changes.net.total is None and (log.files.added or log.files.removed):
            return None
        return False

    @property
    def unchanged(self) -> int | None:
        """Rows of the second state that the first has too."""
        rows, net = self.num_rows[1], self.changes.net
        if rows is None or net.inserted is None or net.updated is None:
            return None
        return rows - net.inserted - net.updated if self.changes.agree_with(self.num_rows) else None

    @property
    def is_available(self) -> bool:
        """Whether rows were compared."""
        return self.method is not DiffMethod.LOG_ONLY

    @property
    def is_reverse(self) -> bool:
        """Whether this is what going back to an older version would change, by undoing `commits`."""
        return self.question.against is None and self.question.from_version > self.question.to_version
