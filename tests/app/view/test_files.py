"""The files of a version: bars, half-open buckets, deletion vectors and overlap."""

from dataclasses import replace

import pytest

from app.files.view import distribution as files
from backend.lake.files.clustering import DepthPoint, Overlap
from backend.lake.files.file_sizes import FileChoice, TargetSize, VectorLoad, distribute, file_page
from backend.lake.model import Metadata, Protocol, Snapshot
from tests.worlds.lake.made import NOW, REF, GivenFiles, snapshot


def test_a_file_stands_in_one_bar_and_the_lines_where_they_belong() -> None:
    found = distribute(snapshot([512, 1023, 1024, 5000] * 5), TargetSize(4096, "test"), ratio=0.5, min_files=16)
    figure = files.distribution_figure(found)
    bars = figure.data[0]
    assert sum(bars.y) == 20
    assert dict(zip([c[0] for c in bars.customdata], bars.y, strict=True)) == {512: 10, 1024: 5, 2048: 0, 4096: 5}
    assert [shape.x0 for shape in figure.layout.shapes] == [11.0, 12.0]  # log2 of small limit and target
    assert list(figure.data[1].y)[-1] == pytest.approx(100)
    assert figure.layout.title.text == "15 of 20 files are small (under 2.05 kB)"


def test_files_that_are_fine_are_no_finding() -> None:
    found = distribute(snapshot([10] * 9 + [4096] * 11), TargetSize(4096, "test"), ratio=0.5, min_files=16)
    figure = files.distribution_figure(found)
    assert figure.layout.title.text == "Fine: 20 files, 45.1 kB"
    assert {shown.label: shown.value for shown in files.key_figures(found)}["Small files"] == "Fine"
    assert len(set(figure.data[0].marker.color)) == 1 and figure.data[0].marker.color[0] != "#B45309"
    warned = files.distribution_figure(distribute(snapshot([512] * 20), found.target, ratio=0.5, min_files=16))
    assert set(warned.data[0].marker.color) != set(figure.data[0].marker.color)


def test_one_small_file_is_fine_and_not_a_file_above_the_limit() -> None:
    found = distribute(snapshot([10]), TargetSize(4096, "test"), ratio=0.5, min_files=16)
    assert files.files_finding(found) == "Fine: 1 file, 10 B"


def test_an_empty_version_has_a_title_and_no_bars() -> None:
    empty = snapshot([1])
    empty = Snapshot(REF, 3, NOW, Protocol(1, 2), Metadata("id", "{}"), GivenFiles(empty.files.slice(0, 0)))
    found = distribute(empty, TargetSize(4096, "test"), ratio=0.5, min_files=16)
    figure = files.distribution_figure(found)
    assert figure.layout.title.text == "This version has no data files"
    assert len(figure.data) == 0


def test_the_files_of_a_bar_are_half_open() -> None:
    found = distribute(snapshot([512, 1023, 1024]), TargetSize(4096, "test"), ratio=0.5, min_files=16)
    bucket = found.buckets[0]
    choice = FileChoice(from_bytes=bucket.from_bytes, to_bytes=bucket.to_bytes, order="smallest")
    inside = file_page(snapshot([512, 1023, 1024]), choice).files
    assert inside["size_bytes"].to_pylist() == [512, 1023]


def test_deletion_vectors_are_said_with_the_files_to_rewrite() -> None:
    found = distribute(snapshot([10, 10]), TargetSize(4096, "test"), ratio=0.5, min_files=16)
    assert "No deletion vectors" in files.vectors_sentence(found)
    loaded = replace(found, vectors=VectorLoad(2, 30, 70, 1))
    text = files.vectors_sentence(loaded)
    assert text.startswith(
        "2 of 2 files have deletion vectors; 30 % of all rows are deleted. 1 file with more than 5 %"
    )
    unknown = files.vectors_sentence(replace(found, vectors=VectorLoad(1, 30, None, 0)))
    assert "30 rows deleted, of how many is unknown. No file is known" in unknown


def test_overlap_is_said_in_files_that_a_look_up_reads() -> None:
    point = DepthPoint(0.0, "7", 214)
    found = Overlap("id", 1204, 1203, 1, 214.2, 300, 12.0, 30, (point,))
    text = files.overlap_sentence(found, is_chosen_by_table=True)
    assert "reads 214 of 1,204 files on average, at most 300; well clustered would be 1–3" in text
    assert "With its partition named: 12.0" in text and "1 file without bounds" in text and "sorted by" in text
    nothing = Overlap("id", 4, 0, 4, None, None, None, 1, ())
    assert "reads all 4 files" in files.overlap_sentence(nothing, is_chosen_by_table=False)
    assert list(files.overlap_figure(found).data[0].y) == [214]
