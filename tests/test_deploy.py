"""`deploy/` and `compose.yaml`: promtool takes rules and dashboard, what they name is served; a password reaches the
store as it is."""

import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import make_url

from backend.expectations.model import ExpectationKind, Finding, Judgement, State, TableExpectation
from backend.settings import load_settings
from backend.stream_model.stream import Observed, StreamState
from pipelines.host.__main__ import CLOSE_S
from pipelines.host.listener import ProgressWriter
from pipelines.host.metrics import HostMetrics
from tests.app.server.test_metrics import page_text, world  # noqa: F401 - a fixture
from tests.pipelines.host.test_host_metrics import Store, event
from tests.worlds.programs import promtool

DEPLOY = Path(__file__).parents[1] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = json.loads((DEPLOY / "grafana" / "weir.json").read_text())
NAME = re.compile(r"\bweir_[a-z_]+")
VARIABLES = {"$__rate_interval": "5m", "$stream": ".*", "$table": ".*"}


def host_text() -> str:
    """What a host serves after its first batch and its first look at a table."""
    metrics = HostMetrics()
    writer = ProgressWriter(Store(), seen=metrics.batch_ended)
    metrics.watch_queue(writer.waiting, lambda: writer.dropped)
    metrics.is_host("host-a", "4.2.0")
    metrics.round_ended(store_up=True)
    metrics.observed(None, Observed("silver", StreamState.STARTING, "host-a", 1, datetime.now(UTC)))
    writer.put(event(1))
    fresh = TableExpectation("/lake/gold_orders", "gold_orders", ExpectationKind.FRESH)
    metrics.judged(Judgement(fresh, Finding(State.MET), "host-a", datetime.now(UTC)))
    return generate_latest(metrics.registry).decode()


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    for panel in panels():
        for target in panel["targets"]:
            text = target["expr"]
            for variable, stands_for in VARIABLES.items():
                text = text.replace(variable, stands_for)
            yield text


def test_promtool_takes_the_rules_and_their_tests() -> None:
    promtool("check", "rules", str(RULES))
    promtool("check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))
    promtool("test", "rules", str(DEPLOY / "prometheus" / "alerts_test.yml"))


def test_every_rule_is_tested_firing_and_silent() -> None:
    names = re.findall(r"- alert: (\w+)", RULES.read_text())
    tests = (DEPLOY / "prometheus" / "alerts_test.yml").read_text()
    silent = set(re.findall(r"alertname: (\w+), exp_alerts: \[\]", tests))
    firing = set(re.findall(r"alertname: (\w+)\n\s+exp_alerts:\n\s+- exp_labels", tests))
    assert len(names) >= 9
    assert firing == set(names)
    assert silent == set(names)


def test_promtool_takes_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    found = list(expressions())
    assert len(found) > 20 and not any("$" in each for each in found)
    rules = [{"record": f"panel:expression:{number}", "expr": each} for number, each in enumerate(found)]
    file = tmp_path / "panels.yml"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", str(file))


def test_all_that_alerts_and_dashboard_name_is_served(world: Path) -> None:  # noqa: F811
    families = [*text_string_to_metric_families(page_text()), *text_string_to_metric_families(host_text())]
    served = {sample.name for family in families for sample in family.samples}
    wanted = set(NAME.findall(RULES.read_text()))
    assert wanted <= served, wanted - served
    drawn = set(NAME.findall(" ".join(expressions())))
    drawn |= {name for each in DASHBOARD["templating"]["list"] for name in NAME.findall(str(each.get("query")))}
    assert drawn <= served, drawn - served


def test_panels_do_not_overlap_and_have_a_unit() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        grid = panel["gridPos"]
        own = {(grid["x"] + x, grid["y"] + y) for x in range(grid["w"]) for y in range(grid["h"])}
        assert not own & cells and grid["x"] + grid["w"] <= 24, panel["title"]
        cells |= own
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in panels())
    assert all(target["datasource"]["uid"] == "${datasource}" for panel in panels() for target in panel["targets"])


@pytest.mark.parametrize("job", ["weir", "weir-host"])
def test_alerts_ask_for_the_jobs_of_the_example(job: str) -> None:
    assert f'job="{job}"' in RULES.read_text()
    assert f"job_name: {job}\n" in (DEPLOY / "prometheus" / "prometheus.yml").read_text()


# compose.yaml --------------------------------------------------------------------------------------------------

COMPOSE = (DEPLOY.parent / "compose.yaml").read_text()
PASSWORD = "p@ss/w:rd#%1"


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [each for each in os.environ if each.startswith("WEIR_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def environment(service: str, **variables: str) -> dict[str, str]:
    """What a container gets, as Compose puts it together."""

    def value(found: re.Match[str]) -> str:
        return variables[found[1]]

    of: dict[str, Any] = yaml.safe_load(COMPOSE)["services"][service]
    return {name: re.sub(r"\$\{(\w+)[^}]*\}", value, text) for name, text in of["environment"].items()}


@pytest.mark.usefixtures("no_settings")
@pytest.mark.parametrize("service", ["ui", "host", "generator"])
def test_any_password_reaches_the_store_as_it_is(monkeypatch: pytest.MonkeyPatch, service: str) -> None:
    for name, value in environment(service, DB_PASSWORD=PASSWORD).items():
        monkeypatch.setenv(name, value)
    url = make_url(load_settings().store_url)
    assert (url.username, url.password, url.host, url.database) == ("weir", None, "store", "weir")
    asked = {option.keyword: option.val for option in psycopg.pq.Conninfo.get_defaults()}
    assert asked[b"password"] == PASSWORD.encode()
    assert environment("store", DB_PASSWORD=PASSWORD)["POSTGRES_PASSWORD"] == PASSWORD


@pytest.mark.usefixtures("no_settings")
def test_a_shell_that_exports_what_it_asks_for_still_runs_weir(monkeypatch: pytest.MonkeyPatch) -> None:
    names = set(re.findall(r"\$\{(\w+)", COMPOSE))
    for name in names:
        monkeypatch.setenv(name, "8600")
    assert load_settings().port == 8600
    assert names == {"DB_PASSWORD", "WEIR_PORT"}


@pytest.mark.usefixtures("no_settings")
def test_a_host_gets_the_time_that_its_batches_may_take_and_what_it_takes_to_close() -> None:
    given = yaml.safe_load(COMPOSE)["services"]["host"]["stop_grace_period"]
    assert float(given.removesuffix("s")) >= load_settings().host.stop_timeout_s + CLOSE_S + 5
