"""The baseline: the oldest schema that a store may have. A new store is made from `schema.py` and stamped as newest.

Rule: a released migration never changes; the next one amends it.
"""

revision = "0017"
down_revision = None


def upgrade() -> None:
    raise NotImplementedError("no store is older: `backend.store.engine` makes a new one, or refuses it")


def downgrade() -> None:
    raise NotImplementedError("run the former version of Weir on a copy of the store from before")
