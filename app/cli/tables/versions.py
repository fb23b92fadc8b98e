"""`weir versions T`: which versions can still be reached, until when, and why.

Rule: a broken table is an answer, not a failure; nothing is claimed of files that nobody looked for.
"""

from app import services
from app.cli.output import Document, fields_of, print_json, print_table, say
from app.cli.tables.lake import opened
from app.versions.view.reachability import answer_text, file_words, run_words
from backend.changes.versions import resolve_version
from backend.format import ago, utc_text
from backend.lake.lake import Lake
from backend.lake.model import Commit, TableRef
from backend.lake.retention.answers import Answer, VersionAnswer, judge_version, missing_words
from backend.lake.retention.runs import (
    FilesSeen,
    LogFacts,
    RetentionRuns,
    RetentionSetting,
    VersionRun,
    judge,
    with_missing,
)


def versions(name: str, at: str | None, *, check: bool, as_json: bool) -> int:
    lake, ref = opened(name)
    version = None if at is None else resolve_version(lake, ref, at)
    found = judge(lake.retention_facts(ref), services.now())
    if check and version is None:
        found = _looked_for(lake, ref, found)
    answer = None
    if version is not None:
        files = _files(lake, ref, version) if check and found.facts.is_reconstructable(version) else None
        answer = judge_version(found, version, files)
    if as_json:
        commits = [] if version is None else lake.history(ref, starting_version=version, ending_version=version)
        print_json(document(ref, found, answer, next(iter(commits), None)))
    else:
        _print(ref, found, answer)
    return 0


def _looked_for(lake: Lake, ref: TableRef, found: RetentionRuns) -> RetentionRuns:
    *_, seen = lake.see_log(ref)
    return with_missing(found, seen.runs)


def _files(lake: Lake, ref: TableRef, version: int) -> FilesSeen:
    *_, seen = lake.see_files(ref, version, sample=None)
    return seen


# JSON ------------------------------------------------------------------------------------------------------------


def document(ref: TableRef, found: RetentionRuns, answer: VersionAnswer | None, commit: Commit | None) -> Document:
    """`commit`: that of the version which is answered for, where the log has it."""
    facts = found.facts
    printed: Document = {
        "name": ref.name,
        "uri": ref.uri,
        "judged_at": found.now,
        "first_listed": facts.listed[0][0] if facts.listed else None,
        "latest": facts.latest,
        "spans": [{"from_version": first, "to_version": last} for first, last in facts.spans],
        "checkpoints": list(facts.checkpoints),
        "runs": [_run(run) for run in found.runs],
        "retention": _settings(facts),
        "vacuums": [
            {
                "version": v.version,
                "at": v.at,
                "retention_s": v.retention.total_seconds() if v.retention is not None else None,
                "deleted_files": v.deleted_files,
            }
            for v in facts.vacuums
        ],
        "problems": list(facts.problems),
    }
    return printed if answer is None else printed | {"at": _version(answer, commit)}


def _run(run: VersionRun) -> Document:
    return fields_of(run) | {"data_files": run.data_files.value if run.data_files else None}


def _settings(facts: LogFacts) -> Document:
    return {
        "deleted_file_retention": _retention(facts.deleted_files),
        "log_retention": _retention(facts.log_retention),
        "log_cleanup": facts.cleanup,
        "counted_from": "in_commit_timestamp" if facts.in_commit_timestamps else "commit_file_time",
    }


def _retention(value: RetentionSetting) -> Document:
    seconds = value.duration.total_seconds() if value.duration is not None else None
    return {"key": value.key, "value": value.text, "is_set": value.is_set, "duration_s": seconds}


def _version(value: VersionAnswer, commit: Commit | None) -> Document:
    return {
        "version": value.version,
        "committed_at": commit.committed_at if commit else None,
        "log_written_at": value.at,
        "run": _run(value.run) if value.run else None,
        "time_travel": _answer(value.time_travel),
        "restore": _answer(value.restore),
        "change_feed": _answer(value.change_feed),
        "other_readers": _answer(value.elsewhere),
        "log": {"until": value.log_kept_until, "reason": value.log_words},
        "files": _seen(value.files) if value.files else None,
    }


def _answer(value: Answer) -> Document:
    longer = value.extension
    return {
        "answer": value.verdict.value,
        "until": value.until,
        "is_promise": value.is_promise,
        "reasons": list(value.reasons),
        "extend": {
            "key": longer.key,
            "current": longer.current,
            "suggested_s": longer.suggested.total_seconds(),
            "until": longer.until,
            "note": longer.note or None,
        }
        if longer
        else None,
    }


def _seen(value: FilesSeen) -> Document:
    return {
        "state": value.state.value,
        "total": value.total,
        "checked": value.checked,
        "missing": value.missing,
        "examples": list(value.examples),
    }


# for people ------------------------------------------------------------------------------------------------------


def _print(ref: TableRef, found: RetentionRuns, answer: VersionAnswer | None) -> None:
    facts = found.facts
    say(f"{ref.name} · versions 0 – {facts.latest}", style="bold")
    for problem in facts.problems:
        say(f"! {problem}", style="yellow")
    if answer is not None:
        _print_version(answer)
        return
    print_table(
        ("versions", "in the log", "rebuilt", "inside retention", "change feed", "files"),
        ((f"{run.from_version} – {run.to_version}", *run_words(run)) for run in found.runs),
        right=("versions",),
    )
    for setting in (facts.deleted_files, facts.log_retention):
        say(f"{setting.key} is {setting.words}", style="dim")


def _print_version(answer: VersionAnswer) -> None:
    say(f"v{answer.version} · written to the log {utc_text(answer.at)} ({ago(answer.at, services.now())})")
    for label, part in (
        ("time travel", answer.time_travel),
        ("restore", answer.restore),
        ("change feed", answer.change_feed),
        ("other readers", answer.elsewhere),
    ):
        say(f"{label}: {answer_text(part, None)}")
        for reason in part.reasons:
            say(f"    {reason}", style="dim")
    say(f"log: {answer.log_words}", style="dim")
    say(f"files: {missing_words(answer.files) if answer.files else file_words(answer.run)}")
