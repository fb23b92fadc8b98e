"""Spinners: for what takes a while, and for nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import streamlit as st

from app.ui import waiting


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of every spinner that was asked of Streamlit."""
    said: list[str] = []

    @contextmanager
    def spinner(words: str, *, show_time: bool) -> Iterator[None]:
        assert show_time
        said.append(words)
        yield

    monkeypatch.setattr(st, "spinner", spinner)
    return said


def wait(of: str, seconds: float) -> None:
    clock = iter([0.0, seconds])
    with waiting.spinner(f"Reading {of} …", of=of, clock=lambda: next(clock)):
        pass


def test_what_was_quick_gets_none_until_it_takes_long_again(drawn: list[str]) -> None:
    wait("orders", 2.0)  # nobody knows yet
    wait("orders", 0.01)  # it took long
    assert len(drawn) == 2
    wait("orders", 2.0)
    assert len(drawn) == 2, "the last time was quick"
    wait("orders", 0.01)
    assert drawn == ["Reading orders …"] * 3


def test_each_thing_is_remembered_by_itself_and_a_failure_is_not(drawn: list[str]) -> None:
    wait("items", 0.01)
    wait("customers", 0.01)
    assert drawn == ["Reading items …", "Reading customers …"]
    for _ in range(2):
        with pytest.raises(OSError, match="gone"), waiting.spinner("Reading files …", of="files", clock=lambda: 0.0):
            raise OSError("gone")
    assert drawn[2:] == ["Reading files …"] * 2
