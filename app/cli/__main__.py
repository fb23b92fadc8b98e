"""`python -m app.cli`: `weir`, and nothing but the call."""

from app.cli import main

main()
