"""What is sent to databases."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from backend.store.store import ControlStore


@contextmanager
def statements(store: ControlStore) -> Iterator[list[str]]:
    """Every statement that this process sends meanwhile to the store's database, of which it may have several open.

    Threads that an earlier test left behind go on asking theirs.
    """
    sent: list[str] = []

    def note(connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if connection.engine.url.render_as_string() == store.shown_url:
            sent.append(statement)

    sa.event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        sa.event.remove(Engine, "before_cursor_execute", note)
