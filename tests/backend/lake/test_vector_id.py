"""Ids of deletion vectors: which file they name, and where in it the vector begins."""

import pytest

from backend.lake.log.actions import VectorId, read_vector_id

UUID = "d2c639aa-8816-431a-aaf6-d3fe2512ff61"  # the example of PROTOCOL.md


@pytest.mark.parametrize(
    ("dv_id", "file", "offset"),
    [
        ("uab^-aqEH.-t@S}K{vb[*k^@1", f"ab/deletion_vector_{UUID}.bin", 1),
        ("u^-aqEH.-t@S}K{vb[*k^", f"deletion_vector_{UUID}.bin", 0),
        ("ps3://b/t/x.bin@7", "s3://b/t/x.bin", 7),
        ("iabc", None, 0),  # it lies in the log itself
        ("u~~~~~aqEH.-t@S}K{vb", None, 0),  # no base85
        ("u" + "#" * 20, None, 0),  # base85, but beyond 32 bits
        ("ushort", None, 0),
        ("", None, 0),
    ],
)
def test_a_vectors_file_is_named_by_its_id(dv_id: str, file: str | None, offset: int) -> None:
    found = read_vector_id(dv_id)
    assert (found.file, found.offset) == (file, offset)


def test_an_inline_vector_may_end_like_an_offset() -> None:
    assert read_vector_id("iabc@1") == VectorId("i", "abc@1")
    assert read_vector_id("iabcde@1") == VectorId("i", "abcde", 1)
