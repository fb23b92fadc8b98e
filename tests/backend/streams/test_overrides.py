"""Settings in place of declared ones, and declarations beside their tables: what may be set, what waits for a word."""

import json
from pathlib import Path

import pytest

from backend.errors import OverrideError
from backend.settings import load_settings
from backend.stream_model.overrides import SPARK, check_overrides, compare, known_keys, require_settable, with_overrides
from backend.stream_model.stream import DeclaredTable, InputKind, StreamDeclaration, StreamInput
from backend.streams.checkpoint import pinned_by
from backend.streams.table_changes import DeclaredChange, PresentTable, approved_changes, table_changes
from tests.worlds.streams.values import stream

FILES = StreamInput(InputKind.FILES, "files in landing", "/l", {"maxFilesPerTrigger": "1000"})
TABLE = StreamInput(InputKind.TABLE, "bronze/orders", "/b")
TOPIC = StreamInput(InputKind.KAFKA, "orders at broker:9092")


FOREIGN = (  # each would read, write or load something else
    "spark.sql.streaming.checkpointLocation",
    "spark.sql.streaming.checkpointFileManagerClass",
    "spark.sql.streaming.streamingQueryListeners",
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.session.timeZone",
    "spark.sql.optimizer.excludedRules",
    "spark.databricks.delta.properties.defaults.appendOnly",
    "spark.driver.extraJavaOptions",
    "spark.plugins",
    "spark.extraListeners",
    "spark.jars",
    "spark.hadoop.fs.s3a.aws.credentials.provider",
    "SPARK.SQL.SHUFFLE.PARTITIONS",
    "spark.sql.shuffle.partitions ",
)


def declared(*inputs: StreamInput, **more: object) -> StreamDeclaration:
    return stream("orders", *inputs, **more)


def test_what_may_be_set() -> None:
    for overrides in (
        {"trigger": "available now", "maxFilesPerTrigger": "1"},
        {"trigger": "1.5 minutes", "maxBytesPerTrigger": "67108864"},
        {"maxOffsetsPerTrigger": "10", "maxTriggerDelay": "5m", "minPartitions": "4"},
        {"spark.sql.shuffle.partitions": "8", "spark.databricks.delta.autoCompact.minNumFiles": "9"},
    ):
        check_overrides(declared(TABLE, TOPIC), overrides)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("trigger", "often", "is not understood"),
        ("trigger", "0 seconds", "is not understood"),
        ("maxFilesPerTrigger", "١", "is not understood"),
        ("maxFilesPerTrigger", "1; DROP", "is not understood"),
        ("maxBytesPerTrigger", "64m", "is not understood"),
        ("maxOffsetsPerTrigger", "5", "cannot be set on orders"),
        ("startingVersion", "0", "cannot be set on orders"),
        ("spark.executor.memory", "1g", "cannot be set on orders"),
        *((key, "x", "cannot be set on orders") for key in FOREIGN),
        ("spark.sql.shuffle.partitions", "", "is not understood"),
        ("spark.sql.shuffle.partitions", "8\n9", "is not understood"),
        ("spark.sql.streaming.stopActiveRunOnRestart", "true", "Weir's own"),
        ("spark.sql.streaming.checkpoint.x", "true", "Weir's own"),
        ("spark.databricks.delta.write.txnVersion", "9", "Weir's own"),
        ("spark.sql.variable.substitute", "true", "Weir's own"),
    ],
)
def test_what_may_not_be_set_is_refused_with_what_to_write(key: str, value: str, said: str) -> None:
    with pytest.raises(OverrideError, match=said) as refused:
        check_overrides(declared(TABLE), {key: value})
    assert refused.value.hint


def test_files_take_one_limit_and_a_view_none() -> None:
    both = {"maxFilesPerTrigger": "1", "maxBytesPerTrigger": "9"}
    check_overrides(declared(TABLE), both)
    with pytest.raises(OverrideError, match="files take one of them"):
        check_overrides(declared(FILES), both)
    with pytest.raises(OverrideError, match="cannot be set"):
        check_overrides(declared(TABLE, kind="materialized view"), {"maxFilesPerTrigger": "1"})


def test_the_stream_is_judged_by_what_it_runs_with() -> None:
    about = declared(FILES, TABLE, TOPIC, spark_conf={"spark.sql.a": "1", SPARK[0]: "2"})
    runs = with_overrides(about, {"trigger": "1 minute", "maxFilesPerTrigger": "7", SPARK[0]: "3"})
    assert runs.trigger_interval_ms == 60_000
    assert [each.options.get("maxFilesPerTrigger") for each in runs.inputs] == ["7", "7", None]
    assert runs.spark_conf == {"spark.sql.a": "1", "spark.sql.shuffle.partitions": "3"}
    assert with_overrides(about, {"trigger": "available now"}).trigger_interval_ms == 0
    assert with_overrides(about, {}) is about


def test_what_the_checkpoint_goes_on_with_is_noted(tmp_path: Path) -> None:
    settings, about = load_settings(home=tmp_path), declared(TABLE, checkpoint_location=str(tmp_path / "cp"))
    assert pinned_by(settings, about) == {}
    offsets = tmp_path / "cp/offsets"
    offsets.mkdir(parents=True)
    for batch, partitions in ((0, "2"), (1, "3")):
        metadata = {"batchTimestampMs": 1, "conf": {"spark.sql.shuffle.partitions": partitions}}
        (offsets / str(batch)).write_text(f"v1\n{json.dumps(metadata)}\n{{}}")
    pinned = pinned_by(settings, about)
    assert pinned == {"spark.sql.shuffle.partitions": "3"}
    for wanted, note in (("8", "its checkpoint goes on with 3, until it is reset"), ("3", "")):
        (each,) = compare(about, {}, {"spark.sql.shuffle.partitions": wanted}, pinned)
        assert each.note == note
    (offsets / "1").write_text("v1\n{cut")
    assert pinned_by(settings, about) == {}


def test_what_stands_in_the_store_unchecked_is_refused_too() -> None:
    require_settable("orders", {"trigger": "1 minute", "maxOffsetsPerTrigger": "5", SPARK[0]: "8"})
    require_settable("orders", ["table_changes"])
    for key in FOREIGN:
        with pytest.raises(OverrideError, match="cannot be set on orders"):
            require_settable("orders", [key])


def test_what_may_be_set_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs/streams.md").read_text()
    section = text.partition("## Other settings than declared")[2].partition("\n## ")[0]
    assert [key for key in SPARK if key.rpartition(".")[2] not in section] == []


PLAIN = PresentTable("Orders", {"catalog.team_name": "sales"}, ("appendOnly", "invariants"))
EVERY = PresentTable("", {}, ("changeDataFeed", "clustering", "deletionVectors", "typeWidening", "rowTracking"))


def declared_changes(present: PresentTable = PLAIN, **declared: object) -> list[DeclaredChange]:
    return list(table_changes(DeclaredTable("silver/orders", "/l", **declared), present))  # type: ignore[arg-type]


def of_property(key: str, value: str, present: PresentTable = PLAIN) -> DeclaredChange:
    (change,) = declared_changes(present, properties={key: value})
    return change


def test_nothing_differs_where_nothing_is_said_or_all_is_as_it_is() -> None:
    assert declared_changes() == []
    kept = {"delta.logRetentionDuration": "interval 7 days", "delta.enableChangeDataFeed": "true"}
    present = PresentTable("Orders", kept, ("changeDataFeed",), ("id", "Day"), ("Region",))
    said = {"delta.logretentionduration": "INTERVAL 1 week", "delta.enableChangeDataFeed": "TRUE"}
    assert declared_changes(present, comment="Orders", properties=said) == []
    assert declared_changes(present, cluster_by=("ID", "day"), partition_cols=("region",)) == []
    assert (
        declared_changes(EVERY, properties={"delta.feature.clustering": "supported", "delta.minReaderVersion": "3"})
        == []
    )


def test_what_adds_and_can_be_taken_back_is_set_at_once() -> None:
    (comment,) = declared_changes(comment="Orders of the shop")
    assert (str(comment), comment.waits) == ("comment of silver/orders: Orders → Orders of the shop", "")
    for key, value in {
        "catalog.team_name": "Sales",
        "quality": "gold",
        "delta.autoOptimize.autoCompact": "true",
        "delta.targetFileSize": "128mb",
        "delta.logRetentionDuration": "interval 60 days",
        "delta.deletedFileRetentionDuration": "interval 30 days",
        "delta.appendOnly": "true",
    }.items():
        change = of_property(key, value)
        assert (change.waits, change.is_due(())) == ("", True), key
    assert of_property("delta.enableChangeDataFeed", "true", EVERY).waits == ""
    assert declared_changes(EVERY, cluster_by=("id",))[0].is_due(())


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("delta.enableChangeDataFeed", "true", "by changeDataFeed"),
        ("delta.enableDeletionVectors", "true", "by deletionVectors"),
        ("delta.columnMapping.mode", "name", "by columnMapping"),
        ("delta.enableRowTracking", "true", "by rowTracking"),
        ("delta.checkpointPolicy", "v2", "by v2Checkpoint"),
        ("delta.feature.timestampNtz", "supported", "by timestampNtz"),
        ("delta.constraints.positive", "amount > 0", "by checkConstraints"),
        ("delta.logRetentionDuration", "interval 1 day", "is deleted for good"),
        ("delta.deletedFileRetentionDuration", "interval 1 hour", "is deleted for good"),
        ("delta.deletedFileRetentionDuration", "soon", "is deleted for good"),
        ("delta.somethingNew", "true", "nobody here knows"),
    ],
)
def test_what_raises_the_protocol_or_cannot_be_undone_waits_for_a_word(key: str, value: str, why: str) -> None:
    change = of_property(key, value)
    assert why in change.waits
    assert not change.is_due(())
    assert not change.is_due(approved_changes("comment"))
    assert change.is_due(approved_changes(f"comment, {key}"))


def test_to_turn_a_feature_off_waits_and_to_say_that_it_is_off_does_not() -> None:
    on = PresentTable("", {"delta.enableChangeDataFeed": "true"}, ("changeDataFeed",))
    assert "goes without it" in of_property("delta.enableChangeDataFeed", "false", on).waits
    assert of_property("delta.enableChangeDataFeed", "false").waits == ""


def test_clustering_waits_where_the_table_knows_none_and_partitions_never_change() -> None:
    (clustering,) = declared_changes(cluster_by=("id",))
    assert "by clustering" in clustering.waits and clustering.is_due(approved_changes("cluster_by"))
    parted = PresentTable("", {}, ("clustering",), (), ("day",))
    for change in (
        *declared_changes(parted, cluster_by=("id",)),
        *declared_changes(parted, partition_cols=("region",)),
    ):
        assert not change.is_due(approved_changes("cluster_by,partition_cols")), change


def test_a_word_is_a_setting_of_streams_that_write_tables() -> None:
    assert "table_changes" not in known_keys(stream("orders"))
    assert "table_changes" in known_keys(stream("orders", tables=(DeclaredTable("t", "/t"),)))
