"""Programs that some tests need: where one is missing they skip, in one line of the summary for each program.

Rule: they skip here, for pytest tells skips of one place and reason together. A test of PostgreSQL is marked
`needs_postgres` or `needs_postgres_url`, whose fixtures this plugin has.
"""

import os
import shutil
import subprocess

import pytest

from tests.worlds.store.postgres import POSTGRES, server_programs

MISSING = {
    "kubectl": "kustomize is missing, and kubectl, which has it too",
    "nginx": "nginx is missing (Debian: package nginx-light)",
    "promtool": "promtool is missing (Debian: package prometheus)",
}
needs_postgres = pytest.mark.usefixtures("postgres_programs")
needs_postgres_url = pytest.mark.usefixtures("postgres_server")


def require(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(MISSING[program])


@pytest.fixture(scope="session")
def postgres_programs() -> None:
    if not server_programs().exists():
        pytest.skip("PostgreSQL's programs are missing (Debian: package postgresql)")


@pytest.fixture(scope="session")
def postgres_server() -> None:
    if not os.environ.get(POSTGRES):
        pytest.skip(f"{POSTGRES} names no PostgreSQL")


def promtool(*words: str, given: str = "") -> None:
    """It judges metrics, rules and expressions: fails with what it says when it is not content."""
    require("promtool")
    ended = subprocess.run(["promtool", *words], input=given, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
