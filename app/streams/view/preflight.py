"""A preflight's checks, and the cause of a failure, as words.

Rule: pure; an outcome is a sign and a word, never a colour alone; what failed comes first.
"""

from collections.abc import Sequence

from app.ui.view.words import markdown_safe
from backend.format import things
from backend.stream_model.stream import StreamFailure
from backend.streams.faults import recognise
from backend.streams.preflight.model import Check, Outcome, Preflight

_ARROW = ":material/arrow_forward:"
_FIRST = (Outcome.FAILED, Outcome.WARNING, Outcome.UNKNOWN, Outcome.OK)


def by_weight(checks: Sequence[Check]) -> list[Check]:
    """Those that need a person first, else in the order of a start."""
    return sorted(checks, key=lambda check: _FIRST.index(check.outcome))


def check_text(check: Check) -> str:
    """One check in Markdown without its sign: name, evidence and, where something is to be done, the remedy."""
    said = f"**{markdown_safe(check.name)}** · {markdown_safe(check.detail)}"
    remedy = "" if check.outcome is Outcome.OK else check.remedy
    return f"{said}  \n{_ARROW} {markdown_safe(remedy)}" if remedy else said


def summary(found: Preflight) -> str:
    """Whether the stream can go on, and how many checks say so."""
    name, failed = found.name, len(found.failed)
    if failed:
        return f"{name} cannot go on: {things(failed, 'check')} failed."
    parts = [f"{len(found.of(each))} {each.value}" for each in _FIRST if found.of(each)]
    return f"{name} can go on. Of {things(len(found.checks), 'check')}: {', '.join(parts)}."


def consequence(found: Preflight) -> str:
    """What a start will do in spite of the failed checks; empty without any."""
    if found.ok:
        return ""
    this = "this stands" if len(found.failed) == 1 else "these stand"
    return f"You can start it all the same. As long as {this}, it fails again or loses rows."


def cause_lines(failure: StreamFailure, failed: Sequence[Check]) -> list[str]:
    """What caused a failure and what to do, in Markdown. The checks that failed tell apart what the error does
    not; those that it says nothing of come after."""
    told, seen = recognise(failure), {check.remedy: f" {markdown_safe(check.detail)}." for check in failed}
    proven = [fault for fault in told if fault.remedy in seen]
    either = "Either: " if len(proven or told) > 1 else ""
    lines = [
        f"{either}**{fault.name}.**{seen.get(fault.remedy, '')} {fault.cause}  \n{_ARROW} {markdown_safe(fault.remedy)}"
        for fault in proven or told
    ]
    lines += [check_text(check) for check in failed if check.remedy not in {fault.remedy for fault in proven}]
    return lines or [f"{_ARROW} Remove the cause, then restart the stream. Preflight, below, found nothing against it."]
