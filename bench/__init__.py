"""Measurements of Weir against its peers. Rule: equal answers first, then time and memory, both in the same run."""
