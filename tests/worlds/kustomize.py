"""What `kubectl apply -k` would send: a folder's objects, built by kustomize itself."""

import functools
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.worlds.programs import require

DEPLOY = Path(__file__).parents[2] / "deploy" / "kubernetes"
Object = dict[str, Any]


@functools.cache
def built(folder: Path) -> tuple[Object, ...]:
    """Do not change them."""
    return tuple(yaml.safe_load_all(_text(folder)))


def _text(folder: Path) -> str:
    kustomize = shutil.which("kustomize")
    if kustomize is None:
        require("kubectl")
    command = ["kustomize", "build"] if kustomize else ["kubectl", "kustomize"]
    ended = subprocess.run([*command, str(folder)], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def one(objects: Iterable[Object], kind: str, name: str) -> Object:
    (match,) = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return match
