"""Attention by cause: five tables of small files are one thing to know, not five.

Rule: pure; a group of one says what its item says; a group of many says how many, and what they have in common.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from backend.format import things
from backend.health.model import AttentionGroup, AttentionItem, Cause, Severity

MOST_NAMES = 4
MOST_DETAILS = 3
MANY = 20  # a few names say nothing of so many

_Words = Callable[[Sequence[AttentionItem]], str]


def grouped(items: Sequence[AttentionItem]) -> tuple[AttentionGroup, ...]:
    """The items by severity and cause, in the order in which they come (most urgent first)."""
    groups: dict[tuple[Severity, Cause], list[AttentionItem]] = {}
    for item in items:
        groups.setdefault((item.severity, item.cause), []).append(item)
    return tuple(_group(severity, cause, tuple(of_it)) for (severity, cause), of_it in groups.items())


def group_text(group: AttentionGroup) -> str:
    """ "warning: table orders: No commit for 3 h."."""
    about = f"{group.only.kind} {group.only.subject}: " if group.only else ""
    return f"{group.severity}: {about}{group.what}"


def _group(severity: Severity, cause: Cause, items: tuple[AttentionItem, ...]) -> AttentionGroup:
    if len(items) == 1:
        return AttentionGroup(severity, cause, items, items[0].what, items[0].next_step)
    what, step = _WORDS[cause]
    subjects = len({item.subject for item in items})
    many = things(subjects, cause.kind)
    return AttentionGroup(severity, cause, items, f"{many} {what(items)}.", step(items))


def _names(items: Sequence[AttentionItem]) -> str:
    subjects = list(dict.fromkeys(item.subject for item in items))
    names = ", ".join(subjects[:MOST_NAMES])
    return names if len(subjects) <= MOST_NAMES else f"{names} and {len(subjects) - MOST_NAMES:,} more"


def _details(items: Sequence[AttentionItem]) -> str:
    """ "reader feature catalogOwned (40), … (12) and 3 other reasons"."""
    counts = Counter(item.detail for item in items).most_common()
    if len(counts) == 1:
        return counts[0][0]
    details = ", ".join(f"{detail} ({count:,})" for detail, count in counts[:MOST_DETAILS])
    rest = len(counts) - MOST_DETAILS
    return details if rest <= 0 else f"{details} and {things(rest, 'other reason')}"


def earliest(items: Sequence[AttentionItem]) -> list[AttentionItem]:
    """The first commit of several is most likely what the others come from."""
    return sorted(items, key=lambda item: (item.since is None, item.since))


def _each(items: Sequence[AttentionItem]) -> str:
    """ "orders (highest amount 498.2 → 47,189 at v31, …)": of few tables all, of many the names."""
    told: dict[str, list[str]] = {}
    for item in earliest(items):
        told.setdefault(item.subject, []).append(item.detail)
    if len(told) > MOST_DETAILS:
        return _names(earliest(items))
    return "; ".join(f"{subject} ({'; '.join(details)})" for subject, details in told.items())


def _spared(items: Sequence[AttentionItem]) -> str:
    return f"hold mostly small files: merging would spare {sum(item.spared for item in items):,} files"


def _small_step(items: Sequence[AttentionItem]) -> str:
    if items[0].severity is Severity.WARNING:
        return "OPTIMIZE merges them; each table's Health page says where they come from."
    return "Readers lose little by them: OPTIMIZE can wait."


def _of_names(words: str) -> _Words:
    return lambda items: words if len(items) >= MANY else f"{words}: {_names(items)}"


def _expectations(one: str, many: str, rest: str = "") -> _Words:
    """Of each table there may be several; those of one are told."""

    def words(items: Sequence[AttentionItem]) -> str:
        broken = f"{things(len(items), 'table expectation')}{rest}"
        if len({item.subject for item in items}) == 1:
            return f"{one} {broken}: {items[0].subject} ({'; '.join(item.detail for item in items[:MOST_NAMES])})"
        return f"{many} {broken}" if len(items) >= MANY else f"{many} {broken}: {_names(items)}"

    return words


def _always(words: str) -> _Words:
    return lambda _: words


_WORDS: dict[Cause, tuple[_Words, _Words]] = {
    Cause.FAILED_STREAM: (
        _of_names("failed"),
        _always("Read each error on its stream's page, remove its cause, then restart it."),
    ),
    Cause.NO_HOST: (_of_names("are silent"), _always("Start one: `weir host` (or `weir up` for everything).")),
    Cause.UNREADABLE: (
        lambda items: f"cannot be read: {_details(items)}",
        _always("The list says for each why, and what to do."),
    ),
    Cause.FAILING_WEBHOOK: (_of_names("cannot be told"), _always("The log of their host says why.")),
    Cause.FAILING_STREAM: (
        _of_names("keep failing and are restarted by their host"),
        _always("Read each error on its stream's page before the host gives up."),
    ),
    Cause.EXPIRING_STREAM: (
        _of_names("lose unread input to retention, or soon will"),
        _always("Each stream's page says when, and which setting moves that."),
    ),
    Cause.SLOW_STREAM: (
        _of_names("are slow or stalled"),
        _always("Look at input, batch duration and state on each stream's page."),
    ),
    Cause.UNWATCHED_STREAM: (
        _of_names("should run and no living host runs them"),
        _always("Start their host again, or let a living one run them by declaring them there."),
    ),
    Cause.UNUSUAL_COMMIT: (
        lambda items: f"did what was never seen before: {_each(items)}",
        _always("The page of each says what that commit changed; once marked as seen there, it is told no more."),
    ),
    Cause.BROKEN_EXPECTATION: (
        _expectations("breaks", "break"),
        _always("Summary says since when."),
    ),
    Cause.UNKNOWN_EXPECTATION: (
        _expectations("has", "have", " that cannot be judged now"),
        _always("Summary says why."),
    ),
    Cause.SILENT_TABLE: (
        _of_names("have no fresh commit although streams should write them"),
        _always("Look at the streams that feed them."),
    ),
    Cause.RESTING_POLICY: (
        _of_names("have policies that rest after failures"),
        _always("Acts says why each failed; done by hand once, its policy goes on."),
    ),
    Cause.SMALL_FILES: (_spared, _small_step),
    Cause.LAYOUT: (
        lambda items: _of_names(f"have {_details(items)}")(items),
        _always("Each table's Health page says what would help: OPTIMIZE alone does not."),
    ),
    Cause.QUIET_TABLE: (
        _of_names("have had no commit for long"),
        _always("Nothing to do if they are not written any more; otherwise look at their writers."),
    ),
    Cause.STOPPED_STREAM: (_of_names("were stopped by a person"), _always("Start them when they are wanted again.")),
}
