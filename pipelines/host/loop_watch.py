"""A host whose loop hangs ends itself, and is started anew by whatever runs it.

Rule: the clock is no witness: a process that was frozen finds that much time has passed, and its loop is sound. What
counts is how often this thread came round while the loop did not.
"""

import faulthandler
import os
import sys
from collections.abc import Callable

import structlog

from pipelines.host.rounds import Rounds

LOOKS = 4  # without a round in between
LEAST_S = 15.0  # between two looks

log = structlog.get_logger()


def end_process() -> None:
    """With the stack of each thread on standard error. Spark's JVM ends with it."""
    faulthandler.dump_traceback(sys.stderr)
    os._exit(1)


class LoopWatch:
    """`ended`: how many rounds of the loop have come to an end."""

    def __init__(self, ended: Callable[[], int], *, ttl_s: float, end: Callable[[], None] = end_process) -> None:
        self._ended, self._end, self._every_s = ended, end, max(LEAST_S, ttl_s)
        self._seen, self._missed = -1, 0
        self.rounds = Rounds("loop-watch", self.look, every_s=self._every_s, failed="loop_not_watched")

    def look(self) -> None:
        ended = self._ended()
        self._missed = self._missed + 1 if ended == self._seen else 0
        self._seen = ended
        if self._missed >= LOOKS:
            log.critical("loop_hangs", for_s=round(LOOKS * self._every_s), effect="the host ends")
            self._end()
