"""SIGTERM and SIGINT as an event to wait for.

Rule: a handler never sets the event itself. It runs in the main thread, maybe amid that thread's own `wait`, which
holds the event's lock: to set it there is to wait for oneself, for ever.
"""

import queue
import signal
import threading


def stop_signals() -> threading.Event:
    """Set once SIGTERM or SIGINT has come. To be called in the main thread."""
    stop, asked = threading.Event(), queue.SimpleQueue[int]()  # whose put() may interrupt itself

    def pass_on() -> None:
        asked.get()
        stop.set()

    threading.Thread(target=pass_on, name="stop signals", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: asked.put(number))
    return stop
