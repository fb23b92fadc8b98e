"""The lake whose pages are measured: as many tables as said, each whole for another reader, made once."""

from pathlib import Path

from deltalake import DeltaTable

from backend.lake.lake import Lake
from backend.settings import load_settings
from bench.pages import FILES, LONG, TABLES, VERSIONS, make_lake


def test_the_lake_holds_what_is_measured_and_is_made_once(tmp_path: Path) -> None:
    made = make_lake(tmp_path, 0.01)
    cards = Lake(load_settings(home=tmp_path, lake={"roots": [str(made)]})).cards()
    assert len(cards) == TABLES // 100 + 1 and {card.num_files for card in cards} == {FILES, FILES * VERSIONS}
    assert DeltaTable(str(made / LONG)).get_add_actions().num_rows == FILES * VERSIONS
    at = (made / LONG).stat().st_mtime_ns
    assert make_lake(tmp_path, 0.01) == made and (made / LONG).stat().st_mtime_ns == at
