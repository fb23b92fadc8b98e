"""Random logs read equal to a simple replay that shares no code with the reader."""

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.lake.lake import Lake
from backend.settings import load_settings
from tests.builders import HandLog, add, commit_info, deletion_vector, metadata, protocol, remove

NAMES = [f"part-{n}.parquet" for n in range(6)] + ["p=a%2520b/part-6.parquet"]
VECTORS = [None, deletion_vector("ab^-aqEH.-t@S}K{vb[*", cardinality=3), deletion_vector("x" * 20, cardinality=1)]
MIN_FILES, TARGET = 2, 200

# One step: add a file (with or without statistics and deletion vector), remove one, or re-add.
steps = st.tuples(
    st.sampled_from(["add", "remove"]),
    st.sampled_from(NAMES),
    st.sampled_from([0, 1, 2]),
    st.integers(1, 300),
    st.one_of(st.none(), st.integers(3, 50)),
)
commits = st.lists(st.lists(steps, max_size=5), min_size=1, max_size=12)
checkpoints = st.dictionaries(st.integers(0, 12), st.sampled_from(["classic", "multi", "v2", "v2-parquet"]), max_size=3)


def naive(history: list[list[dict[str, Any]]]) -> dict[tuple[str, str | None], dict[str, Any]]:
    """The live adds: a dict, one action after the other."""
    live: dict[tuple[str, str | None], dict[str, Any]] = {}
    for actions in history:
        for action in actions:
            (kind, body), *_ = action.items()
            if kind in ("add", "remove"):
                vector = body.get("deletionVector")
                key = (body["path"], vector and vector["pathOrInlineDv"])
                live.pop(key, None)
                if kind == "add":
                    live[key] = body
    return live


def totals(live: dict[Any, dict[str, Any]]) -> tuple[int, int, int | None, int]:
    rows: int | None = 0
    for body in live.values():
        stats = body.get("stats")
        marked = (body.get("deletionVector") or {}).get("cardinality", 0)
        rows = None if rows is None or stats is None else rows + json.loads(stats)["numRecords"] - marked
    small = sum(body["size"] < TARGET // 2 for body in live.values())
    return len(live), sum(b["size"] for b in live.values()), rows, small if len(live) >= MIN_FILES else 0


def actions_of(steps_of_commit: list[Any]) -> list[dict[str, Any]]:
    made, seen = [], set()
    for kind, name, vector, size, rows in steps_of_commit:
        if (name, vector) in seen:  # the protocol allows one action a file and commit
            continue
        seen.add((name, vector))
        dv = VECTORS[vector]
        made.append(add(name, size=size, rows=rows, dv=dv) if kind == "add" else remove(name, size=None, dv=dv))
    return made


def write_log(folder: Path, history: list[list[dict[str, Any]]], kinds: dict[int, str], clean: int) -> None:
    log = HandLog(folder)
    base = [protocol(), metadata(configuration={"delta.targetFileSize": str(TARGET)})]
    for version, actions in enumerate(history):
        first = base if version == 0 else []
        log.commit(*first, commit_info(timestamp=1_700_000_000_000 + version), *actions)
        if version in kinds:
            state = [*base, *({"add": body} for body in naive(history[: version + 1]).values())]
            write_checkpoint(log, version, state, kinds[version])
    for version in range(clean):
        (log.log / f"{version:020d}.json").unlink()


def write_checkpoint(log: HandLog, version: int, state: list[dict[str, Any]], kind: str) -> None:
    if kind == "classic":
        log.checkpoint(version, state)
    elif kind == "multi":
        log.checkpoint(version, state, parts=2)
    else:
        log.v2_checkpoint(version, state, sidecars=2, top="parquet" if kind == "v2-parquet" else "json")


def open_lake(root: Path) -> Lake:
    health = {"min_files": MIN_FILES, "small_file_ratio": 0.5}
    return Lake(load_settings(home=root, lake={"roots": [str(root)]}, health=health))


def seen(snapshot: Any) -> set[tuple[str, str | None]]:
    return set(zip(snapshot.files["path"].to_pylist(), snapshot.files["dv_id"].to_pylist(), strict=True))


@settings(max_examples=120, deadline=None)
@given(commits, checkpoints, st.integers(0, 12), st.randoms(use_true_random=False))
def test_every_version_and_the_timeline_equal_a_simple_replay(made, kinds, clean, random):
    history = [actions_of(steps_of_commit) for steps_of_commit in made]
    kinds = {v: k for v, k in kinds.items() if v < len(history)}
    oldest = max((v for v in kinds if v <= clean), default=0)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_log(root / "t", history, kinds, clean=min(clean, oldest))
        lake = open_lake(root)
        ref = lake.find("t")
        versions = list(range(oldest, len(history)))
        random.shuffle(versions)
        for version in versions:
            live = naive(history[: version + 1])
            snapshot = lake.snapshot(ref, version)
            assert (snapshot.num_files, snapshot.size_bytes, snapshot.num_rows) == totals(live)[:3]
            assert len(seen(snapshot)) == len(live)
        assert [c.version for c in lake.history(ref)] == list(range(len(history) - 1, min(clean, oldest) - 1, -1))
        timeline = lake.timeline(ref)
        assert [t.version for t in timeline.totals] == list(range(timeline.first_version, len(history)))
        for t in timeline.totals:
            want = totals(naive(history[: t.version + 1]))
            assert (t.num_files, t.size_bytes, t.num_rows, t.small_files) == want


@settings(max_examples=40, deadline=None)
@given(commits, st.integers(0, 11))
def test_a_lake_that_follows_the_log_equals_one_that_comes_late(made, first):
    history = [actions_of(steps_of_commit) for steps_of_commit in made]
    first = min(first, len(history) - 1)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_log(root / "t", history[: first + 1], {}, clean=0)
        follower = open_lake(root)
        ref = follower.find("t")
        follower.snapshot(ref)
        follower.timeline(ref)
        log = HandLog(root / "t", next_version=first + 1)
        for actions in history[first + 1 :]:
            log.commit(commit_info(timestamp=1_700_000_000_000 + log.next_version), *actions)
            follower.card(ref)
        late = open_lake(root)
        assert follower.snapshot(ref).files == late.snapshot(ref).files
        assert follower.timeline(ref) == late.timeline(ref)
        assert follower.card(ref) == late.card(ref)
