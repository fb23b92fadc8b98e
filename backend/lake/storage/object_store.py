"""Connections to object stores, one per root, and their failures in words.

Rule: every wait is bounded. obstore's texts hold addresses, answers and settings, and so perhaps credentials: only
what kind of failure it was goes on, and what has no kind is cleaned first.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

from obstore.exceptions import BaseError, PermissionDeniedError, PreconditionError, UnauthenticatedError
from obstore.store import from_url

from backend.errors import ObjectMissingError, SettingsError, StorageError
from backend.redaction import remember_options, without_secrets

PARALLEL_READS = 32
MAX_RETRIES = 4
# No attempt starts after RETRY_TIME_OUT, none lasts longer than REQUEST_TIME_OUT: a read ends within 30 seconds.
RETRY_TIME_OUT = timedelta(seconds=10)
REQUEST_TIME_OUT = timedelta(seconds=20)
SILENCE_TIME_OUT = timedelta(seconds=8)
CONNECT_TIME_OUT = timedelta(seconds=5)
_TIME_OUTS = {"timeout": REQUEST_TIME_OUT, "read_timeout": SILENCE_TIME_OUT, "connect_timeout": CONNECT_TIME_OUT}
_SWITCHES = frozenset({"allow_http", "allow_invalid_certificates"})
_CLIENT_TEXTS = frozenset({"proxy_url", "proxy_excludes", "root_certificate"})
# Options that people carry over from a writer; a reader has no use for them.
_WRITER_OPTIONS = frozenset({"s3_allow_unsafe_rename", "s3_locking_provider", "delta_dynamo_table_name"})
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|sec|seconds|m|min|minutes|)\s*")
_SETTINGS = "WEIR_LAKE__STORAGE_OPTIONS"

Options = tuple[tuple[str, str], ...]


class ServerDownError(StorageError):
    """The server cannot be reached, is silent or refuses everything: asking for the next object will not help."""


@dataclass(frozen=True, slots=True)
class Server:
    """A root's store, and the threads that read from it: a silent server holds up its own tables alone."""

    store: Any
    pool: ThreadPoolExecutor


@lru_cache(maxsize=64)
def connect(root: str, options: Options) -> Server:
    """The server behind a root; raises `SettingsError` for options that cannot work. Nothing is sent yet."""
    client: dict[str, Any] = dict(_TIME_OUTS)
    retries: dict[str, Any] = {"max_retries": MAX_RETRIES, "retry_timeout": RETRY_TIME_OUT}
    config: dict[str, str] = {}
    remember_options(dict(options))
    for key, value in options:
        short = key.lower().removeprefix("aws_").removeprefix("azure_").removeprefix("google_")
        if short in _SWITCHES:
            client[short] = value.lower() == "true"
        elif short in _TIME_OUTS:
            client[short] = _duration(key, value)
        elif short in _CLIENT_TEXTS:
            client[short] = value
        elif short == "retry_timeout":
            retries[short] = _duration(key, value)
        elif short == "max_retries":
            retries[short] = _count(key, value)
        elif short not in _WRITER_OPTIONS:
            config[key.lower()] = value
    try:
        store = from_url(root, config=config, client_options=client, retry_config=retries)  # type: ignore[call-overload]
    except (BaseError, ValueError) as exc:
        reason = without_credentials(str(exc))
        raise SettingsError(f"the root {root} cannot be opened: {reason}", hint=f"check {_SETTINGS}") from None
    return Server(store, ThreadPoolExecutor(PARALLEL_READS, thread_name_prefix="weir-store"))


def check_address(root: str) -> None:
    """Refuse a root whose address holds credentials: addresses are shown, logged and part of every link."""
    scheme, _, rest = root.partition("://")
    user = rest.split("/")[0].rpartition("@")[0]
    if ":" in user or "?" in rest:
        raise SettingsError(
            f"a {scheme}:// root in WEIR_LAKE__ROOTS holds credentials",
            hint=f"move them to {_SETTINGS}, under that root",
        )


def storage_error(exc: Exception, uri: str, root: str) -> StorageError:
    """A failure to read `uri`, in words."""
    text = str(exc)
    status = _found(r"status code: (\d{3})", text)
    why = _kind(exc, text, status)
    if isinstance(exc, FileNotFoundError):
        return ObjectMissingError(f"{uri} does not exist", hint="it was deleted or never written")
    if isinstance(exc, PermissionDeniedError | UnauthenticatedError) or status in ("401", "403"):
        code = " ".join(part for part in (status, _found(r"<Code>(\w+)</Code>", text)) if part)
        hint = f"the credentials in {_SETTINGS} for {root}, or in the environment, must be right and may read and list"
        return StorageError(f"access to {uri} was denied{f' ({code})' if code else ''}", hint=hint)
    if isinstance(exc, PreconditionError):
        return StorageError(f"{uri} changed while it was read", hint="read it again")
    if status == "404":
        return StorageError(f"{uri} cannot be listed: there is no such bucket", hint=f"check the root {root}")
    if "builder error" in text and (plain := _found(r"(http://[^/\s]+)", text)):
        hint = f"use https, or set AWS_ALLOW_HTTP=true (AZURE_…, GOOGLE_…) in {_SETTINGS} for {root}"
        return StorageError(f"{uri} was not asked for: {plain} is not encrypted, which is refused", hint=hint)
    if why:
        return ServerDownError(f"{uri} cannot be read: {_host(text)} {why[0]}", hint=why[1])
    return StorageError(
        f"{uri} cannot be read: {without_credentials(text)}", hint=f"check network, endpoint and {_SETTINGS}"
    )


def broke_off(exc: Exception) -> bool:
    """Whether an answer ended before it was whole."""
    return "kind: Interrupted" in str(exc) or "kind: Body" in str(exc)


def _kind(exc: Exception, text: str, status: str) -> tuple[str, str] | None:
    """What the server did, and what to do about it; None for what is not the server's doing."""
    if "kind: Connect" in text:
        return "cannot be reached", f"check the network, and the endpoint in {_SETTINGS}"
    if "kind: Timeout" in text:
        return "did not answer in time", f"try again; `timeout` and `read_timeout` in {_SETTINGS} allow more"
    if broke_off(exc):
        return "broke off in the middle of its answer, again and again", "look at the network and at proxies in between"
    if status.startswith("5") or status == "429":
        return f"answered {status} again and again", "it is overloaded or down: try again later"
    return None


def _host(text: str) -> str:
    return _found(r"https?://(?:[^/\s]*@)?([^/\s?@,\"]+)", text) or "the server"


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match.group(1) if match else ""


def without_credentials(text: str) -> str:
    """The first line of a foreign error, without logins, a server's answer and queries."""
    line = (text.strip().splitlines() or ["unknown"])[0]
    line = re.sub(r"(status code: \d{3}[^:]*).*", r"\1", line)
    line = re.sub(r"://[^/\s\"]*@", "://", line)
    return without_secrets(re.sub(r"(https?://[^\s?\"]+)\?\S*", r"\1", line))[:300]


def _duration(key: str, value: str) -> timedelta:
    match = _DURATION.fullmatch(value)
    if match is None or float(match.group(1)) <= 0:
        raise SettingsError(f"the storage option {key} is no time", hint=f"write it like 500ms or 30s in {_SETTINGS}")
    unit = {"ms": 0.001, "": 1.0, "s": 1.0}.get(match.group(2)) or (60.0 if match.group(2)[0] == "m" else 1.0)
    return timedelta(seconds=float(match.group(1)) * unit)


def _count(key: str, value: str) -> int:
    if not value.isdecimal():
        raise SettingsError(f"the storage option {key} is no whole number", hint=f"check {_SETTINGS}")
    return int(value)
