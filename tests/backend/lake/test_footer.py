"""A data file's footer: its row groups, encodings and sizes, of files that the version names and of no others."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.errors import DataFileMissingError, PathRefusedError, TableCorruptError
from backend.lake.files.footer import log_statistics
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol, write
from tests.worlds.lake.vectors import write_vector


@pytest.fixture
def one_file(root):
    path = root / "t"
    path.mkdir()
    rows = pa.table({"id": list(range(10)), "name": ["x", None] * 5})
    pq.write_table(rows, path / "f 1.parquet", row_group_size=4, compression={"id": "NONE", "name": "SNAPPY"})
    size = (path / "f 1.parquet").stat().st_size
    log = HandLog(path).commit(protocol(3, 7, ["deletionVectors"]), metadata({"id": "long", "name": "string"}))
    log.commit(add("f%201.parquet", size=size, rows=10, dv=write_vector(path, [1, 2])), commit_info())
    return path


def test_row_groups_encodings_and_sizes_are_those_of_the_footer(one_file, open_lake):
    lake = open_lake()
    found = lake.footer(lake.snapshot(lake.find("t")), "f 1.parquet")
    meta = pq.read_metadata(one_file / "f 1.parquet")
    assert (found.num_rows, found.num_groups, found.num_columns) == (10, 3, 2)
    assert [group.num_rows for group in found.groups] == [4, 4, 2]
    assert [group.uncompressed_bytes for group in found.groups] == [meta.row_group(n).total_byte_size for n in range(3)]
    for number, column in enumerate(found.columns):
        chunks = [meta.row_group(group).column(number) for group in range(3)]
        assert column.compressed_bytes == sum(chunk.total_compressed_size for chunk in chunks)
        assert set(column.encodings) == {encoding for chunk in chunks for encoding in chunk.encodings}
    identity, name = found.columns
    assert (identity.path, identity.compression, identity.minimum, identity.maximum) == ("id", "UNCOMPRESSED", "0", "9")
    assert (name.path, name.compression, name.null_count, name.type) == ("name", "SNAPPY", 5, "BYTE_ARRAY (String)")
    assert found.compressed_bytes == sum(group.compressed_bytes for group in found.groups)


def test_what_the_log_says_of_the_file_stands_beside_it(one_file, open_lake):
    lake = open_lake()
    logged = lake.footer(lake.snapshot(lake.find("t")), "f 1.parquet").logged
    assert (logged.num_records, logged.deleted_rows, logged.dv_id[0]) == (10, 2, "u")
    assert log_statistics(logged.stats) == {"numRecords": 10}
    assert [log_statistics(text) for text in (None, "[1]", "{")] == [None] * 3


def test_columns_carry_the_tables_names_under_mapping(root, open_lake):
    path = root / "t"
    path.mkdir()
    pq.write_table(pa.table({"col-1": [1]}), path / "f.parquet")
    made = metadata(configuration={"delta.columnMapping.mode": "name"})
    mapping = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    named = [{"name": "id", "type": "long", "nullable": True, "metadata": mapping}]
    made["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": named})
    HandLog(path).commit(protocol(2, 5), made, add("f.parquet"), commit_info())
    lake = open_lake()
    assert [column.path for column in lake.footer(lake.snapshot(lake.find("t")), "f.parquet").columns] == ["id"]


def test_a_file_that_the_version_does_not_name_is_not_opened(one_file, open_lake):
    pq.write_table(pa.table({"id": [1]}), one_file / "stray.parquet")
    lake = open_lake()
    for path in ("stray.parquet", "../t/f 1.parquet", "_delta_log/00000000000000000000.json", ""):
        with pytest.raises(DataFileMissingError, match="holds no file"):
            lake.footer(lake.snapshot(lake.find("t")), path)
    with pytest.raises(DataFileMissingError):
        lake.footer(lake.snapshot(lake.find("t"), 0), "f 1.parquet")


def test_gone_torn_and_symlinked_files_are_named_errors(root, open_lake, tmp_path):
    path = write(root / "t", {"id": [1]})
    lake = open_lake()
    snapshot = lake.snapshot(lake.find("t"))
    (file,) = path.glob("*.parquet")
    for torn in (b"", b"PAR1", b"nothing of parquet", file.read_bytes()[:-9]):
        file.write_bytes(torn)
        with pytest.raises(TableCorruptError, match="parquet file"):
            lake.footer(snapshot, file.name)
    file.unlink()
    with pytest.raises(DataFileMissingError, match="is gone"):
        lake.footer(snapshot, file.name)
    (tmp_path / "away.parquet").write_bytes(b"PAR1")
    file.symlink_to(tmp_path / "away.parquet")
    with pytest.raises(PathRefusedError):
        lake.footer(snapshot, file.name)
