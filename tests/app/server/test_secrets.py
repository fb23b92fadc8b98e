"""Secrets of every form in every setting that takes one: no page, route, command, log or argument shows them."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app import services
from app.cli import main
from tests.worlds.cases import few
from tests.worlds.lake import builders
from tests.worlds.pages.opened import MAIN, home, open_page
from tests.worlds.pages.serving import got, served
from tests.worlds.processes import free_port, processes_of, wait_until
from tests.worlds.store import stream_store

__all__ = ["home"]

HUSH = "hushQx7"  # in every secret, followed by what tells them apart
PAGES = [page.stem for page in sorted(Path(MAIN).parents[1].joinpath("pages").glob("*.py"))]
COMMANDS = """tables|table silver/orders|find id|profile silver/orders|history silver/orders|properties silver/orders
files silver/orders|versions silver/orders|diff silver/orders --from 0 --to 0|health|expectations|streams|stream orders
preflight orders|jobs|jobs abc|start orders --reason r|stop orders --reason r|drain orders --reason r
cancel abc --reason r|restart orders --reason r|reset orders --dry-run|requeue orders --dry-run|table far/orders"""
COMMANDS = [command for line in COMMANDS.splitlines() for command in line.strip().split("|")]
STORES = {
    "query": "postgresql+psycopg://weir@127.0.0.1:{port}/weir?password=hushQx7-query",
    "options": "postgresql+psycopg://weir@127.0.0.1:{port}/weir?sslmode=disable&sslpassword=hushQx7-pass&sslkey=hushQx7",
    "login": "postgresql+psycopg://weir:hushQx7-login@127.0.0.1:{port}/weir",
    "unescaped @": "postgresql+psycopg://weir:p@hushQx7-at@127.0.0.1:{port}/weir",
    "unescaped @ and /": "postgresql+psycopg://weir:p@hushQx7/at@127.0.0.1:{port}/weir",
    "no port": "postgresql+psycopg://weir:hushQx7-port",
    "no driver": "mysql://weir:hushQx7-driver@127.0.0.1:{port}/weir",
    "no URL": "weir:hushQx7-none@127.0.0.1",
}


TELLING = "unescaped @ and /"  # the form that a reader of URLs takes for another
EVERY_STORE = few(1, [TELLING, *(name for name in STORES if name != TELLING)])


def settings_with(store: str, port: int) -> dict[str, str]:
    """Variables in which each setting that can hold a secret holds one; nobody listens on the port."""
    s3 = {
        "aws_endpoint": f"http://me:{HUSH}-endpoint@127.0.0.1:{port}",
        "aws_secret_access_key": f"{HUSH}-s3",
        "aws_access_key_id": "me",
        "allow_http": "true",
        "max_retries": "0",
    }
    azure = {"account_name": "shop", "account_key": f"{HUSH}-azure", "sas_token": f"sv=1&sig={HUSH}-sas"}
    spark = {"spark.hadoop.fs.s3a.secret.key": f"{HUSH}-spark", "spark.ssl.keyPassword": f"{HUSH}-ssl"}
    return {
        "WEIR_STORE__URL": store.format(port=port),
        "WEIR_LAKE__ROOTS": json.dumps(["s3://far", "lake"]),
        "WEIR_LAKE__STORAGE_OPTIONS": json.dumps({"s3://far": s3, "az://box": azure}),
        "WEIR_SPARK__CONF": json.dumps(spark),
        "PGPASSWORD": f"{HUSH}-pg",
        "AWS_SESSION_TOKEN": f"{HUSH}-session",
    }


@pytest.fixture
def secretive(home: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    builders.orders_table(home / "lake" / "silver" / "orders")
    monkeypatch.chdir(home)
    for name, value in settings_with(STORES[request.param], free_port()).items():
        monkeypatch.setenv(name, value)
    services.forget()
    return home


@pytest.mark.parametrize("secretive", EVERY_STORE, indirect=True)
def test_no_page_shows_one(secretive: Path) -> None:
    shown = ""
    for page in PAGES:
        app = open_page(page, table="silver/orders", stream="orders")
        shown += "\n".join(str(node.proto) for node in (*app.main, *app.sidebar))
    assert HUSH not in shown
    assert "store" in shown, "pages tell that the store is down"


@pytest.mark.parametrize("secretive", EVERY_STORE, indirect=True)
def test_no_command_shows_one(secretive: Path, capfd: pytest.CaptureFixture[str]) -> None:
    codes = set()
    for command in COMMANDS:
        for words in (command.split(), [*command.split(), "--json"]):
            with pytest.raises(SystemExit) as ended:
                main(words)
            codes.add(ended.value.code)
            services.forget()
    printed = capfd.readouterr()
    assert HUSH not in printed.out + printed.err
    assert "error: " in printed.err
    assert len(codes) > 1, "some commands need no store"


@pytest.mark.parametrize("store", few(2, ["unescaped @", "up", "query"]))
def test_no_route_log_or_argument_of_a_server_shows_one(store: str, tmp_path: Path) -> None:
    builders.orders_table(tmp_path / "lake" / "silver" / "orders")
    variables = settings_with(STORES.get(store, ""), free_port())
    variables["WEIR_LAKE__ROOTS"] = json.dumps(["s3://far", str(tmp_path / "lake")])
    if store == "up":
        del variables["WEIR_STORE__URL"]
        stream_store.open_store(tmp_path).close()
    with served(tmp_path, **variables) as server:
        bodies = []

        def is_read() -> bool:
            bodies.append(got(f"{server.url}/healthz"))
            health = json.loads(bodies[-1])
            return health["status"] == "degraded" or health["lake"].get("tables", 0) > 0

        wait_until(is_read, "store and lake are tried")
        bodies += [got(f"{server.url}/metrics"), got(f"{server.url}/"), got(f"{server.url}/exports/nothing")]
        arguments = [Path(f"/proc/{pid}/cmdline").read_text() for pid in processes_of(tmp_path)]
        assert arguments
    logs = "".join(file.read_text() for file in (tmp_path / "logs").iterdir()) + (tmp_path / "ui.txt").read_text()
    assert "serving" in logs
    assert HUSH not in "".join((*bodies, *arguments, logs))


def test_no_audit_row_export_or_other_file_of_ours_holds_one(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    builders.orders_table(home / "lake" / "silver" / "orders")
    monkeypatch.chdir(home)
    store = stream_store.open_store(home)
    stream_store.flowing(store, "silver_orders", datetime.now(UTC))
    variables = settings_with("", free_port())
    variables["WEIR_LAKE__ROOTS"] = json.dumps(["s3://far", str(home / "lake")])
    for name, value in variables.items():
        if name != "WEIR_STORE__URL":
            monkeypatch.setenv(name, value)
    acts = ["stop silver_orders --reason r", "drain silver_orders --reason r", "restart silver_orders --reason r"]
    exports = ["export silver/orders --output rows.csv", "export far/orders --output none.csv"]
    for command in (*acts, *exports, *COMMANDS):
        services.forget()
        with pytest.raises(SystemExit):
            main(command.split())
    services.forget()
    assert HUSH not in "".join(capfd.readouterr())
    assert {entry.action for entry in store.audit_entries()} >= {"stop", "restart"}
    store.close()
    files = {path.relative_to(home): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    assert {Path("rows.csv"), Path("store/weir.db")} <= files.keys()
    assert [path for path, content in files.items() if HUSH.encode() in content] == []


@pytest.mark.parametrize(
    "command",
    [
        "app.server.asgi",
        "app.cli host",
        *(pytest.param(f"app.cli {name}", marks=pytest.mark.ci) for name in ("up", "demo")),
    ],
)
def test_a_program_that_cannot_start_says_why_and_shows_none(command: str, tmp_path: Path) -> None:
    """Each reads the settings itself."""
    wrong = settings_with(STORES["unescaped @"], free_port()) | {
        "WEIR_PORT": f"{HUSH}-port",
        "WEIR_HOME": str(tmp_path),
    }
    run = subprocess.run(
        [sys.executable, "-m", *command.split()],
        env={**os.environ, **wrong},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 2
    assert "error: settings are wrong: port" in run.stderr and "hint: " in run.stderr
    assert HUSH not in run.stdout + run.stderr
