"""File permissions that bind root as well, so that "may not be read" is tested whoever runs the suite.

Rule: the process keeps its user, who can read the project wherever it was cloned. Root loses what lets it pass over
permissions: Linux's CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, of this thread and of those that it starts.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
PASSES_OVER_PERMISSIONS = 1 << 1 | 1 << 2  # capability.h
VERSION_3 = 0x20080522


class Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class Capabilities(ctypes.Structure):
    """The first word of three sets; the second words follow in the same layout."""

    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """Nobody may read this file or folder, root neither."""
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        with _without_roots_rights():
            with pytest.raises(PermissionError):
                os.open(path, os.O_RDONLY)
            yield
    finally:
        path.chmod(mode)


@contextmanager
def _without_roots_rights() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    header, words = Header(VERSION_3, 0), (Capabilities * 2)()
    _call("capget", header, words)
    before = words[0].effective
    words[0].effective = before & ~PASSES_OVER_PERMISSIONS
    _call("capset", header, words)
    try:
        _require_the_project()
        yield
    finally:
        words[0].effective = before
        _call("capset", header, words)


def _require_the_project() -> None:
    try:
        next(PROJECT.iterdir())
    except PermissionError:
        pytest.skip("root runs the suite in a private clone of another user, which only root's rights can read")


def _call(name: str, header: Header, words: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(ctypes.byref(header), words):
        raise OSError(ctypes.get_errno(), f"{name} was refused")
