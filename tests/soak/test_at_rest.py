"""What two hosts and a page ask of the store while nothing happens, counted: fifteen statements a second at most."""

from pathlib import Path

import pytest

from tests.worlds.hosts.at_rest import statements_at_rest
from tests.worlds.programs import needs_postgres_url
from tests.worlds.store.postgres import empty_postgres_url

SECONDS, MOST_PER_S = 60, 15.0


@pytest.mark.ci
@pytest.mark.postgres
@needs_postgres_url
def test_at_rest_the_store_is_asked_little(tmp_path: Path) -> None:
    with empty_postgres_url() as url:
        asked = statements_at_rest(tmp_path, url, seconds=SECONDS)
    print(f"{asked.total() / SECONDS:.1f} a second", *asked.most_common(20), sep="\n")  # noqa: T201
    assert asked.total() / SECONDS <= MOST_PER_S
