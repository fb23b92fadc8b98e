"""Starts the process of a query, for a statement that it is given later: its imports take a tenth of a second, in which
whoever asks can plan.

Rule: light, since it comes before everything else. The process ends with its standard input.
"""

import os
import subprocess
import sys

from backend.errors import QueryError

_MAIN = 'from backend.spared import spare; spare("numpy", "pandas"); from backend.query.worker import main; main()'
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "VIRTUAL_ENV")


def start_process() -> "subprocess.Popen[bytes]":
    """Raises `QueryError`."""
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _MAIN],  # no module of the working directory
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
            start_new_session=True,
        )  # fmt: skip
    except OSError as exc:
        reason = f"the query's process cannot be started: {exc.strerror or exc}"
        raise QueryError(reason, hint="look at the limits of processes, files and memory (ulimit -a)") from exc
