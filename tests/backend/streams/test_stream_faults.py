"""The table of faults: which error means which, and that the docs say what the table says."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.docs_table import with_table
from backend.stream_model.stream import StreamFailure
from backend.streams import faults
from backend.streams.faults import OTHERS_SEEN, TWELVE, Fault, docs_table, recognise

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"


def failure(error_class: str, message: str = "") -> StreamFailure:
    return StreamFailure(error_class, message, 3, datetime(2026, 11, 20, tzinfo=UTC))


@pytest.mark.parametrize(
    ("error_class", "message", "expected"),
    [
        ("CONCURRENT_STREAM_LOG_UPDATE", "", (faults.OTHER_DRIVER, faults.OFFSETS_MISSING)),
        ("IllegalStateException", "Incomplete log file in /c/offsets/3", (faults.OFFSETS_DAMAGED,)),
        ("JsonParseException", "Unrecognized token 'x'", (faults.METADATA_GARBAGE,)),
        ("JsonEOFException", "", (faults.OFFSETS_DAMAGED, faults.METADATA_GARBAGE)),
        ("IllegalStateException", "batch 7 doesn't exist", (faults.OFFSETS_DAMAGED,)),
        ("STREAMING_CHECKPOINT_MISSING_METADATA_FILE", "", (faults.METADATA_MISSING,)),
        ("DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE", "", (faults.SOURCE_RECREATED,)),
        ("DELTA_SOURCE_TABLE_IGNORE_CHANGES", "", (faults.ROWS_CHANGED,)),
        ("DELTA_SOURCE_IGNORE_DELETE", "", (faults.ROWS_DELETED,)),
        ("STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY", "", (faults.STATE_LOST,)),
        ("CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS", "", (faults.STATE_LOST,)),
        ("STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED", "", (faults.STATE_LOST, faults.STATE_CHANGED)),
        ("STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE", "", (faults.STATE_CHANGED,)),
        ("STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA", "", (faults.STATE_CHANGED,)),
        ("KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED", "", (faults.RECORDS_LOST,)),
        ("DELTA_SCHEMA_CHANGED_WITH_VERSION", "", (faults.SCHEMA_CHANGED,)),
        ("DELTA_FILE_NOT_FOUND_DETAILED", "", (faults.FILE_VACUUMED,)),
        ("OutOfMemoryError", "Java heap space", (faults.OUT_OF_MEMORY,)),
        (
            "FAILED_READ_FILE.NO_HINT",
            "Encountered error while reading file file:///in/1.gz.",
            (faults.FILE_UNREADABLE,),
        ),
        ("FAILED_READ_FILE.FILE_NOT_EXIST", "", (faults.FILE_VACUUMED,)),
        ("SchemaMismatchError", "silver_x holds rows by the keys id, and is declared with no", (faults.KEYS_CHANGED,)),
        ("USER_RAISED_EXCEPTION", "record 3 of … cannot be parsed: not JSON", (faults.MISFIT, faults.USER_CODE)),
        ("SparkException", "Wrong basePath file:/b for the root path: file:/a/1", (faults.FOLDER_ELSEWHERE,)),
        ("IOException", "No space left on device", (faults.DISK_FULL,)),
        ("ZeroDivisionError", "division by zero", ()),
    ],
)
def test_an_error_is_known_by_its_class_or_its_words(
    error_class: str, message: str, expected: tuple[Fault, ...]
) -> None:
    assert recognise(failure(error_class, message)) == expected


def test_the_remedy_of_a_delete_names_the_option_for_it() -> None:
    assert "ignoreDeletes" in faults.ROWS_DELETED.remedy and "skipChangeCommits" in faults.ROWS_CHANGED.remedy
    assert "rows come twice" in faults.ROWS_CHANGED.remedy


def test_every_fault_has_a_cause_a_remedy_and_a_sign() -> None:
    assert len(TWELVE) == len({fault.name for fault in TWELVE}) == 12
    for fault in (*TWELVE, *OTHERS_SEEN):
        assert fault.cause.endswith("."), fault
        assert fault.remedy.endswith("."), fault
        assert fault.classes or fault.words or fault.shown, fault


def test_the_page_says_what_the_source_says() -> None:
    assert PAGE.read_text() == with_table(PAGE.read_text(), "faults", docs_table()), (
        "docs/operations.md is old: run `make docs`"
    )
    assert all(fault.remedy in PAGE.read_text() for fault in TWELVE)
