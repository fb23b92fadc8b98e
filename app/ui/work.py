"""Work that takes a while, on a page: what, how far, and Cancel; and a spinner where there is something to wait for.

Rule: the script itself waits, so that any click (Cancel, another page, a closed window) ends the work. What was asked
for is remembered until it is done, has failed or was cancelled. What was quick the last time gets no spinner.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from typing import Protocol, TypeVar, cast

import streamlit as st

from backend.caches import Lru

Step = TypeVar("Step")
_ASKED = "_asked_work"


class _Closable(Protocol):
    def close(self) -> None: ...


def ask(name: str) -> None:
    """For a button's `on_click`: the next run does this work."""
    st.session_state[_ASKED] = name


def is_asked(name: str) -> bool:
    return bool(st.session_state.get(_ASKED) == name)


def cancel() -> None:
    st.session_state.pop(_ASKED, None)


def run(begin: Callable[[], Iterator[Step]], *, key: str, tell: Callable[[Step], tuple[float, str]]) -> Step | None:
    """Does the work and shows its progress; returns the last step, None when there was none.

    `tell` gives the share done and the words for a step. Raises what the work raises: to do it again, ask again.
    """
    slot = st.empty()
    with slot.container(key=f"{key}_work", horizontal=True, vertical_alignment="center"):
        bar = st.progress(0.0, "Starting …", width="stretch")
        st.button("Cancel", key=f"{key}_cancel", icon=":material/cancel:", on_click=cancel)
    last: Step | None = None
    try:
        steps = begin()
        with closing(cast(_Closable, steps)):
            for step in steps:
                share, words = tell(step)
                bar.progress(min(1.0, max(0.0, share)), words)
                last = step
    except Exception:  # whatever it is, no bar stands still above it
        cancel()
        slot.empty()
        raise
    cancel()
    slot.empty()
    return last


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
