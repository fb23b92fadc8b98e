"""Where a stream writes. Each kind of sink is a module here."""
