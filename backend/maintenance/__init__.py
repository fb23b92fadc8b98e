"""Acts on tables: what each would do, whether it may be done, and what it did."""
