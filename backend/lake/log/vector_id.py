"""The unique id of a deletion vector, read (PROTOCOL.md, "Deletion Vectors").

Rule: pure; the log identifies a vector by kind, text and offset in one text, and this module alone
reads it again.
"""

import re
import uuid
from dataclasses import dataclass

UUID_CHARS = 20  # a relative vector's file is named by a base85 uuid of this length, behind an optional folder
_OFFSET = re.compile(r"@(\d+)$")
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


@dataclass(frozen=True, slots=True)
class VectorId:
    """`kind` is "u" (a file of the table), "p" (a path) or "i" (`text` holds the vector itself)."""

    kind: str
    text: str
    offset: int = 0

    @property
    def file(self) -> str | None:
        """The vector's file; None where it lies in the log itself, or where the text names none."""
        if self.kind == "p":
            return self.text
        if self.kind != "u" or len(self.text) < UUID_CHARS:
            return None
        folder, name = self.text[:-UUID_CHARS], _uuid(self.text[-UUID_CHARS:])
        return None if name is None else f"{folder}{'/' if folder else ''}deletion_vector_{name}.bin"


def read_vector_id(dv_id: str) -> VectorId:
    kind, text = dv_id[:1], dv_id[1:]
    match = _OFFSET.search(text)
    # Base85 has @ and digits among its characters: an inline vector of whole groups of five ends without an offset.
    if match is None or (kind == "i" and len(text) % 5 == 0):
        return VectorId(kind, text)
    return VectorId(kind, text[: match.start()], int(match[1]))


def _uuid(text: str) -> uuid.UUID | None:
    """A uuid in base85 with ZeroMQ's alphabet."""
    raw = b""
    for start in range(0, UUID_CHARS, 5):
        digits = [_Z85.find(char) for char in text[start : start + 5]]
        number = 0
        for digit in digits:
            number = number * 85 + digit
        if min(digits) < 0 or number >= 1 << 32:
            return None
        raw += number.to_bytes(4, "big")
    return uuid.UUID(bytes=raw)
