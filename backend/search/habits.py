"""What a writer of a table always did so far: the conditions it merges, updates and deletes by, each day written once.

Rule: a habit takes five commits; what breaks one is told once. Judged from what commits say of themselves alone.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from backend.format import cut
from backend.lake.history.conditions import clauses_text, condition_shape, predicate_text
from backend.lake.model import Commit, Metadata
from backend.lake.table.partitions import column_types, physical_names, show_partition
from backend.search.notice import Measure

LEAST_COMMITS, MOST_SHAPES = 5, 2
_IN_TIME = re.compile(r"=(?:19|20)\d\d(?:-?(?:0[1-9]|1[0-2])|(?!\d))")  # a day, a month, a year: written, then finished
_EVERY_ROW = "every row"

Seen = tuple[Measure, str, str, str]  # what, of which column, property …, before and after


@dataclass
class Habits:
    """Is shown the commits of a table one after another. `earlier`: those before the first, newest first; asked for
    once, when they matter."""

    earlier: Callable[[], Sequence[Commit]] = tuple
    _conditions: dict[tuple[str, str], dict[str, tuple[int, str, str]]] = field(default_factory=dict)
    _loads: dict[str, Counter[str]] = field(default_factory=dict)  # how often each writer wrote a partition
    _num_loads: Counter[str] = field(default_factory=Counter)
    _knows_earlier: bool = False

    def see(self, commit: Commit, metadata: Metadata | None) -> Iterator[Seen]:
        """The habits that this commit breaks."""
        if not self._knows_earlier and self._needs_earlier(commit, metadata):
            self._knows_earlier = True
            for each in reversed(self.earlier()):
                list(self._judged(each, metadata))
        yield from self._judged(commit, metadata)

    def is_twice(self, partition: str) -> bool:
        """Whether what one writer wrote there a second time still is."""
        return any(counts[partition] > 1 for counts in self._loads.values())

    def _needs_earlier(self, commit: Commit, metadata: Metadata | None) -> bool:
        """Not for the first condition of a stream, whose recent commits are enough, nor for loads by nobody named."""
        shape, shapes = condition_shape(commit), self._conditions.get(_habit(commit), {})
        is_new = shape is not None and shape not in shapes and bool(commit.origin is None or shapes)
        matters = bool(commit.user or commit.job or commit.metrics.files_removed)
        return is_new or (matters and _is_of_partitions(commit, metadata))

    def _judged(self, commit: Commit, metadata: Metadata | None) -> Iterator[Seen]:
        yield from self._of_condition(commit)
        if metadata is not None and _is_of_partitions(commit, metadata):
            yield from self._of_partitions(commit, metadata)

    def _of_condition(self, commit: Commit) -> Iterator[Seen]:
        shape = condition_shape(commit)
        if shape is None or not writer_of(commit):
            return
        shapes = self._conditions.setdefault(_habit(commit), {})
        if len(shapes) > MOST_SHAPES:  # no habit, and it will never be one
            return
        text, clauses = predicate_text(commit) or _EVERY_ROW, clauses_text(commit)
        if shapes and shape not in shapes and sum(count for count, *_ in shapes.values()) >= LEAST_COMMITS:
            count, *usual = max(shapes.values())
            before, after = (usual[0], text) if usual[0] != text else (usual[1], clauses)
            yield Measure.CONDITION, commit.operation or "", f"{cut(before)} ({count:,} times)", cut(after)
        shapes[shape] = shapes.get(shape, (0,))[0] + 1, text, clauses

    def _of_partitions(self, commit: Commit, metadata: Metadata) -> Iterator[Seen]:
        physical, types = physical_names(metadata), column_types(metadata.schema_json)
        places = [show_partition(each, metadata, physical, types) for each in commit.partitions]
        writer, removes = writer_of(commit), commit.metrics.files_removed != 0
        is_load = commit.operation == "WRITE" and commit.metrics.files_added != 0
        if not is_load or removes:
            is_known = places and "" not in commit.partitions
            for other, counts in self._loads.items():
                for place in [*counts] if other != writer or not is_load else []:
                    if not is_known or place in places:
                        del counts[place]
        if not is_load or not (commit.user or commit.job):
            return
        counts, place = self._loads.setdefault(writer, Counter()), places[0] if len(places) == 1 else ""
        is_habit = self._num_loads[writer] >= LEAST_COMMITS and set(counts.values()) == {1}
        if is_habit and counts[place] == 1 and _IN_TIME.search(place):
            yield Measure.TWICE, place, f"each of {len(counts):,} before once", "written a second time"
        counts.update(places)
        self._num_loads[writer] += 1


def writer_of(commit: Commit) -> str:
    """Who wrote, the same from run to run and after an upgrade; empty where nobody says."""
    if commit.origin is not None:
        return f"stream {commit.origin.stream}" if commit.origin.stream else "a streaming query"
    job = re.sub(r",? ?\brun [^,]*", "", commit.job or "").strip(", ")
    engine = re.sub(r"[/:]\S*", "", commit.engine or "")
    return ", ".join(part for part in (commit.user, job, engine) if part)


def _habit(commit: Commit) -> tuple[str, str]:
    return writer_of(commit), commit.operation or ""


def _is_of_partitions(commit: Commit, metadata: Metadata | None) -> bool:
    """Whether it fills or empties some. Streams come back to theirs, and a MERGE or UPDATE changes what is there."""
    is_load = commit.origin is None and commit.operation not in ("MERGE", "UPDATE") and commit.may_change_rows
    return is_load and metadata is not None and bool(metadata.partition_columns)
