"""What a reset does, in words.

Rule: pure; every line says what will be, not how it is done.
"""

from backend.streams.reset.plan import ResetLevel, ResetPreview, reads_again

_LABELS = {
    ResetLevel.REPROCESS: "Read all again",
    ResetLevel.FROM: "Read again from …",
    ResetLevel.FULL: "Empty tables and read all again",
    ResetLevel.UNDO: "Undo the last reset",
}


def label(level: ResetLevel) -> str:
    return _LABELS[level]


def lines(found: ResetPreview) -> list[str]:
    """What is read again, what that risks, what streams below it see."""
    again = [f"Reads again: {reads_again(found.again)}"] if found.again is not None else []
    return [*again, *(f"Risk: {risk}" for risk in found.risks), *(f"Downstream: {line}" for line in found.downstream)]
