"""What is sent to databases."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.engine import Engine


@contextmanager
def statements() -> Iterator[list[str]]:
    """Every statement of this process meanwhile."""
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    sa.event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        sa.event.remove(Engine, "before_cursor_execute", note)
