"""`weir preflight`: whether a stream can go on, as a list of checks with their evidence.

Rule: reads alone, also for a stream that runs; what could not be looked at is unknown, and fails nothing.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from app import services
from app.cli.commands import AsJson, StreamName
from app.cli.output import Shapes, only, print_json, say, shaped
from app.cli.store import required_store
from app.streams.text import preflight_sentence
from backend.streams.faults import Check, Outcome, Preflight
from backend.streams.preflight import preflight as load_preflight

if TYPE_CHECKING:
    from backend.store.store import ControlStore

SIGNS = {Outcome.OK: "✓", Outcome.WARNING: "▲", Outcome.FAILED: "✕", Outcome.UNKNOWN: "?"}
STYLES = {Outcome.OK: "green", Outcome.WARNING: "yellow", Outcome.FAILED: "red", Outcome.UNKNOWN: "dim"}
SHAPES: Shapes = {Preflight: only("ok", "checks"), Check: shaped("ok")}


def preflight(name: StreamName, as_json: AsJson = False) -> int:
    """Ends with 0 when nothing stands against a start, else 1."""
    result = load(required_store(), name)
    if as_json:
        print_json(result, SHAPES)
    else:
        say_checks(result.checks)
        say()
        say(preflight_sentence(result), style="bold")
    return 0 if result.ok else 1


def load(store: "ControlStore", name: str) -> Preflight:
    """Raises `StreamNotFoundError` or `StoreError`."""
    return load_preflight(services.settings(), services.lake(), store, name, now=store.now())


def say_checks(checks: Iterable[Check]) -> None:
    """A line for each check, and one for its remedy where something is to be done."""
    for check in checks:
        sign = f"{SIGNS[check.outcome]} {check.outcome.value:<8}"
        say(f"{sign} {check.name}: {check.detail}", style=STYLES[check.outcome])
        if check.remedy and check.outcome is not Outcome.OK:
            say(f"           → {check.remedy}")
