"""The only door to bytes: local folders and object stores, each below an allowed root.

Rule: nothing outside a root is opened, whatever a log or a symlink says; nothing is ever written; foreign errors end
here as `StorageError`, `ObjectMissingError` or `PathRefusedError`. Object stores are read through obstore, local
folders through the operating system: it sees a symlink, and a read costs a tenth.
"""

from collections.abc import Sequence

from backend.errors import PathRefusedError
from backend.lake.storage.folder import Folder
from backend.lake.storage.local_folder import LocalFolder, real
from backend.lake.storage.paths import is_remote, is_within, normal_uri
from backend.settings import Settings


class Storage:
    """The allowed roots, and those `beside` them. `folder` hands out a reader of one folder below one of them."""

    def __init__(self, settings: Settings, *, beside: Sequence[str] = ()) -> None:
        self.roots: tuple[str, ...] = tuple(dict.fromkeys(normal_uri(root) for root in (*settings.roots, *beside)))
        for root in filter(is_remote, (*self.roots, *settings.lake.storage_options)):
            from backend.lake.storage.object_store import check_address  # with obstore, which a local lake spares

            check_address(root)
        self._options = {
            normal_uri(root): {key: value.get_secret_value() for key, value in options.items()}
            for root, options in settings.lake.storage_options.items()
        }

    def root_of(self, uri: str) -> str:
        """The root that a normal URI lies under; raises `PathRefusedError`."""
        for root in sorted(self.roots, key=len, reverse=True):
            if is_within(uri, root) or _is_really_within(uri, root):
                return root
        raise PathRefusedError(
            f"{uri} lies outside every allowed root", hint="add its folder to WEIR_LAKE__ROOTS to allow it"
        )

    def folder(self, uri: str) -> Folder:
        root = self.root_of(uri)
        if not is_remote(root):
            return LocalFolder(uri, self.roots)
        from backend.lake.storage.object_folder import ObjectFolder

        return ObjectFolder(uri, root, self.options(root))

    def options(self, uri: str) -> dict[str, str]:
        """The storage options of a URI's root, or of what holds that: for readers alone, never for logs."""
        root = self.root_of(uri)
        given = [option for option in self._options if is_within(root, option)]
        return self._options[max(given, key=len)] if given else {}


def declared_folder(settings: Settings, uri: str) -> Folder:
    """A folder that a stream was declared with, a checkpoint or files: below an allowed root, `$WEIR_HOME` or the
    checkpoints; raises `PathRefusedError`."""
    return Storage(settings, beside=[str(settings.home), settings.checkpoints_uri]).folder(normal_uri(uri))


def _is_really_within(uri: str, root: str) -> bool:
    return not is_remote(uri) and not is_remote(root) and is_within(real(uri), real(root))
