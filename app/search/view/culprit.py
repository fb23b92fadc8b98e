"""The commit that was found, in facts and sentences.

Rule: pure. What a writer reports is said to be so; a count that nobody gives is not made up.
"""

from collections.abc import Mapping, Sequence

import orjson

from app.ui.view.conditions import predicate_text
from app.ui.view.writers import stream_text
from backend.changes.model import CommitChanges, VersionDiff
from backend.format import UNKNOWN, count_text, cut, things, utc_text
from backend.lake.model import Commit
from backend.search.model import Bisection
from backend.search.search import may_change_rows

_MOST_TEXT = 200
_MOST_PAIRS = 6


def commit_facts(commit: Commit, streams: Mapping[str, str]) -> dict[str, str]:
    """Who made it, when, with what and why, as far as the writer says."""
    stream = stream_text(commit, streams)
    facts = {
        "Operation": commit.operation or "not named",
        "Condition": cut(predicate_text(commit), _MOST_TEXT),
        "When": utc_text(commit.committed_at),
        "User": commit.user or UNKNOWN,
        "Engine": commit.engine or UNKNOWN,
        "Job": commit.job or "",
        "Stream": stream,
        **({} if stream else _metadata_pairs(commit.user_metadata)),
    }
    return {name: text for name, text in facts.items() if text}


def _metadata_pairs(text: str | None) -> dict[str, str]:
    """What the writer noted: its own pairs, or the note as it is."""
    if not text:
        return {}
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        return {"Note": cut(text, _MOST_TEXT)}
    pairs = {str(name)[:40]: cut(str(value), _MOST_TEXT) for name, value in list(found.items())[:_MOST_PAIRS]}
    return {name[:1].upper() + name[1:]: value for name, value in pairs.items()}


def changed_text(found: Bisection, diff: VersionDiff | None) -> str:
    """The rows that the commit changed as a whole, beside those that break the condition."""
    broken = found.probe_of(found.bad_seen)
    verdict = broken.verdict if broken else None
    broken_rows = verdict.violations if verdict else None
    breaks = f"; {things(broken_rows, 'row')} of v{found.bad_seen} break the condition" if broken_rows else ""
    if diff is not None and diff.is_available and diff.net.total is not None:
        net = diff.net
        updated = "" if net.updated is None else f", {count_text(net.updated)} updated"
        counts = f"{count_text(net.inserted)} inserted{updated}, {count_text(net.deleted)} deleted"
        return f"{things(net.total, 'row')} ({counts}){breaks}."
    reported = CommitChanges.reported(found.commit) if found.commit else None
    return f"{_counts([reported])}, as its writer reports{breaks}." if reported else "not known."


def restore_texts(found: Bisection, commits: Sequence[Commit], diff: VersionDiff | None) -> list[str]:
    """What going back to the last good version would undo: `commits` after it; `diff` is from the latest to it."""
    good = found.good_seen
    later = [commit for commit in commits if commit.version != found.culprit and may_change_rows(commit)]
    undone = f"a restore of v{good} undoes {things(len(commits), 'commit')}"
    if later:
        lost = _counts([CommitChanges.reported(commit) for commit in later])
        said = [
            undone,
            f"beside this one, {things(len(later), 'commit')} changed rows: {lost}, as their writers report",
        ]
    else:
        said = [f"{undone}; no other one wrote rows"]
    if diff is not None and diff.is_available and diff.net.total is not None:
        net = diff.net
        back = "" if net.updated is None else f", {things(net.updated, 'row')} get older values"
        said.append(f"in all, {things(net.deleted, 'row')} go, {count_text(net.inserted)} come back{back}")
    return said


def _counts(changes: Sequence[CommitChanges]) -> str:
    """ "2,200 inserted, 40 updated, 0 deleted"; what a writer left out is said."""
    words, is_silent = [], False
    for name in ("inserted", "updated", "deleted"):
        known = [count for each in changes if (count := getattr(each, name)) is not None]
        is_silent = is_silent or len(known) < len(changes)
        if known:
            words.append(f"{count_text(sum(known))} {name}")
    if not words:
        return "how many rows is not said"
    return f"at least {', '.join(words)}" if is_silent else ", ".join(words)
