"""What a search for the first bad version found, in sentences for the page and the terminal.

Rule: pure, and free of pandas, which the terminal does without; a sentence claims no more than the probes saw.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from app.ui.view.writers import stream_text
from backend.format import UNKNOWN, bytes_text, count_text, cut, duration_text, things, utc_text
from backend.lake.model import Commit
from backend.search.ends import gave
from backend.search.model import Bisection, BisectProgress, Outcome, Probe, Source

MOST_NAMED = 8  # versions in one sentence
MOST_CONDITION = 80  # characters of a condition in one sentence
NULLS_PASS = "null passes, as in a CHECK constraint"


def means_text(*, by_row: bool) -> str:
    """What it means that a version satisfies the condition."""
    if by_row:
        return f"every row has to satisfy it; a row for which it gives {NULLS_PASS}"
    return f"the version as a whole has to satisfy it; {NULLS_PASS}"


def headline(found: Bisection, streams: Mapping[str, str] | None = None) -> str:
    """The answer in one sentence: "v118 (MERGE by stream silver_orders, …) is the first version that breaks …"."""
    text = one_line(found.condition)
    does = f"satisfies `{text}` again" if found.is_mended else f"breaks `{text}`"
    if found.culprit is None:
        return (
            f"The first version that {does} is one of {things(len(found.candidates), 'commit')}: "
            f"{versions_text(found.candidates)}"
        )
    by = commit_text(found.commit, streams or {}) if found.commit else "its commit is not in the log any more"
    return f"v{found.culprit} ({by}) is the first version that {does}"


def notes(found: Bisection) -> list[str]:
    """What stands beside the answer: the values on both sides, what disagrees, what was not looked at."""
    said = [*_values(found), *disagreement(found), *_skipped(found)]
    if found.older_id is not None:
        low, high = sorted((found.good, found.bad))
        said.append(
            f"the table was replaced by another one in between: its id is {found.older_id} at v{low} and "
            f"{found.table_id} at v{high}"
        )
    said.append(_looked(found))
    judged = [probe for probe in found.probes if probe.outcome is not Outcome.SKIPPED]
    if judged and all(probe.source is Source.LOG for probe in judged):
        said.append("the log's row counts answered: no data file was opened")
    return said


def commit_text(commit: Commit, streams: Mapping[str, str]) -> str:
    """ "MERGE by stream silver_orders, batch 41, 2026-11-20 14:05:00 UTC"."""
    stream = stream_text(commit, streams)
    who = f"stream {stream}" if stream else commit.user
    by = f" by {who}" if who else ""
    return f"{commit.operation or 'operation not named'}{by}, {_at(commit.committed_at)}"


def versions_text(versions: Sequence[int]) -> str:
    """ "v4, v5, v6", long lists with their ends."""
    if len(versions) <= MOST_NAMED:
        return ", ".join(f"v{version}" for version in versions) or UNKNOWN
    first = ", ".join(f"v{version}" for version in versions[: MOST_NAMED - 2])
    return f"{first} … v{versions[-1]}"


def one_line(condition: str) -> str:
    """A condition short enough for a sentence."""
    return cut(" ".join(condition.split()), MOST_CONDITION)


def outcome_text(probe: Probe) -> str:
    """What a version gave, or why it was skipped."""
    return gave(probe)


def read_text(probe: Probe) -> str:
    """What judging it cost."""
    match probe.source:
        case Source.LOG:
            return "from the log"
        case Source.KEPT:
            return "judged before"
    if probe.files is None or (probe.outcome is Outcome.SKIPPED and not probe.files_read):
        return "nothing read"
    if not probe.files_read:
        return f"nothing: {things(probe.files, 'file')} judged before" if probe.files else "nothing: it has no file"
    files = f"{count_text(probe.files_read)} of {things(probe.files, 'file')}"
    return f"{files}, {things(probe.rows_read, 'row')}, {bytes_text(probe.bytes_read)} read"


def probe_line(probe: Probe) -> str:
    """One probe for a terminal."""
    took = duration_text(round(probe.duration_s, 2))
    return f"v{probe.version}  {probe.outcome.value}  {outcome_text(probe)} · {read_text(probe)} · {took}"


def left_text(step: BisectProgress) -> str:
    return "" if step.at_most_left is None else f"at most {step.at_most_left} more"


def _at(moment: datetime | None) -> str:
    return "at an unknown time" if moment is None else utc_text(moment)


def _values(found: Bisection) -> list[str]:
    """The condition on both sides of the change, as probed."""
    words = ("bad", "good") if found.is_mended else ("good", "bad")
    said = []
    for version, word, end in ((found.last, words[0], "last"), (found.first_seen, words[1], "first")):
        probe = found.probe_of(version)
        if probe is None:
            continue
        which = f"the {end} {word} version" if found.culprit is not None else f"{word}"
        is_that = end == "last" or version == found.culprit
        said.append(f"v{version} is {which if is_that else word}: {outcome_text(probe)}")
    return said


def disagreement(found: Bisection) -> list[str]:
    """What probes saw beside one change."""
    if not found.again:
        return []
    word, opposite = ("bad", "good") if found.is_mended else ("good", "bad")
    verb = "is" if len(found.again) == 1 else "are"
    first = f"v{found.culprit}" if found.culprit is not None else f"among {versions_text(found.candidates)}"
    return [
        f"{versions_text(found.again)} {verb} {word} again: the condition changes more than once; the first {opposite} "
        f"version after {word} v{found.last} is {first}"
    ]


def _skipped(found: Bisection) -> list[str]:
    gone = [probe for probe in found.probes if probe.outcome is Outcome.SKIPPED]
    said = []
    if gone:
        versions = versions_text(sorted(probe.version for probe in gone))
        why = f": {gone[0].reason}" if len(gone) == 1 else f"; of v{gone[0].version}, {gone[0].reason}"
        said.append(f"{versions} could not be judged{why}")
    if found.culprit is not None and found.culprit != found.first_seen:
        said.append(
            f"v{found.culprit} itself was not judged; v{found.first_seen} was, and no commit in between changed rows"
        )
    return said


def _looked(found: Bisection) -> str:
    """How much was looked at of what could have been."""
    judged = sum(probe.outcome is not Outcome.SKIPPED for probe in found.probes)
    text = f"{things(judged, 'version')} judged"
    if found.is_monotonic:
        text += ", and they agree with one change"
    if found.unprobed:
        text += (
            f"; of {things(found.changing, 'commit')} that changed rows {count_text(found.unprobed)} were not judged"
        )
    return text
