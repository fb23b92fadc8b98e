"""The words of a preflight, of a failure with what a preflight found, and of settings in place of declared ones."""

from datetime import UTC, datetime

from app.streams.start import chosen, difference_lines
from app.streams.text import by_weight, consequence, preflight_sentence
from app.streams.view.stream import cause_lines, check_text
from backend.stream_model.overrides import Setting
from backend.stream_model.stream import StreamFailure
from backend.streams import faults
from backend.streams.preflight.model import Check, Outcome, Preflight

FINE = Check("owner", Outcome.OK, "free")
UNSURE = Check("access of topic", Outcome.UNKNOWN, "Only the host can ask the broker")
LITTLE = Check("room for state", Outcome.WARNING, "2 MB free", "Free space.")
LOST = Check("checkpoint", Outcome.FAILED, "offsets/3 is missing", faults.OFFSETS_MISSING.remedy)
CONCURRENT = StreamFailure("CONCURRENT_STREAM_LOG_UPDATE", "…", 3, datetime(2026, 11, 20, tzinfo=UTC))


def test_what_failed_comes_first_and_is_counted() -> None:
    found = Preflight("silver", (FINE, UNSURE, LITTLE, LOST))
    assert by_weight(found.checks) == [LOST, LITTLE, UNSURE, FINE]
    assert preflight_sentence(found) == "silver cannot go on: 1 check failed."
    assert "As long as this stands, it fails again or loses rows" in consequence(found)


def test_what_is_unknown_or_a_warning_stands_against_nothing() -> None:
    found = Preflight("silver", (FINE, UNSURE, LITTLE))
    assert preflight_sentence(found) == "silver can go on. Of 3 checks: 1 warning, 1 unknown, 1 ok."
    assert consequence(found) == ""


def test_a_remedy_stands_beneath_what_is_not_ok() -> None:
    assert check_text(LITTLE) == "**room for state** · 2 MB free  \n:material/arrow_forward: Free space\\."
    assert "arrow" not in check_text(FINE)


def test_a_failed_check_tells_apart_what_the_error_does_not() -> None:
    either = cause_lines(CONCURRENT, ())
    assert [line.partition("**")[0] for line in either] == ["Either: ", "Either: "]
    (proven,) = cause_lines(CONCURRENT, (LOST,))
    assert proven.replace("\\", "").startswith(
        "**The last offsets file is missing, its commit is there.** offsets/3 is missing."
    )
    assert f"\n:material/arrow_forward: {faults.OFFSETS_MISSING.remedy}" in proven.replace("\\", "")


def test_a_failed_check_is_told_also_beside_an_error_that_nobody_knows() -> None:
    unknown = StreamFailure("ZeroDivisionError", "division by zero", 3, CONCURRENT.failed_at)
    assert cause_lines(unknown, (LOST,)) == [check_text(LOST)]
    (line,) = cause_lines(unknown, ())
    assert line.startswith(":material/arrow_forward: Remove the cause, then restart the stream")


def test_what_is_as_declared_or_empty_is_no_override() -> None:
    typed = {"trigger": " 5 seconds ", "maxFilesPerTrigger": "", "maxBytesPerTrigger": "9"}
    declared = {"trigger": "5 seconds", "spark.sql.a": "1"}
    assert chosen(declared, typed, {"spark.sql.a": "1", "spark.sql.b": "2"}) == {
        "maxBytesPerTrigger": "9",
        "spark.sql.b": "2",
    }


def test_a_line_says_what_changes_what_is_declared_and_what_keeps_it_from_changing() -> None:
    settings = (
        Setting("trigger", "5 seconds", "5 seconds", "1 minute"),
        Setting("spark.sql.a", "1", "2", "2", "its checkpoint goes on with 3"),
        Setting("spark.sql.b", None, "2", None),
    )
    assert [line.replace("\\", "") for line in difference_lines(settings)] == [
        "trigger: 5 seconds → **1 minute**",
        "spark.sql.a: 2, as it is (declared: 1) :material/warning: its checkpoint goes on with 3",
        "spark.sql.b: 2 → **not set** (declared: not set)",
    ]
