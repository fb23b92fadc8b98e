"""`deploy/` and `compose.yaml`: promtool takes rules and dashboard, what they name is served; a password reaches the
store as it is; objects for Kubernetes are valid, and Weir takes their settings."""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kubernetes_validate
import psycopg
import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import make_url

from backend.expectations.model import ExpectationKind, Finding, Judgement, State, TableExpectation
from backend.settings import load_settings
from backend.stream_model.stream import Observed, StreamState
from pipelines.declare.pipeline import load_registry
from pipelines.host.__main__ import CLOSE_S
from pipelines.host.metrics import HostMetrics
from pipelines.host.progress import ProgressWriter
from pipelines.spark.session import spark_conf
from tests.app.server.test_metrics import page_text, world  # noqa: F401 - a fixture
from tests.pipelines.host.test_host_metrics import Store, event
from tests.worlds.kustomize import DEPLOY as KUBERNETES
from tests.worlds.kustomize import Object, built, one
from tests.worlds.programs import promtool

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
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

COMPOSE = (ROOT / "compose.yaml").read_text()
PASSWORD = "p@ss/w:rd#%1"


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [each for each in os.environ if each.startswith("WEIR_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def of_compose(service: str, **variables: str) -> dict[str, str]:
    """What a container gets, as Compose puts it together."""

    def value(found: re.Match[str]) -> str:
        return variables[found[1]]

    of: dict[str, Any] = yaml.safe_load(COMPOSE)["services"][service]
    return {name: re.sub(r"\$\{(\w+)[^}]*\}", value, text) for name, text in of["environment"].items()}


@pytest.mark.usefixtures("no_settings")
@pytest.mark.parametrize("service", ["ui", "host"])
def test_any_password_reaches_the_store_as_it_is(monkeypatch: pytest.MonkeyPatch, service: str) -> None:
    for name, value in of_compose(service, DB_PASSWORD=PASSWORD).items():
        monkeypatch.setenv(name, value)
    url = make_url(load_settings().store_url)
    assert (url.username, url.password, url.host, url.database) == ("weir", None, "store", "weir")
    asked = {option.keyword: option.val for option in psycopg.pq.Conninfo.get_defaults()}
    assert asked[b"password"] == PASSWORD.encode()
    assert of_compose("store", DB_PASSWORD=PASSWORD)["POSTGRES_PASSWORD"] == PASSWORD


def test_each_container_has_no_more_rights_than_its_work_needs() -> None:
    services = yaml.safe_load(COMPOSE)["services"]
    for service in services.values():
        assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]
    assert services["store"]["user"] == "postgres"
    generator = services["generator"]
    assert "environment" not in generator and generator["network_mode"] == "none"
    assert {volume.partition(":")[0] for volume in generator["volumes"]} == {"landing", "ledger"}


@pytest.mark.usefixtures("no_settings")
def test_a_shell_that_exports_what_it_asks_for_still_runs_weir(monkeypatch: pytest.MonkeyPatch) -> None:
    names = set(re.findall(r"\$\{(\w+)", COMPOSE))
    for name in names:
        monkeypatch.setenv(name, "8600")
    assert load_settings().port == 8600
    assert names == {"DB_PASSWORD", "WEIR_PORT"}


@pytest.mark.usefixtures("no_settings")
def test_a_host_gets_the_time_that_its_batches_may_take_and_what_it_takes_to_close() -> None:
    container = float(yaml.safe_load(COMPOSE)["services"]["host"]["stop_grace_period"].removesuffix("s"))
    pods = [host_of(group)["template"]["spec"]["terminationGracePeriodSeconds"] for group in GROUPS]
    assert min(container, *pods) >= load_settings().host.stop_timeout_s + CLOSE_S + 5


# deploy/kubernetes ---------------------------------------------------------------------------------------------

EXECUTOR: Object = yaml.safe_load((KUBERNETES / "executor.yaml").read_text())
VERSIONS = (kubernetes_validate.utils.all_versions()[0], kubernetes_validate.latest_version())
SECRET = {"WEIR_STORE__URL": "postgresql+psycopg://weir:hidden@db/weir", "AWS_ACCESS_KEY_ID": "me"}
OF_THE_OPERATOR = {("Secret", "weir"), ("Secret", "weir-login"), ("Secret", "weir-registry"), ("Secret", "weir-tls")}
FOLDERS = ("base", "hosts", "example")
GROUPS = ("orders", "events")
IMAGE = "spark.kubernetes.container.image"


def example(kind: str = "") -> list[Object]:
    """The objects of the example, all or those of a kind."""
    return [each for each in built(KUBERNETES / "example") if kind in ("", each["kind"])]


def pods(objects: Iterable[Object]) -> Iterator[tuple[str, Object]]:
    for each in objects:
        if each["kind"] in ("Deployment", "StatefulSet"):
            yield each["metadata"]["name"], each["spec"]["template"]


def containers(objects: Iterable[Object]) -> list[Object]:
    return [each for _, pod in pods(objects) for each in pod["spec"]["containers"]]


def host_of(group: str) -> Object:
    return one(example(), "StatefulSet", f"weir-host-{group}")["spec"]


def process_of(group: str) -> Object:
    """The container of a host."""
    (match,) = [each for each in host_of(group)["template"]["spec"]["containers"] if each["name"] == "host"]
    return match


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_object_is_valid_and_has_no_unknown_key(folder: str, version: str) -> None:
    for each in (*built(KUBERNETES / folder), EXECUTOR):
        kubernetes_validate.validate(each, version, strict=True)
    host = one(example(), "StatefulSet", "weir-host-orders")
    broken = json.loads(json.dumps(host).replace('"terminationGrace', '"terminationgrace'))
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationgracePeriodSeconds"):
        kubernetes_validate.validate(broken, version, strict=True)


def test_one_entry_names_registry_and_version_of_page_hosts_and_executors_and_the_base_what_compose_builds() -> None:
    objects = (*built(KUBERNETES / "base"), *built(KUBERNETES / "hosts"))
    assert not any("namespace" in each["metadata"] for each in objects)
    assert {each["image"] for each in containers(objects)} == {yaml.safe_load(COMPOSE)["x-weir"]["image"]}
    images = {each["image"] for each in containers(example()) if each["name"] != "login"}
    images |= {json.loads(host_environment(group)["WEIR_SPARK__CONF"])[IMAGE] for group in GROUPS}
    assert images == {"registry.example.com/weir:0.1.0"}


def test_what_one_object_says_of_another_is_true() -> None:
    names = {(each["kind"], each["metadata"]["name"]) for each in example()} | OF_THE_OPERATOR
    for _, pod in pods(example()):
        assert ("ServiceAccount", pod["spec"]["serviceAccountName"]) in names
        ports = [port["name"] for each in pod["spec"]["containers"] for port in each["ports"]]
        assert len(ports) == len(set(ports))
        for each in pod["spec"]["containers"]:
            probes = {each[probe]["httpGet"]["port"] for probe in ("readinessProbe", "livenessProbe")}
            assert probes <= {port["name"] for port in each["ports"]}
            for source in each["envFrom"]:
                assert set(_referred(source)) <= names
        maps = {volume["configMap"]["name"] for volume in pod["spec"]["volumes"] if "configMap" in volume}
        assert {("ConfigMap", name) for name in maps} <= names
    for account in example("ServiceAccount"):
        assert {("Secret", each["name"]) for each in account["imagePullSecrets"]} <= names
    binding = one(example(), "RoleBinding", "weir-executors")
    assert ("Role", binding["roleRef"]["name"]) in names
    assert {("ServiceAccount", each["name"]) for each in binding["subjects"]} <= names


def _referred(source: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    for key, kind in {"configMapRef": "ConfigMap", "secretRef": "Secret"}.items():
        if key in source:
            yield kind, source[key]["name"]


def test_every_selector_means_one_set_of_pods() -> None:
    labels = {name: pod["metadata"]["labels"] for name, pod in pods(example())}
    for each in example():
        spec = each.get("spec", {})
        selector = spec.get("selector", {})
        selector = selector.get("matchLabels", selector)
        if selector:
            meant = [name for name, own in labels.items() if selector.items() <= own.items()]
            assert meant == [each["metadata"]["name"]], each["kind"]
    for _, pod in pods(example()):
        (spread,) = pod["spec"]["topologySpreadConstraints"]
        assert spread["labelSelector"]["matchLabels"] == pod["metadata"]["labels"]


def test_who_connects_reaches_an_open_port_and_nobody_else_does() -> None:
    ports = {port["name"] for each in containers(example()) for port in each["ports"]}
    allowed = {}
    for each in example("NetworkPolicy"):
        assert each["spec"]["policyTypes"] == ["Ingress"]
        assert all(rule["from"] for rule in each["spec"]["ingress"])
        rules = [[port["port"] for port in rule.get("ports", [])] for rule in each["spec"]["ingress"]]
        allowed[each["metadata"]["name"]] = rules
    assert allowed == {
        "weir-ui": [["login"], [8501]],
        "weir-host": [["driver", "blocks"], ["metrics"]],
        "weir-executor": [[]],
    }
    assert {"login", "driver", "blocks", "metrics"} <= ports
    selected = one(example(), "NetworkPolicy", "weir-executor")["spec"]["podSelector"]["matchLabels"]
    assert selected.items() <= EXECUTOR["metadata"]["labels"].items()


def test_browsers_come_by_tls_and_a_login_to_the_page_that_they_had() -> None:
    ingress, service = one(example(), "Ingress", "weir"), one(example(), "Service", "weir-ui")
    (rule,), (tls,) = ingress["spec"]["rules"], ingress["spec"]["tls"]
    settings = settings_of("weir")
    assert tls["hosts"] == [rule["host"]]
    assert rule["host"] in json.loads(settings["WEIR_UI__ALLOWED_HOSTS"])
    (path,) = rule["http"]["paths"]
    assert path["backend"]["service"] == {"name": "weir-ui", "port": {"name": service["spec"]["ports"][0]["name"]}}
    assert service["spec"]["ports"][0]["targetPort"] == "login"
    assert ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/affinity"] == "cookie"
    assert service["metadata"]["annotations"]["traefik.ingress.kubernetes.io/service.sticky.cookie"] == "true"
    assert f"https://{rule['host']}/oauth2/callback" == settings_of("weir-login")["OAUTH2_PROXY_REDIRECT_URL"]
    assert json.loads(settings["WEIR_UI__TRUSTED_PROXIES"]) == ["127.0.0.1"]


def test_groups_come_with_the_name_that_the_proxy_gives() -> None:
    assert settings_of("weir")["WEIR_UI__USER_HEADER"] == "X-Forwarded-Email"
    assert settings_of("weir")["WEIR_UI__GROUPS_HEADER"] == "X-Forwarded-Groups"


def test_weirs_own_login_is_whole_with_its_secret_and_for_pages_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, hosts, oidc = (
        os.path.relpath(KUBERNETES / folder, tmp_path.resolve()) for folder in ("base", "hosts", "oidc")
    )
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{base}, {hosts}]\ncomponents: [{oidc}]\n")
    objects = built(tmp_path)
    maps = {each["metadata"]["name"]: each["data"] for each in objects if each["kind"] == "ConfigMap"}
    sources = {each["name"]: each["envFrom"] for each in containers(objects)}
    of_pages = [source["configMapRef"]["name"] for source in sources["ui"] if "configMapRef" in source]
    assert {"secretRef": {"name": "weir-login"}} in sources["ui"]
    assert "weir-login" not in str(sources["host"])
    monkeypatch.setenv("WEIR_CONFIG", os.devnull)
    for name, value in {name: value for source in of_pages for name, value in maps[source].items()}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WEIR_AUTH__COOKIE_SECRET", "x" * 32)
    monkeypatch.setenv("WEIR_AUTH__PROVIDERS__COMPANY__CLIENT_SECRET", "secret of the client")
    auth = load_settings().auth
    assert auth.providers["company"].label == "Example Ltd." and auth.grants[0].group == "data-platform"


def settings_of(name: str) -> dict[str, str]:
    """The data of the ConfigMap that was given this name, and then a digest."""
    (match,) = [each for each in example("ConfigMap") if each["metadata"]["name"].rpartition("-")[0] == name]
    data: dict[str, str] = match["data"]
    return data


def test_pages_and_hosts_of_a_group_are_disturbed_one_by_one() -> None:
    for name in ("weir-ui", *(f"weir-host-{group}" for group in GROUPS)):
        assert one(example(), "PodDisruptionBudget", name)["spec"]["maxUnavailable"] == 1
    for group in GROUPS:
        assert host_of(group)["updateStrategy"]["type"] == "RollingUpdate" and host_of(group)["replicas"] > 1
        ready = process_of(group)["readinessProbe"]["httpGet"]
        assert ready == {"path": "/ready", "port": "metrics"}  # else the next one is taken before Spark is up


def test_no_pod_gets_services_named_in_variables_that_weir_takes_for_settings() -> None:
    assert any(each["kind"] == "Service" and each["metadata"]["name"].startswith("weir-") for each in example())
    specs = [pod["spec"] for _, pod in pods(example())] + [EXECUTOR["spec"]]
    assert [each.get("enableServiceLinks", True) for each in specs] == [False] * 4


def host_environment(group: str = "orders") -> dict[str, str]:
    """What the process of a host gets, as Kubernetes puts it together."""
    name = f"weir-host-{group}-0"
    env = {"POD_NAME": name, "POD_NAMESPACE": "weir", "POD_IP": "10.1.2.3"}
    for each in process_of(group)["env"]:
        if "value" in each:
            value = each["value"]
            for known, text in env.items():
                value = value.replace(f"$({known})", text)
            env[each["name"]] = value
    return {**settings_of("weir"), **settings_of(f"weir-hosts-{group}"), **SECRET, **env}


@pytest.fixture
def environment(no_settings: None, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    env = host_environment()
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return env


def test_weir_takes_the_settings(environment: Mapping[str, str], tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    conf = spark_conf(settings)
    assert settings.spark.master == "k8s://https://kubernetes.default.svc"
    assert (settings.host.tags, settings.host.max_streams) == (["orders"], 30)
    assert conf["spark.driver.host"] == "10.1.2.3"
    assert conf["spark.kubernetes.namespace"] == "weir"
    assert Path(conf["spark.kubernetes.executor.podTemplateFile"]).name == "executor.yaml"
    account = conf["spark.kubernetes.authenticate.executor.serviceAccountName"]
    assert one(example(), "ServiceAccount", account)["metadata"]["name"] == account
    assert settings.checkpoints_uri.startswith("s3://")
    ports = {each["name"]: str(each["containerPort"]) for each in process_of("orders")["ports"]}
    assert ports["driver"] == conf["spark.driver.port"]
    assert ports["blocks"] == conf["spark.blockManager.port"]
    assert settings.host.metrics_address.endswith(f":{ports['metrics']}")
    assert not any("hidden" in value for value in conf.values())


def test_the_example_s_streams_each_have_hosts_of_their_tag(
    environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = KUBERNETES / "example" / "pipelines"
    mounted = {each["name"]: each["mountPath"] for each in process_of("orders")["volumeMounts"]}
    assert environment["PYTHONPATH"] == mounted["pipelines"]
    assert settings_of("weir-pipelines") == {path.name: path.read_text() for path in folder.glob("*.py")}
    monkeypatch.syspath_prepend(str(folder))
    streams = load_registry(load_settings()).streams
    sys.modules.pop("my_streams", None)
    tags = {stream.name: stream.tags["host"] for stream in streams}
    assert tags == {"bronze_orders": "orders", "bronze_events": "events"}


def test_the_executor_s_command_is_in_the_image_and_can_be_run() -> None:
    (executor,) = EXECUTOR["spec"]["containers"]
    (command,) = executor["command"]
    script = KUBERNETES / "executor.sh"
    assert command == f"/opt/weir/deploy/kubernetes/{script.name}"
    assert os.access(script, os.X_OK)
    assert "!deploy/kubernetes" in (ROOT / ".dockerignore").read_text().splitlines()
