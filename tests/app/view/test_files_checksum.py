"""What a checksum says beside the count of the log: agreement, and disagreement in words."""

from dataclasses import replace

import pyarrow as pa
import pytest

from app.files.view import checksum as view
from backend.lake.files.file_sizes import FileDistribution, TargetSize, histogram
from backend.lake.log.checksum import Checksum
from backend.lake.model import Bucket

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
    assert view.disagreement(SAID, COUNTED, 7) == ""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (replace(SAID, num_files=5), "it says 5 files and 20,014,010 bytes, the log holds 4 files and 20,014,010"),
        (replace(SAID, buckets=(Bucket(0, 8192, 3, 5_010),)), "from 0 B to under 8.19 kB it says 3 files and 5,010 by"),
        (replace(SAID, buckets=(Bucket(8192, 16384, 1, 9_001),)), "9,001 bytes, the log holds 1 file and 9,000 bytes"),
    ],
)
def test_a_disagreement_has_both_numbers(said: Checksum, words: str) -> None:
    found = view.disagreement(said, COUNTED, 7)
    assert found.startswith("The checksum of v7 disagrees with its log") and words in found
