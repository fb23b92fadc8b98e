"""Alembic's environment: runs the migrations on the connection that `backend.store.engine` hands over.

Rule: the caller owns the transaction; nothing is committed here.
"""

from alembic import context

from backend.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
