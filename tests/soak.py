"""Cases of a parametrised test that only `make soak` tries.

Rule: one case of each kind always runs; the others differ from it in their values alone.
"""

from typing import Any

import pytest


def soak(*cases: tuple[Any, ...]) -> list[Any]:
    """The cases, marked."""
    return [pytest.param(*case, marks=pytest.mark.soak) for case in cases]
