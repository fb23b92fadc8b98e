"""The strip and the sentences about versions, as built from facts."""

from datetime import timedelta

import pytest

from app.ui.view.theme import MAX_POINTS
from app.versions.view import reachability as view
from backend.lake.retention.answers import judge_version
from backend.lake.retention.runs import DELETED_FILES, FilesSeen, Vacuum, judge
from tests.unit.test_retention import NOW, T0, facts


def test_the_title_says_how_many_can_be_read() -> None:
    assert view.strip_finding(judge(facts(), T0)) == "All 21 versions can be read"
    found = judge(facts(), NOW)
    assert view.strip_finding(found) == "7 of 21 versions can be read with Delta 4.1 and later, 21 with other readers"
    short = judge(facts(spans=((14, 20),)), NOW)
    assert view.strip_finding(short) == "7 of 21 versions can be read"
    assert "not known" in view.strip_finding(judge(facts(properties={DELETED_FILES: "x"}), NOW))


def test_every_track_covers_every_version() -> None:
    figure = view.strip_figure(judge(facts(), NOW), chosen=15)
    assert [trace.y[0] for trace in figure.data] == [track.name for track in reversed(view.TRACKS)]
    for trace in figure.data:
        assert sum(trace.x) == 21 and trace.base[0] == -0.5
    feed = figure.data[0]
    assert [piece[3] for piece in feed.customdata] == ["off", "yes"] and feed.customdata[1][:2] == [5, 20]


def test_the_strip_is_built_again_only_when_something_else_is_known() -> None:
    first = view.strip_figure(judge(facts(), NOW), chosen=15)
    assert view.strip_figure(judge(facts(), NOW + timedelta(seconds=1)), chosen=15) is first
    assert view.strip_figure(judge(facts(), NOW), chosen=16) is not first
    assert view.strip_figure(judge(facts(), T0), chosen=15) is not first


def test_the_legend_begins_with_what_is_fine() -> None:
    sentence = view.legend_sentence(judge(facts(spans=((14, 20),)), NOW))
    assert sentence.startswith("Green filled = yes; blue filled") and sentence.index("red") < sentence.index("grey")
    assert view.strip_figure(judge(facts(latest=0, spans=((0, 0),)), NOW), chosen=0).layout.xaxis.dtick == 1


def test_a_log_full_of_holes_is_binned_and_says_so() -> None:
    holes = tuple((v, v) for v in range(0, 20_000, 2))
    found = judge(facts(latest=20_000, listed=(*holes, (20_000, 20_000)), spans=holes, checkpoints=(), times={}), NOW)
    figure = view.strip_figure(found, chosen=None)
    assert sum(len(trace.x) for trace in figure.data) <= MAX_POINTS and view.is_binned(found)
    assert all(sum(trace.x) == 20_001 for trace in figure.data)
    assert not view.is_binned(judge(facts(), NOW))


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (20, "yes"),
        (15, "yes, until Mon 10:30 UTC"),
        (2, "no, since 10 Nov 2026 10:30 UTC"),
        (99, "no"),
    ],
)
def test_an_answer_in_words(version: int, words: str) -> None:
    answer = judge_version(judge(facts(), NOW), version).time_travel
    assert view.answer_text(answer, "UTC", NOW) == words


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        (20, "v20 is the latest version: it can be read, and nothing refuses it."),
        (15, "v15 can be read and restored until Mon 10:30 UTC, unless a VACUUM runs that keeps less."),
        (2, "Delta 4.1 and later refuse v2 since 10 Nov 2026 10:30 UTC. Readers without that rule may still read it."),
        (99, "v99 cannot be read: there is no version 99; the latest is 20."),
    ],
)
def test_one_line_says_what_can_be_done(version: int, sentence: str) -> None:
    text = view.verdict_text(judge_version(judge(facts(), NOW), version), 20, "UTC", NOW)
    assert text.partition(" ")[2].replace("*", "").replace("\\", "") == sentence


@pytest.mark.parametrize("version", range(21))
def test_no_reason_is_given_twice(version: int) -> None:
    found = view.answers_once(judge_version(judge(facts(), NOW), version), "UTC", NOW)
    reasons = [line for _, _, text in found for line in text.split(". ") if line]
    assert len(reasons) == len(set(reasons)) and len({label for label, _, _ in found}) == len(found)


def test_a_path_cannot_leave_its_quotes() -> None:
    assert view.restore_command("/a`b", 3) == "RESTORE TABLE delta.`/a``b` TO VERSION AS OF 3"


def test_the_sentence_names_the_setting_and_what_it_would_give() -> None:
    found = judge(facts(), NOW)
    text = view.extension_sentence(judge_version(found, 15).time_travel, "UTC", NOW)
    assert text == "`delta.deletedFileRetentionDuration` is 7 days (the default); 14 days would make it until " \
                   "30 Nov 2026 10:30 UTC."  # fmt: skip
    assert view.extension_sentence(judge_version(found, 20).time_travel, "UTC", NOW) == ""


def test_a_promise_is_called_one_and_an_estimate_too() -> None:
    promise = judge_version(judge(facts(), NOW), 15).time_travel
    short = facts(properties={DELETED_FILES: "interval 60 days", "delta.logRetentionDuration": "interval 25 days"})
    estimate = judge_version(judge(short, NOW), 5).time_travel
    assert "as long as nobody changes them" in view.kind_sentence(promise)
    assert "estimate" in view.kind_sentence(estimate) and "about" in view.answer_text(estimate, "UTC", NOW)


def test_vacuums_and_their_silence() -> None:
    assert "records no VACUUM" in view.vacuum_sentence(facts(), NOW)
    last = Vacuum(18, NOW - timedelta(hours=2), timedelta(), 5)
    assert view.vacuum_sentence(facts(vacuums=(last,)), NOW) == (
        "Last VACUUM: v18, 2 h ago, keeping 0 seconds; it deleted 5 files."
    )


def test_a_found_file_never_says_more_than_it_is() -> None:
    found = judge(facts(), NOW)
    answer = judge_version(found, 2, FilesSeen(2, 12_000, 200, 0))
    assert answer.elsewhere.reasons == ("the log rebuilds it; not every file was looked for",)
    assert "delta.deletedFileRetentionDuration" in answer.time_travel.reasons[0]
