"""`weir profile T`: what the columns of a version hold, and what differs from another version.

Rule: what reading costs is said on stderr before it begins; only answers go to stdout.
"""

from collections.abc import Sequence
from contextlib import closing

from app import services
from app.cli.output import Document, Shapes, only, print_json, print_table, say, shaped
from app.cli.tables.lake import opened
from app.summary import text as words
from backend.lake.files.stats import column_totals
from backend.lake.history.history import resolve_version
from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableRef
from backend.sql.numbers import ColumnProfile, Profile, from_log, profiles, readable, with_statistics


def profile(name: str, at: str | None, against: str | None, *, from_statistics: bool, as_json: bool) -> int:
    lake, ref = opened(name)
    asked, clock = (against, at or "latest"), services.clock()
    versions = [resolve_version(lake, ref, text, clock) for text in asked if text is not None]
    snapshots = [lake.snapshot(ref, version) for version in dict.fromkeys(versions)]
    if from_statistics:
        found = [from_log(each, column_totals(each, with_statistics(each))) for each in snapshots]
    else:
        found = _read(lake, ref, snapshots)
    before, after = (found[0], found[-1]) if against is not None else (None, found[-1])
    if as_json:
        print_json(document(ref, after, before), _SHAPES)
    else:
        _print(ref, after, before)
    return 0


def _read(lake: Lake, ref: TableRef, snapshots: Sequence[Snapshot]) -> list[Profile]:
    size, files = sum(each.size_bytes for each in snapshots), sum(each.num_files for each in snapshots)
    say(words.cost_sentence(size, files), style="dim", to_stderr=True)
    with closing(profiles().over(lake, ref, "", [each.version for each in snapshots])) as steps:
        *_, last = steps
    by_version = readable(last.values)
    return [by_version[each.version] for each in snapshots]


# JSON ------------------------------------------------------------------------------------------------------------


_PROFILE = only("version", "rows", "columns", "left_out")
_SHAPES: Shapes = {
    ColumnProfile: shaped("null_share", without=("distinct", "lowest_sign", "highest_sign"), distinct_approx="distinct")
}


def document(ref: TableRef, after: Profile, before: Profile | None) -> Document:
    printed = {"name": ref.name, "uri": ref.uri} | _profile(after)
    if before is None:
        return printed
    return printed | {"against": _profile(before), "differences": words.differences(before, after)}


def _profile(profile: Profile) -> Document:
    return _PROFILE(profile) | {"source": "rows" if profile.is_read else "statistics"}


# for people ------------------------------------------------------------------------------------------------------


def _print(ref: TableRef, found: Profile, before: Profile | None) -> None:
    say(f"{ref.name} · v{found.version}", style="bold")
    say(words.source_sentence(found))
    if before is not None:
        for line in words.difference_lines(before, found):
            say(f"  {line}")
    say()
    print_table(
        ("column", "type", "null share", "distinct", "lowest", "highest", "commonest", "spread"),
        (
            (
                column.column,
                column.type,
                words.nulls_text(column),
                words.distinct_text(column),
                words.bound_text(column, "lowest"),
                words.bound_text(column, "highest"),
                words.top_text(column),
                words.spread_text(column.bins),
            )
            for column in found.columns
        ),
        right=("null share", "distinct"),
    )
