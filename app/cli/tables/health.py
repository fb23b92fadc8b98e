"""`weir health`: what needs attention, and what one table needs.

Rule: judges nothing itself; a store that is not there leaves streams out and says so.
"""

from collections.abc import Mapping

from app.cli.output import now, print_json, print_table, say
from app.cli.streams import expectations
from app.cli.streams.listing import known_streams, query_names
from app.cli.tables import documents
from app.cli.tables.lake import opened, services
from backend.errors import LakehouseError
from backend.format import ago, bytes_text, count_text, percent
from backend.health.attention import AttentionRules, attention
from backend.health.groups import grouped
from backend.health.health import table_health
from backend.health.merging import URGENCY
from backend.health.model import AttentionGroup, MaintenanceRun, Severity, TableHealth
from backend.lake.model import TableCard

_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "", Severity.FINE: "green"}


def one(name: str, *, as_json: bool) -> int:
    settings, _ = services()
    lake, ref = opened(name)
    names = query_names(known_streams(settings)[0])
    found = table_health(lake, ref, now=now(), settings=settings.health, stream_names=names)
    if as_json:
        print_json(documents.health(found, whole=True))
        return 0
    say(f"{found.ref.name} · v{found.version}", style="bold")
    say(
        f"{count_text(found.num_files)} files · {bytes_text(found.size_bytes)} · "
        f"{count_text(found.small_files)} small ({percent(found.small_share)})"
    )
    say(f"{found.rule.text} {URGENCY}", style="dim")
    say(f"last OPTIMIZE {_run_words(found.last_optimize)} · last VACUUM {_run_words(found.last_vacuum)}")
    say(_log_words(found))
    for offender in found.offenders:
        say(
            f"  {offender.kind} {offender.name}: {count_text(offender.small_files)} small of "
            f"{count_text(offender.files)} files, {bytes_text(offender.average_bytes)} on average"
        )
    for item in found.recommendations:
        say()
        say(f"{item.severity.value}: {item.finding}", style=_STYLES[item.severity])
        say(f"  → {item.next_step}")
    return 0


def everything(*, as_json: bool) -> int:
    """Attention items, then every table; a table that cannot be read is an attention item."""
    settings, lake = services()
    cards = lake.cards()
    streams, hosts = known_streams(settings)
    rules = AttentionRules.of(settings)
    items = attention(cards, streams, hosts, judgements=expectations.known()[0], now=now(), rules=rules)
    groups = grouped(items)
    tables = [
        found for card in cards if isinstance(card, TableCard) and (found := _readable(card, query_names(streams)))
    ]
    if as_json:
        print_json(
            {
                "attention": [documents.attention_item(item) for item in items],
                "attention_groups": [documents.attention_group(group) for group in groups],
                "tables": [documents.health(found, whole=False) for found in tables],
            }
        )
        return 0
    _print_attention(groups)
    if not tables:
        return 0
    print_table(
        ("table", "files", "small", "share", "size", "last optimize", "last vacuum", "most urgent"),
        (_row(found) for found in tables),
        right=("files", "small", "share", "size"),
    )
    return 0


def _readable(card: TableCard, names: Mapping[str, str]) -> TableHealth | None:
    """None for a table that broke after its card was read; the next look shows it as unreadable."""
    settings, lake = services()
    try:
        return table_health(lake, card.ref, now=now(), settings=settings.health, stream_names=names)
    except LakehouseError as exc:
        say(f"{card.ref.name}: cannot be judged: {exc.message}", style="red", to_stderr=True)
        return None


def _print_attention(groups: tuple[AttentionGroup, ...]) -> None:
    if not groups:
        say("Nothing needs attention.", style="green")
    for group in groups:
        about = f"{group.only.kind} {group.only.subject}: " if group.only else ""
        say(f"{group.severity.value}: {about + group.what}", style=_STYLES[group.severity])
        say(f"  → {group.next_step}")
    say()


def _row(found: TableHealth) -> tuple[str, ...]:
    return (
        found.ref.name,
        count_text(found.num_files),
        count_text(found.small_files),
        percent(found.small_share),
        bytes_text(found.size_bytes),
        _run_words(found.last_optimize),
        _run_words(found.last_vacuum),
        found.recommendations[0].finding,
    )


def _run_words(run: MaintenanceRun | None) -> str:
    return f"v{run.version}, {ago(run.at, now())}" if run else "not in the history"


def _log_words(found: TableHealth) -> str:
    log = found.log
    if log.checkpoint_version is None:
        last = "no checkpoint"
    else:
        last = f"checkpoint at v{log.checkpoint_version}, {ago(log.checkpoint_at, now())}"
    return f"log v{log.first_version}–v{log.latest_version} · {last} · {log.commits_since_checkpoint} commits after it"
