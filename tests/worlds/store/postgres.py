"""A database of one's own on the PostgreSQL of the tests, or a server of one's own; skipped where there is none."""

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from tests.worlds.processes import free_port

POSTGRES = "WEIR_TEST_POSTGRES_URL"


@contextmanager
def empty_postgres_url(server_url: str | None = None, *, template: str = "template1") -> Iterator[str]:
    """A new database on the test server, or on that one, empty or a copy of `template`; dropped afterwards."""
    server = make_url(server_url or os.environ[POSTGRES]).set(drivername="postgresql+psycopg")
    name = f"weir_{uuid.uuid4().hex[:12]}"
    admin = sa.create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.exec_driver_sql(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    try:
        yield server.set(database=name).render_as_string(hide_password=False)
    finally:
        with admin.connect() as connection:
            connection.exec_driver_sql(f'DROP DATABASE "{name}" WITH (FORCE)')
        admin.dispose()


@dataclass
class OwnPostgres:
    """A server of the test's own, which it may stop and start. Run by the user postgres where this is root."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://weir@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder} -c fsync=off"
        self._run("pg_ctl", "-l", f"{self.folder}/log", "-w", "-s", "start", "-o", options)

    def stop(self, mode: str) -> None:
        """`fast` ends every connection, `immediate` is a crash."""
        self._run("pg_ctl", "-m", mode, "-w", "-s", "stop")

    def make(self) -> None:
        self._run("initdb", "-U", "weir", "-A", "trust", "-E", "UTF8", "--no-sync")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(server_programs() / program), "-D", f"{self.folder}/data", *arguments]
        as_postgres = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        subprocess.run([*as_postgres, *command], check=True, cwd="/", stdout=subprocess.DEVNULL, timeout=120)


def server_programs() -> Path:
    """Where PostgreSQL's own programs lie; a folder that is not there without them."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else Path("/usr/lib/postgresql/none")


@contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    """Started, and gone afterwards with all that it holds."""
    with tempfile.TemporaryDirectory(prefix="weir-postgres-") as name:
        if os.getuid() == 0:
            shutil.chown(name, "postgres")
        server = OwnPostgres(Path(name), free_port())
        server.make()
        server.start()
        try:
            yield server
        finally:
            with suppress(subprocess.CalledProcessError):
                server.stop("immediate")
