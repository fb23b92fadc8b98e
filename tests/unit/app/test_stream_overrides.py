"""What was typed as other settings, and the difference as lines."""

from app.streams.view.overrides import chosen, difference_lines, spark_lines
from backend.stream_model.overrides import Setting

DECLARED = {"trigger": "5 seconds", "spark.sql.a": "1"}


def test_what_is_as_declared_or_empty_is_no_override() -> None:
    typed = {"trigger": " 5 seconds ", "maxFilesPerTrigger": "", "maxBytesPerTrigger": "9"}
    assert chosen(DECLARED, typed, {"spark.sql.a": "1", "spark.sql.b": "2"}) == {
        "maxBytesPerTrigger": "9",
        "spark.sql.b": "2",
    }


def test_settings_of_spark_are_a_line_each() -> None:
    assert spark_lines({"spark.sql.a": "1", "spark.sql.b": "x=y"}) == "spark.sql.a=1\nspark.sql.b=x=y"


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
