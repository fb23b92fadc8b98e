"""`make bench SUITE=scale`: a thousand streams on fifty hosts, whose queries are none and whose store is a real one.

Rule: hosts are real but for Spark; minutes are simulated, second by second and host by host, in this one process.
"""

import os
import random
import statistics
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from backend.streams.reconcile import plan_shares
from bench.harness import Bench, BenchError, Line, Suite, at_most, counted, duration, megabytes, within
from tests.worlds.hosts.at_rest import statements_at_rest
from tests.worlds.hosts.simulated import Simulation
from tests.worlds.store.postgres import POSTGRES, empty_postgres_url

STREAMS, HOSTS, ROOM = 1_000, 50, 64
JOINING_S = 10  # from the first host to the last
REST_S = 600
IDLE_S = 60


def plan(bench: Bench) -> Iterator[Line]:
    """The plan of who has which stream, which every host makes each second"""
    streams = [f"stream_{number:04}" for number in range(round(STREAMS * bench.scale))]
    for hosts, limit_s in ((10, 0.02), (HOSTS, 0.1)):
        can = {f"host-{number:02}": tuple(streams) for number in range(hosts)}
        owners = {stream: f"host-{number % hosts:02}" for number, stream in enumerate(streams)}
        kinds = {"no host has any": {}, "one host has all": dict.fromkeys(streams, "host-00"), "even": owners}
        for what, given in kinds.items():
            laps = []
            for _ in range(5 * bench.repeats):
                began = perf_counter()
                plan_shares(can, given, ())
                laps.append(perf_counter() - began)
            yield within(f"{len(streams):,} streams, {hosts} hosts, {what}", statistics.median(laps), limit_s)


def start(bench: Bench) -> Iterator[Line]:
    """Fifty hosts that start within ten seconds, each with room for 64 streams, and ten minutes after that"""
    streams, hosts = round(STREAMS * bench.scale), max(2, round(HOSTS * bench.scale))
    with _simulation(bench.folder, streams) as world:
        balanced_s = _until_balanced(world, hosts)
        yield within(f"{streams:,} streams run, evenly on {hosts} hosts", balanced_s, 120)
        most = max(world.starts.values())
        yield counted("starts of one stream, of which one is its move", most, 2)
        yield Line("streams that were moved", ours=str(sum(starts > 1 for starts in world.starts.values())))
        seconds = max(60, round(REST_S * min(1, bench.scale)))
        tokens, took = _tokens(world), []
        with world.bytes_read() as read, world.counted() as asked:
            for _ in range(seconds):
                began = perf_counter()
                world.second()
                took.append((perf_counter() - began) / hosts)
        lost = len(tokens.items() - _tokens(world).items())
        yield counted(f"leases lost in {seconds} s", lost, 0)
        yield Line("a round of one host, median", ours=duration(statistics.median(took)))
        yield Line(f"statements of {hosts} hosts, a second", ours=f"{asked.total() / seconds:,.0f}")
        if read:
            signs = sum(size for text, size in read.items() if "FROM host" in text)
            for what, size in (("signs of life that all hosts read", signs), ("all that they read", read.total())):
                yield at_most(f"{what}, a second", size / seconds, 1e6, (megabytes(size / seconds), "1 MB"))


def rest(bench: Bench) -> Iterator[Line]:
    """Two hosts and a page on six streams, while nothing happens"""
    with TemporaryDirectory(prefix="weir-bench-", dir=bench.folder) as folder:
        if POSTGRES in os.environ:
            with empty_postgres_url() as url:
                per_s = statements_at_rest(Path(folder), url, seconds=IDLE_S).total() / IDLE_S
            yield at_most("statements a second, PostgreSQL", per_s, 15, (f"{per_s:.1f}", "15"))
        url = f"sqlite:///{folder}/weir.db"
        per_s = statements_at_rest(Path(folder), url, seconds=IDLE_S).total() / IDLE_S
        yield Line("statements a second, SQLite, which tells nobody of changes", ours=f"{per_s:.1f}")


@contextmanager
def _simulation(folder: Path, streams: int) -> Iterator[Simulation]:
    database = empty_postgres_url() if POSTGRES in os.environ else nullcontext(None)
    with TemporaryDirectory(prefix="weir-bench-", dir=folder) as home, database as url:
        world = Simulation(Path(home), streams=streams, dice=random.Random(1), postgres_url=url)
        with closing(world):
            yield world


def _until_balanced(world: Simulation, hosts: int) -> float:
    """Simulated seconds from the first host on."""
    for second in range(1_800):
        while len(world.hosts) < min(hosts, 1 + second * hosts // JOINING_S):
            world.join(max_streams=ROOM)
        world.second()
        loads = world.loads()
        if len(loads) == hosts and max(loads) - min(loads) <= 1 and world.is_as_desired():
            return float(world.clock())
    raise BenchError(f"not even after half an hour: {sorted(world.loads())}")


def _tokens(world: Simulation) -> dict[str, int]:
    return {name: lease.token for name, lease in world.store.leases().items()}


SUITE = Suite((plan, start, rest), packages=("SQLAlchemy", "psycopg"), repeats=3)
