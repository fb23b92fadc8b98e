"""Prometheus' own tool, from Debian's package `prometheus`: it judges metrics, rules and expressions."""

import shutil
import subprocess

import pytest


def promtool(*words: str, given: str = "") -> None:
    """Fails with what it says when it is not content."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is missing (Debian: package prometheus)")
    ended = subprocess.run(["promtool", *words], input=given, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
