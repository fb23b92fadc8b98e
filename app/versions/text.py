"""Versions in words, for the page and the terminal: what can be done with one and until when.

Rule: pure, and free of pandas and plotly, which the terminal does without; nothing is claimed of files that nobody
looked for.
"""

from datetime import datetime

from app.ui.view.words import markdown_safe, sentence
from backend.format import UNKNOWN, ago, clock_text, things, utc_text
from backend.lake.model import Pin
from backend.lake.retention.answers import Answer, Reach, VersionAnswer
from backend.lake.retention.runs import DataFiles, LogFacts, RetentionRuns, VersionRun
from backend.lake.table.properties import interval_text

YES, NO, NOT_KNOWN, OFF = "yes", "no", "not known", "off"
FILE_WORDS = {
    DataFiles.EXPECTED: "too young for VACUUM with these settings to have deleted any",
    DataFiles.PRESENT: "all found",
    DataFiles.SAMPLED: "none of a sample is missing",
    DataFiles.AT_RISK: "a VACUUM may have deleted some",
    DataFiles.UNKNOWN: "not known: past the retention",
    DataFiles.MISSING: "at least one is gone",
    None: "not known: the log cannot rebuild the version",
}


# all versions --------------------------------------------------------------------------------------------------------


def strip_finding(retention: RetentionRuns) -> str:
    """The strip's title: how many versions there are and how many can be read."""
    facts = retention.facts
    readable = sum(r.to_version - r.from_version + 1 for r in retention.runs if r.reconstructable and r.in_retention)
    rebuilt = sum(last - first + 1 for first, last in facts.spans)
    total = things(facts.latest + 1, "version")
    if readable == facts.latest + 1:
        return f"All {total} can be read" if facts.latest else "The only version can be read"
    if facts.deleted_files.duration is None:
        return f"{rebuilt:,} of {total} can be rebuilt; which Delta lets through is not known"
    if readable == rebuilt:
        return f"{readable:,} of {total} can be read"
    return f"{readable:,} of {total} can be read with Delta 4.1 and later, {rebuilt:,} with other readers"


def flag_word(value: bool | None) -> str:
    return NOT_KNOWN if value is None else YES if value else NO


def feed_word(run: VersionRun) -> str:
    return OFF if run.change_feed is False else flag_word(run.change_feed)


def file_words(run: VersionRun | None) -> str:
    """What the log alone says of a version's files."""
    return FILE_WORDS[run.data_files] if run else UNKNOWN


# one version -----------------------------------------------------------------------------------------------------

_ICONS = {
    Reach.YES: ":material/check_circle:",
    Reach.NO: ":material/block:",
    Reach.UNKNOWN: ":material/help:",
}
_COLOURS = {Reach.YES: "green", Reach.NO: "red", Reach.UNKNOWN: "orange"}
_OTHERS = {Reach.YES: "still can read it", Reach.NO: "cannot either", Reach.UNKNOWN: "may still read it"}
_WORDS = {Reach.YES: "yes", Reach.NO: "no", Reach.UNKNOWN: "not certain"}


def verdict_text(answer: VersionAnswer, latest: int, zone: str | None, now: datetime) -> str:
    """What can be done with a version in one Markdown sentence with its icon."""
    travel, name = answer.time_travel, f"v{answer.version}"
    if travel.verdict is Reach.YES and answer.version == latest:
        text = f"**{name} is the latest version**: readable."
    elif travel.verdict is Reach.YES and travel.until is not None:
        until = f"{'until' if travel.is_promise else 'at least until about'} {clock_text(travel.until, zone, now)}"
        text = f"**{name} can be read and restored** {until}, unless a VACUUM runs that keeps less."
    elif travel.verdict is Reach.UNKNOWN:
        text = f"**Whether {name} can still be read is not certain**: {markdown_safe(travel.reasons[0])}."
    elif travel.until is not None:
        others = _OTHERS[answer.elsewhere.verdict]
        since = clock_text(travel.until, zone, now)
        text = f"**Delta 4.1 and later refuse {name}** since {since}. Readers without that rule {others}."
    else:
        text = f"**{name} cannot be read**: {markdown_safe(travel.reasons[0])}."
    return f"{_ICONS[travel.verdict]} {text}"


def answers_once(answer: VersionAnswer, zone: str | None, now: datetime) -> list[tuple[str, Answer, str]]:
    """The answers with their labels and reasons; no sentence twice, the first answer that needs it has it."""
    labelled = [("Time travel", answer.time_travel), ("Restore", answer.restore)]
    if answer.time_travel == answer.restore:
        labelled = [("Time travel and restore", answer.time_travel)]
    labelled.append(("Change feed of this commit", answer.change_feed))
    labelled.append(("Readers that enforce no retention (delta-rs, Delta before 4.1)", answer.elsewhere))
    given: set[str] = set()
    answers = []
    for label, part in labelled:
        lines = [*(sentence(reason) for reason in part.reasons), extension_sentence(part, zone, now)]
        fresh = [line for line in dict.fromkeys(lines) if line and line not in given]
        given.update(fresh)
        answers.append((label, part, " ".join(fresh)))
    return answers


def headline(label: str, answer: Answer, zone: str | None, now: datetime) -> str:
    """An answer as Markdown: ":green[yes]", until when."""
    return f"{_ICONS[answer.verdict]} **{label}**: :{_COLOURS[answer.verdict]}[{answer_text(answer, zone, now)}]"


def answer_text(answer: Answer, zone: str | None, now: datetime | None = None) -> str:
    """ "yes, until Tue 14:05", "no, since 3 Nov 10:30", "not certain"."""
    word = _WORDS[answer.verdict]
    if answer.until is None:
        return word
    moment = clock_text(answer.until, zone, now)
    if answer.verdict is Reach.YES:
        return f"{word}, until {moment}" if answer.is_promise else f"{word}, at least until about {moment}"
    return f"{word}, since {moment}" if answer.verdict is Reach.NO else f"{word}; at most until {moment}"


def extension_sentence(answer: Answer, zone: str | None, now: datetime) -> str:
    """Which setting would move the end; empty where none would."""
    longer = answer.extension
    if longer is None:
        return ""
    note = f"; {longer.note}" if longer.note else ""
    days = interval_text(longer.suggested)
    until = clock_text(longer.until, zone, now)
    return f"`{longer.key}` is {longer.current}; {days} would make it until {until}{note}."


def kind_sentence(answer: Answer) -> str:
    """Whether the end is a promise or an estimate."""
    if answer.until is None:
        return ""
    if answer.is_promise:
        return "This moment follows from the settings alone: it holds as long as nobody changes them."
    return "This moment is an estimate: it depends on when the next checkpoint or VACUUM runs."


def log_sentence(answer: VersionAnswer, zone: str | None, now: datetime) -> str:
    """What becomes of the log that rebuilds the version."""
    if answer.log_kept_until is None:
        return f"Log: {answer.log_words}."
    passed = answer.log_kept_until <= now
    return (
        f"Log: {'due for cleaning since' if passed else 'not cleaned before'} "
        f"{clock_text(answer.log_kept_until, zone, now)}; {answer.log_words}."
    )


def vacuum_sentence(facts: LogFacts, now: datetime) -> str:
    """The last VACUUM that the log records, and what its silence is worth."""
    done = [vacuum for vacuum in facts.vacuums if vacuum.at is not None]
    if not done:
        return "The log records no VACUUM; Spark records one only where it is told to."
    last = done[-1]
    assert last.at is not None
    deleted = things(last.deleted_files, "file") if last.deleted_files is not None else "an unknown number of files"
    reach = f", keeping {interval_text(last.retention)}" if last.retention is not None else ""
    many = f" {things(len(facts.vacuums), 'VACUUM')} in the log." if len(facts.vacuums) > 1 else ""
    return f"Last VACUUM: v{last.version}, {ago(last.at, now)}{reach}; it deleted {deleted}.{many}"


def pin_words(pin: Pin, now: datetime) -> str:
    """ "v118 is pinned as features-2026-11 by ana, 3 days ago, until 2026-12-31 00:00:00 UTC: audit of May"."""
    called, until = f" as {pin.name}" if pin.name else "", f", until {utc_text(pin.until)}" if pin.until else ""
    verb = "is" if pin.holds(now) else "was"
    return f"v{pin.version} {verb} pinned{called} by {pin.actor}, {ago(pin.pinned_at, now)}{until}: {pin.reason}"
