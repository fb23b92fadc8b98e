"""Many viewers read one lake at once while a writer goes on; each sees a whole version."""

from concurrent.futures import ThreadPoolExecutor

from tests.worlds.lake.builders import HandLog, add, commit_info, first_rows, folder_bytes, medallion_lake

VERSIONS = 60


def test_each_viewer_sees_whole_versions_and_time_never_runs_back(root, open_lake):
    log = HandLog(root / "t").start()
    lake = open_lake()
    ref = lake.find("t")

    def write() -> None:
        for version in range(1, VERSIONS + 1):
            log.commit(add(f"f{version}"), commit_info())

    def watch(_: int) -> int:
        seen = 0
        while seen < VERSIONS:
            snapshot = lake.snapshot(ref)
            assert snapshot.version >= seen
            assert (snapshot.num_files, snapshot.num_rows) == (snapshot.version, snapshot.version * 10)
            assert lake.card(ref).num_files >= snapshot.num_files
            assert len(lake.timeline(ref).totals) > snapshot.version
            seen = snapshot.version
        return seen

    with ThreadPoolExecutor(5) as pool:
        writer = pool.submit(write)
        assert list(pool.map(watch, range(4))) == [VERSIONS] * 4
        writer.result()


def test_reading_leaves_every_byte_as_it_was(root, open_lake):
    medallion_lake(root)
    before = folder_bytes(root)
    lake = open_lake()
    for ref in lake.tables():
        lake.card(ref)
        lake.history(ref)
        lake.timeline(ref)
        first_rows(lake, ref, limit=3)
    lake.changes(lake.find("orders"), 0, 3).read_all()
    assert folder_bytes(root) == before
