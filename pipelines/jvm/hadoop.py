"""Checkpoints and the small files beside them, on a disk or an object store: read, written, moved and removed whole.

Rule: a disk is used by its own calls, everything else by the Hadoop file system that Spark's session has for it. A
file is there whole or not at all.
"""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from backend.lake.storage.folder import is_remote

_S3 = "s3://"  # what people write; Hadoop's file system is called s3a


def spark_uri(uri: str) -> str:
    """The address as Hadoop's file systems spell it."""
    return f"s3a://{uri.removeprefix(_S3)}" if uri.startswith(_S3) else uri


class CheckpointFiles:
    """Files by path or URI. `session` is asked for remote ones alone."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def exists(self, uri: str) -> bool:
        if not is_remote(uri):
            return Path(uri).exists()
        system, path = self._remote(uri)
        return bool(system.exists(path))

    def names(self, uri: str) -> list[str]:
        """What lies in a folder; nothing where it is not there."""
        if not self.exists(uri):
            return []
        if not is_remote(uri):
            return sorted(file.name for file in Path(uri).iterdir())
        system, path = self._remote(uri)
        return sorted(status.getPath().getName() for status in system.listStatus(path))

    def read(self, uri: str) -> str:
        if not is_remote(uri):
            return Path(uri).read_text(encoding="utf-8")
        system, path = self._remote(uri)
        stream = system.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def write(self, uri: str, text: str) -> None:
        """In one step, in place of what is there."""
        if is_remote(uri):
            self._put(uri, text, overwrite=True)
        else:
            _draft(Path(uri), text).replace(uri)

    def write_once(self, uri: str, text: str) -> None:
        """Unless it is there: whoever comes first decides."""
        if is_remote(uri):
            try:
                self._put(uri, text, overwrite=False)
            except Py4JJavaError:
                if not self.exists(uri):
                    raise
            return
        draft = _draft(Path(uri), text)
        try:
            os.link(draft, uri)
        except FileExistsError:
            pass
        finally:
            draft.unlink()

    def move(self, source: str, target: str, *, done: str) -> None:
        """A folder to where nothing is. Once only: `done`, a file that ends it, says that it was moved before, or that
        nothing was there then.

        On an object store each file is copied, and a move that broke off goes on.
        """
        if self.exists(source) and not self.exists(done):
            if is_remote(source):
                self._move_objects(source, target)
            elif not self.exists(target):
                Path(target).parent.mkdir(parents=True, exist_ok=True)
                shutil.move(source, target)
        self.write(done, "")

    def copy(self, source: str, target: str, keep: Callable[[str], bool]) -> None:
        """The files of a folder that `keep` lets through by their path in it, in place of what is in `target`."""
        self.remove(target)
        if not is_remote(source):
            for file in Path(source).rglob("*"):
                path = file.relative_to(source)
                if file.is_file() and keep(str(path)):
                    (Path(target) / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(file, Path(target) / path)
            return
        system, old = self._remote(source)
        conf, left = system.getConf(), system.listFiles(old, True)
        while left.hasNext():
            file = left.next().getPath()
            path = file.toString().removeprefix(old.toString()).lstrip("/")
            if keep(path):
                _, place = self._remote(f"{target}/{path}")
                self._jvm.org.apache.hadoop.fs.FileUtil.copy(system, file, system, place, False, conf)

    def _move_objects(self, source: str, target: str) -> None:
        system, old = self._remote(source)
        _, new = self._remote(target)
        if not system.exists(new):
            system.mkdirs(new.getParent())
            system.rename(old, new)
            return
        left = system.listFiles(old, True)
        while left.hasNext():
            file = left.next().getPath()
            _, place = self._remote(target + file.toString().removeprefix(old.toString()))
            system.delete(place, False)  # perhaps half there
            system.rename(file, place)
        system.delete(old, True)

    def remove(self, uri: str) -> None:
        """A file, or a folder with all that is in it."""
        if is_remote(uri):
            system, path = self._remote(uri)
            system.delete(path, True)
        elif Path(uri).is_file():
            Path(uri).unlink(missing_ok=True)
        else:
            shutil.rmtree(uri, ignore_errors=True)

    def remove_drafts(self, checkpoint: str) -> None:
        """What a killed host had begun to write, in a checkpoint whose first batch is not planned yet. Spark takes it
        for an older stream's, and does not start."""
        folders = (f"{checkpoint}/offsets", f"{checkpoint}/commits")
        files = [f"{folder}/{name}" for folder in folders for name in self.names(folder)]
        # as Hadoop names a file that it will rename, and the checksum of it
        if all(re.search(r"/\.[^/]*\.tmp(\.crc)?$", file) for file in files):
            for file in files:
                self.remove(file)

    def _put(self, uri: str, text: str, *, overwrite: bool) -> None:
        system, path = self._remote(uri)
        builder = system.createFile(path).overwrite(overwrite).recursive()
        if not overwrite:
            # Else S3A would look first, and then put.
            builder = builder.opt("fs.option.create.conditional.overwrite", "true")
        stream = builder.build()
        stream.write(bytearray(text.encode()))
        stream.close()

    @property
    def _jvm(self) -> Any:
        return self._session._jvm

    def _remote(self, uri: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(uri)
        return path.getFileSystem(self._session._jsparkSession.sessionState().newHadoopConf()), path


def _draft(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}-{id(text)}")
    draft.write_text(text, encoding="utf-8")
    return draft
