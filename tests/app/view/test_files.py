"""The files of a version: bars, buckets, deletion vectors, overlap, and what a checksum says beside the count."""

from dataclasses import replace

import pyarrow as pa
import pytest

from app.files.view import checksum
from app.files.view import distribution as files
from backend.lake.files.clustering import DepthPoint, Overlap
from backend.lake.files.file_sizes import (
    FileChoice,
    FileDistribution,
    TargetSize,
    VectorLoad,
    distribute,
    file_page,
    histogram,
)
from backend.lake.log.checksum import Checksum
from backend.lake.model import Bucket
from tests.worlds.lake.made import snapshot


def test_a_file_stands_in_one_bar_and_the_lines_where_they_belong() -> None:
    found = distribute(snapshot([512, 1023, 1024, 5000] * 5), TargetSize(4096, "test"), ratio=0.5, min_files=16)
    figure = files.distribution_figure(found)
    bars = figure.data[0]
    assert sum(bars.y) == 20
    assert dict(zip([c[0] for c in bars.customdata], bars.y, strict=True)) == {512: 10, 1024: 5, 2048: 0, 4096: 5}
    assert [shape.x0 for shape in figure.layout.shapes] == [11.0, 12.0]  # log2 of small limit and target
    assert list(figure.data[1].y)[-1] == pytest.approx(100)
    assert figure.layout.title.text == "15 of 20 files are small (under 2.05 kB)"


def test_the_files_of_a_bar_are_half_open() -> None:
    found = distribute(snapshot([512, 1023, 1024]), TargetSize(4096, "test"), ratio=0.5, min_files=16)
    bucket = found.buckets[0]
    choice = FileChoice(from_bytes=bucket.from_bytes, to_bytes=bucket.to_bytes, order="smallest")
    inside = file_page(snapshot([512, 1023, 1024]), choice).files
    assert inside["size_bytes"].to_pylist() == [512, 1023]


def test_what_is_fine_or_unknown_is_no_finding() -> None:
    fine = distribute(snapshot([10] * 9 + [4096] * 11), TargetSize(4096, "test"), ratio=0.5, min_files=16)
    assert files.distribution_figure(fine).layout.title.text == "Fine: 20 files, 45.1 kB"
    one = distribute(snapshot([10]), fine.target, ratio=0.5, min_files=16)
    assert files.files_finding(one) == "Fine: 1 file, 10 B", "and not a file above the limit"
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


SIZES = [10, 5_000, 9_000, 20_000_000]
COUNTED = FileDistribution(
    num_files=4,
    size_bytes=sum(SIZES),
    target=TargetSize(256_000_000, "table size"),
    small_limit_bytes=128_000_000,
    small_files=0,
    buckets=histogram(pa.chunked_array([SIZES])),
    partitions=(),
    median_bytes=5_000,
)

SAID = Checksum(4, sum(SIZES), None, None, (
    Bucket(0, 8192, 2, 5_010), Bucket(8192, 16384, 1, 9_000), Bucket(1 << 24, 1 << 25, 1, 20_000_000),
))  # fmt: skip


def test_wider_bins_of_the_writer_agree_with_the_count() -> None:
    assert checksum.disagreement(SAID, COUNTED, 7) == ""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (replace(SAID, num_files=5), "it says 5 files and 20,014,010 bytes, the log holds 4 files and 20,014,010"),
        (replace(SAID, buckets=(Bucket(0, 8192, 3, 5_010),)), "from 0 B to under 8.19 kB it says 3 files and 5,010 by"),
        (replace(SAID, buckets=(Bucket(8192, 16384, 1, 9_001),)), "9,001 bytes, the log holds 1 file and 9,000 bytes"),
    ],
)
def test_a_disagreement_has_both_numbers(said: Checksum, words: str) -> None:
    found = checksum.disagreement(said, COUNTED, 7)
    assert found.startswith("The checksum of v7 disagrees with its log") and words in found
