"""The files of a version: bars, buckets, deletion vectors, overlap, and what a checksum says beside the count."""

from dataclasses import replace

import pytest

from app.files import view as files
from backend.lake.files.clustering import DepthPoint, Overlap
from backend.lake.files.file_sizes import (
    TargetSize,
    VectorLoad,
    distribute,
)
from tests.worlds.lake.made import snapshot


def test_a_file_stands_in_one_bar_and_the_lines_where_they_belong() -> None:
    found = distribute(snapshot([512, 1023, 1024, 5000] * 6), TargetSize(4096, "test"), ratio=0.5, min_files=16)
    figure = files.distribution_figure(found)
    bars = figure.data[0]
    assert sum(bars.y) == 24
    assert dict(zip([c[0] for c in bars.customdata], bars.y, strict=True)) == {512: 12, 1024: 6, 2048: 0, 4096: 6}
    assert [shape.x0 for shape in figure.layout.shapes] == [11.0, 12.0]  # log2 of small limit and target
    assert list(figure.data[1].y)[-1] == pytest.approx(100)
    assert figure.layout.title.text == "18 of 24 files are small (under 2.05 kB)"


def test_what_is_fine_or_unknown_is_no_finding() -> None:
    fine = distribute(snapshot([10] * 9 + [4096] * 11), TargetSize(4096, "test"), ratio=0.5, min_files=16)
    assert files.distribution_figure(fine).layout.title.text == "OK: 20 files, 45.1 kB"
    one = distribute(snapshot([10]), fine.target, ratio=0.5, min_files=16)
    assert files.files_finding(one) == "OK: 1 file, 10 B", "and not a file above the limit"
    text = files.vectors_sentence(replace(fine, vectors=VectorLoad(2, 30, 70, 1)))
    assert "30 % of all rows are deleted. 1 file with more than 5 %" in text
    unknown = files.vectors_sentence(replace(fine, vectors=VectorLoad(1, 30, None, 0)))
    assert "30 rows deleted, of how many is unknown. No file is known" in unknown
    overlap = Overlap("id", 1204, 1203, 1, 214.2, 300, 12.0, 30, (DepthPoint(0.0, "7", 214),))
    text = files.overlap_sentence(overlap, is_chosen_by_table=True)
    assert "reads 214 of 1,204 files on average, at most 300; well clustered would be 1–3" in text
    assert "With its partition named: 12.0" in text and "1 file without bounds" in text and "sorted by" in text
    nothing = Overlap("id", 4, 0, 4, None, None, None, 1, ())
    assert "reads all 4 files" in files.overlap_sentence(nothing, is_chosen_by_table=False)
