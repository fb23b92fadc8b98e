"""How `weir diff` waits for an answer: of this process, or of a stream host.

Rule: Ctrl-C ends a comparison here; on a host it cancels the job.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from app import services
from app.changes.text import progress_text
from app.cli.output import status_line
from app.cli.store import found_on_host
from backend.changes.cache import Differences
from backend.changes.host_job import DiffJobs
from backend.changes.model import Question, VersionDiff

if TYPE_CHECKING:
    from backend.lake.lake import Lake

_SILENT_S = 1.0  # what is over sooner needs no word


# here -----------------------------------------------------------------------------------------------------------------


def here(differences: Differences, lake: "Lake", question: Question) -> VersionDiff:
    """The answer; raises what comparing raises, `KeyboardInterrupt` where it was interrupted."""
    with _presses() as pressed, ExitStack() as stack:
        show: Callable[[str], None] | None = None
        for step in differences.over(lake, question):
            if step.result is not None:
                return step.result
            if pressed:
                break
            if show is None and step.elapsed_s > _SILENT_S:
                show = stack.enter_context(status_line())
            if show is not None:
                show(progress_text(step)[1])
    raise KeyboardInterrupt


@contextmanager
def _presses() -> Iterator[list[int]]:
    """Ctrl-C as it is pressed meanwhile. It raises nothing: within a lock, that would break the lock."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda signum, _: pressed.append(signum))
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


# on a stream host ----------------------------------------------------------------------------------------------------


def on_host(jobs: DiffJobs, question: Question) -> VersionDiff:
    """The answer as a host finds it; raises as `found_on_host` does."""
    if (answer := jobs.without_rows(question)) is not None:
        return answer
    wanted = jobs.request(question, actor=services.actor(), reason="weir diff")
    return found_on_host(wanted, "compare", lambda job: jobs.answer(question, job))
