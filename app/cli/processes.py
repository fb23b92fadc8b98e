"""The commands that run a process: everything, the UI, the host, the demo's generator.

Rule: Spark's side is another program; it is started by module name and never imported.
"""

import os
import sys

from app.cli import allow_pandas
from backend.settings import load_settings


def up() -> int:
    from app.run.up import main

    return main(load_settings())


def ui() -> int:
    allow_pandas()
    from app.server.asgi import main

    return main()


def become(module: str) -> int:
    """Replace this process by `python -m module`, so that signals reach it directly. Wrong settings are told before."""
    load_settings()
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", module])
