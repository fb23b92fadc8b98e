"""`weir tables|find|table|files`, and how every command opens a table.

Rule: reads through `Lake` alone; JSON and the human form come from the same value.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Annotated

import typer

from app import services
from app.cli.commands import AsJson, At, TableName
from app.cli.output import Shapes, fields_of, only, print_json, print_list, say, shaped
from app.columns import Column as ListColumn
from app.columns import Columns
from backend.format import bytes_text, count_text, utc_text
from backend.lake.find import MOST_MATCHES, LakeFinder, Match
from backend.lake.history.history import resolve_version
from backend.lake.lake import Lake
from backend.lake.model import Bucket, Snapshot, TableCard, TableRef, UnreadableTable
from backend.lake.table.schema import SchemaColumn, columns, constraints

WHERE = {"name": "ref.name", "uri": "ref.uri", "layer": "ref.layer"}
SHAPES: Shapes = {
    TableCard: shaped(without=("ref", "description", "columns", "properties"), **WHERE),
    UnreadableTable: shaped(without=("ref",), **WHERE),
    SchemaColumn: shaped(
        "physical_name",
        without=("name", "depth", "kind", "physical", "in_collection", "widened"),
        type_changes="widened",
    ),
}
_FILES = shaped(
    without=("target", "buckets"), target_bytes="target.bytes", target_source="target.source", histogram="buckets"
)
_SNAPSHOT = only(
    "version",
    "committed_at",
    "num_rows",
    "num_files",
    "size_bytes",
    "protocol",
    "findings",
    table_id="metadata.id",
    description="metadata.description",
    created_at="metadata.created_at",
    partition_columns="metadata.partition_columns",
    **WHERE,
)


def opened(name: str) -> tuple[Lake, TableRef]:
    lake = services.own_lake()
    return lake, lake.find(name)


def at_version(name: str, version: str | None) -> Snapshot:
    lake, ref = opened(name)
    return lake.snapshot(ref, None if version is None else resolve_version(lake, ref, version, services.clock()))


def tables(as_json: AsJson = False) -> None:
    from app.ui.lake import table_columns  # with what judges small files

    cards = services.own_lake().cards()
    if as_json:
        print_json(cards, SHAPES)
        return
    if not cards:
        say(f"No tables under {', '.join(services.settings().roots)}.")
        say("`weir up` makes the demo lake; WEIR_LAKE__ROOTS names other folders.", style="dim")
        return
    good = [card for card in cards if isinstance(card, TableCard)]
    print_list(table_columns(services.now(), services.settings().health.small_file_ratio), good)
    for bad in (card for card in cards if isinstance(card, UnreadableTable)):
        say(f"{bad.ref.name}: cannot be read: {bad.reason}", style="red")


def find(
    words: Annotated[list[str], typer.Argument(metavar="WORD…", help="Every word must be found in a table.")],
    as_json: AsJson = False,
) -> None:
    typed = " ".join(words)
    hits = LakeFinder().find(services.own_lake().cards(), typed)
    if as_json:
        print_json(
            [
                {key: getattr(hit.table.ref, key) for key in WHERE}
                | {"matches": [fields_of(match) | {"where": match.where.name.lower()} for match in hit.matches()]}
                for hit in hits
            ]
        )
        return
    if not hits:
        say(f"No table holds {typed!r} in its name, columns, comments, description, owner or properties.")
        return
    matches = [
        (hit.table.ref.name if number == 0 else "", match)
        for hit in hits
        for number, match in enumerate(hit.matches()[:MOST_MATCHES])
    ]
    print_list(MATCHES, matches)


MATCHES: Columns[tuple[str, Match]] = (
    ListColumn("Table", itemgetter(0)),
    ListColumn("Where", lambda named: named[1].where.name.lower()),
    ListColumn("What", lambda named: named[1].subject or named[1].text),
    ListColumn("", lambda named: named[1].text if named[1].subject else ""),
)


def table(name: TableName, at: At = None, as_json: AsJson = False) -> None:
    from app.summary.view.summary import schema_columns  # with what reads statistics

    snapshot = at_version(name, at)
    schema = columns(snapshot.metadata)
    if as_json:
        print_json(_SNAPSHOT(snapshot) | {"schema": schema, "constraints": constraints(snapshot.metadata)}, SHAPES)
        return
    rows = f"{count_text(snapshot.num_rows)} rows · {count_text(snapshot.num_files)} files"
    say(f"{snapshot.ref.name} · v{snapshot.version} · {utc_text(snapshot.committed_at)}", style="bold")
    say(snapshot.ref.uri)
    say(f"{rows} · {bytes_text(snapshot.size_bytes)}")
    if snapshot.metadata.description:
        say(snapshot.metadata.description)
    for finding in snapshot.findings:
        say(f"! {finding}", style="yellow")
    say()
    if not schema:
        say("No columns yet: the schema is empty at this version.")
        return
    print_list(schema_columns({}), schema)


def files(name: TableName, at: At = None, as_json: AsJson = False) -> None:
    from backend.health.rules import gain_in, small_files_text
    from backend.lake.files.file_sizes import distribute

    snapshot = at_version(name, at)
    rule, target = services.settings().health, services.own_lake().target_bytes(snapshot)
    sizes = distribute(snapshot, target, ratio=rule.small_file_ratio, min_files=rule.min_files)
    if as_json:
        print_json({"version": snapshot.version} | _FILES(sizes), SHAPES)
        return
    say(f"{snapshot.ref.name} · v{snapshot.version}", style="bold")
    small = small_files_text(gain_in(sizes))
    say(f"{count_text(sizes.num_files)} files · {bytes_text(sizes.size_bytes)} · small files: {small}")
    say(
        f"small: under {bytes_text(sizes.small_limit_bytes)} (target {bytes_text(target.bytes)} from {target.source})",
        style="dim",
    )
    say()
    print_list(bucket_columns(sizes.buckets), sizes.buckets)


def bucket_columns(buckets: Sequence[Bucket]) -> list[ListColumn[Bucket]]:
    """Sizes of files, and how many there are of each as a bar."""
    most = max((bucket.files for bucket in buckets), default=1) or 1
    return [
        ListColumn("From", lambda bucket: bucket.from_bytes, "bytes", key="from_bytes"),
        ListColumn("To", lambda bucket: bucket.to_bytes, "bytes", key="to_bytes"),
        ListColumn("Files", lambda bucket: bucket.files, "count", key="files"),
        ListColumn("Bytes", lambda bucket: bucket.bytes, "bytes", key="bytes"),
        ListColumn("", lambda bucket: "█" * round(30 * bucket.files / most) or ("▏" if bucket.files else "")),
    ]
