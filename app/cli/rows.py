"""`weir profile T`, `weir export T -o FILE`: what the columns of a version hold; every row of it as a file.

Rule: what reading costs is said on stderr before it begins; a file has its name once it is whole, and whatever ends the
export before leaves nothing behind.
"""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

import typer

from app import services
from app.cli.commands import AsJson, At, TableName
from app.cli.lake import opened
from app.cli.output import Document, Shapes, only, print_json, print_list, say, shaped
from app.summary import text as words
from backend.changes.key import parse_names
from backend.errors import ColumnNotFoundError, StorageError
from backend.format import bytes_text, things
from backend.lake.files.stats import column_totals
from backend.lake.history.history import resolve_version
from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableRef
from backend.lake.table.schema import columns as schema_columns
from backend.lake.table.schema import read_schema, readable_names
from backend.sql.export import FORMATS, encoded
from backend.sql.filters import parse_filter
from backend.sql.numbers import ColumnProfile, Profile, from_log, profiles, readable, with_statistics


def profile(
    name: TableName,
    at: At = None,
    against: Annotated[str | None, typer.Option("--against", help="Another version: what differs.")] = None,
    from_statistics: Annotated[
        bool, typer.Option("--statistics", help="From the log's statistics alone; no data file is opened.")
    ] = False,
    as_json: AsJson = False,
) -> None:
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
        print_json(document(ref, after, before), SHAPES)
    else:
        _print(ref, after, before)


def _read(lake: Lake, ref: TableRef, snapshots: Sequence[Snapshot]) -> list[Profile]:
    size, files = sum(each.size_bytes for each in snapshots), sum(each.num_files for each in snapshots)
    say(words.cost_sentence(size, files), style="dim", to_stderr=True)
    with closing(profiles().over(lake, ref, "", [each.version for each in snapshots])) as steps:
        *_, last = steps
    by_version = readable(last.values)
    return [by_version[each.version] for each in snapshots]


# JSON ------------------------------------------------------------------------------------------------------------


_PROFILE = only("version", "rows", "columns", "left_out")
SHAPES: Shapes = {
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
    print_list(words.profile_columns(found), found.columns)


def export(
    name: TableName,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file; it is replaced once all is written.")],
    at: At = None,
    where: Annotated[str | None, typer.Option("--where", help="SQL over a row: amount >= 10.")] = None,
    columns: Annotated[str | None, typer.Option("--columns", help="Only these: a,b.")] = None,
    named: Annotated[
        Literal["csv", "parquet", "arrow", "json"] | None,
        typer.Option("--format", help="None: by the name of the file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    lake, ref = opened(name)
    form = FORMATS[named or ending_of(output, FORMATS)]
    snapshot = lake.snapshot(ref, resolve_version(lake, ref, at or "latest", services.clock()))
    condition = parse_filter(where or "", schema_columns(snapshot.metadata))
    left_out = () if columns else read_schema(snapshot.metadata.schema_json).left_out
    rows = lake.read_files(snapshot, columns=_columns(snapshot, columns), where=condition)
    num_rows = write_file(output, encoded(rows, form))
    size = output.stat().st_size
    if as_json:
        print_json({
            "name": ref.name, "uri": ref.uri, "version": snapshot.version, "format": form.suffix, "rows": num_rows,
            "size_bytes": size, "file": str(output), "left_out": left_out,
        })  # fmt: skip
    else:
        say(f"{things(num_rows, 'row')} of {ref.name} v{snapshot.version} in {output} ({bytes_text(size)})")
        if left_out:
            say(f"Left out, of a type that cannot be read here: {', '.join(left_out)}.")


def ending_of(path: Path, allowed: Collection[str]) -> str:
    """The ending of a file's name, in small letters; raises `BadParameter` for others than these."""
    ending = path.suffix.lower().removeprefix(".")
    if ending not in allowed:
        raise typer.BadParameter(f"{path.name} has an ending other than {', '.join(allowed)}", param_hint="--output")
    return ending


def write_file(output: Path, pieces: Iterator[tuple[int, bytes]]) -> int:
    """Writes a file that comes in pieces, each with the rows that it adds; returns how many rows there are."""
    num_rows, draft = 0, output.absolute().with_name(f".{output.name}.{os.getpid()}")
    try:
        with draft.open("xb") as file:
            for rows_more, piece in pieces:
                num_rows += rows_more
                file.write(piece)
        draft.replace(output)
    except OSError as exc:
        raise StorageError(f"{output} cannot be written: {exc.strerror or exc}", hint="choose another file") from exc
    finally:
        draft.unlink(missing_ok=True)
    return num_rows


def _columns(snapshot: Snapshot, text: str | None) -> tuple[str, ...]:
    every, left_out = readable_names(snapshot.metadata), read_schema(snapshot.metadata.schema_json).left_out
    asked = parse_names(text or "")
    for name in asked:
        if name in left_out:
            raise ColumnNotFoundError(f"column {name!r} is of a type that cannot be read here", hint="leave it out")
        if name not in every:
            raise ColumnNotFoundError(f"there is no column {name!r}", hint=f"there are: {', '.join(every[:8])}")
    return asked or every
