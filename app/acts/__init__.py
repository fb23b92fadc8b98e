"""What was done to tables, and whether it did what it promised."""
