"""`weir …`: what the pages show and do, without a browser.

Rule: this package knows words and exit codes; every answer comes from backend, and only answers go to stdout. stderr
gets sentences, never a traceback: `PYTHONDEVMODE=1` shows it to whoever asks.
"""

import atexit
import errno
import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from backend.spared import spare

USAGE = 2
INTERRUPTED = 130  # what shells expect after Ctrl-C
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def main(args: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit code: 0 done, 1 failed, 2 usage, 3 not found, 4 refused."""
    is_program = args is None
    if is_program:
        hold_standard_streams()
        spare("pandas")  # a third of the time that `weir tables` takes
        gc.set_threshold(200_000)  # a tenth of the time that imports take
        if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal of few characters gets a "?" for the others
            sys.stdout.reconfigure(errors="replace")
    try:
        code = _run(sys.argv[1:] if args is None else args)
    except KeyboardInterrupt:
        if is_program:  # one more Ctrl-C must not spoil the exit code
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = _interrupted()
    except BrokenPipeError as exc:
        code = _output_lost(exc)
    try:
        sys.stdout.flush()
    except OSError as exc:
        code = _output_lost(exc)
    if is_program:
        threading._shutdown()  # type: ignore[attr-defined] # waits for threads that are no daemons, as Python's own end
        _end(code)
    sys.exit(code)


def _end(code: int) -> NoReturn:
    """Without Python's own end, which takes modules apart for a tenth of a second and aborts (exit code 134) when a
    thread comes back from native code during it. Not for a process with children: nothing is waited for."""
    atexit._run_exitfuncs()  # removes temporary folders
    sys.stderr.flush()
    os._exit(code)


def hold_standard_streams() -> None:
    """Put /dev/null where standard input, output or error is closed: Python has no stream there, and the next file to
    be opened would get its number, which every child inherits as its own."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 - as long as the process lives
    sys.stderr = sys.stderr or Path(os.devnull).open("w", errors="replace")  # noqa: SIM115


def _run(args: Sequence[str]) -> int:
    """Run the command line; every failure leaves as words and a code."""
    import typer  # late, so that Ctrl-C is heard from the first moment on

    from app.cli.commands import app
    from app.cli.output import fail
    from backend.errors import LakehouseError, RowsRefusedError

    try:
        result = typer.main.get_command(app).main(list(args), prog_name="weir", standalone_mode=False)
    except LakehouseError as exc:
        if isinstance(exc, RowsRefusedError):
            from app import services

            services.note_refused(services.actor().name, exc.table, exc.message)
        return fail(exc.message, exc.hint, exc.exit_code)
    except (typer.Abort, EOFError) as exc:
        raise KeyboardInterrupt from exc
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except Exception as exc:  # the outermost boundary: a person at a terminal gets no traceback
        if hasattr(exc, "format_message"):  # wrong usage; typer does not export the class
            context = getattr(exc, "ctx", None)
            return fail(exc.format_message(), f"{context.command_path if context else 'weir'} --help", USAGE)
        if isinstance(exc, OSError) and exc.errno in _NO_ROOM and exc.filename is None:
            return _output_lost(exc)
        if any("\ud800" <= letter <= "\udfff" for letter in "".join(args)):  # Python's sign for a byte that is none
            return fail("what was typed is not UTF-8", "look at LANG and at the terminal's encoding", USAGE)
        if sys.flags.dev_mode:
            raise
        first_line = (str(exc).strip() or "no message").splitlines()[0]
        hint = "run it again with PYTHONDEVMODE=1 and report what it shows"
        return fail(f"unexpected {type(exc).__name__}: {first_line}", hint)
    if result == INTERRUPTED:  # typer's own reading of Ctrl-C
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0


def _interrupted() -> int:
    sys.stderr.write("\nerror: interrupted\n")
    return INTERRUPTED


def leave_at_once() -> NoReturn:
    """End the process as Ctrl-C does while a thread still computes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _interrupted()
    _end(INTERRUPTED)


def _output_lost(why: OSError) -> int:
    """Python must not complain again when it closes stdout. Of a reader that has left (`head`) nothing is said."""
    from app.cli.output import fail

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 1 if isinstance(why, BrokenPipeError) else fail(f"standard output cannot be written: {why.strerror}")
