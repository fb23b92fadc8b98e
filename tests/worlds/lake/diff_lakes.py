"""Lakes that answer otherwise than the one they stand for, or tell what they were asked."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from backend.lake.lake import Lake


class LakeWith:
    """A lake of which some methods are others."""

    def __init__(self, lake: Lake, **methods: Any) -> None:
        self._lake = lake
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lake, name)


class ByDeltalake:
    """A lake whose files DuckDB cannot read itself, as those of an object store."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lake, name)

    @contextmanager
    def local_files(self, *_: Any) -> Iterator[None]:
        yield None


class Told:
    """A lake that remembers whether deltalake was asked for rows."""

    def __init__(self, lake: Lake) -> None:
        self._lake, self.by_deltalake = lake, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lake, name)

    def read_files(self, *args: Any, **more: Any) -> Any:
        self.by_deltalake = True
        return self._lake.read_files(*args, **more)
