"""Properties: every documented key explained, slips noticed, owners read."""

import pytest

from backend.lake.model import Metadata, Protocol
from backend.lake.table.properties import KNOWN, explain_features, explain_properties, ownership

DOCUMENTED = [
    "delta.appendOnly",
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.checkpointInterval",
    "delta.checkpointPolicy",
    "delta.columnMapping.mode",
    "delta.dataSkippingNumIndexedCols",
    "delta.dataSkippingStatsColumns",
    "delta.deletedFileRetentionDuration",
    "delta.enableChangeDataFeed",
    "delta.enableDeletionVectors",
    "delta.enableExpiredLogCleanup",
    "delta.enableInCommitTimestamps",
    "delta.enableRowTracking",
    "delta.enableTypeWidening",
    "delta.isolationLevel",
    "delta.logRetentionDuration",
    "delta.randomizeFilePrefixes",
    "delta.setTransactionRetentionDuration",
    "delta.targetFileSize",
    "delta.tuneFileSizesForRewrites",
    "delta.universalFormat.enabledFormats",
    "delta.minReaderVersion",
    "delta.minWriterVersion",
]


def rows_of(**configuration: str):
    metadata = Metadata("id", "{}", configuration={key.replace("__", "."): v for key, v in configuration.items()})
    return {row.key: row for row in explain_properties(metadata)}


@pytest.mark.parametrize("key", DOCUMENTED)
def test_every_documented_key_is_explained_although_unset(key):
    row = rows_of()[key]
    assert (row.is_set, row.value, row.problem) == (False, None, None)
    assert len(row.meaning) > 20
    assert row.meaning.endswith(".")
    assert row.default == KNOWN[key].default


def test_a_set_key_shows_its_value_beside_the_default():
    row = rows_of(delta__enableChangeDataFeed="true")["delta.enableChangeDataFeed"]
    assert (row.value, row.default, row.is_set, row.problem) == ("true", "false", True, None)


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("delta.logRetentionDuraton", "delta.logRetentionDuration"),
        ("delta.enableChangeDataFeeds", "delta.enableChangeDataFeed"),
        ("delta.appendonly", "delta.appendOnly"),
        ("Delta.targetFileSize", "delta.targetFileSize"),
        ("detla.checkpointInterval", "delta.checkpointInterval"),
        ("catalog.team_nam", "catalog.team_name"),
        ("catalog.enginering.comms.slack", "catalog.engineering.comms.slack"),
    ],
)
def test_a_misspelled_key_is_flagged_with_the_nearest(slip, meant):
    row = rows_of(**{slip: "x"})[slip]
    assert row.suggestion == meant
    assert meant in row.problem


def test_an_unknown_engine_key_is_flagged_and_a_free_tag_is_not():
    rows = rows_of(**{"delta.wholly.unheard": "1", "team": "core", "catalog.cost_center": "7"})
    assert "unknown" in rows["delta.wholly.unheard"].problem
    assert rows["delta.wholly.unheard"].suggestion is None
    assert rows["team"].problem is None
    assert rows["catalog.cost_center"].problem is None


@pytest.mark.parametrize(
    "key", ["delta.constraints.positive", "delta.feature.deletionVectors", "delta.universalFormat.x"]
)
def test_families_of_keys_are_known(key):
    row = rows_of(**{key: "amount > 0"})[key]
    assert row.problem is None
    assert row.meaning


@pytest.mark.parametrize(
    ("key", "value", "good"),
    [
        ("delta.logRetentionDuration", "interval 30 days", True),
        ("delta.logRetentionDuration", "interval 1 week 2 hours", True),
        ("delta.deletedFileRetentionDuration", "banana", False),
        ("delta.appendOnly", "yes", False),
        ("delta.appendOnly", "TRUE", True),
        ("delta.checkpointInterval", "ten", False),
        ("delta.dataSkippingNumIndexedCols", "-1", True),
        ("delta.targetFileSize", "128mb", True),
        ("delta.targetFileSize", "big", False),
        ("delta.columnMapping.mode", "name", True),
        ("delta.columnMapping.mode", "nme", False),
    ],
)
def test_a_value_that_engines_would_not_understand_is_said(key, value, good):
    row = rows_of(**{key: value})[key]
    assert (row.problem is None) == good
    assert good or value in row.problem


def test_what_needs_a_look_comes_first():
    rows = explain_properties(Metadata("id", "{}", configuration={"a": "1", "delta.appendOnly": "x", "z": "1"}))
    assert [row.key for row in rows[:3]] == ["delta.appendOnly", "a", "z"]


def test_owners_are_read_from_the_catalog_tags():
    tags = {
        "catalog.team_name": "core",
        "catalog.engineering.comms.slack": "#core",
        "catalog.engineering.comms.email": "core@example.org",
        "catalog.table.classification": "internal",
        "catalog.cost_center": "7",
    }
    owner = ownership(Metadata("id", "{}", configuration=tags))
    assert (owner.team, owner.slack, owner.email, owner.classification) == (
        "core",
        "#core",
        "core@example.org",
        "internal",
    )
    assert owner.other == {"catalog.cost_center": "7"}


def test_features_listed_and_implied():
    listed = {f.name: f for f in explain_features(Protocol(3, 7, ("deletionVectors",), ("deletionVectors", "mars")))}
    assert set(listed) == {"deletionVectors", "mars"}
    assert (listed["deletionVectors"].in_reader, listed["mars"].in_reader) == (True, False)
    assert "does not know" in listed["mars"].meaning
    implied = {f.name for f in explain_features(Protocol(2, 5))}
    assert {"appendOnly", "changeDataFeed", "columnMapping"} <= implied
    assert "identityColumns" not in implied
