"""`weir preflight`: whether a stream can go on, as a list of checks with their evidence.

Rule: reads alone, also for a stream that runs; what could not be looked at is unknown, and fails nothing.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.cli.output import print_json, say
from app.cli.streams.listing import required_store
from app.cli.tables.lake import services
from app.streams.text import preflight_sentence
from backend.lake.lake import Lake
from backend.settings import Settings
from backend.streams.preflight.model import Check, Outcome, Preflight
from backend.streams.preflight.reading import preflight as load_preflight

if TYPE_CHECKING:
    from backend.store.store import ControlStore

SIGNS = {Outcome.OK: "✓", Outcome.WARNING: "▲", Outcome.FAILED: "✕", Outcome.UNKNOWN: "?"}
STYLES = {Outcome.OK: "green", Outcome.WARNING: "yellow", Outcome.FAILED: "red", Outcome.UNKNOWN: "dim"}


def preflight(name: str, *, as_json: bool) -> int:
    """Ends with 0 when nothing stands against a start, else 1."""
    settings, lake = services()
    with required_store(settings) as store:
        found = load(settings, lake, store, name)
    if as_json:
        print_json(document(found))
    else:
        _print(found)
    return 0 if found.ok else 1


def load(settings: Settings, lake: Lake, store: "ControlStore", name: str) -> Preflight:
    """Raises `StreamNotFoundError` or `StoreError`."""
    return load_preflight(settings, lake, store, name, now=store.now())


def document(found: Preflight) -> dict[str, object]:
    checks = [
        {"name": c.name, "ok": c.ok, "outcome": c.outcome.value, "detail": c.detail, "remedy": c.remedy}
        for c in found.checks
    ]
    return {"ok": found.ok, "checks": checks}


def say_checks(checks: Iterable[Check]) -> None:
    """A line for each check, and one for its remedy where something is to be done."""
    for check in checks:
        sign = f"{SIGNS[check.outcome]} {check.outcome.value:<8}"
        say(f"{sign} {check.name}: {check.detail}", style=STYLES[check.outcome])
        if check.remedy and check.outcome is not Outcome.OK:
            say(f"           → {check.remedy}")


def _print(found: Preflight) -> None:
    say_checks(found.checks)
    say()
    say(preflight_sentence(found), style="bold")
