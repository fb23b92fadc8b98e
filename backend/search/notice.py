"""What a commit did that none before it did: the value that is judged, kept and shown.

Rule: light, since the store and every command load it.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from backend.sql.values import plain_name

Key = tuple[str, int, str, str]


class Measure(StrEnum):
    """What jumped; from `COLUMN` on, what was never there before."""

    HIGHEST = "highest"
    LOWEST = "lowest"
    MEDIAN = "median"
    MOST = "highest hundredth"
    NULLS = "share of nulls"
    ROWS = "rows"
    REPEATS = "repeats"  # rows beyond the first of a key
    WHERE = "rows where"  # a condition that no row satisfied, or that none does any more
    WHOLE = "whole numbers"  # their share in a column of fractions
    DELETED = "deleted rows"  # by one commit
    UPDATED = "updated rows"
    COPIED = "rows that are there twice"
    EMPTY = "share of empty texts"
    PADDED = "share with spaces around"
    CAPITALS = "share in capitals"
    SMALL = "share in small letters"
    GARBLED = "share with garbled letters"
    FOREIGN = "share with accents or other signs"
    ZERO = "share of zeros"
    NEGATIVE = "share below zero"
    TRUE = "share of true"
    ONE_VALUE = "share of one value"
    DISTINCT = "share of distinct values"
    LENGTH = "length"
    VALUE = "share of rows with"
    SWAPPED = "swapped"
    LATER = "share of rows where"  # one time lies after another, or two numbers are equal
    ADDED = "added rows"  # by a writer that always adds about as many
    SPELLING = "spelling"
    COLUMN = "column"
    PROPERTY = "property"
    CONSTRAINT = "constraint"
    WRITER = "writer"
    CONDITION = "condition"  # of a MERGE, UPDATE or DELETE
    TWICE = "twice"  # a partition that its writer always wrote once
    SILENCE = "commits"  # that do not come any more


# What may well be meant.
FIRSTS = (Measure.COLUMN, Measure.PROPERTY, Measure.CONSTRAINT, Measure.WRITER, Measure.CONDITION, Measure.TWICE)


@dataclass(frozen=True, slots=True)
class Notice:
    """One step of one table, at `version`. `subject`: the column, property, operation or partition, empty for rows;
    `before` and `after` as people read them; `condition`: SQL that held before; `by`: "MERGE by stream silver_orders".

    `job`: the writer's, without its version; `rows`: how many the commit hurt (deleted, falsified, there twice), None
    where nobody counted them; `where`: SQL that the hurt rows satisfy, and they alone of the commit's, empty where they
    are all of them or cannot be told so; `repair`: what takes the step back, as in `SET` ("amount = amount / 100"),
    empty where that is not known. `mended_at`: the first later version at which half of the step or more was taken
    back. `seen_by`: who said that no one has to look any more, and why.
    """

    uri: str
    table: str
    version: int
    kind: Measure
    subject: str
    before: str
    after: str
    condition: str
    by: str
    committed_at: datetime | None
    mended_at: int | None = None
    seen_by: str = ""
    seen_reason: str = ""
    job: str = ""
    rows: int | None = None
    where: str = ""
    repair: str = ""

    @property
    def key(self) -> Key:
        return self.uri, self.version, self.kind, self.subject

    @property
    def is_open(self) -> bool:
        """Whether somebody has to look."""
        return self.mended_at is None and not self.seen_by


_HURT = {
    Measure.NULLS: "{c} IS NULL",
    Measure.EMPTY: "trim({c}) = ''",
    Measure.PADDED: "{c} <> trim({c}) AND trim({c}) <> ''",
    Measure.CAPITALS: "{c} = upper({c}) AND {c} <> lower({c})",
    Measure.SMALL: "{c} = lower({c}) AND {c} <> upper({c})",
    Measure.ZERO: "{c} = 0",
    Measure.NEGATIVE: "{c} < 0",
    Measure.WHOLE: "{c} = trunc({c})",
}


OWN_WHERE = (Measure.VALUE, Measure.ONE_VALUE, Measure.SPELLING, Measure.LATER)  # whose subject says which rows


def hurt_by(kind: Measure, column: str) -> str:
    """SQL that a row of such a share satisfies; empty where the kind is no condition."""
    return _HURT[kind].format(c=plain_name(column)) if kind in _HURT else ""


def notice_text(notice: Notice) -> str:
    """ "highest amount 498.2 → 47,189 at v31, MERGE by stream silver_orders"."""
    at = "since" if notice.kind is Measure.SILENCE else "at"
    where = f"{at} v{notice.version}, {notice.by}"
    if notice.kind is Measure.TWICE:
        return f"{notice.subject} {notice.after} {where}; {notice.before}"
    if notice.kind is Measure.CONDITION:
        return f"{notice.subject} on another condition than before: {notice.before} → {notice.after} {where}"
    of = " of " if notice.kind.startswith("share") and not notice.kind.endswith(("with", "where")) else " "
    what = f"{notice.kind}{of}{notice.subject}" if notice.subject else notice.kind
    own = notice.subject if notice.kind in OWN_WHERE else hurt_by(notice.kind, notice.subject)
    own = f"{plain_name(notice.subject)} > " if notice.kind is Measure.HIGHEST else own
    group = (notice.where.partition(own)[0] if own else notice.where).removesuffix(" AND ")
    rows = f" where {group}" if group else ""
    return f"{what} {notice.before} → {notice.after}{rows} {where}"
