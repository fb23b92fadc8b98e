"""What merging small files would gain, and how urgent that makes it: the one judge for cards, health and attention.

Rule: pure. Which files are small, `backend.lake.files.file_sizes` says; here their number alone is never urgent, only
what readers would save. Opening a file counts as reading 4 MiB, as Spark plans it (`spark.sql.files.openCostInBytes`).
"""

from dataclasses import dataclass

from backend.health.model import Severity
from backend.lake.model import TableCard

OPEN_COST_BYTES = 4 * 2**20
MANY_SPARED = 500  # files; a scan on sixteen cores opens so many from an object store in about two seconds
READ_GAIN = 0.2  # of what reading the whole table costs
MOSTLY_SMALL = 0.5  # of the files
SOME_SMALL = 0.2  # of the files; below, they are not worth a remark
URGENCY = (
    f"It is urgent where merging spares {MANY_SPARED} files or more and {READ_GAIN:.0%} of a full read, "
    "counting each opened file as 4 MB, as Spark does; else a remark."
).replace("%", " %")


@dataclass(frozen=True, slots=True)
class MergeGain:
    """A table as it is, and about as many files as merging would leave."""

    num_files: int
    small_files: int
    size_bytes: int
    files_after: int

    @property
    def spared(self) -> int:
        """Files that a reader of the whole table need no longer open."""
        return max(0, self.num_files - self.files_after)

    @property
    def small_share(self) -> float:
        return self.small_files / self.num_files if self.num_files else 0.0

    @property
    def read_share(self) -> float:
        """The share of a full read that is saved."""
        cost = self.size_bytes + self.num_files * OPEN_COST_BYTES
        return self.spared * OPEN_COST_BYTES / cost if cost else 0.0

    def is_noticed(self, min_files: int) -> bool:
        """Whether a list of what needs attention names it: urgent, or most of enough files are small."""
        mostly = self.num_files >= min_files and self.small_share >= MOSTLY_SMALL
        return self.severity is Severity.WARNING or (mostly and self.spared > 0)

    @property
    def severity(self) -> Severity:
        if self.spared >= MANY_SPARED and self.read_share >= READ_GAIN:
            return Severity.WARNING
        return Severity.NOTE if self.spared and self.small_share >= SOME_SMALL else Severity.FINE


def gain_text(gain: MergeGain) -> str:
    """The finding that a card alone can tell."""
    return (
        f"{gain.small_files:,} of {gain.num_files:,} files ({100 * gain.small_share:.0f} %) are small; "
        f"merging would spare {gain.spared:,}."
    )


def merge_gain(card: TableCard) -> MergeGain:
    """The gain as a card knows it."""
    after = card.num_files if card.files_after_merge is None else card.files_after_merge
    return MergeGain(card.num_files, card.small_files, card.size_bytes, after)
