"""`weir timeline T`: what happened to a table, and up- and downstream of it, oldest first.

Rule: what was left out goes to stderr, and into the document.
"""

from app import services
from app.cli.output import print_json, print_table, say
from app.cli.store import streams_and_hosts
from app.cli.tables.lake import opened
from backend.format import utc_text
from backend.streams.timeline import load_timeline
from backend.times import parse_time


def timeline(name: str, since: str, until: str | None, *, as_json: bool) -> int:
    (lake, ref), clock = opened(name), services.clock()
    begin, end = parse_time(since, clock), parse_time(until, clock, end_of_day=True) if until else None
    streams, store = streams_and_hosts()[0], services.existing_store()
    happened = load_timeline(lake, store, streams, ref, since=begin, until=end, now=clock.now)
    if as_json:
        print_json(happened)
        return 0
    rows = ((utc_text(event.at), event.lane, event.kind, event.what) for event in happened.events)
    print_table(("when", "where", "kind", "what"), rows)
    for words in happened.left_out:
        say(f"Left out: {words}.", style="yellow", to_stderr=True)
    return 0
