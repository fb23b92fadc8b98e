"""What `kubectl apply -k` would send: a folder's objects, built by kustomize itself."""

import functools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy" / "kubernetes"
Object = dict[str, Any]


@functools.cache
def built(folder: Path) -> tuple[Object, ...]:
    """Do not change them."""
    return tuple(yaml.safe_load_all(_text(folder)))


def _text(folder: Path) -> str:
    commands = [["kustomize", "build"], ["kubectl", "kustomize"]]
    command = next((command for command in commands if shutil.which(command[0])), None)
    if command is None:
        pytest.skip("kustomize is missing, and kubectl, which has it too")
    ended = subprocess.run([*command, str(folder)], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def one(objects: tuple[Object, ...], kind: str, name: str) -> Object:
    (match,) = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return match
