"""A host keeps in the store what waits for its streams, as a look from a page would see it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.lake.lake import Lake
from backend.settings import Settings, load_settings
from backend.store.store import ControlStore
from backend.streams.backlog.reader import BacklogReader
from backend.streams.status import statuses
from bench import large
from pipelines.host import backlog_watch
from pipelines.host.backlog_watch import BacklogWatch
from tests.worlds.store.looks import Looks

NOW = datetime.now(UTC)
STREAMS = 7


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    lake = large.make_lake(tmp_path, large.STREAMS + 10)
    return load_settings(home=tmp_path / "home", lake={"roots": [str(lake)]})


@pytest.fixture
def store(settings: Settings) -> Iterator[ControlStore]:
    opened = large.make_streams(settings, Path(settings.roots[0]), streams=STREAMS, now=NOW)
    yield opened
    opened.close()


def test_each_owned_stream_is_kept_as_a_look_sees_it(
    settings: Settings, store: ControlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog_watch, "AT_ONCE", 2)
    declared, owned = list(store.declarations().values()), [large.stream_name(number) for number in range(5)]
    watch = BacklogWatch(settings, Lake(settings), store, declared, lambda: owned, lambda: NOW)
    watch.look()
    look, lake = BacklogReader(settings, Lake(settings), keep_s=0), {stream.name: stream for stream in declared}
    seen = {name: look.read(lake[name], store.progress(name, limit=10), now=NOW) for name in owned}
    assert store.backlogs() == seen
    assert [seen[name].versions for name in owned] == [1, 0, 0, 1, 0]
    assert all(len(seen[name].lags) == 10 for name in owned)


def test_a_watch_that_is_told_to_stop_ends_amid_its_round(settings: Settings, store: ControlStore) -> None:
    declared, owned = list(store.declarations().values()), [large.stream_name(number) for number in range(5)]
    watch = BacklogWatch(settings, Lake(settings), store, declared, lambda: owned, lambda: NOW)
    watch.rounds.stop(0)
    watch.look()
    assert store.backlogs().keys() == set(owned), "one piece is done"


def test_a_stand_in_for_hosts_leaves_no_stream_to_look_at(settings: Settings, store: ControlStore) -> None:
    looks = Looks()
    with large.hosts_at_work(store, Path(settings.roots[0]), streams=STREAMS):
        seen = statuses(store, looks, now=store.now(), heartbeat_stale_s=60)
    assert looks.at == []
    assert [status.backlog.versions for status in seen if status.backlog] == [1, 1, 1, 0, 0, 0, 0]
    assert {status.progress.batch_id for status in seen if status.progress} >= {large.BATCHES}
