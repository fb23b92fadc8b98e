"""`weir tables|find|table|files`.

Rule: reads through `Lake` alone; JSON and the human form come from the same value.
"""

from functools import lru_cache

from app.cli.output import now, print_json, print_table, say
from app.cli.tables import documents
from backend.changes.versions import resolve_version
from backend.format import ago, bytes_text, count_text, percent, utc_text
from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableCard, TableRef, UnreadableTable
from backend.lake.table.schema import columns
from backend.settings import Settings, load_settings


@lru_cache(maxsize=1)
def services() -> tuple[Settings, Lake]:
    """The settings and the lake of this one command."""
    settings = load_settings()
    return settings, Lake(settings)


def opened(name: str) -> tuple[Lake, TableRef]:
    _, lake = services()
    return lake, lake.find(name)


def at_version(name: str, version: str | None) -> Snapshot:
    lake, ref = opened(name)
    return lake.snapshot(ref, None if version is None else resolve_version(lake, ref, version))


def tables(*, as_json: bool) -> int:
    settings, lake = services()
    cards = lake.cards()
    if as_json:
        print_json([documents.card(card) for card in cards])
        return 0
    if not cards:
        say(f"No tables under {', '.join(settings.roots)}.")
        say("`weir up` makes the demo lake; WEIR_LAKE__ROOTS names other folders.", style="dim")
        return 0
    good = [card for card in cards if isinstance(card, TableCard)]
    print_table(
        ("table", "layer", "version", "rows", "files", "size", "small", "last commit"),
        (_card_row(card) for card in good),
        right=("version", "rows", "files", "size", "small"),
    )
    for bad in (card for card in cards if isinstance(card, UnreadableTable)):
        say(f"{bad.ref.name}: cannot be read: {bad.reason}", style="red")
    return 0


def find(words: str, *, as_json: bool) -> int:
    from backend.lake.find import MOST_MATCHES, LakeFinder

    _, lake = services()
    found = LakeFinder().find(lake.cards(), words)
    if as_json:
        print_json([documents.found_table(each) for each in found])
        return 0
    if not found:
        say(f"No table holds {words!r} in its name, columns, comments, description, owner or properties.")
        return 0
    print_table(
        ("table", "where", "what", ""),
        (
            (
                each.table.ref.name if number == 0 else "",
                match.where.name.lower(),
                match.subject or match.text,
                match.text if match.subject else "",
            )
            for each in found
            for number, match in enumerate(each.matches()[:MOST_MATCHES])
        ),
    )
    return 0


def _card_row(card: TableCard) -> tuple[str, ...]:
    return (
        card.ref.name,
        card.ref.layer or "–",
        f"v{card.version}",
        count_text(card.num_rows),
        count_text(card.num_files),
        bytes_text(card.size_bytes),
        count_text(card.small_files),
        ago(card.last_commit_at, now()),
    )


def table(name: str, version: str | None, *, as_json: bool) -> int:
    snapshot = at_version(name, version)
    schema = columns(snapshot.metadata)
    if as_json:
        print_json(documents.snapshot(snapshot, schema))
        return 0
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
        return 0
    print_table(
        ("column", "type", "null", "comment"),
        (
            (
                "  " * field.depth + field.path.rsplit(".", 1)[-1] if field.depth else field.path,
                field.type + (" (partition)" if field.is_partition else ""),
                "yes" if field.nullable else "no",
                field.comment or "",
            )
            for field in schema
        ),
    )
    return 0


def files(name: str, version: str | None, *, as_json: bool) -> int:
    from backend.lake.files.file_sizes import distribute

    settings, lake = services()
    snapshot = at_version(name, version)
    rule = settings.health
    target = lake.target_bytes(snapshot)
    found = distribute(snapshot, target, ratio=rule.small_file_ratio, min_files=rule.min_files)
    if as_json:
        print_json(documents.files(snapshot.version, found))
        return 0
    share = percent(found.small_files / found.num_files) if found.num_files else "–"
    say(f"{snapshot.ref.name} · v{snapshot.version}", style="bold")
    say(f"{count_text(found.num_files)} files · {bytes_text(found.size_bytes)} · {found.small_files:,} ({share}) small")
    say(
        f"small: under {bytes_text(found.small_limit_bytes)} (target {bytes_text(target.bytes)} from {target.source}), "
        f"in partitions of at least {rule.min_files} files",
        style="dim",
    )
    say()
    most = max((bucket.files for bucket in found.buckets), default=1) or 1
    print_table(
        ("from", "to", "files", "bytes", ""),
        (
            (
                bytes_text(bucket.from_bytes),
                bytes_text(bucket.to_bytes),
                count_text(bucket.files),
                bytes_text(bucket.bytes),
                "█" * round(30 * bucket.files / most) or ("▏" if bucket.files else ""),
            )
            for bucket in found.buckets
        ),
        right=("from", "to", "files", "bytes"),
    )
    return 0
