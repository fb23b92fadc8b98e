"""What the numbers of a diff cannot say, in words.

Rule: pure; every way in which a count is less than exact has its sentence.
"""

from collections.abc import Sequence

from backend.diff.compare import NetAnswer
from backend.diff.model import DiffMethod, VersionDiff
from backend.diff.read_stream import Sides
from backend.lake.table.metadata_diff import column_names

_SHOWN = 12


def limits(sides: Sides, columns: Sequence[str], found: VersionDiff, answer: NetAnswer) -> list[str]:
    """The sentences that an answer needs, those on columns last."""
    return [*_on_rows(found, answer), *_on_columns(sides, columns)]


def _on_rows(found: VersionDiff, answer: NetAnswer) -> list[str]:
    said = []
    if answer.partial is not None:
        said.append(f"the comparison was {answer.partial.when_text}: counts and rows are of these alone")
        if about := answer.partial.about_text:
            said.append(f"{about}, by sums over all rows that were read")
        if answer.partial.null_keys:
            said.append(f"{answer.partial.null_keys:,} rows with a null key are left out: others may cancel them")
    if found.key is None and answer.net.updated is None:
        said.append("without a key an updated row appears as a pair: its old values deleted, its new ones inserted")
    elif found.key is None and answer.net.updated:
        said.append("updates are counted from what the feed holds; without a key their rows appear as pairs")
    if answer.apart.rows:
        said.append(
            f"{answer.apart.rows:,} changed rows have a null key or share their key with another one: they are "
            "counted as inserted and deleted and shown apart"
        )
    if found.method is DiffMethod.KEY_JOIN:
        said.append("whether the key is unique was seen among the rows that changed, not among those that did not")
    return said


def _on_columns(sides: Sides, columns: Sequence[str]) -> list[str]:
    said = []
    if dropped := sides.schema.dropped:
        who = "the older version" if sides.is_one_table else sides.first.ref.name
        said.append(f"columns that only {who} has are not compared: {_list([f.path for f in dropped])}")
    if sides.unfit:
        what = "another type or no value" if sides.is_one_table else "no such column of the same type"
        said.append(f"columns that the other side has with {what} are not compared: {_list(sides.unfit)}")
    left = [name for name in column_names(sides.newer.metadata) if name not in columns and name not in sides.unfit]
    if left:
        said.append(f"left out of the comparison: {_list(left)}")
    return said


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
