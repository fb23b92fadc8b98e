"""Where a stream begins that is reset to a version, an offset or a time: options for its first start.

Rule: Spark honours such options until its checkpoint has a place in the source, and never afterwards. So they lie in
the new, empty checkpoint's folder, and go away with it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from backend.errors import StreamRefusedError, VersionFormatError
from backend.lake.lake import Lake
from backend.lake.storage.folder import Folder
from backend.stream_model.stream import InputKind, StreamDeclaration, StreamInput
from backend.streams.checkpoint import KafkaPosition, parse_position, read_checkpoint, read_offsets
from backend.times import FORMS, Clock, parse_time

START = "start.json"
RESET_ALLOWED = "pipelines.reset.allowed"  # a table's property, as declarative pipelines know it
Starts = Mapping[str, Mapping[str, str]]  # options of each source's reader, by `key_of`


def key_of(source: StreamInput) -> str:
    return source.uri or source.name


def parse_starts(lake: Lake, declared: StreamDeclaration, wheres: Sequence[str], clock: Clock) -> Starts:
    """What people write: "42", "2 h ago", "2026-11-23 10:00", "latest", or `SOURCE=…` for each of several sources.

    Raises `StreamRefusedError` for what cannot be, or a `LakehouseError` where a table cannot be read.
    """
    named = {source.name: source for source in declared.inputs if source.has_place}
    given: dict[str, str] = {}
    for where in wheres:
        name, equals, rest = where.partition("=")
        if equals and name in named:
            given[name] = rest.strip()
        elif len(named) == 1:
            given[next(iter(named))] = where.strip()
    if missing := sorted(named.keys() - given.keys()):
        hint = ", ".join(f"--from '{name}=…'" for name in missing)
        raise StreamRefusedError(f"{declared.name}: each source needs a place to begin at", hint=f"say {hint}")
    return {key_of(named[name]): _options(lake, named[name], where, clock) for name, where in given.items()}


def begun_at(declared: StreamDeclaration, starts: Starts) -> StreamDeclaration:
    """The declaration with the options of a first start from there."""
    inputs = (
        replace(source, options=begun(source.options, starts.get(key_of(source), {}))) if source.has_place else source
        for source in declared.inputs
    )
    return replace(declared, inputs=tuple(inputs))


def begun(declared: Mapping[str, str], start: Mapping[str, str]) -> dict[str, str]:
    """A reader's options; a start takes the place of where it was declared to begin."""
    others = {key: value for key, value in declared.items() if not (start and key.lower().startswith("starting"))}
    return {**others, **start}


def read_starts(checkpoint: Folder) -> Starts:
    """Those that a reset left; {} once a batch has a place in each source, or where there are none."""
    if checkpoint.stat(START) is None:
        return {}
    planned = read_checkpoint(checkpoint).planned
    if planned and None not in read_offsets(checkpoint, planned[-1]).sources:
        return {}
    starts: Starts = json.loads(checkpoint.read(START))
    return starts


def _options(lake: Lake, source: StreamInput, where: str, clock: Clock) -> Mapping[str, str]:
    match source.kind:
        case InputKind.TABLE | InputKind.CHANGE_FEED:
            return {"startingVersion": str(_version(lake, source, where, clock))}
        case InputKind.KAFKA:
            return _of_topics(source, where, clock)
    raise StreamRefusedError(
        f"{source.name}: nobody can begin within a source of kind {source.kind}", hint="reprocess all instead"
    )


def _version(lake: Lake, source: StreamInput, where: str, clock: Clock) -> int:
    ref = lake.find(source.uri)
    latest = lake.latest_version(ref)
    if re.fullmatch(r"v?\d{1,18}", where):
        version = int(where.removeprefix("v"))
    elif where == "latest":
        version = latest + 1
    else:
        before = _time(where, source, clock) - timedelta(microseconds=1)
        held = lake.version_at(ref, before)
        version = 0 if held is None else held + 1
    if version > latest + 1:
        raise StreamRefusedError(f"{source.name} has no version {version}", hint=f"the latest is {latest}")
    if version <= latest and not lake.history(ref, limit=1, starting_version=version, ending_version=version):
        raise StreamRefusedError(f"version {version} of {source.name} is no longer in its log", hint="begin later")
    return version


def _of_topics(source: StreamInput, where: str, clock: Clock) -> Mapping[str, str]:
    if where in ("earliest", "latest"):
        return {"startingOffsets": where}
    if where.startswith("{"):
        if not isinstance(parse_position(where), KafkaPosition):
            raise StreamRefusedError(f"{source.name}: these are no offsets", hint='{"topic": {"0": 42, "1": 7}}')
        return {"startingOffsets": where}
    millis = round(_time(where, source, clock).timestamp() * 1_000)
    return {"startingTimestamp": str(millis), "startingOffsetsByTimestampStrategy": "latest"}


def _time(where: str, source: StreamInput, clock: Clock) -> datetime:
    try:
        return parse_time(where, clock)
    except VersionFormatError as exc:
        wanted = "a version" if source.is_table else "offsets as JSON, earliest"
        hint = f"{wanted}, latest, or a time: {FORMS}"
        raise StreamRefusedError(f"{where!r} is no place in {source.name}", hint=hint) from exc
