"""What a declaration says of its tables, beside what the tables are: a start sets it, or it waits for an operator.

Rule: pure. A start sets at once what adds and can be taken back. What shuts out readers or writers, or loses something
for good, waits until somebody says so. What is not declared any more stays as it is.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from backend.lake.model import Snapshot
from backend.lake.table.properties import KNOWN, explain_features, parse_interval
from backend.stream_model.stream import DeclaredTable

_FEATURES = {  # that a table needs before the property can be on
    "delta.appendOnly": "appendOnly",
    "delta.checkpointPolicy": "v2Checkpoint",
    "delta.columnMapping.mode": "columnMapping",
    "delta.enableChangeDataFeed": "changeDataFeed",
    "delta.enableDeletionVectors": "deletionVectors",
    "delta.enableIcebergCompatV1": "icebergCompatV1",
    "delta.enableIcebergCompatV2": "icebergCompatV2",
    "delta.enableInCommitTimestamps": "inCommitTimestamp",
    "delta.enableRowTracking": "rowTracking",
    "delta.enableTypeWidening": "typeWidening",
    "delta.enableVariantShredding": "variantShredding",
    "delta.universalFormat.enabledFormats": "icebergCompatV2",
}
_KEEP = ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration", "delta.setTransactionRetentionDuration")
_OFF = ("false", "none", "classic", "")
_OF_PROTOCOL = ("delta.minreaderversion", "delta.minwriterversion")  # asked for when a table is made; no table has them


@dataclass(frozen=True, slots=True)
class PresentTable:
    """A table as it is: `features` of its protocol, those that its numbers imply included."""

    description: str
    configuration: Mapping[str, str]
    features: Collection[str]
    clustered: tuple[str, ...] = ()
    partitioned: tuple[str, ...] = ()

    @classmethod
    def of(cls, snapshot: Snapshot) -> "PresentTable":
        from backend.lake.files.clustering import declared_clustering  # it counts with numpy

        metadata, features = snapshot.metadata, explain_features(snapshot.protocol)
        names = tuple(feature.name for feature in features)
        about = metadata.description or "", metadata.configuration, names, declared_clustering(snapshot)
        return cls(*about, metadata.partition_columns)


@dataclass(frozen=True, slots=True)
class DeclaredChange:
    """`what`: comment, cluster_by, partition_cols or a property. `waits`: why a start does not set it by itself.

    `is_possible`: whether it can be set at all.
    """

    table: str
    what: str
    before: str | None
    after: str
    waits: str = ""
    is_possible: bool = True

    def __str__(self) -> str:
        return f"{self.what} of {self.table}: {self.before or 'not set'} → {self.after}"

    def is_due(self, approved: Collection[str]) -> bool:
        """Whether the next start sets it; `approved`: what an operator gave a word for."""
        return self.is_possible and (not self.waits or self.what in approved)


def approved_changes(text: str) -> frozenset[str]:
    """What an operator named, with commas between: `delta.enableChangeDataFeed, cluster_by`."""
    return frozenset(part.strip() for part in text.split(","))


def table_changes(declared: DeclaredTable, present: PresentTable) -> Iterator[DeclaredChange]:
    """Where the table is not as declared."""
    table, clustered, partitioned = declared.table, present.clustered, present.partitioned
    if declared.comment and declared.comment != present.description:
        yield DeclaredChange(table, "comment", present.description or None, declared.comment)
    for key, value in declared.properties.items():
        before = _value(key, present)
        if not _same(key, before, value) and key.lower() not in _OF_PROTOCOL:
            yield DeclaredChange(table, key, before, value, _waits(key, before, value, present.features))
    if declared.cluster_by and not _same_names(declared.cluster_by, clustered):
        waits = "" if "clustering" in present.features else _raises("clustering")
        waits = "a table with partitions cannot be clustered" if partitioned else waits
        names = ", ".join(clustered) or None, ", ".join(declared.cluster_by)
        yield DeclaredChange(table, "cluster_by", *names, waits, is_possible=not partitioned)
    if declared.partition_cols and not _same_names(declared.partition_cols, partitioned):
        names = ", ".join(partitioned) or None, ", ".join(declared.partition_cols)
        waits = "the partitions of a table that is there cannot be changed"
        yield DeclaredChange(table, "partition_cols", *names, waits, is_possible=False)


def _value(key: str, present: PresentTable) -> str | None:
    """What the table has; a feature that was asked for stands in its protocol alone."""
    if key.startswith("delta.feature."):
        return "supported" if key.removeprefix("delta.feature.") in present.features else None
    return next((value for name, value in present.configuration.items() if name.lower() == key.lower()), None)


def _same(key: str, before: str | None, after: str) -> bool:
    """As Delta reads its own values: `TRUE` is `true`, 7 days are a week. A tag is compared letter by letter."""
    if before is None or not key.lower().startswith("delta."):
        return before == after
    duration = parse_interval(before)
    words = before.strip().lower() == after.strip().lower()
    return words or (duration is not None and duration == parse_interval(after))


def _same_names(names: Sequence[str], others: Sequence[str]) -> bool:
    return [name.lower() for name in names] == [name.lower() for name in others]


def _waits(key: str, before: str | None, after: str, features: Collection[str]) -> str:
    known = {name.lower(): name for name in (*KNOWN, *_FEATURES)}
    name = known.get(key.lower(), key)
    feature = _FEATURES.get(name) or ("checkConstraints" if name.startswith("delta.constraints.") else None)
    if name.startswith("delta.feature."):
        feature = name.removeprefix("delta.feature.")
    if feature and after.strip().lower() in _OFF:
        return "" if (before or "").strip().lower() in _OFF else "what is written from then on goes without it"
    if feature:
        return "" if feature in features else _raises(feature)
    if name in _KEEP:
        kept, shall_keep = parse_interval(before or KNOWN[name].default or ""), parse_interval(after)
        if kept is None or shall_keep is None or shall_keep < kept:
            return "what is older is deleted for good"
    is_unknown = name.lower().startswith("delta.") and name not in KNOWN
    return "nobody here knows whether it can be taken back" if is_unknown else ""


def _raises(feature: str) -> str:
    return f"it raises the table's protocol by {feature}: readers and writers without it are shut out"
