"""`weir …`: what the pages show and do, without a browser.

Rule: this package knows words and exit codes; every answer comes from backend, and only answers go to stdout.
"""

import io
import os
import sys
from collections.abc import Sequence

INTERRUPTED = 130  # what shells expect after Ctrl-C


def main(args: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit code: 0 done, 1 failed, 2 usage, 3 not found, 4 refused."""
    if args is None:
        sys.meta_path.insert(0, WithoutPandas)
        if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal of few characters gets a "?" for the others
            sys.stdout.reconfigure(errors="replace")
    code = _guarded(sys.argv[1:] if args is None else args)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _reader_gone()
    sys.exit(code)


class WithoutPandas:
    """Says that pandas is not installed: pyarrow imports it for the first array it builds, a third of the time that
    `weir tables` takes, and no reading command needs it. For the life of a process, so only where it is the program."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is spared", name=name)


def allow_pandas() -> None:
    """For a command that needs it; must come before anything of pyarrow was used."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not WithoutPandas]


def _guarded(args: Sequence[str]) -> int:
    try:
        from app.cli.errors import run

        return run(args)
    except KeyboardInterrupt:
        sys.stderr.write("\nerror: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_gone()


def _reader_gone() -> int:
    """Whoever read our output (`head`) has left; Python must not complain again when it closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 1
