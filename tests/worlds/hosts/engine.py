"""What Spark's JVM is to a stream host, without Spark: a process of its own that runs queries while its host is frozen.

`python engine.py FOLDER HOST_PID` takes one JSON request a line. Each query appends to its stream's file what a driver
would write into a checkpoint, and a timer of its own stops it when nobody holds it any longer. It ends with its host.
"""

import json
import os
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.work import elapsed

STREAMS = ("s1", "s2", "s3", "s4", "s5", "s6", "gpu1", "gpu2")
BATCH_S = 0.05


@dataclass
class Query:
    file: Path
    words: dict[str, Any]  # who runs it
    until: float
    stop: threading.Event = field(default_factory=threading.Event)
    has_tripped: bool = False

    def begin(self) -> None:
        self.threads = [threading.Thread(target=target, daemon=True) for target in (self._write, self._watch)]
        for thread in self.threads:
            thread.start()

    def _write(self) -> None:
        with self.file.open("ab", buffering=0) as file:
            while not self.stop.is_set():
                file.write(json.dumps({**self.words, "at": elapsed()}).encode() + b"\n")
                self.stop.wait(BATCH_S)

    def _watch(self) -> None:
        while not self.stop.wait(max(0.0, self.until - elapsed())):
            if elapsed() >= self.until:
                self.has_tripped = True
                self.stop.set()

    def end(self) -> None:
        self.stop.set()
        self.threads[0].join()


class Engine:
    def __init__(self, folder: Path, host_pid: int) -> None:
        self._folder, self._host_pid = folder, host_pid
        self._queries: dict[str, Query] = {}
        self._until: dict[str, float] = {}

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        name = asked["name"]
        query = self._queries.get(name)
        match asked["do"]:
            case "start":
                words = {"pid": self._host_pid, "run": asked["run"], "token": asked["token"]}
                query = self._queries[name] = Query(self._folder / name, words, self._until.get(name, float("inf")))
                query.begin()
            case "hold":
                self._until[name] = asked["until"]
                if query is not None:
                    query.until = asked["until"]
            case "end" if query is not None:
                query.end()
        if query is None:
            return {"active": False, "tripped": False, "run": None}
        return {"active": not query.stop.is_set(), "tripped": query.has_tripped, "run": query.words["run"]}


def main() -> None:
    engine = Engine(Path(sys.argv[1]), int(sys.argv[2]))
    for line in sys.stdin:
        sys.stdout.write(json.dumps(engine.answer(json.loads(line))) + "\n")
        sys.stdout.flush()
    os._exit(0)  # its host is gone


if __name__ == "__main__":
    main()
