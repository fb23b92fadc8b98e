"""Totals over versions where the target size follows the table's: counted again from each version's files."""

import math
from pathlib import Path
from random import Random

from backend.lake.files.file_sizes import small_limit
from backend.lake.lake import Lake
from backend.settings import load_settings
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol, remove

TB, MB = 2**40, 2**20


def test_small_files_follow_a_target_that_grows_with_the_table(tmp_path: Path) -> None:
    random = Random(1)
    log, sizes = HandLog(tmp_path / "t").start(), dict[str, int]()
    states = [dict(sizes)]
    for version in range(1, 40):
        new = {f"a{version}": random.randrange(TB), f"b{version}": random.randrange(100 * MB, 400 * MB)}
        gone = random.sample(sorted(sizes), min(len(sizes), random.randrange(3)))
        log.commit(*(remove(path) for path in gone), *(add(p, size=s) for p, s in new.items()), commit_info())
        sizes = {path: size for path, size in sizes.items() if path not in gone} | new
        states.append(dict(sizes))
        if version == 20:
            log.checkpoint(20, [protocol(), metadata(), *(add(p, size=s) for p, s in sizes.items())])
    settings = load_settings(home=tmp_path, lake={"roots": [str(tmp_path)]}, health={"min_files": 1})
    lake, late = Lake(settings), Lake(settings)
    ref = lake.find("t")
    want = []
    for version, state in enumerate(states):
        target = lake.target_bytes(lake.snapshot(ref, version))
        limit = small_limit(target, settings.health.small_file_ratio)
        want.append(sum(size < limit for size in state.values()))
    assert len(set(want)) > 5
    assert [totals.small_files for totals in lake.timeline(ref).totals] == want
    assert late.card(ref).small_files == want[-1]
    small = [size for size in states[-1].values() if size < limit]
    merged = min(len(small), max(1, math.ceil(sum(small) / target.bytes)))
    assert {lake.card(ref).files_after_merge, late.card(ref).files_after_merge} == {
        len(states[-1]) - len(small) + merged
    }
