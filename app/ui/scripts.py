"""Scripts that draw in the browser: a kept library and the few lines that use it, as one JavaScript module.

Rule: they come from our own server, under a path that names the version, so that browsers keep them. A component has
a `Script` and imports it once. Where another server serves the pages, something plainer stands in.
"""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any

# What `packed` made, as text again.
_UNPACK = """
const unpacked = (data) => new Response(new Blob([data]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
"""


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """A library of a version, and the lines after it: they export the component's function as the default."""

    name: str
    version: str
    library: Path
    lines: str
    _served: Event = field(default_factory=Event)

    @property
    def path(self) -> str:
        return f"/live/{self.name}-{self.version}-{sha256((_UNPACK + self.lines).encode()).hexdigest()[:8]}.js"

    @property
    def is_served(self) -> bool:
        return self._served.is_set()

    def serve(self) -> str:
        """The path at which this process serves `content()`; from now on components may use it."""
        self._served.set()
        return self.path

    def content(self) -> bytes:
        """The whole module, gzipped once: a third of its size."""
        return _gzipped(self.library, _UNPACK + self.lines)

    @property
    def importer(self) -> str:
        """The component's own script. On one line, Streamlit would take it for the name of a file."""
        return f"""
const drawer = import(new URL("{self.path[1:]}", document.baseURI));
export default async (component) => (await drawer).default(component);
"""


def packed(message: Mapping[str, Any]) -> bytes:
    """A component's data, for `unpacked` in its script."""
    return gzip.compress(json.dumps(message, separators=(",", ":")).encode(), 1, mtime=0)


@cache
def _gzipped(library: Path, lines: str) -> bytes:
    return gzip.compress(library.read_bytes() + lines.encode(), 6, mtime=0)
