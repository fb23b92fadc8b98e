"""Rows of other tables that carry what a finding is about: its values, copied on before anybody saw them.

Rule: nothing follows from a name alone. A row carries a finding where its value is equal to one of the finding's rows,
and so is every column that joins the two tables. What was not read is said.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from backend.changes.key import join_columns
from backend.errors import LakehouseError
from backend.format import bytes_text
from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableRef
from backend.lake.table.restricted import require_shown
from backend.lake.table.schema import column_types, columns
from backend.search.notice import Notice
from backend.sql.filters import parse_filter

MOST_BYTES, MOST_TABLES, MOST_VERSIONS = 200_000_000, 100, 10_000  # read in all; with such a column; of a table
_FILES = ("path", "size_bytes", "num_records", "deleted_rows", "partition", "dv_id")
_FRACTIONS = ("float", "double", "decimal")


@dataclass(frozen=True, slots=True)
class CarriedRows:
    """`rows` of a table's latest version, which came with commits from `first` to `last` (None: rewritten since), equal
    in `columns`."""

    ref: TableRef
    rows: int
    first: int | None
    last: int | None
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Carried:
    """What was found in `num_looked` tables so far, most rows first, and why others were left out. `share` of the lake
    is passed, and `table` comes next."""

    found: tuple[CarriedRows, ...] = ()
    num_looked: int = 0
    left_out: tuple[str, ...] = ()
    share: float = 0.0
    table: str = ""


def is_of_values(notice: Notice, snapshot: Snapshot) -> bool:
    """Whether the finding is about values of one column."""
    return notice.subject in column_types(snapshot.metadata.schema_json) and notice.rows is not None


def load_carried(lake: Lake, notice: Notice) -> Iterator[Carried]:
    """How far it is, before each table that has the finding's column, and at the end. Tables are read as far as they
    were written since. Raises where the finding's own rows cannot be read."""
    own, refs = lake.find(notice.uri), lake.tables()
    bad = lake.snapshot(own, notice.version)
    require_shown(bad.hidden, bad.metadata, [notice.subject])
    hurt, types = _hurt_rows(lake, bad, notice), column_types(bad.metadata.schema_json)
    result, left_bytes = Carried(), MOST_BYTES
    for number, ref in enumerate(refs):
        if ref.uri == own.uri or result.num_looked >= MOST_TABLES:
            continue
        try:
            latest = lake.snapshot(ref)
            others = column_types(latest.metadata.schema_json)
            if others.get(notice.subject) != types[notice.subject]:
                continue
            yield replace(result, share=number / len(refs), table=ref.name)
            joins = _joins(notice, types, others, latest.metadata.configuration)
            for seen in (bad, latest):  # a hidden value is null, and equal to none
                require_shown(seen.hidden, seen.metadata, [notice.subject, *(joins or ())])
            versions = _written_since(lake, latest, notice)
            files = latest.columns((*_FILES, "modified_at"))
            is_new = pc.is_in(files["path"], pa.array(versions, pa.string()))
            if notice.committed_at:  # what was rewritten since may hold them as well
                is_new = pc.or_(is_new, pc.greater_equal(files["modified_at"], pa.scalar(notice.committed_at)))
            files = files.filter(is_new)
            size = pc.sum(files["size_bytes"]).as_py() or 0
            if joins is None or size > left_bytes:
                why = "no column in common joins its rows" if joins is None else f"{bytes_text(size)} written since"
                result = replace(result, left_out=(*result.left_out, f"{ref.name}: {why}"))
                continue
            left_bytes -= size
            carrying = _carrying(lake, latest, files, versions, hurt.select([notice.subject, *joins]))
            found = sorted((*result.found, *carrying), key=lambda each: -each.rows)
            result = replace(result, found=tuple(found), num_looked=result.num_looked + 1)
        except LakehouseError as exc:
            result = replace(result, left_out=(*result.left_out, f"{ref.name}: {exc.message}"))
    yield replace(result, share=1.0)


def _hurt_rows(lake: Lake, bad: Snapshot, notice: Notice) -> pa.Table:
    """Of the finding's commit, those that its condition names."""
    version, where = bad.version, parse_filter(notice.where, columns(bad.metadata))
    files = lake.file_difference(bad.ref, version - 1, version).only_second if version else bad.columns(_FILES)
    return lake.read_files(bad, files, where=where).read_all()


def _joins(
    notice: Notice, own: Mapping[str, str], others: Mapping[str, str], properties: Mapping[str, str]
) -> tuple[str, ...] | None:
    """Columns that have to be equal besides; none for fractions, which are alike by chance too rarely to matter; None
    where equal values would tell nothing."""
    named = set(re.findall(r"\w+", re.sub(r"'[^']*'", "", notice.where)))
    joins = {*join_columns(own, others, properties), *(n for n in named if n in own and own[n] == others.get(n))}
    joins.discard(notice.subject)
    return tuple(sorted(joins)) if joins or own[notice.subject].startswith(_FRACTIONS) else None


def _written_since(lake: Lake, latest: Snapshot, notice: Notice) -> dict[str, int]:
    """Files that came after the finding's commit, with their versions."""
    before = lake.version_at(latest.ref, notice.committed_at) if notice.committed_at else None
    first = max(0 if before is None else before + 1, latest.version - MOST_VERSIONS)
    arrivals = lake.arrivals(latest.ref, first, latest.version, feed=False)
    return {path: arrival.version for arrival in arrivals for path in arrival.paths}


def _carrying(
    lake: Lake, latest: Snapshot, files: pa.Table, versions: Mapping[str, int], hurt: pa.Table
) -> Sequence[CarriedRows]:
    number, names = "_weir_file", hurt.column_names
    rows = lake.read_files(latest, files, columns=[*names, number], numbered=number).read_all()
    subject, *joins = names
    if hurt[subject].null_count == hurt.num_rows:  # what is missing is equal to nothing
        rows, names = rows.filter(pc.is_null(rows[subject])), joins
    hurt = hurt.group_by(names).aggregate([]).cast(pa.schema([rows.schema.field(name) for name in names]))
    carrying = rows.join(hurt, names, join_type="left semi") if names else rows.slice(0, 0)
    if not carrying.num_rows:
        return ()
    paths = files["path"].take(pc.unique(carrying[number])).to_pylist()
    came = [versions[path] for path in paths if path in versions]
    first, last = (min(came), max(came)) if len(came) == len(paths) else (None, None)
    return (CarriedRows(latest.ref, carrying.num_rows, first, last, tuple(hurt.column_names)),)
