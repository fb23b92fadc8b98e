"""Where the files with some keys are among all files of a checkpoint.

Rule: exact. Texts are compared, or hashes of all keys, which are used only when no two are equal.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Array = np.ndarray[Any, Any]
Places = tuple[Array, Array]  # positions among the keys asked for, rows of the checkpoint


class KeyIndex:
    """Rows by key, as sorted 64-bit hashes (keyed anew in each process): 12 bytes a file."""

    def __init__(self, hashes: Array) -> None:
        self._rows = np.argsort(hashes).astype(np.int32)
        self._hashes = hashes[self._rows]
        self.is_exact = not bool((self._hashes[1:] == self._hashes[:-1]).any())

    def places(self, keys: pa.Array) -> Places:
        wanted = hashes_of(keys)
        at = np.searchsorted(self._hashes, wanted)
        inside = np.flatnonzero(at < len(self._hashes))
        found = inside[self._hashes[at[inside]] == wanted[inside]]
        return found, self._rows[at[found]].astype(np.int64)


def hashes_of(keys: pa.Array) -> Array:
    return np.fromiter(map(hash, keys.to_pylist()), np.int64, len(keys))


def exact_places(batches: Iterable[pa.Array], keys: pa.Array) -> Places:
    found, rows = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    start = 0
    for batch in batches:
        at = pc.index_in(batch, value_set=keys)
        if at.null_count < len(at):
            hits = np.flatnonzero(at.is_valid().to_numpy(zero_copy_only=False))
            rows.append(hits + start)
            found.append(at.take(pa.array(hits)).to_numpy(zero_copy_only=False).astype(np.int64))
        start += len(batch)
    return np.concatenate(found), np.concatenate(rows)
