"""`weir diff` in this process: how far it is, on a terminal, and what Ctrl-C leaves.

Rule: the first Ctrl-C ends the comparison with what it had compared; a second one does not wait for that.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from app.changes.view.progress import progress_text
from app.cli.output import status_line
from backend.changes.cache import DiffProgress
from backend.changes.model import VersionDiff
from backend.sql.session import CancelToken
from backend.work import Stopped, Work

_POLL_S = 0.1
_SILENT_S = 1.0  # what is over sooner needs no word


def compared(compute: Callable[[CancelToken], VersionDiff], token: CancelToken) -> VersionDiff:
    """The answer, or what there is of it when it was interrupted; raises what `compute` raises, `KeyboardInterrupt`
    where there is nothing yet or somebody does not wait for it."""
    with _presses() as pressed, ExitStack() as stack:
        work, tell = Work(lambda: compute(token), token.stop), None
        while not pressed and not work.ended(_POLL_S):
            if tell is None and work.elapsed_s > _SILENT_S:
                tell = stack.enter_context(_told(work, token))
            if tell is not None:
                tell()
        stack.close()
        if not work.ended():
            work.stop()
            sys.stderr.write("ended: what was compared is counted, Ctrl-C again leaves at once\n")
        while not work.ended(_POLL_S):
            if len(pressed) > 1:
                raise KeyboardInterrupt
    try:
        return work.result()
    except Stopped:
        raise KeyboardInterrupt from None


@contextmanager
def _presses() -> Iterator[list[int]]:
    """Ctrl-C as it is pressed meanwhile. It raises nothing: within a lock, that would break the lock."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda signum, _: pressed.append(signum))
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _told(work: Work[VersionDiff], token: CancelToken) -> Iterator[Callable[[], None]]:
    """A function that says how far it is: one line of the terminal, gone at the end; nothing for a pipe."""

    def words() -> str:
        return progress_text(DiffProgress(token.rows_so_far(), token.rows_total, work.elapsed_s))[1]

    with status_line() as update:
        yield lambda: update(words()) if update else None
