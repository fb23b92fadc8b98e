"""`weir bisect T --assert CONDITION`: the first version that breaks a condition, or mends it.

Rule: each probe is shown on stderr as it ends, the result alone goes to stdout; a range of commits is an answer too.
"""

from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from app import services
from app.cli.commands import VERSION, AsJson, TableName
from app.cli.diff import SHAPES
from app.cli.history import commit_document
from app.cli.lake import opened
from app.cli.output import Document, cell, encoded, only, print_json, print_list, print_table, say
from app.columns import Column, Columns
from app.search import text
from app.ui.view.acts import loss_text, preview_lines
from app.ui.view.words import sentence
from backend.changes.answer import diff as compare
from backend.changes.cache import Differences
from backend.changes.model import Question, VersionDiff
from backend.errors import BisectError, LakehouseError
from backend.lake.lake import Lake
from backend.lake.model import Commit
from backend.maintenance.model import ActPreview, Restore
from backend.maintenance.plan import load_preview
from backend.search.search import Bisection, BisectRequest
from backend.search.search import bisect as search

SHOWN = 20  # commits of a range on a terminal


def bisect(
    name: TableName,
    condition: Annotated[str, typer.Option("--assert", help="SQL that a good version satisfies: amount >= 0.")],
    good: Annotated[str | None, typer.Option("--good", help=f"{VERSION}. None: the oldest that can be read.")] = None,
    bad: Annotated[
        str | None, typer.Option("--bad", help="The same; none: the latest. Older than good: what mended it.")
    ] = None,
    check: Annotated[int, typer.Option("--check", min=0, max=50, help="Versions to try beyond, on each side.")] = 2,
    as_json: AsJson = False,
) -> None:
    (lake, ref), request = opened(name), BisectRequest(condition, good, bad, check, services.clock())
    result: Bisection | None = None
    shown = 0
    with closing(search(lake, ref, request)) as steps:
        for step in steps:
            for probe in step.probes[shown:]:
                left = "" if step.at_most_left is None else f" · at most {step.at_most_left} more"
                say(f"{text.probe_line(probe)}{left}", style="dim", to_stderr=True)
            shown, result = len(step.probes), step.result
    if result is None:
        raise BisectError("the search ended without an answer")
    about = _about(lake, result)
    if as_json:
        print_json(document(result) | about.document())
    else:
        _print(result, about)


@dataclass(frozen=True, slots=True)
class _About:
    """What the commit that was found changed, of that the rows that break the condition, and what the table has
    changed since the version before it, `still_broken` those that break it; None where comparing is more than a
    little work, or there is nothing to go back from, which `restore` would do.
    """

    result: Bisection
    commits: tuple[Commit, ...]
    changed: VersionDiff | None
    broken: VersionDiff | None
    since: VersionDiff | None
    restore: ActPreview | None
    still_broken: VersionDiff | None = None

    def document(self) -> Document:
        changed, net = self.changed, self.since and self.since.changes.net
        return {
            "changed": changed and {"net": changed.changes.net, "explanation": encoded(changed.explanation, SHAPES)},
            "way_back": {
                "version": self.result.good_seen,
                "commits": [commit.version for commit in self.commits],
                "net": net and replace(net, inserted=net.deleted, deleted=net.inserted),
            }
            if self.commits
            else None,
        }

    def lines(self) -> list[str]:
        if self.result.culprit is None:
            return []
        lines = [f"What it changed: {text.changed_text(self.result, self.changed)}"]
        lines += text.cause_texts(self.changed, self.broken, by_row=bool(self.result.row_rule)) if self.changed else ()
        if self.restore is None:
            return lines
        back, refused = self.restore, self.restore.refused
        bad = (self.still_broken, self.result.row_rule) if self.still_broken else ()
        said = [*preview_lines(back, loss_text(self.since, *bad)), refused]
        return [*lines, f"Back to v{self.result.good_seen}:", *(sentence(line) for line in said if line)]


def _about(lake: Lake, result: Bisection) -> _About:
    good, latest = result.good_seen, lake.latest_version(result.ref)
    if result.culprit is None:
        return _About(result, (), None, None, None, None)
    changed = _compared(lake, result, result.culprit - 1, result.culprit)
    where = None if result.is_mended else text.where_broken(result)
    broken = _compared(lake, result, result.culprit - 1, result.culprit, where) if where else None
    if result.is_mended or good >= latest:
        return _About(result, (), changed, broken, None, None)
    commits = lake.history(result.ref, starting_version=good + 1, ending_version=latest)
    restore = None
    with suppress(LakehouseError):  # `weir restore --dry-run` says why
        settings, store = services.settings(), services.existing_store()
        restore = load_preview(settings, lake, store, result.ref.uri, Restore(good), now=services.now())
    still_broken = _compared(lake, result, good, latest, where) if where and result.row_rule else None
    return _About(result, tuple(commits), changed, broken, _compared(lake, result, good, latest), restore, still_broken)


def _compared(lake: Lake, result: Bisection, first: int, second: int, where: str | None = None) -> VersionDiff | None:
    question = Question(result.ref, first, second, row_limit=0, across_replace=True, where=where)
    try:
        if Differences().log_part(lake, question).is_small:
            return compare(lake, question)
    except LakehouseError:
        pass  # `weir diff` says why
    return None


# JSON ------------------------------------------------------------------------------------------------------------


def document(result: Bisection) -> Document:
    broke = not result.is_mended
    return {
        "name": result.ref.name,
        "uri": result.ref.uri,
        "condition": result.condition,
        "means": text.means_text(result),
        "good": result.good,
        "bad": result.bad,
        "direction": "broke" if broke else "mended",
        "first_bad_version": result.culprit if broke else None,
        "last_good_version": result.last if broke else None,
        "first_good_version": None if broke else result.culprit,
        "last_bad_version": None if broke else result.last,
        "candidates": list(result.candidates),
        "commit": commit_document(result.commit) if result.commit else None,
        "monotonic": result.is_monotonic,
        "again": list(result.again),
        "commits_that_changed_rows": result.changing,
        "not_judged": result.unprobed,
        "probes": [
            PROBE(probe)
            | {
                "parts": dict(probe.verdict.aggregates) if probe.verdict else {},
                "duration_s": round(probe.duration_s, 3),
            }
            for probe in result.probes
        ],
        "examples": [dict(row) for row in result.examples.rows],
        "notes": text.notes(result),
        "diff": {"from_version": result.last, "to_version": result.changed_at, "command": text.diff_command(result)},
    }


PROBE = only(
    "version",
    "committed_at",
    "operation",
    "outcome",
    "purpose",
    "reason",
    value="verdict.value",
    violations="verdict.violations",
    nulls="verdict.nulls",
    rows="verdict.rows",
    source="number.source",
    files="number.files",
    files_read="number.files_read",
    rows_read="number.rows_read",
    bytes_read="number.bytes_read",
)


# for people ------------------------------------------------------------------------------------------------------


def _print(result: Bisection, about: _About) -> None:
    say(f"{text.headline(result)}.", style="bold")
    means = text.means_text(result)
    say(f"{means[:1].upper()}{means[1:]}", style="dim")
    for note in text.notes(result):
        say(f"  {note}")
    for line in about.lines():
        say(f"  {line}")
    if result.culprit is None:
        say()
        print_list(CANDIDATES, result.commits[:SHOWN])
        if len(result.candidates) > SHOWN:
            say("More commits may be the first bad one: --json lists all.", style="dim")
    if result.examples.rows:
        say()
        say(f"Rows of v{result.bad_seen} that violate it:")
        columns = result.examples.columns
        print_table(columns, ([cell(row.get(name)) for name in columns] for row in result.examples.rows))
    say()
    say(f"What it changed: {text.diff_command(result)}")


CANDIDATES: Columns[Commit] = (
    Column("Version", lambda commit: commit.version, "version", key="version"),
    Column("When", lambda commit: commit.committed_at, "moment", key="committed_at"),
    Column("Commit", lambda commit: text.commit_text(commit, {})),
)
