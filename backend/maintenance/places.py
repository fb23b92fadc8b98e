"""Whether a table may come to lie, or be changed, at an address, and whether Spark can do that there.

Rule: nothing that is there is ever written over.
"""

from backend.lake.log.listing import LOG
from backend.lake.storage.folder import is_within, normal_uri
from backend.lake.storage.storage import Storage
from backend.settings import Settings

_FILE_SYSTEMS = {"gs": "Google's gcs-connector", "az": "hadoop-azure", "abfss": "hadoop-azure"}
# Delta's own for S3 looks for a commit and then puts it: S3A lets it ask for no conditional put.
_LOG_STORES = frozenset(("spark.delta.logStore.s3a.impl", "spark.delta.logStore.class"))


def why_read_only(settings: Settings, uri: str) -> str:
    """Names the root of `lake.read_only_roots` that an address lies below; empty where there is none."""
    roots = (root for root in map(normal_uri, settings.lake.read_only_roots) if is_within(uri, root))
    return next((f"its root {root} is read-only (lake.read_only_roots)" for root in roots), "")


def why_out_of_reach(settings: Settings, uri: str) -> tuple[str, str]:
    """Why Spark cannot read or write at an address, and what it needs; both empty where it can."""
    scheme = normal_uri(uri).partition("://")[0]
    key = f"spark.hadoop.fs.{scheme}.impl"
    if scheme not in _FILE_SYSTEMS or key in settings.spark.conf:
        return "", ""
    needs = f"{_FILE_SYSTEMS[scheme]} among spark.jars, and its class as {key}, both in spark.conf"
    return f"Spark has no file system for {scheme}://", f"bring {needs}"


def commit_risk(settings: Settings, uri: str) -> str:
    """What a commit may do to another one of the same moment; empty where the store or a log store keeps them apart."""
    if not normal_uri(uri).startswith("s3://") or not _LOG_STORES.isdisjoint(settings.spark.conf):
        return ""
    return "on S3 a commit replaces one that another engine writes in the same moment: let no other write meanwhile"


def why_taken(settings: Settings, uri: str) -> str:
    """What keeps a table from beginning at an address; empty where the place is free. Raises `PathRefusedError`."""
    storage = Storage(settings)
    root = storage.root_of(uri)
    names = uri.removeprefix(root).strip("/").split("/")
    around = ["/".join([root.rstrip("/"), *names[:depth]]) for depth in range(len(names), 0, -1)]
    if outer := next((place for place in around if storage.folder(place).holds(LOG)), None):
        return "there is a table already" if outer == uri else f"it lies within the table {outer}"
    return "it is not empty" if storage.folder(uri).list("") else ""
