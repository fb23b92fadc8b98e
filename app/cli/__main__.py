"""`python -m app.cli`, the same as `weir`.

Rule: nothing but the call.
"""

from app.cli import main

main()
