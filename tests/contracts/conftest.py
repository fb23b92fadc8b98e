"""The odd tables, built once a session."""

from tests.worlds.lake.odd_tables import odd_lake

__all__ = ["odd_lake"]
