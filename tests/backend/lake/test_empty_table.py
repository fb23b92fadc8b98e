"""A table that was created and never written to: zero files are zero, not an error."""

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from backend.lake.files.file_sizes import distribute
from backend.lake.lake import Lake
from backend.settings import LakeSettings, load_settings
from tests.worlds.lake.builders import first_rows


def test_a_table_without_files_reads_as_zeros(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path / "lake" / "empty"), schema=pa.schema([("id", pa.int64())]))
    settings = load_settings(lake=LakeSettings(roots=[str(tmp_path / "lake")]))
    lake = Lake(settings)
    ref = lake.find("empty")
    snapshot = lake.snapshot(ref)
    distribution = distribute(snapshot, lake.target_bytes(snapshot), ratio=0.5, min_files=16)
    assert (distribution.num_files, distribution.size_bytes, distribution.small_files) == (0, 0, 0)
    assert (distribution.skew, distribution.vectors.files) == (None, 0)
    assert (lake.card(ref).num_rows, first_rows(lake, ref, limit=5).rows.num_rows) == (0, 0)
    assert [t.num_files for t in lake.timeline(ref).totals] == [0]
