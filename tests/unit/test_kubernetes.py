"""`deploy/kubernetes/`: objects are what their schemas want, names that they use are there, Weir takes the settings."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from backend.settings import load_settings
from pipelines.spark.session import spark_conf

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all((FOLDER / "weir.yaml").read_text()))
EXECUTOR: dict[str, Any] = yaml.safe_load((FOLDER / "executor.yaml").read_text())
VERSIONS = (kubernetes_validate.utils.all_versions()[0], kubernetes_validate.latest_version())
SECRET = {"WEIR_STORE__URL": "postgresql+psycopg://weir:hidden@db/weir", "AWS_ACCESS_KEY_ID": "me"}


def of(kind: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in OBJECTS if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for each in OBJECTS:
        if each["kind"] in ("Deployment", "StatefulSet"):
            yield each["metadata"]["name"], each["spec"]["template"]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid_and_has_no_unknown_key(version: str) -> None:
    for each in (*OBJECTS, EXECUTOR):
        kubernetes_validate.validate(each, version, strict=True)
    broken = json.loads(json.dumps(of("StatefulSet", "weir-host")).replace('"terminationGrace', '"terminationgrace'))
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationgracePeriodSeconds"):
        kubernetes_validate.validate(broken, version, strict=True)


def test_it_names_no_namespace_and_no_other_image_than_compose_builds() -> None:
    assert not any("namespace" in each["metadata"] for each in OBJECTS)
    text = (FOLDER / "weir.yaml").read_text()
    compose = yaml.safe_load((FOLDER.parents[1] / "compose.yaml").read_text())
    images = {each["image"] for _, pod in pods() for each in pod["spec"]["containers"]}
    assert images == {compose["x-weir"]["image"]}
    assert text.count(f'image": "{images.pop()}"') == 1  # the executors'


def test_what_one_object_says_of_another_is_true() -> None:
    names = {(each["kind"], each["metadata"]["name"]) for each in OBJECTS}
    labels = {name: pod["metadata"]["labels"] for name, pod in pods()}
    for name, pod in pods():
        (container,) = pod["spec"]["containers"]
        assert ("ConfigMap", container["envFrom"][0]["configMapRef"]["name"]) in names
        ports = {each["name"] for each in container["ports"]}
        assert {container[each]["httpGet"]["port"] for each in ("startupProbe", "readinessProbe")} <= ports
        service = of("Service", name)
        assert service["spec"]["selector"].items() <= labels[name].items()
        assert {each["targetPort"] for each in service["spec"]["ports"]} <= ports
        assert pod["spec"].get("serviceAccountName", "weir-host") == "weir-host"
    binding = of("RoleBinding", "weir-executors")
    assert ("Role", binding["roleRef"]["name"]) in names
    assert {("ServiceAccount", each["name"]) for each in binding["subjects"]} <= names
    assert of("StatefulSet", "weir-host")["spec"]["serviceName"] == "weir-host"


def test_no_pod_gets_services_named_in_variables_that_weir_takes_for_settings() -> None:
    assert any(each["kind"] == "Service" and each["metadata"]["name"].startswith("weir-") for each in OBJECTS)
    specs = [pod["spec"] for _, pod in pods()] + [EXECUTOR["spec"]]
    assert [each.get("enableServiceLinks", True) for each in specs] == [False] * 3


def host_environment() -> dict[str, str]:
    """What the host's process gets, as Kubernetes puts it together."""
    (container,) = of("StatefulSet", "weir-host")["spec"]["template"]["spec"]["containers"]
    env = {**of("ConfigMap", "weir")["data"], **SECRET, "POD_NAME": "weir-host-0", "POD_NAMESPACE": "prod"}
    for each in container["env"]:
        if "value" in each:
            env[each["name"]] = (
                each["value"].replace("$(POD_NAME)", env["POD_NAME"]).replace("$(POD_NAMESPACE)", "prod")
            )
    return env


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
    assert conf["spark.driver.host"] == "weir-host-0.weir-host"
    assert conf["spark.kubernetes.namespace"] == "prod"
    assert Path(conf["spark.kubernetes.executor.podTemplateFile"]).name == "executor.yaml"
    assert settings.checkpoints_uri.startswith("s3://")
    ports = {each["name"]: str(each["port"]) for each in of("Service", "weir-host")["spec"]["ports"]}
    assert ports["driver"] == conf["spark.driver.port"]
    assert ports["blocks"] == conf["spark.blockManager.port"]
    assert settings.host.metrics_address.endswith(f":{ports['metrics']}")
    assert not any("hidden" in value for value in conf.values())


def test_the_executor_s_command_is_in_the_image_and_can_be_run() -> None:
    (container,) = EXECUTOR["spec"]["containers"]
    (command,) = container["command"]
    script = FOLDER / "executor.sh"
    assert command == f"/opt/weir/deploy/kubernetes/{script.name}"
    assert os.access(script, os.X_OK)
    assert "!deploy/kubernetes" in (FOLDER.parents[1] / ".dockerignore").read_text().splitlines()
