"""The pages alone, over a lake that a test made: no stream host, no Spark, no demo."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.browser.conftest import Weir
from tests.worlds.pages.serving import served


@contextmanager
def pages_over(home: Path, **settings: str) -> Iterator[Weir]:
    """A server of its own over the tables below `home/lake`; `settings` are further variables. Gone afterwards."""
    (home / "lake").mkdir(exist_ok=True)
    with served(home, WEIR_LAKE__ROOTS=json.dumps([str(home / "lake")]), **settings) as server:
        yield Weir(server.url, home, server.env, server.process)
