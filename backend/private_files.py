"""Files and folders that Weir keeps for itself: their owner's alone, whatever the umask says.

Rule: store, logs, caches, checkpoints and results are made here, and those that an older Weir left open are closed.
Tables are not: others read them. What a person saves from a terminal is theirs, as their umask says.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def private_folder(folder: Path) -> Path:
    """The folder, made where it is missing. What is missing above it others may enter: tables may lie there as well."""
    if not folder.is_dir():
        for missing in reversed([above for above in folder.parents if not above.is_dir()]):
            missing.mkdir(0o755, exist_ok=True)
        folder.mkdir(0o700, exist_ok=True)
    _close_to_others(folder)
    return folder


def private_file(file: Path) -> None:
    """Make an empty one where there is none. It is not opened where there is: SQLite would lose its locks on it."""
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL, 0o600))
    _close_to_others(file)


def open_private(file: Path, mode: str) -> IO[Any]:
    """As `open` does; text is UTF-8."""
    private_file(file)
    return file.open(mode, encoding=None if "b" in mode else "utf-8")


def write_private(file: Path, content: bytes) -> None:
    """Write it whole: who reads meanwhile gets the old content or the new."""
    private_folder(file.parent)
    unfinished = file.with_suffix(f".{os.getpid()}")
    with open_private(unfinished, "wb") as draft:
        draft.write(content)
    unfinished.replace(file)


def _close_to_others(path: Path) -> None:
    status = path.stat()
    if status.st_mode & _OTHERS and status.st_uid == os.geteuid():  # another owner's own process does it
        path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
