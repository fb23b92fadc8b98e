"""The guard: ends process groups, and outlives a supervisor that was killed so that nothing else does.

Rule: standard library only, so that it starts in milliseconds and has nothing to fail on. As a program
(`python -m app.run.guard GRACE_S`) it reads `+PGID` and `-PGID` lines; when its input ends without a last word, the
supervisor is gone and every group still known is ended.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable

POLL_S = 0.1
LEFTOVERS_S = 2.0  # what a leader that ended leaves behind (a JVM closing down) gets so long


def group_lives(pgid: int) -> bool:
    """Whether any process, unreaped ones included, is in the group."""
    return _finds(os.killpg, pgid)


def leader_lives(pgid: int) -> bool:
    """Whether the group's first process is there, unreaped included."""
    return _finds(os.kill, pgid)


def end_groups(pgids: Collection[int], *, grace_s: float, cut_short: Callable[[], bool] = lambda: False) -> None:
    """End whole groups: SIGTERM to each leader, SIGKILL to what is left when all leaders ended or `grace_s` is over.

    Only leaders are asked: the stream host's JVM sits in its group and, asked too, would vanish under the running
    micro-batch. `cut_short` is called while waiting (reap there) and ends the waiting when true.
    """
    for pgid in pgids:
        _signal(os.kill, pgid, signal.SIGTERM)
    _wait_while(leader_lives, pgids, grace_s, cut_short)
    if grace_s and not cut_short():
        _wait_while(group_lives, pgids, LEFTOVERS_S, cut_short)
    for pgid in pgids:
        _signal(os.killpg, pgid, signal.SIGKILL)
    _wait_while(group_lives, pgids, LEFTOVERS_S, lambda: cut_short() and False)


def read_groups(lines: Iterable[str]) -> set[int]:
    """The groups that are still registered when the input ends."""
    groups: set[int] = set()
    for line in lines:
        sign, number = line[0], int(line[1:])
        (groups.add if sign == "+" else groups.discard)(number)
    return groups


def _signal(send: Callable[[int, int], None], number: int, signum: int) -> None:
    try:
        send(number, signum)
    except ProcessLookupError:
        return  # already gone, which is what was wanted


def _finds(send: Callable[[int, int], None], number: int) -> bool:
    try:
        send(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it is there and not ours
    return True


def _wait_while(
    lives: Callable[[int], bool], pgids: Collection[int], limit_s: float, cut_short: Callable[[], bool]
) -> None:
    deadline = time.monotonic() + limit_s
    while not cut_short() and any(map(lives, pgids)) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def main() -> None:
    # A terminal's Ctrl-C or a service manager's stop is for the supervisor: the guard goes when its input ends.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    end_groups(read_groups(sys.stdin), grace_s=float(sys.argv[1]))


if __name__ == "__main__":
    main()
