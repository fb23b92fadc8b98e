"""What this process opens and lists."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

_counting: list[Counter[str]] = []


@contextmanager
def log_reads() -> Iterator[Counter[str]]:
    """Meanwhile: how often each file name was opened, and folders were listed ("listdir")."""
    _listen()
    counter = Counter[str]()
    _counting.append(counter)
    try:
        yield counter
    finally:
        _counting.remove(counter)


@cache
def _listen() -> None:
    """Once: nobody can take a hook away."""

    def hook(event: str, args: tuple[object, ...]) -> None:
        for counter in _counting:
            if event == "open" and isinstance(args[0], str):
                counter[args[0]] += 1
            elif event == "os.listdir" and isinstance(args[0], int):  # imports list folders too, by name
                counter["listdir"] += 1

    sys.addaudithook(hook)
