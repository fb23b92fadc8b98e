"""A process that waits for its signals ends, whenever they come."""

import signal
import subprocess
import sys

import pytest

# Waits as often as it can, so that nearly every signal comes amid a wait. The pauses let in whoever sets the
# event: beside one that takes the event's lock again at once it may wait for ever.
WAITER = """
import time
from pipelines.stop_signals import stop_signals
stop = stop_signals()
print("ready", flush=True)
while not any(stop.wait(0.0) for _ in range(500)):
    time.sleep(0.0001)
print("stopped")
"""


@pytest.mark.parametrize("numbers", [(signal.SIGTERM,), (signal.SIGINT, signal.SIGTERM, signal.SIGINT)])
def test_a_signal_amid_a_wait_ends_it(numbers: tuple[signal.Signals, ...]) -> None:
    for _ in range(3):
        waiter = subprocess.Popen([sys.executable, "-c", WAITER], stdout=subprocess.PIPE, text=True)
        try:
            assert waiter.stdout is not None
            assert waiter.stdout.readline() == "ready\n"
            for number in numbers:
                waiter.send_signal(number)
            said, _ = waiter.communicate(timeout=60)
        finally:
            waiter.kill()
        assert (said, waiter.returncode) == ("stopped\n", 0)
