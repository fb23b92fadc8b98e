"""Which method answers a diff, and why: decided before anything is read.

Rule: pure; a method that is not possible leaves its reason behind. New methods join `plan_diff` in order of merit.
"""

from dataclasses import dataclass
from typing import Protocol

from backend.diff.key import KeyFound
from backend.diff.model import DiffMethod, KeyChoice


class FeedSupport(Protocol):
    """What the lake knows of the change feed over a range; see `Lake.cdf_support`."""

    @property
    def covered(self) -> bool: ...
    @property
    def first_covered_version(self) -> int | None: ...
    @property
    def reason(self) -> str: ...


@dataclass(frozen=True, slots=True)
class DiffRequest:
    """The range as asked: `from_version` may be the newer one."""

    from_version: int
    to_version: int


@dataclass(frozen=True, slots=True)
class DiffFacts:
    """What is known of the table without reading rows. `feed` is None where it was not asked for."""

    from_table_id: str
    to_table_id: str
    feed: FeedSupport | None
    key: KeyFound


@dataclass(frozen=True, slots=True)
class DiffPlan:
    """The method to use, with the reasons for it and against the better ones."""

    method: DiffMethod
    key: KeyChoice | None
    reasons: tuple[str, ...]
    first_covered_version: int | None = None
    hint: str = ""


def plan_diff(request: DiffRequest, facts: DiffFacts) -> DiffPlan:
    """The best method that the facts allow."""
    if facts.from_table_id != facts.to_table_id:
        return _recreated(facts)
    if request.from_version == request.to_version:
        return DiffPlan(DiffMethod.SAME_VERSION, None, ("both sides are the same version: nothing can differ",))
    if facts.feed is None or not facts.feed.covered:
        return _uncovered(request, facts.feed)
    return _by_feed(request, facts, facts.feed)


def _by_feed(request: DiffRequest, facts: DiffFacts, feed: FeedSupport) -> DiffPlan:
    low, high = sorted((request.from_version, request.to_version))
    reasons = [f"the change feed was recorded for every commit from v{low + 1} to v{high}"]
    if request.from_version > request.to_version:
        reasons.append(f"from is the newer version: this is what going back to v{request.to_version} would change")
    return DiffPlan(DiffMethod.CHANGE_FEED, facts.key.key, (*reasons, *facts.key.reasons), feed.first_covered_version)


def _uncovered(request: DiffRequest, feed: FeedSupport | None) -> DiffPlan:
    reason = feed.reason if feed and feed.reason else "the change feed does not cover this range"
    first = feed.first_covered_version if feed else None
    if first is None:
        hint = "set delta.enableChangeDataFeed = true on the table: changes from then on can be compared row by row"
        return DiffPlan(DiffMethod.UNAVAILABLE, None, (reason,), None, hint)
    low = min(request.from_version, request.to_version)
    says = f"the change feed answers from v{first} on: compare v{first} or later, not v{low}"
    return DiffPlan(DiffMethod.UNAVAILABLE, None, (reason,), first, says)


def _recreated(facts: DiffFacts) -> DiffPlan:
    reason = (
        f"the table was replaced by another one in between: its id is {facts.from_table_id} at the first version "
        f"and {facts.to_table_id} at the second"
    )
    hint = "compare two versions on the same side of the replacement"
    return DiffPlan(DiffMethod.UNAVAILABLE, None, (reason,), None, hint)
