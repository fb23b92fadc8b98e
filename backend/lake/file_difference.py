"""Which data files of one state another state does not have.

Rule: a file is (path, deletion vector). Between two versions of one table only the files that commits in between name
are looked at, so the cost is that of the changes; where such a commit is gone, every file is compared.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backend.errors import VersionNotFoundError
from backend.lake.actions import Kind
from backend.lake.file_set import FileSet
from backend.lake.log import TableLog
from backend.lake.model import Places


@dataclass(frozen=True, slots=True)
class FilesApart:
    """Places of the files that only the first and only the second state has, in the order of their columns.

    `rewritten`: by version, how many files a commit in between replaced that says of all its files that no row changed
    (`dataChange` false); None where such a commit is gone.
    """

    only_first: Places
    only_second: Places
    rewritten: Mapping[int, int] | None = None


def files_apart(log: TableLog, first: int, second: int) -> FilesApart:
    """Of two versions of one table; raises what reading the log raises."""
    low, high = sorted((first, second))
    before, after = log.state(low).files, log.state(high).files
    try:
        commits = log.commits(range(low + 1, high + 1))
    except VersionNotFoundError:
        found = compared(before, after)
    else:
        if any(commit.record.problem for commit in commits):
            found = compared(before, after)
        else:
            actions = [commit.actions for commit in commits if commit.length]
            found = replace(_named(before, after, _keys(actions)), rewritten=_rewritten(actions))
    return found if first <= second else FilesApart(found.only_second, found.only_first, found.rewritten)


def compared(first: FileSet, second: FileSet) -> FilesApart:
    """Of any two sets of files of one table's folder, file by file."""
    ours, theirs = _plain(first.column("key")), _plain(second.column("key"))
    return FilesApart(_places_without(ours, theirs), _places_without(theirs, ours))


def _named(before: FileSet, after: FileSet, keys: list[str]) -> FilesApart:
    there, here = before.find(keys), after.find(keys)
    return FilesApart(
        _places(row for key, row in there.items() if key not in here),
        _places(row for key, row in here.items() if key not in there),
    )


def _rewritten(actions: Iterable[pa.Table]) -> dict[int, int]:
    found = {}
    for table in actions:
        removed = int(pc.sum(pc.equal(table["kind"], int(Kind.REMOVE))).as_py() or 0)
        if removed and not pc.any(table["data_change"]).as_py():
            found[int(table["version"][0].as_py())] = removed
    return found


def _keys(actions: Any) -> list[str]:
    tables = [table.filter(pc.not_equal(table["kind"], int(Kind.CDC)))["key"] for table in actions]
    return pa.concat_tables([pa.table({"key": keys}) for keys in tables])["key"].unique().to_pylist() if tables else []


def _places(rows: Any) -> Places:
    return np.array(sorted(rows), np.int64)


def _places_without(keys: pa.Array, others: pa.Array) -> Places:
    found = pc.is_in(keys, value_set=others).to_numpy(zero_copy_only=False)
    return np.flatnonzero(~found).astype(np.int64)


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary.take(column.indices) if pa.types.is_dictionary(column.type) else column
