"""Logging of every Weir process: one JSON object a line, to `$WEIR_HOME/logs/<service>.log` and to standard error.

Rule: every line passes `redact`, also those of libraries and tracebacks, so no secret reaches a log; a log's size is
bounded.
"""

import logging
import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import structlog
from structlog.typing import Processor

from backend.private_files import open_private, private_folder
from backend.redaction import MASK, is_secret, without_secrets
from backend.settings import Settings

MAX_BYTES = 20_000_000
OLD_FILES = 3


def configure(service: str, settings: Settings) -> None:
    """Sends structlog and the standard library's logging of this process to its file and to standard error.

    A standard error that is the very file (a supervisor's redirection) is not written twice and follows its rotation.
    """
    folder = private_folder(settings.home / "logs")
    file = _LogFile(folder / f"{service}.log")
    handlers: list[logging.Handler] = [file]
    if not file.takes_over_stderr:
        handlers.append(logging.StreamHandler(sys.stderr))
    _install(service, handlers)


def redact(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: masks the values of secret-looking keys, and secrets in texts."""
    return {key: _redacted(key, value) for key, value in event.items()}


def _redacted(key: str, value: Any) -> Any:
    if value is not None and is_secret(key):
        return MASK
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {str(inner): _redacted(str(inner), item) for inner, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_redacted("", item) for item in value]
    return value if isinstance(value, int | float | bool | None) else without_secrets(str(value))


class _LogFile(RotatingFileHandler):
    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=MAX_BYTES, backupCount=OLD_FILES, encoding="utf-8")
        self.takes_over_stderr = _is_file(2, path)

    def _open(self) -> Any:
        return open_private(Path(self.baseFilename), self.mode)

    def doRollover(self) -> None:
        super().doRollover()
        if self.takes_over_stderr and self.stream:
            for descriptor in (1, 2):  # or a crash's last words would go to the file that was put aside
                os.dup2(self.stream.fileno(), descriptor)


def _is_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _install(service: str, handlers: Sequence[logging.Handler]) -> None:
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    render: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        redact,
        structlog.processors.JSONRenderer(ensure_ascii=False),
    ]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, _name(service)], processors=render, keep_exc_info=False
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    for handler in handlers:
        handler.setFormatter(formatter)
        root.addHandler(handler)
    root.setLevel(logging.INFO)
    for noisy in ("alembic", "sqlalchemy", "watchdog", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it calls every interrupted batch an error; we tell failures
    structlog.configure(
        processors=[*shared, _name(service), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _name(service: str) -> Processor:
    def add(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.setdefault("service", service)
        return event

    return add
