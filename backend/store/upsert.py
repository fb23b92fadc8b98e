"""INSERT … ON CONFLICT, which SQLite and PostgreSQL spell alike but SQLAlchemy keeps per dialect.

Rule: the only place that asks which database it is, beside opening, migrating and the clock.
"""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection


def insert(connection: Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


def upsert(connection: Connection, table: sa.Table, row: Mapping[str, Any]) -> None:
    """Inserts the row, or sets the columns it names where its primary key is there."""
    keys = [column.name for column in table.primary_key]
    changed = {name: value for name, value in row.items() if name not in keys}
    statement = insert(connection, table).values(**row)
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed))
