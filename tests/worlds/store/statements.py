"""What is sent to a store's database, and what others send there past the store."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from backend.store.store import ControlStore


@contextmanager
def statements(store: ControlStore) -> Iterator[list[tuple[str, int]]]:
    """Every statement that this process sends meanwhile to the store's database, with the size of its parameters.

    Of one store several may be open; threads that an earlier test left behind go on asking theirs.
    """
    sent: list[tuple[str, int]] = []

    def note(connection: Connection, _cursor: object, statement: str, parameters: object, *_: object) -> None:
        if connection.engine.url.render_as_string() == store.shown_url:
            sent.append((statement, len(str(parameters))))

    sa.event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        sa.event.remove(Engine, "before_cursor_execute", note)


@contextmanager
def past_the_store(url: str) -> Iterator[Connection]:
    """A transaction of whoever else reaches the database."""
    engine = sa.create_engine(url)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()
