"""A store that knows three streams, under the settings by which hosts in memory run them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.settings import load_settings
from backend.store.store import ControlStore
from pipelines.host.stream_host import declare
from tests.worlds.hosts.in_memory import NAMES, TTL_S, declaration


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlStore]:
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))
    for key, value in {"LEASE_TTL_S": TTL_S, "BACKOFF_INITIAL_S": 0.05, "MAX_RESTARTS": 2, "STOP_TIMEOUT_S": 5}.items():
        monkeypatch.setenv(f"WEIR_HOST__{key}", str(value))
    opened = ControlStore.open(load_settings())
    declare(opened, tuple(map(declaration, NAMES)), datetime.now(UTC))
    yield opened
    opened.close()
