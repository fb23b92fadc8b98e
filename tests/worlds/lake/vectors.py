"""Deletion vectors written by hand, for tests: no library that the project uses can write one.

Rule: the layout of PROTOCOL.md ("Deletion Vector Format") and of the portable roaring bitmaps it names, array
containers only (at most 4,096 rows of each run of 65,536).
"""

import base64
import struct
import uuid
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_MAGIC = 1681511377
_COOKIE = 12346  # a roaring bitmap without run containers
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def bitmap(rows: Iterable[int]) -> bytes:
    """The serialised bitmap of some row numbers below 2**32."""
    chosen = sorted(set(rows))
    keys = sorted({row >> 16 for row in chosen})
    groups = [[row & 0xFFFF for row in chosen if row >> 16 == key] for key in keys]
    head = struct.pack("<II", _COOKIE, len(keys))
    head += b"".join(struct.pack("<HH", key, len(low) - 1) for key, low in zip(keys, groups, strict=True))
    offset = len(head) + 4 * len(keys)
    offsets, body = b"", b""
    for low in groups:
        offsets += struct.pack("<I", offset + len(body))
        body += struct.pack(f"<{len(low)}H", *low)
    return struct.pack("<IQI", _MAGIC, 1, 0) + head + offsets + body


def write_vector(table: Path, rows: Iterable[int], *, kind: str = "u", folder: str = "") -> dict[str, Any]:
    """Writes the file of a vector (none for `kind` "i") and gives the descriptor for an add action."""
    chosen = set(rows)
    data = bitmap(chosen)
    described: dict[str, Any] = {"storageType": kind, "sizeInBytes": len(data), "cardinality": len(chosen)}
    if kind == "i":
        return described | {"pathOrInlineDv": _z85(data + b"\x00" * (-len(data) % 4))}
    name = uuid.uuid4()
    path = table / folder / f"deletion_vector_{name}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x01" + struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data)))
    text = path.as_uri() if kind == "p" else folder + _z85(name.bytes)
    return described | {"pathOrInlineDv": text, "offset": 1}


def _z85(data: bytes) -> str:
    return base64.b85encode(data).decode().translate(str.maketrans(_B85, _Z85))
