"""The one door to SQLAlchemy's connections: opens engines, begins transactions, maps their errors; makes a new
store, and brings one that is there to the newest schema.

Rule: a write begins with the write lock (SQLite: BEGIN IMMEDIATE), so it never fails half-way on a stale read; a
database error leaves here as `StoreError` without the URL's password. A schema is made or changed in one transaction
under that lock: two processes that open an empty store at once both succeed, and a killed migration leaves nothing
behind.
"""

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa
from psycopg import Error as PsycopgError
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from backend.access import is_loopback
from backend.errors import SettingsError, StoreError
from backend.private_files import private_file, private_folder
from backend.redaction import remember, remember_options, without_secrets

BUSY_TIMEOUT_S = 10
# A host that is frozen amid a transaction keeps no lock for longer, and a cut line is noticed: 10 s without an answer.
_POSTGRES_SESSION = "SET idle_in_transaction_session_timeout = '10s'"
_POSTGRES_LINE = {
    "connect_timeout": 5,
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
SUPPORTED = ("sqlite", "postgresql")
TRAIL = "trail"  # of a connection's `info`: entries of its transaction, and denials
Trail = Callable[[Connection, list[Any]], None]  # writes entries
_log = logging.getLogger(__name__)
_AFTER_USER = re.compile(r"^[^:]*://[^:/]*")
P = ParamSpec("P")
Value = TypeVar("Value")


class Database:
    """One engine and the two ways to use it: `reading()` and `writing()`. Thread-safe."""

    def __init__(self, url: str, trail: Trail = lambda *_: None) -> None:
        self._trail = trail
        self.url = _parse(url)
        self.shown_url = without_secrets(self.url.render_as_string(hide_password=True))
        self._engine = _engine(self.url)
        self._reader = self._engine.execution_options(weir_reads=True)
        if not self.is_sqlite:  # which has no other: what is read together belongs together
            self._reader = self._reader.execution_options(isolation_level="REPEATABLE READ")

    @property
    def is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._mapped(), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """What the audit trail is to keep comes last, so nobody waits for it with a lock; denials are kept though what
        was denied is rolled back."""
        kept, denied = list[Any](), list[Any]()
        try:
            with self._mapped(), self._engine.begin() as connection:
                connection.info[TRAIL] = kept, denied
                yield connection
                self._trail(connection, kept)
        finally:
            if denied:
                with self._mapped(), self._engine.begin() as connection:
                    self._trail(connection, denied)

    @contextmanager
    def autocommit(self) -> Iterator[Connection]:
        """Outside any transaction, for SQLite's journal mode."""
        with self._mapped(), self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            yield connection

    def listen(self, channel: str, *, hello: str, look_s: float) -> Iterator[str | None]:
        """What PostgreSQL tells on this channel, `hello` first; None where nothing came for `look_s`."""
        with self._mapped(), self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            driver: Any = connection.connection.driver_connection
            connection.detach()  # nobody else is to be told on it
            connection.exec_driver_sql(f"LISTEN {channel}")
            connection.execute(sa.select(sa.func.pg_notify(channel, hello)))
            while True:
                yield from (notice.payload for notice in driver.notifies(timeout=look_s))
                yield None

    def dispose(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except UnicodeEncodeError:  # not of what it holds: somebody typed it
            raise
        except ValueError as exc:
            raise StoreError(
                f"the control store at {self.shown_url} holds what cannot be read: {_first_line(exc)}",
                hint="another version of Weir wrote it, or something else did",
            ) from exc
        except (SQLAlchemyError, PsycopgError) as exc:
            cause = getattr(exc, "orig", None) or exc
            raise StoreError(
                f"the control store at {self.shown_url} did not answer: {type(cause).__name__}: {_first_line(cause)}",
                hint="check that it runs and that WEIR_STORE__URL is right",
            ) from exc


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # which quote a part of it
        raise SettingsError("store.url is not a SQLAlchemy URL", hint="e.g. sqlite:////var/lib/weir/weir.db") from None
    remember_options({name: value for name, values in parsed.normalized_query.items() for value in values})
    remember([str(parsed.password or "")])
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in SUPPORTED:
        raise SettingsError(f"store.url: {parsed.get_backend_name()} is not supported", hint="SQLite or PostgreSQL")
    if parsed.get_backend_name() != "sqlite" and _AFTER_USER.sub("", url).count("@") > 1:
        # The driver would take the password's end for the host, and name it in its errors.
        raise SettingsError("store.url: more than one @ after the user", hint="write %40 for an @ in the password")
    return parsed


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        return _sqlite_engine(url)
    try:
        engine = sa.create_engine(
            url, hide_parameters=True, pool_pre_ping=True, pool_timeout=10, connect_args=dict(_POSTGRES_LINE)
        )
    except (NoSuchModuleError, ImportError) as exc:
        raise SettingsError(f"store.url: no driver for {url.drivername}", hint="postgresql+psycopg://…") from exc
    sa.event.listen(engine, "connect", _on_postgres_connect)
    if host := _unverified_host(url):
        _log.warning(
            "nothing verifies that %s is the store's database: set sslmode=verify-full and sslrootcert in store.url",
            host,
        )
    return engine


def _unverified_host(url: URL) -> str:
    """A host beyond this machine whose certificate the driver does not check, empty where there is none."""
    options = {name.lower(): ",".join(values) for name, values in url.normalized_query.items()}
    mode = options.get("sslmode") or os.environ.get("PGSSLMODE", "")
    hosts = url.host or options.get("host") or os.environ.get("PGHOST", "")
    names = (name if name.count(":") > 1 else name.partition(":")[0] for name in hosts.split(","))
    outside = (name for name in names if name and not name.startswith(("/", "@")) and not is_loopback(name))
    return "" if mode == "verify-full" else next(outside, "")


def _sqlite_engine(url: URL) -> Engine:
    if not url.database or url.database == ":memory:":
        raise SettingsError("store.url: SQLite needs a file, both processes open it", hint="sqlite:////path/weir.db")
    try:
        _make_private(Path(url.database))
    except OSError as exc:
        raise StoreError(f"the file of the control store cannot be made: {exc}") from exc
    connect_args = {"timeout": BUSY_TIMEOUT_S}
    engine = sa.create_engine(url, hide_parameters=True, connect_args=connect_args, json_deserializer=_json)
    sa.event.listen(engine, "connect", _on_sqlite_connect)
    sa.event.listen(engine, "begin", _on_sqlite_begin)
    return engine


def _json(text: str) -> object:
    """SQLite takes any text for JSON. What is none stays a text: its row cannot be read, and the others can."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _make_private(file: Path) -> None:
    """SQLite gives the files that it makes beside this one the same mode."""
    folder = file.parent
    if not folder.exists():  # another may be shared, like /tmp
        private_folder(folder)
    private_file(file)
    for beside in (file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")):
        if beside.exists():
            private_file(beside)


def _on_postgres_connect(connection: Any, _record: object) -> None:
    connection.execute(_POSTGRES_SESSION)
    connection.commit()


def _on_sqlite_connect(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver must not begin on its own: `_on_sqlite_begin` does
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_S * 1000}")
    connection.execute("PRAGMA synchronous = NORMAL")


def _on_sqlite_begin(connection: Connection) -> None:
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        return
    reads = connection.get_execution_options().get("weir_reads")
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _first_line(exc: BaseException) -> str:
    return (str(exc).strip().splitlines() or ["no message"])[0]


def reading(statement: Callable[Concatenate[Connection, P], Value]) -> Callable[Concatenate[Any, P], Value]:
    """A method that reads: the statement in a transaction of the owner's `_database`."""

    @wraps(statement)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Value:
        with self._database.reading() as connection:
            return statement(connection, *args, **kwargs)

    return method


def writing(
    statement: Callable[Concatenate[Connection, P], Value], *, tells: str = ""
) -> Callable[Concatenate[Any, P], Value]:
    """A method that writes: the statement in a transaction of the owner's `_database`. `tells`: the topic of its
    `notices`, unless the statement answers that it changed nothing: False, or an empty collection."""

    @wraps(statement)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Value:
        with self._database.writing() as connection:
            answer = statement(connection, *args, **kwargs)
            if tells and (answer is None or answer):
                self.notices.tell(connection, tells)
            return answer

    return method


def insert(connection: Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


def upsert(connection: Connection, table: sa.Table, row: Mapping[str, Any]) -> None:
    """Inserts the row, or sets the columns it names where its primary key is there."""
    keys = [column.name for column in table.primary_key]
    changed = {name: value for name, value in row.items() if name not in keys}
    statement = insert(connection, table).values(**row)
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed))


# the schema -----------------------------------------------------------------------------------------------------------


ADVISORY_LOCK = 0x57454952  # "WEIR"
BASELINE = "0017"
MIGRATIONS = Path(__file__).parent / "migrations"
HEAD = max(file.name[1:5] for file in (MIGRATIONS / "versions").glob("v[0-9]*.py"))


def migrate(database: Database, metadata: sa.MetaData) -> None:
    """Upgrades to the newest revision, of which `metadata` has the tables; does not write when the store is there
    already."""
    with database.reading() as connection:
        if _revision(connection) == HEAD:
            return
    if database.is_sqlite:
        _use_wal(database)
    with database.writing() as connection:
        if not database.is_sqlite:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ADVISORY_LOCK)))
        _upgrade(connection, metadata)


def _revision(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    return revision


def _upgrade(connection: Connection, metadata: sa.MetaData) -> None:
    from alembic import command  # 0.2 s, and most who open a store find it as it should be
    from alembic.config import Config
    from alembic.util.exc import CommandError

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    revision = _revision(connection)
    if revision is None:
        metadata.create_all(connection)
        command.stamp(config, "head")
        return
    if revision < BASELINE:
        raise StoreError(
            f"an earlier Weir made the control store: its schema is {revision}, the oldest that is read is {BASELINE}",
            hint=f"open it once with the Weir of 2026-11-28, which brings it to {BASELINE}; or point WEIR_STORE__URL "
            "at a new store: hosts declare their streams there again, and a new audit trail begins",
        )
    try:
        command.upgrade(config, "head")
    except CommandError as exc:
        raise StoreError(
            f"a newer Weir made the control store: its schema is {revision}, the newest that is known is {HEAD}",
            hint="run that version, or point WEIR_STORE__URL elsewhere",
        ) from exc


def _use_wal(database: Database) -> None:
    """SQLite may answer "locked" at once, without its busy time-out, when two processes switch the journal together."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            with database.autocommit() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            return
        except StoreError as exc:
            if "locked" not in exc.message or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
