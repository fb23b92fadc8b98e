"""What a user declares, as values: streams, their tables, sources and sinks, expectations and secrets.

Rule: the lowest layer that knows Spark's types. A spec starts nothing and refuses nothing.
"""
