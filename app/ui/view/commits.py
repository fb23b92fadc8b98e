"""Who wrote a commit and what it changed of a table, in the same words everywhere: "delta.appendOnly false → true".

Rule: pure, and free of pandas, which the terminal does without. A batch that the commit does not name is left out; a
sign or a word says whether something was added, removed or changed; an unknown side is said.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from app.columns import Column, Columns
from app.ui.view.theme import operation_style
from backend.format import UNKNOWN, age_s, bytes_text, count_text, cut, things
from backend.lake.history.history import stream_of
from backend.lake.model import Commit, OperationMetrics
from backend.lake.table.metadata_diff import ChangeKind, TableChange
from backend.lake.table.properties import meaning_of_feature, meaning_of_property

_LETTERS = 8  # of a query id, where nobody knows the stream's name


def stream_text(commit: Commit, streams: Mapping[str, str], *, with_batch: bool = True) -> str:
    """ "silver_orders, batch 41"; empty for a commit that no stream wrote. `streams`: the names of query ids."""
    name, origin = stream_of(commit, streams), commit.origin
    if name is None or origin is None:
        return ""
    if origin.query_id and name == f"query {origin.query_id}":
        name = f"query {origin.query_id[:_LETTERS]}"
    return f"{name}, batch {origin.batch_id}" if with_batch and origin.batch_id is not None else name


def writer_text(commit: Commit, streams: Mapping[str, str], *, with_batch: bool = True) -> str:
    """The stream and batch, else the user, else the engine, else a dash."""
    return stream_text(commit, streams, with_batch=with_batch) or commit.user or commit.engine or UNKNOWN


def last_by_another(newest: Sequence[Commit], streams: Mapping[str, str]) -> Commit | None:
    """Of commits, newest first, the first one that the newest's writer did not write."""
    writers = [writer_text(commit, streams, with_batch=False) for commit in newest]
    return next((commit for commit, writer in zip(newest, writers, strict=True) if writer != writers[0]), None)


# a list of commits ----------------------------------------------------------------------------------------------------


def commit_columns(
    now: datetime, streams: Mapping[str, str], changes: Mapping[int, Sequence[TableChange]]
) -> list[Column[Commit]]:
    """What a commit does not say is left out, never 0. `streams`: the stream of each query id; `changes`: what each
    version changed of the table."""

    def operation(commit: Commit) -> str:
        return f"{operation_style(commit.operation).glyph} {commit.operation or 'not named'}"

    return [
        Column("Version", lambda commit: commit.version, "version", key="version"),
        Column("When", lambda commit: age_s(commit.committed_at, now), "ago", on="page"),
        Column("Committed at", lambda commit: commit.committed_at, "moment", "Exact, UTC.", key="committed_at"),
        Column("Operation", operation, width=150),
        Column("Who", lambda commit: stream_text(commit, streams) or commit.user, is_optional=True, width=170,
               help="The stream and its batch, else the user."),
        Column("Job", lambda commit: commit.job or "", is_optional=True, on="page", width=260),
        Column("Rows", lambda commit: rows_text(commit.metrics), width=110,
               help="Inserted +, updated ~, deleted −, as the commit says."),
        Column("Files", lambda commit: files_text(commit.metrics), help="Added +, removed −.", width=105),
        Column("Bytes", lambda commit: bytes_plus_minus(commit.metrics), width=125),
        Column("Changed", lambda commit: changes_text(changes.get(commit.version, ())), is_optional=True,
               width="medium", help="What the commit changed of the table itself: columns, properties, protocol."),
        Column("Note", lambda commit: commit.problem or commit.user_metadata or "", is_optional=True, on="page",
               help="User metadata of the commit, or what is wrong with its entry."),
        Column("Engine", lambda commit: commit.engine, key="engine"),
    ]  # fmt: skip


def rows_text(metrics: OperationMetrics) -> str:
    """ "+120 ~4 −3": rows inserted, updated, deleted; "–" when the commit says none of them."""
    parts = (("+", metrics.rows_inserted), ("~", metrics.rows_updated), ("−", metrics.rows_deleted))
    counted = [(sign, count) for sign, count in parts if count is not None]
    some = [f"{sign}{count_text(count)}" for sign, count in counted if count]
    return " ".join(some) or ("±0" if counted else UNKNOWN)


def files_text(metrics: OperationMetrics) -> str:
    """ "+3 −12"; of a VACUUM what it deletes from storage, which no version loses."""
    if metrics.files_to_delete is not None:
        return f"was to delete {count_text(metrics.files_to_delete)}"
    if metrics.files_vacuumed is not None:
        return f"{count_text(metrics.files_vacuumed)} vacuumed"
    return plus_minus(metrics.files_added, metrics.files_removed)


def plus_minus(added: int | None, removed: int | None, text: Callable[[int], str] = count_text) -> str:
    """ "+3 −12", "±0", or "–" when neither is known."""
    if added is None and removed is None:
        return UNKNOWN
    return " ".join(f"{sign}{text(count)}" for sign, count in (("+", added), ("−", removed)) if count) or "±0"


def bytes_plus_minus(metrics: OperationMetrics) -> str:
    """ "+38.2 MB −12 kB", or "–" when neither is known."""
    if metrics.bytes_to_delete is not None:
        return f"was to delete {bytes_text(metrics.bytes_to_delete)}"
    if metrics.files_vacuumed is not None:
        return UNKNOWN
    return plus_minus(metrics.bytes_added, metrics.bytes_removed, bytes_text)


# what it changed of the table itself ----------------------------------------------------------------------------------


MOST_IN_LIST = 3
_NOUNS = {ChangeKind.COLUMN: "column ", ChangeKind.CONSTRAINT: "constraint ", ChangeKind.FEATURE: "feature "}
_NAMED = (ChangeKind.FEATURE, ChangeKind.TABLE)  # their value says nothing that the subject does not


def change_text(change: TableChange) -> str:
    """One change in a few words."""
    match change.kind:
        case ChangeKind.UNKNOWN:
            return f"{change.subject} set; what was in force before is not in the log"
        case ChangeKind.TABLE:
            return f"created with {change.after}" if change.before is None else "re-created under another table id"
    noun, subject = _NOUNS.get(change.kind, ""), change.subject
    if change.trait:
        return _trait_text(change)
    if change.before is None:
        return f"+ {noun}{subject}{_value(change, change.after)}"
    if change.after is None:
        return f"− {noun}{subject}{_value(change, change.before)}"
    return f"{noun}{subject} {cut(change.before)} → {cut(change.after)}"


def changes_text(changes: Sequence[TableChange]) -> str:
    """A commit's changes in one line; of many the first, and how many more."""
    texts = [change_text(change) for change in changes[:MOST_IN_LIST]]
    more = len(changes) - MOST_IN_LIST
    return "; ".join(texts) + (f"; {things(more, 'more change')}" if more > 0 else "")


TABLE_CHANGES: Columns[TableChange] = (  # before and after whole
    Column("What", lambda change: change.kind.value.capitalize()),
    Column("Name", lambda change: f"{change.subject} ({change.trait})" if change.trait else change.subject),
    Column("Change", lambda change: word(change)),
    Column("Before", lambda change: change.before or None),
    Column("After", lambda change: change.after or None),
    Column("Meaning", lambda change: meaning(change), width="large", is_optional=True),
)


def staged_sentence(versions: Sequence[int]) -> str:
    """Of versions in `_staged_commits`, ascending."""
    span = f"v{versions[0]}" if len(versions) == 1 else f"v{versions[0]} to v{versions[-1]}"
    verb = "is" if len(versions) == 1 else "are"
    return f"{span} {verb} staged beyond this list: only the table's catalog knows which of them count."


def changes_sentence(changes: Sequence[TableChange]) -> str:
    """ "3 changes: 1 added, 2 changed"."""
    counts = [
        (kind, sum(word(change) == kind for change in changes)) for kind in ("added", "removed", "changed", "set")
    ]
    parts = ", ".join(f"{count} {kind}" for kind, count in counts if count)
    return f"{things(len(changes), 'change')}: {parts}" if changes else "No change"


def meaning(change: TableChange) -> str:
    """What the changed thing is for; empty where its name says it."""
    match change.kind:
        case ChangeKind.PROPERTY:
            return meaning_of_property(change.subject)
        case ChangeKind.FEATURE:
            return meaning_of_feature(change.subject)
        case ChangeKind.CONSTRAINT:
            return "Every row must satisfy it."
        case ChangeKind.PROTOCOL:
            return f"The lowest protocol version that a {change.subject} must know."
        case ChangeKind.UNKNOWN:
            return "What was in force before is not in the log any more."
    return ""


def _trait_text(change: TableChange) -> str:
    if change.trait == "name":
        return f"column {change.before} renamed to {change.after}"
    if change.trait in ("type", "nullability"):
        return f"column {change.subject} {change.before} → {change.after}"
    before, after = (cut(text) if text else "none" for text in (change.before, change.after))
    return f"{change.trait} of column {change.subject} {before} → {after}"


def _value(change: TableChange, value: str | None) -> str:
    if not value or change.kind in _NAMED:
        return ""
    return f" {cut(value)}" if change.kind is ChangeKind.COLUMN else f" = {cut(value)}"


def word(change: TableChange) -> str:
    """added, removed, changed, or set where what was before is unknown."""
    if change.kind is ChangeKind.UNKNOWN:
        return "set"
    if change.trait or (change.before is not None and change.after is not None):
        return "changed"
    return "added" if change.before is None else "removed"
