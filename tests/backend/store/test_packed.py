"""Spark's JSON comes out of the store as it went in, whoever packed it."""

import hashlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.store import packed
from backend.store.packed import pack, unpack

BATCH = (
    '{"name":"gold","batchId":7,"sources":[{"description":"DeltaSource[file:/l]","endOffset":{"reservoirVersion":9}}]}'
)


@given(st.text())
def test_what_is_packed_comes_out_as_it_was(text: str) -> None:
    assert unpack(pack(text)) == text


@pytest.mark.parametrize("text", ["", BATCH, "größer"])
def test_what_an_earlier_version_packed_is_read(text: str) -> None:
    assert unpack(zlib.compress(text.encode(), 6)) == text


def test_it_is_far_smaller_than_by_zlib_alone() -> None:
    assert len(pack(BATCH)) < 0.7 * len(zlib.compress(BATCH.encode(), 6))


def test_the_words_are_those_that_stores_were_packed_with() -> None:
    assert (
        hashlib.sha256(packed._WORDS).hexdigest() == "0a9ebfe18f634228971240b4b1d63c6eb717a88289f7ff08fc5e30f1f42670ea"
    )
