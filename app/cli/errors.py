"""From exceptions to `error: …`, `hint: …` and an exit code.

Rule: stderr gets sentences, never a traceback; `PYTHONDEVMODE=1` shows it to whoever asks.
"""

import sys
from collections.abc import Sequence

import typer

from app.cli import INTERRUPTED
from backend.errors import LakehouseError

USAGE = 2


def run(args: Sequence[str]) -> int:
    """Run the command line; every failure leaves as words and a code."""
    from app.cli.commands import app

    try:
        result = typer.main.get_command(app).main(list(args), prog_name="weir", standalone_mode=False)
    except LakehouseError as exc:
        return fail(exc.message, exc.hint, exc.exit_code)
    except (typer.Abort, EOFError) as exc:
        raise KeyboardInterrupt from exc
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except Exception as exc:  # noqa: BLE001 - the outermost boundary: a person at a terminal gets no traceback
        if hasattr(exc, "format_message"):  # wrong usage; typer does not export the class
            message = exc.format_message()
            return fail(message, _usage_hint(exc), USAGE) if message else USAGE  # none: it printed the help
        return _unexpected(exc)
    if result == INTERRUPTED:  # typer's own reading of Ctrl-C
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0


def fail(message: str, hint: str = "", code: int = 1) -> int:
    """Say what is wrong and what to do, return the exit code."""
    sys.stderr.write(f"error: {message}\n")
    if hint:
        sys.stderr.write(f"hint: {hint}\n")
    return code


def _usage_hint(exc: Exception) -> str:
    context = getattr(exc, "ctx", None)
    return f"{context.command_path if context else 'weir'} --help"


def _unexpected(exc: Exception) -> int:
    if sys.flags.dev_mode:
        raise exc
    first_line = (str(exc).strip() or "no message").splitlines()[0]
    return fail(
        f"unexpected {type(exc).__name__}: {first_line}", "run it again with PYTHONDEVMODE=1 and report what it shows"
    )
