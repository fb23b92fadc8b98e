"""What a table's properties and features say about it, in plain words, and the values of properties as Delta and Spark
write them: `interval 1 week`, `128mb`, `true`.

Rule: pure; every property that is set is shown. An unknown one comes with the nearest known one, and a value that the
engines would not understand is said to be so: what Delta itself would refuse (months, years, a negative sum) is None,
never a guess.
Source: Spark's CalendarInterval texts and Delta's `DeltaConfigs.isValidIntervalConfigValue`.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from backend.lake.model import Metadata, Protocol

_PART = re.compile(
    r"([+-]?)\s*(\d+)(?:\.(\d{1,9}))?\s+(week|day|hour|minute|second|millisecond|microsecond)s?(?:\s+|$)"
)
_BYTES = {unit + end: 1024**power for power, unit in enumerate(("", "k", "m", "g", "t")) for end in ("", "b")}


def is_on(configuration: Mapping[str, str], key: str) -> bool:
    """Whether a property that is off by default is on."""
    return configuration.get(key, "").strip().lower() == "true"


def parse_size(text: str) -> int | None:
    """Bytes from `134217728` or `128mb` (1024-based, as Spark reads it); None when it is neither."""
    text = text.strip().lower()
    digits = text.rstrip("kmgtb ")
    unit = text[len(digits) :].strip()
    if not digits.isascii() or not digits.isdigit() or unit not in _BYTES:
        return None
    return int(digits) * _BYTES[unit] or None


def parse_interval(text: str) -> timedelta | None:
    """The duration of an interval text; None where Delta would not take it."""
    rest = re.sub(r"^interval\s+", "", text.strip().lower())
    if not rest:
        return None
    total = timedelta()
    while rest:
        match = _PART.match(rest)
        if match is None or (match[3] and match[4] != "second"):
            return None
        try:
            amount = timedelta(**{f"{match[4]}s": int(match[2])})
        except OverflowError:
            amount = timedelta.max / 4
        amount += timedelta(microseconds=int((match[3] or "0").ljust(6, "0")[:6]))
        total += -amount if match[1] == "-" else amount
        rest = rest[match.end() :]
    return total if total >= timedelta() else None


def interval_text(duration: timedelta) -> str:
    """A duration in words: "7 days", "36 hours", "2 days 3 hours"."""
    minutes, seconds = divmod(round(duration.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "day"), (hours, "hour"), (minutes, "minute"), (seconds, "second")]
    words = [f"{count:,} {unit}{'' if count == 1 else 's'}" for count, unit in parts if count]
    return " ".join(words[:2]) or "0 seconds"


@dataclass(frozen=True, slots=True)
class KnownProperty:
    """A documented key: its default (None: unset), one line of meaning, what reads its value (giving None where it is
    none, itself None where any text is one), and what such a value is."""

    default: str | None
    meaning: str
    read: Callable[[str], object] | None = None
    form: str = ""


@dataclass(frozen=True, slots=True)
class PropertyRow:
    key: str
    value: str | None
    default: str | None
    meaning: str
    is_set: bool
    problem: str | None = None
    suggestion: str | None = None


@dataclass(frozen=True, slots=True)
class FeatureRow:
    name: str
    in_reader: bool
    in_writer: bool
    meaning: str


@dataclass(frozen=True, slots=True)
class TableOwner:
    """Who answers for a table, from its `catalog.*` properties; `other` are the tags not named here."""

    team: str | None
    slack: str | None
    email: str | None
    classification: str | None
    other: Mapping[str, str]


def _switch(default: str | None, meaning: str) -> KnownProperty:
    return _word(default, meaning, "true", "false")


def _number(default: str | None, meaning: str) -> KnownProperty:
    return KnownProperty(default, meaning, re.compile(r"-?\d+").fullmatch, "a whole number")


def _interval(default: str | None, meaning: str) -> KnownProperty:
    return KnownProperty(default, meaning, parse_interval, "an interval such as `interval 7 days`")


def _word(default: str | None, meaning: str, *words: str) -> KnownProperty:
    return KnownProperty(default, meaning, re.compile("|".join(words), re.IGNORECASE).fullmatch, " or ".join(words))


KNOWN: Mapping[str, KnownProperty] = {
    "delta.appendOnly": _switch("false", "Rows can only be added: updates and deletes are refused."),
    "delta.autoOptimize.autoCompact": KnownProperty(
        None,
        "After a write, files that are too small are merged in the same job.",
        re.compile("true|false|auto|legacy", re.IGNORECASE).fullmatch,
        "true, false or auto",
    ),
    "delta.autoOptimize.optimizeWrite": _switch(None, "Rows are shuffled before a write so that fewer files come out."),
    "delta.checkpoint.writeStatsAsJson": _switch("true", "Checkpoints carry each file's statistics as JSON text."),
    "delta.checkpoint.writeStatsAsStruct": _switch(
        "true", "Checkpoints carry each file's statistics as typed columns, faster to filter on."
    ),
    "delta.checkpointInterval": _number("10", "Commits between two checkpoints (delta-rs: 100)."),
    "delta.checkpointPolicy": _word(
        "classic", "Form of the checkpoints: one self-contained file, or V2 with sidecar files.", "classic", "v2"
    ),
    "delta.columnMapping.mode": _word(
        "none", "Whether columns are found by name or by id in the data files, so that they can be renamed.",
        "none", "name", "id",
    ),
    "delta.columnMapping.maxColumnId": _number(None, "Highest column id given out so far; kept by the engines."),
    "delta.compatibility.symlinkFormatManifest.enabled": _switch(
        "false", "Manifest files are kept for engines that cannot read the log."
    ),
    "delta.dataSkippingNumIndexedCols": _number(
        "32", "For how many leading columns statistics are gathered; -1 means all."
    ),
    "delta.dataSkippingStatsColumns": KnownProperty(None, "The columns that statistics are gathered for, by name."),
    "delta.deletedFileRetentionDuration": _interval(
        "interval 1 week", "How long removed data files are kept before VACUUM may delete them; bounds time travel."
    ),
    "delta.enableChangeDataFeed": _switch("false", "Each commit records which rows it inserted, updated or deleted."),
    "delta.enableDeletionVectors": _switch(
        "false", "Deletes mark rows instead of rewriting their files; readers must honour the marks."
    ),
    "delta.enableExpiredLogCleanup": _switch("true", "Old commits are deleted from the log after a checkpoint."),
    "delta.enableInCommitTimestamps": _switch(
        "false", "Commit times are written in the commit, so copying the files does not change them."
    ),
    "delta.enableIcebergCompatV1": _switch("false", "Writers keep to what Iceberg readers understand (first form)."),
    "delta.enableIcebergCompatV2": _switch("false", "Writers keep to what Iceberg readers understand (second form)."),
    "delta.enableRowTracking": _switch("false", "Rows keep an identity across rewrites, so changes can be traced."),
    "delta.enableTypeWidening": _switch("false", "A column's type may be widened without rewriting the data."),
    "delta.enableVariantShredding": _switch("false", "Parts of variant values are stored as columns of their own."),
    "delta.inCommitTimestampEnablementVersion": _number(None, "The version from which commits carry their own time."),
    "delta.inCommitTimestampEnablementTimestamp": _number(None, "When in-commit timestamps were turned on, in ms."),
    "delta.isolationLevel": _word(
        "Serializable", "How strictly concurrent writers are kept apart.",
        "Serializable", "WriteSerializable", "SnapshotIsolation",
    ),
    "delta.logRetentionDuration": _interval(
        "interval 30 days", "How long the history is kept; older commits go when a checkpoint is written."
    ),
    "delta.minReaderVersion": _number(None, "Lowest protocol version that a reader needs."),
    "delta.minWriterVersion": _number(None, "Lowest protocol version that a writer needs."),
    "delta.parquet.compression.codec": KnownProperty(None, "Compression of new data files."),
    "delta.randomizeFilePrefixes": _switch("false", "Data files get random prefixes, which spreads load on old S3."),
    "delta.randomPrefixLength": _number("2", "Length of the random file prefixes."),
    "delta.requireCheckpointProtectionBeforeVersion": _number(
        None, "Commits before this version may be cleaned only together, with their checkpoints."
    ),
    "delta.rowTracking.materializedRowCommitVersionColumnName": KnownProperty(
        None, "Hidden column that keeps the version in which a row last changed."
    ),
    "delta.rowTracking.materializedRowIdColumnName": KnownProperty(None, "Hidden column that keeps a row's identity."),
    "delta.sampleRetentionDuration": _interval(None, "How long query samples are kept (Databricks)."),
    "delta.setTransactionRetentionDuration": _interval(
        None, "How long the log remembers which batch a stream wrote last; a longer pause may write it twice."
    ),
    "delta.targetFileSize": KnownProperty(
        None,
        "File size that writes and compaction aim at (delta-rs and Databricks; not in open-source Spark).",
        parse_size,
        "a size: bytes or, for instance, 128mb",
    ),
    "delta.tuneFileSizesForRewrites": _switch(None, "Files stay small because the table is often merged (Databricks)."),
    "delta.universalFormat.enabledFormats": KnownProperty(
        None, "Other table formats for which metadata is kept as well, such as iceberg."
    ),
    "catalog.team_name": KnownProperty(None, "The team that owns the table."),
    "catalog.engineering.comms.slack": KnownProperty(None, "Slack channel of the owning team."),
    "catalog.engineering.comms.email": KnownProperty(None, "Mail address of the owning team."),
    "catalog.table.classification": KnownProperty(None, "How sensitive the data is."),
}  # fmt: skip
KEYS = "weir.keys"
PREFIXES: Mapping[str, str] = {
    "delta.constraints.": "Check constraint: every row must meet this condition.",
    "delta.feature.": "Asks for a table feature to be turned on.",
    "delta.universalFormat.": "Setting of the metadata kept for other formats.",
    "delta.rowTracking.": "Kept by the engines for row tracking.",
    "delta.clustering": "Kept by the engines for clustering.",
    "delta.coordinatedCommits.": "Commits go through a coordinator.",
    KEYS: "The columns by which a stream of Weir finds this table's rows again.",
}
FEATURES: Mapping[str, str] = {
    "allowColumnDefaults": "Columns may have default values.",
    "appendOnly": "The table may be made append-only.",
    "catalogManaged": "Commits are decided by a catalog, not by the log folder alone.",
    "changeDataFeed": "Commits may record changed rows.",
    "checkConstraints": "Rows are checked against conditions.",
    "checkpointProtection": "Old checkpoints are protected from being cleaned too early.",
    "clustering": "Data is laid out by clustering columns.",
    "collations": "Text columns may have their own sort order.",
    "columnMapping": "Columns can be renamed or dropped without rewriting files.",
    "deletionVectors": "Rows are deleted by marks beside the data files.",
    "domainMetadata": "The log carries named settings of engines.",
    "generatedColumns": "Columns are computed from others.",
    "icebergCompatV1": "Kept readable for Iceberg (first form).",
    "icebergCompatV2": "Kept readable for Iceberg (second form).",
    "identityColumns": "Columns number their rows by themselves.",
    "inCommitTimestamp": "Commits carry their own time.",
    "invariants": "Columns may demand conditions such as not null.",
    "rowTracking": "Rows keep an identity across rewrites.",
    "timestampNtz": "Timestamps without a time zone.",
    "typeWidening": "Column types can be widened in place.",
    "v2Checkpoint": "Checkpoints may be split into sidecar files.",
    "vacuumProtocolCheck": "VACUUM checks reader features too, so that it deletes nothing that is needed.",
    "variantShredding": "Parts of variant values are stored as columns.",
    "variantType": "Semi-structured values in a type of their own.",
}
# Reader features that change how rows or checkpoints are read; deltalake is asked for these alone.
ROW_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "v2Checkpoint",
        "variantType",
        "variantType-preview",
        "variantShredding",
        "variantShredding-preview",
    }
)
# Under these and the ones above the log's files, sizes and row counts mean what this reader takes them to mean. Every
# file is cast to the table's types; a column of places is left out by its type.
READER_FEATURES = ROW_FEATURES | {
    "typeWidening",
    "typeWidening-preview",
    "vacuumProtocolCheck",
    "geospatial",
    "geoSpatial",
}
# What the numbered protocol versions imply, where features are not listed one by one.
_LEGACY_WRITER = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}


def explain_properties(metadata: Metadata) -> tuple[PropertyRow, ...]:
    """Every property that is set, those to look at first, then every documented one that is not, with its default."""
    configuration = metadata.configuration
    rows = [_row(key, value) for key, value in sorted(configuration.items())]
    rows.sort(key=lambda row: row.problem is None)
    rows += [
        PropertyRow(key, None, known.default, known.meaning, is_set=False)
        for key, known in KNOWN.items()
        if key not in configuration
    ]
    return tuple(rows)


def keys_before(configuration: Mapping[str, str], keys: Sequence[str]) -> str:
    """The keys that a table's stream has written it by, where they are others than these; else ""."""
    noted = configuration.get(KEYS, "")
    is_same = not noted or not keys or {*noted.lower().split(", ")} == {*", ".join(keys).lower().split(", ")}
    return "" if is_same else noted


def explain_features(protocol: Protocol) -> tuple[FeatureRow, ...]:
    """The table features in force, those that the protocol's numbers imply included."""
    reader, writer = set(protocol.reader_features), set(protocol.writer_features)
    if protocol.min_writer_version < 7:
        writer |= {f for version, fs in _LEGACY_WRITER.items() if version <= protocol.min_writer_version for f in fs}
    if protocol.min_reader_version == 2:
        reader.add("columnMapping")
    return tuple(
        FeatureRow(name, name in reader, name in writer, meaning_of_feature(name)) for name in sorted(reader | writer)
    )


def meaning_of_property(key: str) -> str:
    """One line on a property; empty for one that nobody knows."""
    meaning = KNOWN.get(key)
    return meaning.meaning if meaning else next((text for start, text in PREFIXES.items() if key.startswith(start)), "")


def meaning_of_feature(name: str) -> str:
    """One line on a table feature."""
    return FEATURES.get(name) or FEATURES.get(name.removesuffix("-preview"), "A feature that Weir does not know.")


def is_row_tracked(metadata: Metadata) -> bool:
    """Whether rows have ids at this version (PROTOCOL.md, "Row Tracking")."""
    return is_on(metadata.configuration, "delta.enableRowTracking")


def ownership(metadata: Metadata) -> TableOwner:
    """The `catalog.*` tags of a table."""
    tags = {key: value for key, value in metadata.configuration.items() if key.startswith("catalog.")}
    return TableOwner(
        team=tags.pop("catalog.team_name", None),
        slack=tags.pop("catalog.engineering.comms.slack", None),
        email=tags.pop("catalog.engineering.comms.email", None),
        classification=tags.pop("catalog.table.classification", None),
        other=tags,
    )


def _row(key: str, value: str) -> PropertyRow:
    if (known := KNOWN.get(key)) is not None:
        is_read = known.read is None or known.read(value.strip()) is not None
        problem = None if is_read else f"{value!r} is not {known.form}"
        return PropertyRow(key, value, known.default, known.meaning, is_set=True, problem=problem)
    if meaning := meaning_of_property(key):
        return PropertyRow(key, value, None, meaning, is_set=True)
    # Outside the engines' namespaces it is a person's own, unless it is a known one with its start misspelled.
    names = {name.lower(): name for name in KNOWN} if "." in key else {}
    near = next(map(names.get, difflib.get_close_matches(key.lower(), names, n=1, cutoff=0.8)), None)
    is_delta = key.lower().startswith("delta.")
    meaning = "Nobody reads this key." if is_delta else "A tag of your own."
    problem = "unknown key: no engine that Weir knows reads it" if is_delta else None
    problem = f"unknown key; did you mean {near}?" if near else problem
    return PropertyRow(key, value, None, meaning, is_set=True, problem=problem, suggestion=near)


def changed_properties(now: Mapping[str, str], then: Mapping[str, str]) -> list[str]:
    """ "delta.appendOnly unset → true", of each key that differs."""
    keys = sorted(key for key in {*now, *then} if now.get(key) != then.get(key))
    return [f"{key} {now.get(key, 'unset')} → {then.get(key, 'unset')}" for key in keys]
