"""What can be done with one version: time travel, restore, change feed, until when and why.

Rule: pure; the most decisive reason first; a file check never claims more than was looked at. See `runs` for what
Delta enforces.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from backend.lake.retention.runs import (
    DELETED_FILES,
    LOG_CLEANUP,
    LOG_RETENTION,
    DataFiles,
    FilesSeen,
    LogFacts,
    RetentionRuns,
    VersionRun,
)
from backend.lake.table.properties import interval_text

_DAY = timedelta(days=1)
_SUGGESTED_DAYS = (14, 30, 60, 90, 180, 365, 730)


class Reach(StrEnum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Extension:
    """The setting that would move the end, what it is now, and until when a longer one would reach."""

    key: str
    current: str
    suggested: timedelta
    until: datetime
    note: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether something can be done at a version. `until` is a promise or an estimate; reasons, most decisive first."""

    verdict: Reach
    reasons: tuple[str, ...]
    until: datetime | None = None
    is_promise: bool = False
    extension: Extension | None = None


@dataclass(frozen=True, slots=True)
class VersionAnswer:
    """The answers for one version. `elsewhere`: readers that enforce no retention (delta-rs, older Delta)."""

    version: int
    at: datetime | None
    run: VersionRun | None
    time_travel: Answer
    restore: Answer
    change_feed: Answer
    elsewhere: Answer
    log_kept_until: datetime | None
    log_words: str
    files: FilesSeen | None = None


def judge_version(runs: RetentionRuns, version: int, files: FilesSeen | None = None) -> VersionAnswer:
    """The answers for one version; `files` is what looking for its files found, None before anybody looked."""
    facts, run = runs.facts, runs.run_of(version)
    log_until, log_words = log_end(facts, version, runs.now)
    elsewhere = _elsewhere(runs, version, files, log_until)
    travel = _enforced(runs, version, files, log_until)
    restore = _restore(travel, version == facts.latest, files)
    return VersionAnswer(
        version=version,
        at=facts.times.get(version),
        run=run,
        time_travel=travel,
        restore=restore,
        change_feed=_change_feed(runs, version, _enforced(runs, version, None, log_until)),
        elsewhere=elsewhere,
        log_kept_until=log_until,
        log_words=log_words,
        files=files,
    )


def log_end(facts: LogFacts, version: int, now: datetime) -> tuple[datetime | None, str]:
    """From when the log that rebuilds a version may be cleaned (None: not known or never), and in words."""
    if not facts.is_reconstructable(version):
        return None, _not_rebuilt(facts, version)
    if not facts.cleanup:
        return None, f"{LOG_CLEANUP} is off, so the log is never cleaned"
    if facts.log_retention.duration is None:
        return None, f"{LOG_RETENTION} is {facts.log_retention.words}"
    base = max((c for c in facts.checkpoints if c <= version), default=0)
    at = facts.times.get(base)
    if at is None:
        return None, "the time of the oldest log file that it needs is not known"
    try:
        midnight = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        until = midnight + (_DAY if midnight < at else timedelta()) + facts.log_retention.duration
    except OverflowError:
        return None, f"{LOG_RETENTION} is {facts.log_retention.words}, which no calendar reaches"
    needs = f"it is rebuilt from version {base} on"
    rule = f"{LOG_RETENTION} is {facts.log_retention.words}, in whole days, applied when a checkpoint is written"
    if base >= max(facts.checkpoints, default=0):
        return until, f"{needs}, which is kept until a newer checkpoint is written; {rule}"
    when = "the next checkpoint may clean it away" if until <= now else "a checkpoint after that may clean it away"
    return until, f"{needs}; {when}; {rule}"


def _not_rebuilt(facts: LogFacts, version: int) -> str:
    if version > facts.latest or version < 0:
        return f"there is no version {version}; the latest is {facts.latest}"
    first = min((start for start, _ in facts.spans), default=None)
    if first is None:
        return "no version can be rebuilt: neither a checkpoint nor the first commit is there"
    if version < first:
        return f"its log was cleaned away; the oldest version that can be rebuilt is {first}"
    if facts.is_listed(version):
        return f"commit {version} is there, but a commit or checkpoint that it builds on is missing or unreadable"
    return f"commit {version} is missing from the log"


def _enforced(runs: RetentionRuns, version: int, files: FilesSeen | None, log_until: datetime | None) -> Answer:
    """Time travel with Delta 4.1 and later."""
    facts, run = runs.facts, runs.run_of(version)
    if run is None or not run.reconstructable:
        return Answer(Reach.NO, (_not_rebuilt(facts, version),))
    if files is not None and files.missing:
        return Answer(Reach.NO, (missing_words(files),))
    if not run.listed:
        reason = f"only the checkpoint of version {version} is left; Delta on Spark also needs its commit file"
        return Answer(Reach.NO, (reason,))
    retention, at = facts.deleted_files, facts.times.get(version)
    if version == facts.latest:
        reasons = ["it is the latest version, which is never refused"]
        if retention.duration is not None:
            stays = interval_text(retention.duration)
            reasons.append(f"after a newer commit it stays for {stays} counted from its own time")
        return Answer(Reach.YES, tuple(reasons))
    if retention.duration is None:
        return Answer(Reach.UNKNOWN, (f"{DELETED_FILES} is {retention.words}",))
    if at is None:
        return Answer(Reach.UNKNOWN, ("its time is not known",))
    try:
        until = at + retention.duration
    except OverflowError:
        until = datetime.max.replace(tzinfo=UTC)
    return _by_age(runs, version, files, until, log_until)


def _by_age(
    runs: RetentionRuns, version: int, files: FilesSeen | None, until: datetime, log_until: datetime | None
) -> Answer:
    facts, run = runs.facts, runs.run_of(version)
    assert run is not None
    clock = "its in-commit timestamp" if facts.in_commit_timestamps else "the time of its commit file"
    rule = f"{DELETED_FILES} is {facts.deleted_files.words}, counted from {clock}"
    extension = _extension(runs, version)
    if not run.in_retention:
        refused = f"Delta 4.1 and later refuse it, even if its files are there: {rule}"
        return Answer(Reach.NO, (refused,), until, is_promise=True, extension=extension)
    if run.data_files is DataFiles.AT_RISK and (files is None or files.checked < files.total):
        reason = "a VACUUM with a shorter retention than the table's may have deleted its files"
        return Answer(Reach.UNKNOWN, (reason, rule), until, extension=extension)
    is_cleanable = any(checkpoint > version for checkpoint in facts.checkpoints)
    if log_until is not None and runs.now < log_until < until and is_cleanable:
        return Answer(Reach.YES, (f"its log may be cleaned before: {LOG_RETENTION} is {facts.log_retention.words}",
                                    rule), log_until, extension=extension)  # fmt: skip
    files_stay = "a VACUUM that keeps to the table's settings deletes none of its files before"
    return Answer(Reach.YES, (rule, files_stay), until, is_promise=True, extension=extension)


def _extension(runs: RetentionRuns, version: int) -> Extension | None:
    """The next longer retention that reaches beyond now, as people set them."""
    facts, at = runs.facts, runs.facts.times.get(version)
    current = facts.deleted_files.duration
    if at is None or current is None:
        return None
    wanted = [timedelta(days=d) for d in _SUGGESTED_DAYS]
    longer = next((d for d in wanted if d > current and at + d > runs.now), None)
    if longer is None:
        return None
    log = facts.log_retention.duration
    notes = []
    if log is not None and log < longer:
        notes.append(f"{LOG_RETENTION} ({facts.log_retention.words}) has to be at least as long")
    if at + current < runs.now:
        notes.append("its files have to be there still")
    return Extension(DELETED_FILES, facts.deleted_files.words, longer, at + longer, "; ".join(notes))


def _restore(travel: Answer, is_latest: bool, files: FilesSeen | None) -> Answer:
    if is_latest and travel.verdict is Reach.YES:
        return Answer(Reach.YES, ("it is the latest version: restoring it changes nothing",))
    if travel.verdict is not Reach.YES:
        return travel
    needs = "RESTORE also needs every data file"
    looked = "none is missing" if files and files.checked >= files.total else "look for them before you rely on it"
    return replace(travel, reasons=(*travel.reasons, f"{needs}; {looked}"))


def _change_feed(runs: RetentionRuns, version: int, travel: Answer) -> Answer:
    """The changes that a commit made, read from the change feed beginning with it."""
    facts = runs.facts
    if not facts.is_listed(version):
        is_past = 0 <= version <= facts.latest
        gone = f"commit {version} is no longer in the log"
        return Answer(Reach.NO, (gone if is_past else f"there is no version {version}; the latest is {facts.latest}",))
    on = facts.has_feed(version)
    if on is None:
        return Answer(Reach.UNKNOWN, ("whether the change feed was on is not known: the log before it is gone",))
    if not on:
        reason = "the change feed was off (delta.enableChangeDataFeed); turning it on records later commits only"
        return Answer(Reach.NO, (reason,))
    if travel.verdict is Reach.YES and version == facts.latest:
        return Answer(Reach.YES, ("the feed was on, and a feed that begins with the latest version is never refused",
                                    *travel.reasons[1:]))  # fmt: skip
    if travel.verdict is Reach.YES:
        return replace(travel, reasons=(*travel.reasons, "the feed was on; its files follow VACUUM like data files"))
    return travel


def _elsewhere(runs: RetentionRuns, version: int, files: FilesSeen | None, log_until: datetime | None) -> Answer:
    """Readers that enforce no retention need the log and the files, nothing else."""
    facts, run = runs.facts, runs.run_of(version)
    if run is None or not run.reconstructable:
        return Answer(Reach.NO, (_not_rebuilt(facts, version),))
    if files is not None and files.missing:
        return Answer(Reach.NO, (missing_words(files),))
    state = files.state if files is not None else run.data_files
    if state is DataFiles.PRESENT or version == facts.latest:
        return Answer(Reach.YES, ("the log rebuilds it and its files are there",) if files else
                      ("the log rebuilds it; it is the latest version",))  # fmt: skip
    if state in (DataFiles.EXPECTED, DataFiles.SAMPLED):
        return Answer(Reach.YES, ("the log rebuilds it; not every file was looked for",), log_until)
    return Answer(Reach.UNKNOWN, ("the log rebuilds it; whether VACUUM left its files is not known before looking",))


def missing_words(files: FilesSeen) -> str:
    """What looking found, claiming no more than was looked at."""
    of = f"of {files.checked:,} sampled (of {files.total:,})" if files.checked < files.total else f"of {files.total:,}"
    if not files.missing:
        return f"no file {of} is missing"
    verb = "file is gone" if files.missing == 1 else "files are gone"
    return f"{files.missing:,} {verb}, {of}: deleted by VACUUM or by hand"
