"""What a fresh interpreter really loads: the front ends no Spark, the domain no screen, the views no Streamlit."""

import ast
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import app
import backend
from tests.worlds.lake import builders

SPARK = ("pyspark", "delta", "py4j")
SCREEN = ("streamlit", "plotly")
HEAVY = ("pandas", "numpy", "pyarrow", "pydantic", "rich", "structlog", "asyncio")  # 0.1 s of a start or more
DOORS = ("deltalake", "duckdb", "obstore", "sqlalchemy")


def modules_of(package: object) -> Iterator[str]:
    """Every module of a package, itself included; programs (`__main__`) and migrations are not for importing."""
    yield package.__name__
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith("__main__") and ".migrations" not in found.name:
            yield found.name


def imports_of(script: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def loaded_by(modules: list[str]) -> set[str]:
    """Top-level names in `sys.modules` of a new interpreter after importing these modules."""
    return loaded_after(f"import importlib; [importlib.import_module(name) for name in {modules!r}]")


def loaded_after(code: str) -> set[str]:
    """Top-level names in `sys.modules` of a new interpreter after this code."""
    names = "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})), flush=True)"
    argv = [sys.executable, "-c", f"import atexit, json, sys\natexit.register(lambda: {names})\n{code}"]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr[-2_000:]
    return set(json.loads(run.stdout.splitlines()[-1]))


def loaded_by_command(*args: str) -> set[str]:
    """What `weir` with these arguments has loaded when it is done."""
    return loaded_after(f"from app.cli import main\nsys.argv = {['weir', *args]!r}\nmain()")


def test_the_probe_sees_spark_where_it_is() -> None:
    assert {"pyspark", "delta"} <= loaded_by(["pipelines.sinks.by_key"])


@pytest.mark.parametrize(
    ("package", "part", "named", "unwanted"),
    [
        (backend, "", {"backend.lake.model"}, {*SPARK, *SCREEN, "app", "pipelines"}),
        (app, "", {"app.run.up", "app.server.asgi", "app.cli"}, {*SPARK, "pipelines"}),
        (app, ".view.", {"app.tables.view"}, {*SPARK, "streamlit"}),
    ],
    ids=["the domain", "front ends", "views"],
)
def test_what_a_package_loads(package: ModuleType, part: str, named: set[str], unwanted: set[str]) -> None:
    modules = [name for name in modules_of(package) if part in f"{name}." and name != "app.main"]  # Streamlit's script
    assert named <= set(modules)
    assert loaded_by(modules) & unwanted == set()


def test_the_pages_import_nothing_below_the_front_end() -> None:
    scripts = sorted((Path(app.__file__).parents[1] / "pages").glob("*.py"))
    assert scripts
    for script in scripts:
        imported = {name.partition(".")[0] for name in imports_of(script)}
        assert imported & {*SPARK, *DOORS, "pipelines"} == set(), script.name


def test_help_loads_what_it_prints_with_and_nothing_else() -> None:
    found = loaded_by_command("--help")
    assert "typer" in found
    assert found & {*SPARK, *SCREEN, *DOORS, *HEAVY} == set()


def test_history_loads_neither_databases_nor_arrays_nor_what_draws_tracebacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builders.write(tmp_path / "lake" / "orders", {"id": [1]})
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))
    loaded = loaded_by_command("history", "orders")
    assert "orjson" in loaded
    unneeded = {"numpy", "pyarrow", "pandas", "structlog", "pygments", "markdown_it"}
    assert loaded & {*SPARK, *SCREEN, *DOORS, *unneeded} == set()
    listed = loaded_by_command("tables", "--json")
    assert listed & {*SPARK, *SCREEN, "pandas", "duckdb", "sqlalchemy"} == set()


def test_a_command_that_reads_does_without_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [name for name in modules_of(app) if name.startswith("app.cli")]
    assert len(modules) > 12
    spared = "import importlib; from backend.spared import spare; spare('pandas')"
    assert "pandas" not in loaded_after(f"{spared}; [importlib.import_module(name) for name in {modules!r}]")
    builders.write(tmp_path / "lake" / "orders", {"id": [1]})
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))
    for form in ("--json", "--csv", "--yes"):
        found = loaded_by_command("query", "SELECT a.id, b.id FROM orders a JOIN orders b USING (id)", form)
        assert {"sqlglot", "pyarrow"} <= found and "pandas" not in found


def test_no_import_builds_an_array_or_sets_a_log_level() -> None:
    """Both are for a program to do, once it knows what it is."""
    modules = [name for package in (app, backend) for name in modules_of(package) if name != "app.main"]
    code = f"""
import importlib, logging, pyarrow
from streamlit import logger
before = logging.getLogger().level, logger._global_log_level
[importlib.import_module(name) for name in {modules!r}]
assert pyarrow.total_allocated_bytes() == 0
assert (logging.getLogger().level, logger._global_log_level) == before
"""
    assert "streamlit" in loaded_after(code)


@pytest.mark.parametrize("module", ["app.cli", "app.run.up", "app.run.supervise"])
def test_what_a_terminal_starts_is_light(module: str) -> None:
    assert loaded_by([module]) & {*SPARK, *SCREEN, "pandas", "pyarrow", "duckdb", "sqlalchemy"} == set()
