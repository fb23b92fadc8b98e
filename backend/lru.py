"""A bounded cache: what was used longest ago goes first.

Rule: thread-safe. A missing value is made by one caller, and the others wait for it; what fails is not kept.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Lru(Generic[Key, Value]):
    """Values that weigh at most `most` together; by default each weighs 1.

    What was put last stays even where it weighs more: its caller is about to use it.
    """

    def __init__(self, most: int, weigh: Callable[[Value], int] = lambda _: 1) -> None:
        self._most, self._weigh = most, weigh
        self._lock = threading.Lock()
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()  # with their weights then: a value may grow
        self._weight = 0
        self._making: dict[Key, threading.Event] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        return self.find([key]).get(key)

    def find(self, keys: Iterable[Key]) -> dict[Key, Value]:
        """The values of those keys that have one."""
        with self._lock:
            values = {key: self._values[key][0] for key in keys if key in self._values}
            for key in values:
                self._values.move_to_end(key)
            return values

    def put(self, key: Key, value: Value) -> None:
        self.put_all({key: value})

    def put_all(self, values: Mapping[Key, Value]) -> None:
        """Keep values that belong together: none of them makes room for another."""
        with self._lock:
            for key, value in values.items():
                self._drop(key)
                self._values[key] = value, (weight := self._weigh(value))
                self._weight += weight
            while self._weight > self._most and len(self._values) > len(values):
                self._drop(next(iter(self._values)))

    def get_or_make(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of a key, made where there is none. Raises what `make` raises; whoever waited then tries itself."""
        while True:
            with self._lock:
                if key in self._values:
                    self._values.move_to_end(key)
                    return self._values[key][0]
                other = self._making.get(key)
                if other is None:
                    self._making[key] = threading.Event()
                    break
            other.wait()
        try:
            value = make()
            self.put(key, value)
            return value
        finally:
            with self._lock:
                self._making.pop(key).set()

    def drop(self, key: Key) -> None:
        with self._lock:
            self._drop(key)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._weight = 0

    def _drop(self, key: Key) -> None:
        if key in self._values:
            self._weight -= self._values.pop(key)[1]
