"""`make bench-maintenance`: what an act through Weir costs beside Spark's bare statement, and what its preview costs.

Rule: a comparison counts only where both tables are left with the same rows in as many files.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench import maintenance_tasks as tasks
from bench.harness import Bench, Line, Suite, duration, fresh, require_equal, within
from bench.streams import at_home
from bench.tables import make_tables

FILES, ROWS_A_FILE = 9_000, 100
LARGE_ROWS, LARGE_FILES = 24_000_000, 64  # about 2 GB
LIMIT_S = 2.0


def optimize(bench: Bench) -> Iterator[Line]:
    """OPTIMIZE: a job of a host, proven, beside the bare statement"""
    shapes = {
        f"{round(FILES * bench.scale):,} small files": (
            round(FILES * bench.scale),
            round(FILES * bench.scale) * ROWS_A_FILE,
        ),
        f"{round(LARGE_ROWS * bench.scale):,} rows in {LARGE_FILES} files": (
            LARGE_FILES,
            round(LARGE_ROWS * bench.scale),
        ),
    }
    for number, (what, (files, rows)) in enumerate(shapes.items()):
        uri = f"{bench.tables}/optimize{number}"
        if not Path(uri).exists():
            at_home(bench, tasks.fill, uri=uri, files=files, rows=rows)()
        ours, bare = bench.runs(at_home(bench, tasks.ours, uri=uri), at_home(bench, tasks.bare, uri=uri))
        require_equal(ours.answer, bare.answer, what)
        ratio = ours.seconds / bare.seconds
        yield Line(what, "≤ 1.05×", duration(ours.seconds), duration(bare.seconds), f"{ratio:.2f}×", ratio <= 1.05)


def previews(bench: Bench) -> Iterator[Line]:
    """Previews on a table of 1,000,000 files, nothing read before"""
    uri = str(make_tables(bench.folder, bench.scale, ("T3",)) / "T3")
    for act in ("optimize", "restore"):
        (run,) = bench.runs(partial(fresh, tasks.previewed, uri=uri, act=act))
        yield within(f"preview of {act}", run.seconds, LIMIT_S)


def make_folder(folder: Path, scale: float) -> Path:
    """Where the tables of this scale are kept."""
    made = folder / f"weir-bench-acts-{scale:g}"
    made.mkdir(parents=True, exist_ok=True)
    return made


SUITE = Suite(
    "bench-maintenance",
    __doc__,
    "maintenance.md",
    {"optimize": optimize, "previews": previews},
    packages=("pyspark", "delta-spark"),
    repeats=3,
    make=make_folder,
)
