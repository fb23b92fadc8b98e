"""A person who is deleted in bronze is gone from silver and gold: the example of docs/pipelines.md, run as printed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from backend.settings import load_settings
from pipelines import Pipeline
from tests.worlds.spark.declared import problems_of, run_example
from tests.worlds.spark.lakes import DemoLake, open_lake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
STREAMS = ("bronze_people", "silver_people", "gold_countries")
PEOPLE = [(1, "Ada", "uk"), (2, "Bo", "se"), (7, "Eve", "se")]


@pytest.fixture
def people(tmp_path: Path) -> DemoLake:
    """The example's streams, which read what is there and end."""
    shop = Pipeline("shop")
    run_example("### Deletes at the source", shop=shop)
    assert problems_of(shop) == []
    (tmp_path / "landing/people").mkdir(parents=True)
    land(tmp_path, "0.json", PEOPLE)
    return open_lake(load_settings(home=tmp_path), *(replace(each, trigger_interval_s=None) for each in shop.streams))


def land(home: Path, name: str, people: list[tuple[int, str, str]]) -> None:
    lines = (json.dumps(dict(zip(("person_id", "name", "country"), person, strict=True))) for person in people)
    (home / "landing/people" / name).write_text("\n".join(lines))


def silver(lake: DemoLake) -> list[tuple[int, str, str]]:
    return sorted((row.person_id, row.name, row.country) for row in lake.rows("silver/silver_people"))


def gold(lake: DemoLake) -> dict[str, int]:
    return {row.country: row["count"] for row in lake.rows("gold/gold_countries")}


@pytest.mark.ci
def test_a_delete_in_bronze_reaches_silver_and_gold(people: DemoLake) -> None:
    people.process(*STREAMS)
    assert silver(people) == PEOPLE
    assert gold(people) == {"uk": 1, "se": 2}

    bronze = DeltaTable(people.uri("bronze/bronze_people"))
    bronze.delete("person_id = 7")
    bronze.update(updates={"name": "'Bob'"}, predicate="person_id = 2")
    land(people.settings.home, "1.json", [(8, "Kim", "uk")])
    people.process(*STREAMS)
    assert silver(people) == [PEOPLE[0], (2, "Bob", "se"), (8, "Kim", "uk")]
    assert gold(people) == {"uk": 2, "se": 1}
    assert [row.asDict() for row in people.rows("silver/silver_people_tombstones")] == [
        {"person_id": 7, "bronze_version": 2}
    ], "the key alone is kept"
