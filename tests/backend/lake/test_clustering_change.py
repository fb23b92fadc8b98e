"""A table's clustering as the log declares it, and its change between two versions."""

import json
from pathlib import Path
from typing import Any

from backend.changes.answer import outline
from backend.lake.files.clustering import declared_clustering
from backend.lake.lake import Lake
from backend.lake.table.metadata_diff import PropertyChange
from backend.settings import load_settings
from tests.worlds.lake.builders import HandLog, metadata
from tests.worlds.lake.diffs import prepare

WRITER_FEATURES = ["columnMapping", "clustering", "domainMetadata"]
FEATURES = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 7, "writerFeatures": WRITER_FEATURES}}


def clustered(*columns: list[str]) -> dict[str, Any]:
    text = json.dumps({"clusteringColumns": list(columns), "domainName": "delta.clustering"})
    return {"domainMetadata": {"domain": "delta.clustering", "configuration": text, "removed": False}}


def test_clustering_columns_go_by_their_names_and_their_change_is_told(tmp_path: Path) -> None:
    schema = metadata({"id": "long"}, configuration={"delta.columnMapping.mode": "name"})
    inner = {"name": "city", "type": "string", "nullable": True, "metadata": {"delta.columnMapping.physicalName": "c7"}}
    fields = [
        {"name": "id", "type": "long", "nullable": True, "metadata": {"delta.columnMapping.physicalName": "c1"}},
        {
            "name": "place",
            "type": {"type": "struct", "fields": [inner]},
            "nullable": True,
            "metadata": {"delta.columnMapping.physicalName": "c2"},
        },
    ]
    schema["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    log = HandLog(tmp_path / "t").commit(FEATURES, schema, clustered(["c1"]))
    log.commit(clustered(["c2", "c7"], ["c1"]))
    log.commit(clustered())
    log.raw(f"{3:020d}.json", json.dumps(clustered(["gone"]) | {"x": 1}) + "\n")
    lake = Lake(load_settings(home=tmp_path / "home", lake={"roots": [str(tmp_path)]}))
    [ref] = lake.tables()
    found = [declared_clustering(lake.snapshot(ref, version)) for version in range(4)]
    assert found == [("id",), ("place.city", "id"), (), ("gone",)]
    for first, second, before, after in (
        (0, 1, "id", "place.city, id"),
        (1, 2, "place.city, id", None),
        (2, 0, None, "id"),
    ):
        answer = outline(prepare(lake, ref, first, second))
        assert answer.log.properties == (PropertyChange("clustered by", before, after),)
        assert answer.is_changed


def test_a_declaration_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    odd = clustered()
    odd["domainMetadata"]["configuration"] = "[1"
    HandLog(tmp_path / "t").commit(FEATURES, metadata(), odd)
    lake = Lake(load_settings(home=tmp_path / "home", lake={"roots": [str(tmp_path)]}))
    [ref] = lake.tables()
    assert declared_clustering(lake.snapshot(ref)) == ("unreadable",)
