"""Where a stream reads. Each kind of source is a module here."""
