"""Asks for one act after the other, as a page does when somebody clicks, and says of each that it was accepted."""

import random
import sys
import time
import uuid
from datetime import UTC, datetime

from backend.access import Actor
from backend.settings import load_settings
from backend.store.store import ControlStore
from tests.worlds.hosts.engine import STREAMS

PAUSE_S = 0.02  # SQLite does not queue writers: one that never pauses keeps others from their turn


def main() -> None:
    store = ControlStore.open(load_settings())
    while True:
        act, name = random.choice(["stop", "restart"]), random.choice(STREAMS)
        reason = f"{act} {name} {uuid.uuid4().hex}"
        store.request(name, act, reason=reason, actor=Actor("ann"), now=datetime.now(UTC))  # type: ignore[arg-type]
        sys.stdout.write(f"{reason}\n")
        sys.stdout.flush()
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
