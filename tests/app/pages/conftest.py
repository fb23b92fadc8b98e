"""Every page test has an empty home; tables and the store are there for those that ask."""

from tests.worlds.pages.fixtures import clicks, home, lake, made, now, orders, place, store

__all__ = ["clicks", "home", "lake", "made", "now", "orders", "place", "store"]
