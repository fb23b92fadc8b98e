"""Lakes as a diff meets them: one whose rows DuckDB reads itself or not, one that tells who read them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from backend.lake.lake import Lake
from backend.sql.session import CancelToken


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


class Joins(CancelToken):
    """Counts the statements that read rows."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    @contextmanager
    def reading(self, rows: int | None) -> Iterator[None]:
        self.count += 1
        with super().reading(rows):
            yield
