"""`weir bisect T --assert CONDITION`: the first version that breaks a condition, or mends it.

Rule: each probe is told on stderr as it ends, the result alone goes to stdout; a range of commits is an answer too.
"""

import shlex
from contextlib import closing
from dataclasses import asdict, dataclass

from app.cli.output import Document, cell, print_json, print_table, say
from app.cli.tables import documents
from app.cli.tables.history import commit_document
from app.cli.tables.lake import opened
from app.search.view.culprit import changed_text, restore_texts
from app.search.view.words import commit_text, headline, left_text, means_text, notes, probe_line
from app.ui.view.explanation import explained
from backend.changes.answer import diff as compare
from backend.changes.cache import Differences
from backend.changes.model import Question, VersionDiff
from backend.errors import BisectError, LakehouseError
from backend.format import utc_text
from backend.lake.lake import Lake
from backend.lake.model import Commit
from backend.search.model import Bisection, BisectRequest, Probe
from backend.search.search import bisect as search

SHOWN = 20  # commits of a range on a terminal


@dataclass(frozen=True, slots=True)
class Request:
    """`weir bisect` as typed."""

    table: str
    condition: str
    good: str | None
    bad: str | None
    check: int


def bisect(request: Request, *, as_json: bool) -> int:
    lake, ref = opened(request.table)
    asked = BisectRequest(request.condition, request.good, request.bad, request.check)
    found: Bisection | None = None
    told = 0
    with closing(search(lake, ref, asked)) as steps:
        for step in steps:
            for probe in step.probes[told:]:
                left = left_text(step)
                say(f"{probe_line(probe)}{f' · {left}' if left else ''}", style="dim", to_stderr=True)
            told, found = len(step.probes), step.result
    if found is None:
        raise BisectError("the search ended without an answer")
    about = _about(lake, found)
    if as_json:
        print_json(document(found) | about.document())
    else:
        _print(found, about)
    return 0


@dataclass(frozen=True, slots=True)
class _About:
    """What the commit that was found changed, and what going back before it would change; None where comparing is more
    than a little work, or there is nothing to go back from."""

    found: Bisection
    commits: tuple[Commit, ...]
    changed: VersionDiff | None
    way_back: VersionDiff | None

    def document(self) -> Document:
        changed, back = self.changed, self.way_back
        return {
            "changed": changed and {"net": asdict(changed.net), "explanation": documents.explanation(changed)},
            "way_back": {
                "version": self.found.good_seen,
                "commits": [commit.version for commit in self.commits],
                "net": back and asdict(back.net),
            }
            if self.commits
            else None,
        }

    def lines(self) -> list[str]:
        if self.found.culprit is None:
            return []
        said = [f"What it changed: {changed_text(self.found, self.changed)}"]
        said += explained(self.changed.explanation) if self.changed else ()
        texts = restore_texts(self.found, self.commits, self.way_back) if self.commits else []
        return [*said, *(f"{text[:1].upper()}{text[1:]}." for text in texts)]


def _about(lake: Lake, found: Bisection) -> _About:
    good, latest = found.good_seen, lake.latest_version(found.ref)
    if found.culprit is None:
        return _About(found, (), None, None)
    changed = _compared(lake, found, found.culprit - 1, found.culprit)
    if found.is_mended or good >= latest:
        return _About(found, (), changed, None)
    commits = lake.history(found.ref, starting_version=good + 1, ending_version=latest)
    return _About(found, tuple(commits), changed, _compared(lake, found, latest, good))


def _compared(lake: Lake, found: Bisection, first: int, second: int) -> VersionDiff | None:
    question = Question(found.ref, first, second, row_limit=0)
    try:
        if Differences().log_part(lake, question).is_small:
            return compare(lake, question)
    except LakehouseError:
        pass  # `weir diff` says why
    return None


# JSON ------------------------------------------------------------------------------------------------------------


def document(found: Bisection) -> Document:
    broke = not found.is_mended
    return {
        "name": found.ref.name,
        "uri": found.ref.uri,
        "condition": found.condition,
        "means": means_text(by_row=found.by_row),
        "good": found.good,
        "bad": found.bad,
        "direction": "broke" if broke else "mended",
        "first_bad_version": found.culprit if broke else None,
        "last_good_version": found.last if broke else None,
        "first_good_version": None if broke else found.culprit,
        "last_bad_version": None if broke else found.last,
        "candidates": list(found.candidates),
        "commit": commit_document(found.commit) if found.commit else None,
        "monotonic": found.is_monotonic,
        "again": list(found.again),
        "commits_that_changed_rows": found.changing,
        "not_judged": found.unprobed,
        "probes": [_probe(probe) for probe in found.probes],
        "examples": [dict(row) for row in found.examples.rows],
        "notes": notes(found),
        "diff": {"from_version": found.last, "to_version": to_version(found), "command": diff_command(found)},
    }


def _probe(probe: Probe) -> Document:
    verdict = probe.verdict
    return {
        "version": probe.version,
        "committed_at": probe.committed_at,
        "operation": probe.operation,
        "outcome": probe.outcome.value,
        "purpose": probe.purpose.value,
        "reason": probe.reason,
        "value": verdict.value if verdict else None,
        "parts": dict(verdict.aggregates) if verdict else {},
        "violations": verdict.violations if verdict else None,
        "nulls": verdict.nulls if verdict else None,
        "rows": verdict.rows if verdict else None,
        "source": probe.source.value,
        "files": probe.files,
        "files_read": probe.files_read,
        "rows_read": probe.rows_read,
        "bytes_read": probe.bytes_read,
        "duration_s": round(probe.duration_s, 3),
    }


def to_version(found: Bisection) -> int:
    """The newer end of the difference that shows the change."""
    return found.first_seen if found.culprit is None else found.culprit


def diff_command(found: Bisection) -> str:
    """What shows the change itself."""
    return f"weir diff {shlex.quote(found.ref.name)} --from {found.last} --to {to_version(found)}"


# for people ------------------------------------------------------------------------------------------------------


def _print(found: Bisection, about: _About) -> None:
    say(f"{headline(found)}.", style="bold")
    say(means_text(by_row=found.by_row)[:1].upper() + means_text(by_row=found.by_row)[1:], style="dim")
    for note in notes(found):
        say(f"  {note}")
    for line in about.lines():
        say(f"  {line}")
    if found.culprit is None:
        say()
        _print_candidates(found)
    if found.examples.rows:
        say()
        say(f"Rows of v{found.bad_seen} that violate it:")
        _print_examples(found)
    say()
    say(f"What it changed: {diff_command(found)}")


def _print_candidates(found: Bisection) -> None:
    print_table(
        ("version", "when", "commit"),
        ((f"v{c.version}", utc_text(c.committed_at), commit_text(c, {})) for c in found.commits[:SHOWN]),
        right=("version",),
    )
    if len(found.candidates) > SHOWN:
        say("More commits may be it: --json lists all.", style="dim")


def _print_examples(found: Bisection) -> None:
    columns = found.examples.columns
    print_table(columns, ([cell(row.get(name)) for name in columns] for row in found.examples.rows))
