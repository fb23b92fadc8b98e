"""A spinner where there is something to wait for.

Rule: what was quick the last time gets none. Streamlit draws a spinner after half a second and starts a thread for it
at once, which costs more than most of what pages ask of a warm cache.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import streamlit as st

from backend.caches import Lru

QUICK_S = 0.1
_KEPT = 10_000
_took: Lru[str, float] = Lru(_KEPT)  # seconds, by what was waited for


@contextmanager
def spinner(words: str, of: str, *, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Says what is waited for, unless that took less than `QUICK_S` the last time; `of` names it."""
    took, began = _took.get(of), clock()
    with nullcontext() if took is not None and took < QUICK_S else st.spinner(words, show_time=True):
        yield
    _took.put(of, clock() - began)
