"""`weir …`: what the pages show and do, without a browser.

Rule: this package knows words and exit codes; every answer comes from backend, and only answers go to stdout.
"""

import os
import sys
from collections.abc import Sequence

INTERRUPTED = 130  # what shells expect after Ctrl-C


def main(args: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit code: 0 done, 1 failed, 2 usage, 3 not found, 4 refused."""
    code = _guarded(sys.argv[1:] if args is None else args)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _reader_gone()
    sys.exit(code)


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
