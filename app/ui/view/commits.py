"""Who wrote a commit and what it changed of a table, in the same words everywhere: "delta.appendOnly false → true".

Rule: pure, and free of pandas, which the terminal does without. A batch that the commit does not name is left out; a
sign or a word says whether something was added, removed or changed; an unknown side is said.
"""

from collections.abc import Mapping, Sequence

from backend.format import UNKNOWN, cut, things
from backend.lake.history.history import stream_of
from backend.lake.model import Commit
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
            return f"created with {change.after}" if change.before is None else "made anew under another table id"
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


def staged_sentence(versions: Sequence[int]) -> str:
    """Of versions in `_staged_commits`, ascending."""
    span = f"v{versions[0]}" if len(versions) == 1 else f"v{versions[0]} to v{versions[-1]}"
    verb = "is" if len(versions) == 1 else "are"
    return f"{span} {verb} staged beyond this list: the table's catalog alone knows what of it counts."


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
