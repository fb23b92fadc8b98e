"""Whether a table may come to lie, or be changed, at an address.

Rule: nothing that is there is ever written over.
"""

from backend.lake.log.listing import LOG
from backend.lake.storage.paths import is_within, normal_uri
from backend.lake.storage.storage import Storage
from backend.settings import Settings


def why_read_only(settings: Settings, uri: str) -> str:
    """Names the root of `lake.read_only_roots` that an address lies below; empty where there is none."""
    roots = (root for root in map(normal_uri, settings.lake.read_only_roots) if is_within(uri, root))
    return next((f"its root {root} is read-only (lake.read_only_roots)" for root in roots), "")


def why_taken(settings: Settings, uri: str) -> str:
    """What keeps a table from beginning at an address; empty where the place is free. Raises `PathRefusedError`."""
    storage = Storage(settings)
    root = storage.root_of(uri)
    names = uri.removeprefix(root).strip("/").split("/")
    around = ["/".join([root.rstrip("/"), *names[:depth]]) for depth in range(len(names), 0, -1)]
    if outer := next((place for place in around if storage.folder(place).holds(LOG)), None):
        return "there is a table already" if outer == uri else f"it lies within the table {outer}"
    return "it is not empty" if storage.folder(uri).list("") else ""
