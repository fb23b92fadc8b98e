"""Words of an export: how large, how far, what came of it, the same in a terminal."""

from types import SimpleNamespace
from typing import Any

from app.summary.view.snippets import export_command
from app.ui.view import export as view
from backend.sql.export import FORMATS
from backend.sql.exports import ExportState, SizeEstimate

SIZES = {"csv": 1_200_000_000, "parquet": 90_000_000, "arrow": 2_000_000_000}


def said(rows: int | None, *, counted: bool = True, sampled: int = 20_000, files: int | None = 8, **more: Any) -> str:
    return view.size_sentence(SizeEstimate(rows, counted, SIZES | more, sampled, files), FORMATS["csv"], 8)


def test_the_size_says_what_it_was_estimated_from() -> None:
    assert said(5_100_000) == ("About 1.2 GB as CSV: 5.1 M rows of 8 columns. Estimated from 20,000 rows of 8 files.")
    assert said(5_100_000, counted=False).startswith("About 1.2 GB as CSV: about 5.1 M rows")
    assert said(5_100_000, files=None).endswith("Estimated from the 20,000 rows that the page read.")


def test_what_is_known_is_no_estimate_and_what_is_unknown_is_said() -> None:
    assert said(20_000, sampled=20_000) == "1.2 GB as CSV: 20,000 rows of 8 columns."
    assert said(None, counted=False, csv=None) == (
        "An unknown number of rows of 8 columns; how large the CSV file will be is not known before."
    )
    assert said(0, sampled=0) == "No row matches: the CSV file will hold the column names alone."


def test_progress_and_end_in_words() -> None:
    export: Any = SimpleNamespace(num_rows=50_000, size_bytes=15_000_000, state=ExportState.RUNNING, end_reason="")
    assert view.progress(export, 200_000) == (0.25, "50,000 of 200 k rows sent, 15 MB")
    assert view.progress(export, None) == (0.0, "50,000 rows sent, 15 MB")
    export.state = ExportState.DONE
    assert view.ended_sentence(export) == "Sent whole: 50,000 rows, 15 MB."
    export.state = ExportState.CANCELLED
    assert view.ended_sentence(export).startswith("Cancelled after 50,000 rows, 15 MB. What the browser saved")
    export.end_reason = "it took longer than 3600 s"
    assert view.ended_sentence(export).startswith("Cancelled because it took longer than 3600 s after 50,000 rows")


def test_the_command_is_safe_to_paste() -> None:
    assert export_command("silver/it's", 3, "it's_v3.csv", columns=("a b",), where="x = 'y'") == (
        """weir export 'silver/it'"'"'s' --version 3 --columns 'a b' --where 'x = '"'"'y'"'"'' -o 'it'"'"'s_v3.csv'"""
    )
