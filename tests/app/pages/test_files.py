"""Files: the distribution with its rule, extremes, partitions, the files of one bar."""

import json
from pathlib import Path
from typing import NoReturn

import pytest
from deltalake import DeltaTable

from app import cache
from app.files import page as files
from backend.errors import StorageError
from backend.lake.model import Snapshot
from tests.worlds.lake import builders
from tests.worlds.lake.vectors import write_vector
from tests.worlds.pages.frames import frame_with, titles
from tests.worlds.pages.opened import again, metrics, open_page, plain, press, words

EVENTS = "bronze/clicks"


def bar(clicks: Path) -> tuple[int, list[int]]:
    """Where the bar of the smallest files begins, and the sizes of all files."""
    sizes = DeltaTable(str(clicks)).get_add_actions(flatten=True)["size_bytes"].to_pylist()
    return 2 ** (min(sizes).bit_length() - 1), sizes


def test_small_files_are_counted_with_the_rule_that_counts_them_and_views_list_them(clicks: Path) -> None:
    app = open_page("files", table=EVENTS)
    figures = metrics(app)
    assert (figures["Files"], figures["Small files"], figures["Target size"]) == ("34", "34 of 34", "256 MB")
    assert "under 50 % of the target of 256 MB (from table size)." in words(app)
    app = open_page("files", table=EVENTS, view="Smallest")
    sizes = frame_with(app, "Path")["Size"].tolist()
    assert len(sizes) == 34 and sizes == sorted(sizes) and "All 34 files, the smallest first." in words(app)
    frame = frame_with(open_page("files", table=EVENTS, view="By partition"), "Small files")
    assert frame["Partition"].tolist() == ["day=2026-01-01", "day=2026-01-02"]
    assert frame["Small files"].tolist() == [17, 17]
    assert metrics(open_page("files", table=EVENTS, version=4))["Files"] == "5", "an old version has its own"
    app = open_page("files", table=EVENTS, view="Clustering", overlap_column="id")
    assert "A look-up of one value of id reads" in words(app) and "With its partition named" in words(app)
    assert "Files that may hold a value of id" in titles(app)


def test_a_link_opens_the_files_of_one_bar(clicks: Path) -> None:
    edge, sizes = bar(clicks)
    app = open_page("files", table=EVENTS, bucket=edge)
    assert len(frame_with(app, "Path")) == sum(edge <= size < 2 * edge for size in sizes)
    press(app, "close_bucket")
    assert "bucket" not in app.query_params and "All sizes" not in [button.label for button in app.button]
    assert len(frame_with(open_page("files", table=EVENTS, bucket=3), "Path")) == 34, "a bar of another version"


def test_after_a_click_on_a_bar_the_views_react(clicks: Path) -> None:
    edge, _ = bar(clicks)
    app = open_page("files", table=EVENTS, bucket=edge)
    app.segmented_control(key="view").set_value("Smallest")
    shown = frame_with(again(app), "Path")["Size"].tolist()
    assert shown == sorted(shown) and "bucket" in app.query_params  # still the bar's files, in the other order
    for view, text in (("By partition", "2 partitions"), ("Deleted rows", "No deletion vectors"),
                       ("Clustering", "A look-up of one value")):  # fmt: skip
        app.query_params["bucket"] = str(edge)
        app.segmented_control(key="view").set_value(view)
        again(app)
        assert text in words(app) and "bucket" not in app.query_params, view


def test_an_emptied_table_says_so(home: Path) -> None:
    path = builders.write(home / "lake" / "emptied", {"id": [1]})
    DeltaTable(str(path)).delete()
    app = open_page("files", table="emptied")
    assert metrics(app)["Files"] == "0" and metrics(app)["Median file"] == "–"
    assert "v1 has no data files" in words(app) and not app.get("plotly_chart") and not app.dataframe


def test_files_with_deleted_rows_are_named(home: Path) -> None:
    path = home / "lake" / "marked"
    vector = write_vector(path, [0, 1])
    log = builders.HandLog(path).commit(builders.protocol(3, 7, ["deletionVectors"]), builders.metadata())
    log.commit(builders.add("a.parquet", rows=10, dv=vector), builders.add("b.parquet"), builders.commit_info())
    app = open_page("files", table="marked", view="Deleted rows")
    assert "1 of 2 files has a deletion vector; 10 % of all rows are deleted." in words(app)
    assert frame_with(app, "Deleted rows")["Path"].tolist() == ["a.parquet"]


def test_long_lists_come_in_pages(home: Path) -> None:
    path = home / "lake" / "many"
    log = builders.HandLog(path).start(partition_by=["p"], columns={"id": "long", "p": "string"})
    log.commit(
        *[builders.add(f"p={n}/f", size=n + 1, partitionValues={"p": str(n)}) for n in range(120)],
        builders.commit_info(),
    )
    app = open_page("files", table="many", view="Smallest", files_page=3)
    assert frame_with(app, "Path")["Size"].tolist() == list(range(101, 121))
    assert "101 to 120 of 120 files, the smallest first." in words(app)
    press(app, "page_Previous")
    assert frame_with(app, "Path")["Size"].tolist() == list(range(51, 101))
    app = open_page("files", table="many", view="By partition", find="=11", sort="Largest")
    assert frame_with(app, "Small files")["Partition"].tolist() == [f"p={n}" for n in range(119, 109, -1)] + ["p=11"]
    app = open_page("files", table="many", view="By partition", partition="p=7")
    assert frame_with(app, "Path")["Path"].tolist() == ["p=7/f"]


def summed(home: Path, *, files: int) -> None:
    """A table of 3 files and a checksum that says `files` of them in its histogram."""
    path = home / "lake" / "summed"
    log = builders.HandLog(path).commit(builders.protocol(), builders.metadata())
    log.commit(*[builders.add(f"{n}.parquet", size=20_000) for n in range(3)], builders.commit_info())
    edges = {"sortedBinBoundaries": [0, 8192, 16384, 32768], "fileCounts": [3 - files, 0, files, 0]}
    sizes = {"totalBytes": [0, 0, 60_000, 0]}
    said = {"tableSizeBytes": 60_000, "numFiles": 3, "fileSizeHistogram": edges | sizes}
    log.raw(f"{1:020d}.crc", json.dumps(said))


def test_a_checksum_is_shown_until_the_count_is_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(_: Snapshot) -> NoReturn:
        raise StorageError("the store has gone away")

    summed(home, files=3)
    monkeypatch.setattr(files, "MANY_FILES", 1)
    app = open_page("files", table="summed")
    assert metrics(app)["Small files"] == "OK (3)" and "From the checksum" not in words(app)
    assert len(app.get("plotly_chart")) == 1 and not app.warning
    monkeypatch.setattr(cache, "distribution", unreachable)
    app = open_page("files", table="summed")
    assert (metrics(app), titles(app)) == ({"Files": "3", "Size": "60 kB"}, "Sizes of 3 files")
    assert "From the checksum that the writer left with v1." in words(app) and "gone away" in app.error[0].value


def test_a_checksum_that_disagrees_is_named(home: Path) -> None:
    summed(home, files=2)
    app = open_page("files", table="summed")
    assert metrics(app)["Files"] == "3"
    assert "checksum of v1 disagrees" in app.warning[0].value.replace("\\", "")
    assert "it says 1 file and 0 bytes, the log holds 0 files" in words(app)


def test_a_link_opens_one_file_of_the_version(clicks: Path) -> None:
    name = DeltaTable(str(clicks)).get_add_actions(flatten=True)["path"].to_pylist()[0]
    app = open_page("files", table=EVENTS, file=name)
    columns = frame_with(app, "Encodings")
    assert columns["Column"].tolist() == ["id"] and metrics(app)["Row groups"] == "1" and metrics(app)["Rows"] == "2"
    assert '"numRecords": 2' in words(app)
    press(app, "close_file")
    assert "file" not in app.query_params and "Row groups" not in metrics(app)
    app = open_page("files", table=EVENTS, file="../secret.parquet")
    assert len(app.error) == 1 and "holds no file" in plain(app.error[0].value)
