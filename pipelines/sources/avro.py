"""Avro records as JSON text, so that one reader parses both: by the schema of a file, or by ids of a schema registry.

Rule: a record that cannot be decoded says why. A registry that does not answer fails the batch: no record is lost.
Wire format: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html
"""

import base64
import io
import json
import math
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
from fastavro.types import Schema
from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.jvm.failures import SpecError
from pipelines.specs.ends import Secret, secret_problems

_PATIENCE_S = 10.0  # for one answer of a registry
_ABSENT_S = 10.0  # an id that it does not know is asked for again after this time
_MAGIC, _PREFIX = 0, 5  # a byte, and the schema's id in four
_ACCEPT = "application/vnd.schemaregistry.v1+json"


class RegistryError(Exception):
    """A schema registry does not answer. Spark passes the message on alone, so it ends with the next step."""


class _BadRecordError(Exception):
    """A record's bytes are no Avro of its schema."""


@dataclass(frozen=True, slots=True)
class Avro:
    """How records are written: raw, by the schema in `file`, or behind a schema's id in `registry`."""

    file: str | None = None
    registry: str | None = None
    login: str | Secret | None = field(default=None, repr=False)

    def problems(self) -> Iterator[tuple[str, str]]:
        """What cannot work, and what to do."""
        if bool(self.file) == bool(self.registry):
            yield "kafka: avro needs either a registry or a schema file", "say registry=URL or avro_schema=PATH"
        if self.registry and "@" in self.registry:
            yield "kafka: the address of the registry holds a login", 'write registry_login=secret("env:NAME")'
        elif self.registry and not self.registry.startswith(("http://", "https://")):
            yield f"kafka: registry {self.registry!r} is no address", "write http://… or https://…"
        if self.login is not None:
            yield from secret_problems("kafka", "the registry's password", self.login)
        if self.file:
            try:
                _schema_of(self.file)
            except SpecError as exc:
                yield exc.message, exc.hint

    def decoded(self, value: Column) -> Column:
        """A struct of `json`, the record as text, and `problem`, why there is none; both null for a null."""
        decode = _raw(_schema_of(self.file)) if self.file else _framed(self.registry or "", self._login())
        as_text = F.udf(decode, "json STRING, problem STRING", useArrow=True)
        return as_text.asNondeterministic()(value)  # else Spark may decode a record once for each use

    def _login(self) -> str | None:
        return self.login.reveal() if isinstance(self.login, Secret) else None


_Decoded = tuple[str | None, str | None]


def _raw(schema: Schema) -> Callable[[bytes | None], _Decoded]:
    return lambda value: (None, None) if value is None else _as_json(value, lambda: schema)


def _framed(registry: str, login: str | None) -> Callable[[bytes | None], _Decoded]:
    def decode(value: bytes | None) -> _Decoded:
        if value is None:
            return None, None
        if len(value) < _PREFIX or value[0] != _MAGIC:
            bytes_are = f"begins with the byte {value[0]:#04x}, not with 0x00" if value else "is empty"
            return None, f"not Avro behind a schema's id: it {bytes_are}"
        number = int.from_bytes(value[1:_PREFIX], "big")
        return _as_json(value[_PREFIX:], lambda: _registry_at(registry, login).schema(number))

    return decode


def _as_json(payload: bytes, schema: Callable[[], Schema]) -> _Decoded:
    try:
        return json.dumps(_plain(_record(payload, schema()))), None
    except _BadRecordError as exc:
        return None, str(exc)


def _record(payload: bytes, schema: Schema) -> Any:
    stream = io.BytesIO(payload)
    try:
        record = fastavro.schemaless_reader(stream, schema, None)
    except Exception as exc:  # bytes that are not of this schema end in many kinds of error
        raise _BadRecordError(f"not Avro of its schema: {type(exc).__name__}: {exc}".rstrip(": ")) from exc
    if left := len(payload) - stream.tell():
        raise _BadRecordError(f"not Avro of its schema: {left} bytes follow the record")
    return record


def _plain(value: Any) -> Any:
    """The same as JSON has it, in the forms that Spark's reader of JSON takes for the column's type."""
    match value:
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case str() | bool() | int() | float() | None:
            return value
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal() | UUID():
            return str(value)
        case datetime() | date() | time_of_day():
            return value.isoformat()
        case Sequence():
            return [_plain(item) for item in value]
    raise _BadRecordError(f"a value of type {type(value).__name__} is not known here")


def _schema_of(file: str) -> Schema:
    try:
        return fastavro.parse_schema(json.loads(Path(file).read_text(encoding="utf-8")))
    except OSError as exc:
        raise SpecError(f"kafka: {file} cannot be read: {exc.strerror}", hint="avro_schema names a file") from exc
    except Exception as exc:  # JSON's errors, and many of fastavro's
        raise SpecError(f"kafka: {file} is no Avro schema: {exc}", hint="write it as JSON, in one file") from exc


@cache
def _registry_at(url: str, login: str | None) -> "_Registry":
    """One for each of Spark's Python workers: it keeps answers over batches."""
    return _Registry(url, login)


@dataclass
class _Registry:
    """A registry's schemas by id, which never change.

    Not confluent-kafka's client: these fifty lines would be thirty, for six more packages on every executor (a wheel of
    5 MB, with librdkafka in it), and 28 MB and 0.15 s in each Python worker. Its deserializer takes bytes that follow a
    record.
    """

    url: str
    login: str | None = field(repr=False)
    _schemas: dict[int, Schema] = field(default_factory=dict)
    _absent: dict[int, float] = field(default_factory=dict)

    def schema(self, number: int) -> Schema:
        """Raises `RegistryError`, or `_BadRecordError` where it knows no such schema."""
        if number not in self._schemas:
            if time.monotonic() - self._absent.get(number, -math.inf) > _ABSENT_S:
                self._ask(number)
            if number not in self._schemas:
                raise _BadRecordError(f"the registry knows no Avro schema {number}")
        return self._schemas[number]

    def _ask(self, number: int) -> None:
        answer = self._get(f"/schemas/ids/{number}")
        if answer is None or answer.get("schemaType", "AVRO") != "AVRO":
            self._absent[number] = time.monotonic()
            return
        named: dict[str, Any] = {}
        self._read_references(answer, named)
        self._schemas[number] = fastavro.parse_schema(json.loads(answer["schema"]), named)

    def _read_references(self, answer: Mapping[str, Any], named: dict[str, Any]) -> None:
        for reference in answer.get("references") or ():
            other = self._get(f"/subjects/{reference['subject']}/versions/{reference['version']}")
            if other is not None:
                self._read_references(other, named)
                fastavro.parse_schema(json.loads(other["schema"]), named)

    def _get(self, path: str) -> dict[str, Any] | None:
        """The answer, None where it is "not found"."""
        request = urllib.request.Request(self.url.rstrip("/") + path, headers={"Accept": _ACCEPT})
        if self.login:
            request.add_header("Authorization", "Basic " + base64.b64encode(self.login.encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
                return dict(json.loads(answer.read()))
        except urllib.error.HTTPError as exc:
            if exc.code == 404:
                return None
            raise RegistryError(self._silent(f"HTTP {exc.code}")) from exc
        except (OSError, ValueError) as exc:
            raise RegistryError(self._silent(str(getattr(exc, "reason", exc)))) from exc

    def _silent(self, why: str) -> str:
        next_step = "the batch runs again by itself: see that the registry is up, and its login"
        return f"the schema registry at {self.url} did not answer: {why} ({next_step})"
