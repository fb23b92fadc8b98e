"""A change of metadata, planned: who is shut out, who stops, and what a declared stream keeps from being done."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.lake.lake import Lake
from backend.maintenance.model import ActPreview, Alter
from backend.maintenance.plan import preview
from backend.maintenance.readers import TableReader, TableWriter, Users
from backend.settings import load_settings
from tests.worlds.lake import builders

MAPPED = {"delta.columnMapping.mode": "name"}
WRITER = TableWriter("clicks_stream", "append", stopped=True)
READER = TableReader("hourly", stopped=True)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    builders.partitioned_table(tmp_path / "lake" / "clicks", days=1, files_per_day=1)
    return tmp_path


def planned(home: Path, asked: Alter, users: Users) -> ActPreview:
    settings = load_settings(home=home)
    lake = Lake(settings)
    return preview(settings, lake, lake.find("clicks"), asked, users, now=datetime.now(UTC))


@pytest.mark.parametrize("asked", [Alter(MAPPED, rename_columns={"id": "key"}), Alter(MAPPED, drop_columns=("id",))])
def test_no_column_goes_from_under_a_declared_stream(home: Path, asked: Alter) -> None:
    refused = planned(home, asked, Users((WRITER,)))
    assert "clicks_stream writes the table" in refused.refused and "host.pipelines" in refused.way_out
    assert planned(home, asked, Users(readers=(READER,))).refused == ""


def test_what_a_stream_meets_is_said(home: Path) -> None:
    users = Users((WRITER,), (READER,))
    added = planned(home, Alter(add_columns={"shop": "string"}), users)
    assert added.refused == ""
    assert added.risks == ("hourly reads the table: it stops once at the new column, and goes on when it is started",)
    checked = planned(home, Alter(add_constraints={"known": "id >= 0"}), users)
    assert "clicks_stream writes the table: a row that violates the constraint stops it" in checked.risks
    renamed = planned(home, Alter(MAPPED, rename_columns={"id": "key"}), Users((), (READER,)))
    assert "hourly reads the table: it stops at this change, and goes on after a reset alone" in renamed.risks
    assert any(risk.startswith("delta.columnMapping.mode raises") for risk in renamed.risks)
    assert renamed.way_back == "the inverse: --rename-column key=id"
