"""What a version's checksum file says of its files, and whether Weir's own count agrees.

Rule: pure; the log has the last word, and a disagreement is told with both numbers.
"""

from backend.format import bytes_exact, bytes_text, things
from backend.lake.files.file_sizes import FileDistribution, small_limit, target_for
from backend.lake.log.actions import Checksum
from backend.lake.model import Bucket, Snapshot
from backend.settings import HealthSettings


def as_distribution(checksum: Checksum, snapshot: Snapshot, health: HealthSettings) -> FileDistribution:
    """The checksum's sizes as the figure draws them; which files are small is not in it."""
    target = target_for(snapshot.metadata.configuration, checksum.size_bytes, health)
    return FileDistribution(
        num_files=checksum.num_files,
        size_bytes=checksum.size_bytes,
        target=target,
        small_limit_bytes=small_limit(target, health.small_file_ratio),
        small_files=0,
        buckets=checksum.buckets or (),
        partitions=(),
        median_bytes=None,
        files_after_merge=checksum.num_files,
    )


def preview_title(checksum: Checksum) -> str:
    return f"Sizes of {things(checksum.num_files, 'file')}"


def source_sentence(version: int) -> str:
    return f"From the checksum that the writer left with v{version}."


def disagreement(checksum: Checksum, counted: FileDistribution, version: int) -> str:
    """Where checksum and count differ, totals first; empty when they agree."""
    head = f"The checksum of v{version} disagrees with its log, which is what this page counts: "
    if (checksum.num_files, checksum.size_bytes) != (counted.num_files, counted.size_bytes):
        return (
            f"{head}it says {_amount(checksum.num_files, checksum.size_bytes)}, "
            f"the log holds {_amount(counted.num_files, counted.size_bytes)}."
        )
    for bucket in checksum.buckets or ():
        files, size_bytes = _inside(bucket, counted)
        if (files, size_bytes) != (bucket.files, bucket.bytes):
            sizes = f"from {bytes_text(bucket.from_bytes)} to under {bytes_text(bucket.to_bytes)}"
            return (
                f"{head}of sizes {sizes} it says {_amount(bucket.files, bucket.bytes)}, "
                f"the log holds {_amount(files, size_bytes)}."
            )
    return ""


def _inside(wide: Bucket, counted: FileDistribution) -> tuple[int, int]:
    """Files and bytes of Weir's buckets that lie in one bucket of the checksum; the edges of both are powers of two."""
    within = [b for b in counted.buckets if wide.from_bytes <= b.from_bytes < wide.to_bytes]
    return sum(b.files for b in within), sum(b.bytes for b in within)


def _amount(files: int, size_bytes: int) -> str:
    return f"{files:,} file{'' if files == 1 else 's'} and {bytes_exact(size_bytes)}"
