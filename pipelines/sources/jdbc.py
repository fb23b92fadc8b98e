"""A table of a database, read whole, to be joined with streams.

Rule: it is read as it is at each batch, or kept for as long as `refresh` says; a batch that is replayed reads it anew.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from backend.format import interval_s
from backend.redaction import holds_secret, without_secrets
from backend.settings import Settings
from backend.store.clock import elapsed
from pipelines.jvm.failures import StreamStartError, describe
from pipelines.specs.ends import Inputs, Secret, revealed, secret_options, secret_problems

_DRIVERS = {"postgresql": "org.postgresql.Driver"}  # Spark finds no driver among its own JARs without the name
_HINT = "look at its address and login, whether it runs, and whether its driver is there (docs/pipelines.md)"
_kept: dict[tuple[str, str], DataFrame] = {}  # rows in Spark's cache, by stream and source: those of the last start


@dataclass(frozen=True, slots=True)
class JdbcSource:
    """`options` are those of Spark's reader, `user` and `password` among them."""

    url: str = field(repr=False)
    table: str
    options: Mapping[str, str | Secret] = field(default_factory=dict, repr=False)
    refresh: str | None = None
    kind = "jdbc"
    letters = ()
    tables: tuple[str, ...] = ()

    def describe(self) -> str:
        place = self.url.removeprefix("jdbc:").partition("?")[0].partition(";")[0]
        return f"{self.table} at {without_secrets(place)}"

    def prepare(self, settings: Settings) -> None: ...

    def problems(self) -> Iterator[tuple[str, str]]:
        """What cannot work, and what to do."""
        if not self.url.startswith("jdbc:"):
            yield "jdbc: names no database", 'write jdbc("jdbc:postgresql://host:5432/database", …)'
        if holds_secret(self.url):
            hint = 'write password=secret("env:NAME") or secret("file:PATH")'
            yield "jdbc: a password stands in plain text", hint
        if not self.table.strip():
            yield "jdbc: names no table", 'write "schema.table", or "(SELECT …) AS t"'
        if self.refresh is not None and interval_s(self.refresh) is None:
            yield f"jdbc: refresh={self.refresh!r} is not understood", 'write "10 minutes"'
        for name, value in self.options.items():
            yield from secret_problems("jdbc", name, value)

    def read(self, inputs: Inputs) -> DataFrame:
        driver = _DRIVERS.get(self.url.split(":")[1])
        options = {**({"driver": driver} if driver else {}), **revealed(self.options)}
        try:
            rows = inputs.session.read.format("jdbc").options(url=self.url, dbtable=self.table, **options).load()
        except (Py4JError, PySparkException) as exc:
            error_class, message = describe(exc)
            message = f"jdbc: {self.describe()} cannot be read: {message}"
            raise StreamStartError(message, error_class=error_class, hint=_HINT) from exc
        if inputs.schemas is not None:
            return inputs.rows_of(rows.schema)
        is_view = inputs.versions is not None  # computed seldom, and always from what is there
        return rows if self.refresh is None or is_view else self._keep(rows, inputs, interval_s(self.refresh) or 0.0)

    def _keep(self, rows: DataFrame, inputs: Inputs, refresh_s: float) -> DataFrame:
        """The same rows, in Spark's cache until the first batch after `refresh_s`."""
        key = inputs.stream, self.describe()
        if former := _kept.pop(key, None):
            former.unpersist()
        _kept[key] = rows.persist()
        read_at = elapsed()

        def look(_: int) -> None:
            nonlocal read_at
            if elapsed() - read_at >= refresh_s:
                rows.unpersist(blocking=True)
                rows.persist()
                read_at = elapsed()

        inputs.checks.append(look)
        return rows


def jdbc(
    url: str, table: str, *, password: Secret | None = None, refresh: str | None = None, **options: object
) -> JdbcSource:
    """All rows of a database's table, for joins: `jdbc("jdbc:postgresql://db:5432/shop", "public.customers",
    user="weir", password=secret("env:SHOP"), refresh="10 minutes")`.

    `table` may be a query in brackets with a name. Each batch reads it anew; with `refresh` at most so often.
    Other options are Spark's (`partitionColumn`, `fetchsize`, `driver`, …). PostgreSQL's driver is fetched by
    `python -m pipelines.jars jdbc`; others are named by `spark.jars.packages` in `spark.conf`.
    """
    login = {"password": password} if password is not None else {}
    return JdbcSource(url, table, secret_options({**options, **login}), refresh)
