"""What of Weir can be found beside tables."""

from app.find import view
from app.ui.view.acts import LABELS
from app.ui.view.words import LinkTarget

PLACES = [LinkTarget("health", "Health"), *(LinkTarget("stream", f"Stream orders_{number}") for number in range(9))]


def labels(words: str) -> list[str]:
    return [place.label for place in view.matching(PLACES, words)]


def test_each_word_must_be_in_the_label() -> None:
    assert labels("HEAL") == ["Health"] and labels("orders_3 stream") == ["Stream orders_3"]
    assert labels("orders health") == [] and labels(" ") == []


def test_only_a_few_are_shown() -> None:
    assert labels("stream") == [f"Stream orders_{number}" for number in range(view.MOST_PLACES)]


def test_every_act_on_a_table_can_be_found() -> None:
    assert view.ACTS.keys() == LABELS.keys()
