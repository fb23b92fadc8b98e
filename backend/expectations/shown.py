"""Findings and judgements as who may not see the table's values is shown them: what, where, when and how many rows.

Rule: a text that may tell a hidden value is left out as a whole.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from backend.expectations.model import Judgement
from backend.lake.model import Hidden
from backend.search.notice import OWN_WHERE, Measure, Notice

MARK = "(restricted)"
_OF_LOG = (Measure.COLUMN, Measure.PROPERTY, Measure.CONSTRAINT, Measure.WRITER, Measure.SILENCE)  # hold no value
HiddenAt = Callable[[str], Hidden | None]
Item = TypeVar("Item", Notice, Judgement)


def as_shown(items: Iterable[Item], hidden_at: HiddenAt) -> tuple[Item, ...]:
    """`hidden_at`: what is hidden of the table at an address."""
    return tuple(_judgement(i, hidden_at) if isinstance(i, Judgement) else _notice(i, hidden_at) for i in items)


def _notice(it: Notice, hidden_at: HiddenAt) -> Notice:
    texts = it.subject, it.before, it.after, it.condition, it.where, it.repair
    if it.kind in _OF_LOG or (hidden := hidden_at(it.uri)) is None or not hidden.touches(*texts):
        return it
    subject = MARK if it.kind in (*OWN_WHERE, Measure.TWICE, Measure.WHERE) else it.subject
    return replace(it, subject=subject, before=MARK, after=MARK, condition="", where="", repair="")


def _judgement(it: Judgement, hidden_at: HiddenAt) -> Judgement:
    expected, finding = it.expectation, it.finding
    texts = *expected.columns, expected.condition, expected.other_column
    tables = (hidden_at(uri) for uri in (expected.uri, expected.other_uri) if uri)
    if not any(hidden.touches(*texts) for hidden in tables if hidden):
        return it
    reason = MARK if expected.condition and finding.reason else finding.reason
    return replace(it, finding=replace(finding, reason=reason, examples=(MARK,) if finding.examples else ()))
