"""`weir export T -o FILE`: every row of a version as CSV, Parquet, Arrow or JSON.

Rule: the file has its name once it is whole; whatever ends the export before leaves nothing behind.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer

from app import services
from app.cli.output import print_json, say
from app.cli.tables.lake import opened
from backend.changes.key import parse_names
from backend.errors import ColumnNotFoundError, StorageError
from backend.format import bytes_text, things
from backend.lake.history.history import resolve_version
from backend.lake.model import Snapshot
from backend.lake.table.schema import columns as schema_columns
from backend.lake.table.schema import read_schema, readable_names
from backend.sql.export import FORMATS, Format, encoded
from backend.sql.filters import parse_filter


@dataclass(frozen=True, slots=True)
class Request:
    name: str
    output: Path
    at: str | None
    where: str | None
    columns: str | None
    form: str | None


def export(request: Request, *, as_json: bool) -> int:
    lake, ref = opened(request.name)
    form = _format(request)
    snapshot = lake.snapshot(ref, resolve_version(lake, ref, request.at or "latest", services.clock()))
    where = parse_filter(request.where or "", schema_columns(snapshot.metadata))
    columns = _columns(snapshot, request.columns)
    left_out = () if request.columns else read_schema(snapshot.metadata.schema_json).left_out
    rows = lake.read_files(snapshot, columns=columns, where=where)
    num_rows = write_file(request.output, encoded(rows, form))
    size = request.output.stat().st_size
    if as_json:
        print_json({
            "name": ref.name, "uri": ref.uri, "version": snapshot.version, "format": form.suffix, "rows": num_rows,
            "size_bytes": size, "file": str(request.output), "left_out": left_out,
        })  # fmt: skip
    else:
        say(f"{things(num_rows, 'row')} of {ref.name} v{snapshot.version} in {request.output} ({bytes_text(size)})")
        if left_out:
            say(f"Left out, of a type that cannot be read here: {', '.join(left_out)}.")
    return 0


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


def _format(request: Request) -> Format:
    named = (request.form or request.output.suffix.lstrip(".")).lower()
    if named not in FORMATS:
        known = ", ".join(FORMATS)
        raise typer.BadParameter(f"{request.output.name} has an ending other than {known}", param_hint="--output")
    return FORMATS[named]


def _columns(snapshot: Snapshot, text: str | None) -> tuple[str, ...]:
    every, left_out = readable_names(snapshot.metadata), read_schema(snapshot.metadata.schema_json).left_out
    asked = parse_names(text or "")
    for name in asked:
        if name in left_out:
            raise ColumnNotFoundError(f"column {name!r} is of a type that cannot be read here", hint="leave it out")
        if name not in every:
            raise ColumnNotFoundError(f"there is no column {name!r}", hint=f"there are: {', '.join(every[:8])}")
    return asked or every
