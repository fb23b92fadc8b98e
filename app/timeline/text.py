"""What happened to a table and around it, as a list and counted, for page and terminal alike.

Rule: pure, and free of pandas and Plotly, which the terminal does without.
"""

from collections import Counter
from datetime import datetime
from typing import get_args

from app.columns import Column
from backend.format import age_s, things
from backend.streams.timeline import Event, EventTimeline, Kind

KINDS = get_args(Kind)


def counts_sentence(timeline: EventTimeline) -> str:
    """ "1 notice, 2 failures, 12 commits": what needs somebody first."""
    counts = Counter(event.kind for event in timeline.events)
    kinds = [kind for kind in reversed(KINDS) if counts[kind]]
    parts = [things(counts[kind], kind, "batches" if kind == "batch" else None) for kind in kinds]
    return ", ".join(parts)


def event_columns(now: datetime) -> list[Column[Event]]:
    return [
        Column("When", lambda event: age_s(event.at, now), "ago", on="page"),
        Column("At", lambda event: event.at, "moment", "Exact, UTC.", key="at"),
        Column("Kind", lambda event: event.kind, key="kind"),
        Column("Where", lambda event: event.lane, key="lane"),
        Column("What", lambda event: event.what, width="large", key="what"),
    ]
