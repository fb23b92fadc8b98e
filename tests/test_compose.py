"""`compose.yaml`: any password reaches the store as it is, and no variable that it asks for is in the way of `weir`."""

import os
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from sqlalchemy import make_url

from backend.settings import load_settings
from pipelines.host.__main__ import CLOSE_S

TEXT = (Path(__file__).parents[1] / "compose.yaml").read_text()
PASSWORD = "p@ss/w:rd#%1"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [each for each in os.environ if each.startswith("WEIR_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def environment(service: str, **variables: str) -> dict[str, str]:
    """What a container gets, as Compose puts it together."""

    def value(found: re.Match[str]) -> str:
        return variables[found[1]]

    of: dict[str, Any] = yaml.safe_load(TEXT)["services"][service]
    return {name: re.sub(r"\$\{(\w+)[^}]*\}", value, text) for name, text in of["environment"].items()}


@pytest.mark.parametrize("service", ["ui", "host", "generator"])
def test_any_password_reaches_the_store_as_it_is(monkeypatch: pytest.MonkeyPatch, service: str) -> None:
    for name, value in environment(service, DB_PASSWORD=PASSWORD).items():
        monkeypatch.setenv(name, value)
    url = make_url(load_settings().store_url)
    assert (url.username, url.password, url.host, url.database) == ("weir", None, "store", "weir")
    asked = {option.keyword: option.val for option in psycopg.pq.Conninfo.get_defaults()}
    assert asked[b"password"] == PASSWORD.encode()
    assert environment("store", DB_PASSWORD=PASSWORD)["POSTGRES_PASSWORD"] == PASSWORD


def test_a_shell_that_exports_what_it_asks_for_still_runs_weir(monkeypatch: pytest.MonkeyPatch) -> None:
    names = set(re.findall(r"\$\{(\w+)", TEXT))
    for name in names:
        monkeypatch.setenv(name, "8600")
    assert load_settings().port == 8600
    assert names == {"DB_PASSWORD", "WEIR_PORT"}


def test_a_host_gets_the_time_that_its_batches_may_take_and_what_it_takes_to_close() -> None:
    given = yaml.safe_load(TEXT)["services"]["host"]["stop_grace_period"]
    assert float(given.removesuffix("s")) >= load_settings().host.stop_timeout_s + CLOSE_S + 5
