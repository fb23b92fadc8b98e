"""`weir versions T`: which versions can still be reached, until when, and why; `weir pin|unpin T VERSION` keeps one.

Rule: a broken table is an answer, not a failure; nothing is claimed of files that nobody looked for.
"""

from typing import Annotated

import typer

from app import services
from app.cli.commands import VERSION, AsJson, Reason, TableName
from app.cli.lake import opened
from app.cli.output import Document, Shapes, only, print_json, print_list, say
from app.columns import Column, Columns
from app.versions.text import answer_text, answers_once, feed_word, file_words, flag_word, pin_words
from backend.format import ago, utc_text
from backend.lake.history.history import resolve_version
from backend.lake.model import Commit, Pin, TableRef
from backend.lake.retention.answers import Answer, Extension, VersionAnswer, judge_version, missing_words
from backend.lake.retention.runs import FilesSeen, RetentionRuns, RetentionSetting, VacuumRun, VersionRun, judge
from backend.times import parse_time

PinnedVersion = Annotated[str, typer.Argument(metavar="VERSION", help=VERSION)]


def versions(
    name: TableName,
    at: Annotated[str | None, typer.Option("--at", help=f"One version. {VERSION}.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Look for every data file.")] = False,
    as_json: AsJson = False,
) -> None:
    lake, ref = opened(name)
    version = None if at is None else resolve_version(lake, ref, at, services.clock())
    retention = judge(lake.retention_facts(ref), services.now())
    if check and version is None:
        *_, seen = lake.see_log(ref)
        retention = judge(retention.facts, retention.now, seen.runs)
    answer = None
    if version is not None:
        files = None
        if check and retention.facts.is_reconstructable(version):
            *_, files = lake.see_files(ref, version, sample=None)
        answer = judge_version(retention, version, files)
    store = services.existing_store()
    pins = store.pins.of_table(ref) if store else []
    if as_json:
        commits = [] if version is None else lake.history(ref, starting_version=version, ending_version=version)
        print_json(document(ref, retention, answer, next(iter(commits), None)) | {"pins": pins}, _SHAPES)
    else:
        _print(ref, retention, answer)
        for pin in pins:
            say(pin_words(pin, services.now()))


def pin(
    name: TableName,
    at: PinnedVersion,
    reason: Reason = "",
    called: Annotated[
        str, typer.Option("--name", help="Stands for this version wherever a version is asked for.")
    ] = "",
    until: Annotated[str, typer.Option(metavar="DAY", help="When it ends by itself: 2026-12-31.")] = "",
    as_json: AsJson = False,
) -> None:
    lake, ref = opened(name)
    version = resolve_version(lake, ref, at, services.clock())
    lake.snapshot(ref, version)  # raises where nobody can read it any more
    ends = parse_time(until, services.clock(), end_of_day=True) if until else None
    actor, now = services.actor(), services.now()
    made = services.store().pins.add(ref, version, actor=actor, reason=reason, now=now, name=called, until=ends)
    answer = judge_version(judge(lake.retention_facts(ref), services.now()), version)
    if as_json:
        print_json(made, _SHAPES)
        return
    say(f"{ref.name}: {pin_words(made, services.now())}. Weir's VACUUM is refused while it would delete a file of it.")
    if version != lake.latest_version(ref):
        say(f"time travel: {answer_text(answer.time_travel, None)}; a pin does not change that.", style="dim")


def unpin(name: TableName, at: PinnedVersion, reason: Reason = "", as_json: AsJson = False) -> None:
    lake, ref = opened(name)
    version = int(at) if at.isdecimal() else resolve_version(lake, ref, at, services.clock())  # also one that is gone
    gone = services.store().pins.remove(ref, version, actor=services.actor(), reason=reason, now=services.now())
    if as_json:
        print_json(gone, _SHAPES)
    else:
        say(f"{ref.name}: v{version} is not pinned any more.")


# JSON ------------------------------------------------------------------------------------------------------------


_SHAPES: Shapes = {
    RetentionSetting: only("key", "is_set", value="text", duration_s="duration"),
    VacuumRun: only("version", "at", "deleted_files", retention_s="retention"),
    Answer: only("until", "is_promise", "reasons", answer="verdict", extend="extension"),
    Extension: only("key", "current", "until", "note", suggested_s="suggested", empty_is_null=("note",)),
    Pin: only("version", "actor", "reason", "pinned_at", "name", "until"),
    FilesSeen: only("state", "total", "checked", "missing", "examples"),
}


def document(ref: TableRef, retention: RetentionRuns, answer: VersionAnswer | None, commit: Commit | None) -> Document:
    """`commit`: that of the version which is answered for, where the log has it."""
    facts = retention.facts
    printed: Document = {
        "name": ref.name,
        "uri": ref.uri,
        "judged_at": retention.now,
        "first_listed": facts.listed[0][0] if facts.listed else None,
        "latest": facts.latest,
        "spans": [{"from_version": first, "to_version": last} for first, last in facts.spans],
        "checkpoints": facts.checkpoints,
        "runs": retention.runs,
        "retention": {
            "deleted_file_retention": facts.deleted_files,
            "log_retention": facts.log_retention,
            "log_cleanup": facts.cleanup,
            "counted_from": "in_commit_timestamp" if facts.in_commit_timestamps else "commit_file_time",
        },
        "vacuums": facts.vacuums,
        "problems": facts.problems,
    }
    return printed if answer is None else printed | {"at": _version(answer, commit)}


def _version(value: VersionAnswer, commit: Commit | None) -> Document:
    return {
        "version": value.version,
        "committed_at": commit.committed_at if commit else None,
        "log_written_at": value.at,
        "run": value.run,
        "time_travel": value.time_travel,
        "restore": value.restore,
        "change_feed": value.change_feed,
        "other_readers": value.elsewhere,
        "log": {"until": value.log_kept_until, "reason": value.log_words},
        "files": value.files,
    }


# for people ------------------------------------------------------------------------------------------------------


def _print(ref: TableRef, retention: RetentionRuns, answer: VersionAnswer | None) -> None:
    facts = retention.facts
    say(f"{ref.name} · versions 0 – {facts.latest}", style="bold")
    for problem in facts.problems:
        say(f"! {problem}", style="yellow")
    if answer is not None:
        _print_version(answer)
        return
    print_list(RUNS, retention.runs)
    for setting in (facts.deleted_files, facts.log_retention):
        say(f"{setting.key} is {setting.words}", style="dim")


RUNS: Columns[VersionRun] = (
    Column("Versions", lambda run: f"{run.from_version} – {run.to_version}", "figure"),
    Column("In the log", lambda run: flag_word(run.listed)),
    Column("Rebuilt", lambda run: flag_word(run.reconstructable)),
    Column("Inside retention", lambda run: flag_word(run.in_retention)),
    Column("Change feed", feed_word),
    Column("Files", file_words),
)


def _print_version(answer: VersionAnswer) -> None:
    say(f"v{answer.version} · written to the log {utc_text(answer.at)} ({ago(answer.at, services.now())})")
    for label, part, reasons in answers_once(answer, None, services.now()):
        say(f"{label}: {answer_text(part, None)}")
        if reasons:
            say(f"    {reasons}", style="dim")
    say(f"log: {answer.log_words}", style="dim")
    say(f"files: {missing_words(answer.files) if answer.files else file_words(answer.run)}")
