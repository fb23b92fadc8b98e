"""Cases of a parametrised test that only `make soak` tries.

Rule: one case of each kind always runs; the others differ from it in their values alone.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import settings

MORE = 20 if os.environ.get("WEIR_TEST_SOAK") else 1


def soak(*cases: tuple[Any, ...]) -> list[Any]:
    """The cases, marked."""
    return [pytest.param(*case, marks=pytest.mark.soak) for case in cases]


def few(always: int, values: Sequence[Any]) -> list[Any]:
    """So many of the values always run."""
    return [*values[:always], *soak(*((value,) for value in values[always:]))]


def drawn(examples: int) -> Callable[[Any], Any]:
    """A property test on so many drawn examples, in `make soak` on many more."""

    def decorate(test: Any) -> Any:
        return pytest.mark.drawn(settings(max_examples=examples * MORE)(test))

    return decorate
