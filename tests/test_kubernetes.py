"""`deploy/kubernetes/`: objects are what their schemas want, names that they use are there, Weir takes the settings."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from backend.settings import load_settings
from pipelines.declare.registry import load_registry
from pipelines.host.__main__ import CLOSE_S
from pipelines.spark.session import spark_conf
from tests.worlds.kustomize import DEPLOY, Object, built, one

ROOT = DEPLOY.parents[1]
EXECUTOR: Object = yaml.safe_load((DEPLOY / "executor.yaml").read_text())
VERSIONS = (kubernetes_validate.utils.all_versions()[0], kubernetes_validate.latest_version())
SECRET = {"WEIR_STORE__URL": "postgresql+psycopg://weir:hidden@db/weir", "AWS_ACCESS_KEY_ID": "me"}
OF_THE_OPERATOR = {("Secret", "weir"), ("Secret", "weir-login"), ("Secret", "weir-registry"), ("Secret", "weir-tls")}
FOLDERS = ("base", "hosts", "example")
GROUPS = ("orders", "events")
IMAGE = "spark.kubernetes.container.image"


def example(kind: str = "") -> list[Object]:
    """The objects of the example, all or those of a kind."""
    return [each for each in built(DEPLOY / "example") if kind in ("", each["kind"])]


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
    for each in (*built(DEPLOY / folder), EXECUTOR):
        kubernetes_validate.validate(each, version, strict=True)
    host = one(example(), "StatefulSet", "weir-host-orders")
    broken = json.loads(json.dumps(host).replace('"terminationGrace', '"terminationgrace'))
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationgracePeriodSeconds"):
        kubernetes_validate.validate(broken, version, strict=True)


def test_one_entry_names_registry_and_version_of_page_hosts_and_executors_and_the_base_what_compose_builds() -> None:
    objects = (*built(DEPLOY / "base"), *built(DEPLOY / "hosts"))
    assert not any("namespace" in each["metadata"] for each in objects)
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    assert {each["image"] for each in containers(objects)} == {compose["x-weir"]["image"]}
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
def environment(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    for name in [each for each in os.environ if each.startswith("WEIR_")]:
        monkeypatch.delenv(name)
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


def test_batches_get_the_time_to_end_that_they_may_take(environment: Mapping[str, str]) -> None:
    for group in GROUPS:
        given = host_of(group)["template"]["spec"]["terminationGracePeriodSeconds"]
        assert given >= load_settings().host.stop_timeout_s + CLOSE_S + 5


def test_the_example_s_streams_each_have_hosts_of_their_tag(
    environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DEPLOY / "example" / "pipelines"
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
    script = DEPLOY / "executor.sh"
    assert command == f"/opt/weir/deploy/kubernetes/{script.name}"
    assert os.access(script, os.X_OK)
    assert "!deploy/kubernetes" in (ROOT / ".dockerignore").read_text().splitlines()
