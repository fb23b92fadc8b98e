"""Runs a measured task in a process of its own and says how long it took and how much memory it took.

Rule: imports are done before the clock starts, pandas among them (Arrow looks for it at its first conversion). Memory
is the peak while a lap runs less what the process held before.
"""

import importlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

LIMIT_S = 300
_MARK = b"measured:"


class BenchError(Exception):
    """A measurement that means nothing: answers differ, or a process failed."""


@dataclass(frozen=True, slots=True)
class Lap:
    """One go of an operation."""

    seconds: float
    grown_bytes: int


@dataclass(frozen=True, slots=True)
class Run:
    """What a task answered (as JSON), and its laps."""

    answer: Any
    laps: tuple[Lap, ...]

    @property
    def seconds(self) -> float:
        """The median lap."""
        return statistics.median(lap.seconds for lap in self.laps)

    @property
    def grown_bytes(self) -> float:
        return statistics.median(lap.grown_bytes for lap in self.laps)


@dataclass
class Watch:
    """A task's clock: `with watch:` is one lap."""

    laps: list[Lap] = field(default_factory=list)
    _started: float = 0.0
    _held: int = 0

    def __enter__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew at what is held now
        self._held = _memory("VmRSS")
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        seconds = time.perf_counter() - self._started
        self.laps.append(Lap(seconds, max(0, _memory("VmHWM") - self._held)))


Task = Callable[..., Any]  # takes a Watch and keyword arguments, gives an answer that is JSON


def fresh(task: Task, *, limit_s: float = LIMIT_S, **arguments: Any) -> Run:
    """Run a task once in a new interpreter; raises `BenchError` when it fails."""
    asked = orjson.dumps({"module": task.__module__, "name": task.__name__, "arguments": arguments})
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as home:
        argv = [sys.executable, "-m", "bench.measure"]
        env = {"PATH": "/usr/bin:/bin", "WEIR_HOME": home, "PYTHONPATH": str(Path(__file__).parents[1]), "HOME": home}
        try:
            ended = subprocess.run(argv, input=asked, capture_output=True, env=env, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired as exc:
            raise BenchError(f"{task.__name__} took more than {limit_s:g} s") from exc
    _, mark, said = ended.stdout.rpartition(_MARK)
    if ended.returncode or not mark:
        raise BenchError(f"{task.__name__} failed: {ended.stderr.decode(errors='replace')[-2_000:]}")
    found = orjson.loads(said)
    return Run(found["answer"], tuple(Lap(*lap) for lap in found["laps"]))


def repeated(times: int, *tasks: Callable[[], Run]) -> list[Run]:
    """Each task so often, turn by turn so that a busy moment meets them all; answers must not change."""
    runs: list[list[Run]] = [[] for _ in tasks]
    for _ in range(times):
        for task, own in zip(tasks, runs, strict=True):
            own.append(task())
            require_equal(own[0].answer, own[-1].answer, "two runs of one task")
    return [Run(own[0].answer, tuple(lap for run in own for lap in run.laps)) for own in runs]


def require_equal(ours: Any, theirs: Any, what: str) -> None:
    """A comparison of things that differ is none: raises `BenchError` with the first difference."""
    if ours != theirs:
        where, mine, other = _first_difference(what, ours, theirs)
        raise BenchError(f"the answers differ ({where}): {str(mine)[:200]} is not {str(other)[:200]}")


def _first_difference(where: str, ours: Any, theirs: Any) -> tuple[str, Any, Any]:
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        pairs = [(key, ours[key], theirs[key]) for key in ours]
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = list(zip(range(len(ours)), ours, theirs, strict=True))
    else:
        return where, ours, theirs
    key, mine, other = next(pair for pair in pairs if pair[1] != pair[2])
    return _first_difference(f"{where}, {key}", mine, other)


def _memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise BenchError(f"this system does not tell {name}")


def _main() -> None:
    asked = orjson.loads(sys.stdin.buffer.read())
    task = getattr(importlib.import_module(asked["module"]), asked["name"])
    pa.array([""])
    watch = Watch()
    answer = task(watch, **asked["arguments"])
    said = {"answer": answer, "laps": [(lap.seconds, lap.grown_bytes) for lap in watch.laps]}
    sys.stdout.buffer.write(b"\n" + _MARK + orjson.dumps(said))


if __name__ == "__main__":
    _main()
