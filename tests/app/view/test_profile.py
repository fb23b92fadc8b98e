"""A profile in words, and against another version's."""

from app.profile import text as words
from app.profile import view as frames
from backend.sql.profile import Bin, ColumnProfile, Profile, TopValue


def profile(version: int, *columns: ColumnProfile) -> Profile:
    return Profile(version, 1_000, is_read=True, columns=columns)


def test_what_differs_is_told_by_column_and_the_rest_is_silent() -> None:
    before = profile(
        3,
        ColumnProfile("email", "string", 1_000, 2, "a", "z", is_exact=True, distinct=900),
        ColumnProfile("id", "bigint", 1_000, 0, 1, 1_000, is_exact=True, distinct=1_000),
        ColumnProfile("gone", "string", 1_000, 0),
    )
    after = profile(
        9,
        ColumnProfile("email", "string", 1_000, 310, "a", "z", is_exact=True, distinct=600),
        ColumnProfile("id", "bigint", 1_000, 0, 1, 1_000, is_exact=True, distinct=1_090),
        ColumnProfile("new", "string", 1_000, 0),
    )
    assert words.differences(before, after) == {
        "gone": "not in v9",
        "email": "null share 0.2 % → 31 %; distinct ≈ 900 → 600",
        "new": "not in v3",
    }
    assert words.differing_sentence(before, after) == "3 columns differ from v3; no longer there: gone."
    assert words.difference_lines(before, before) == ["No column of v3 stands out against v3."]
    frame = frames.profile_frame(after, before)
    assert frame["Column"].tolist() == ["email", "new", "id"]  # what differs leads
    assert "Against" not in frames.profile_frame(after).columns


def test_a_bound_that_the_log_cut_does_not_differ_from_the_true_one() -> None:
    cut = profile(3, ColumnProfile("a", "string", 10, 0, "aaa", "b", lowest_sign="≥", highest_sign="≤"))
    read = profile(4, ColumnProfile("a", "string", 10, 0, "aaab", "azz", is_exact=True))
    assert words.differences(cut, read) == {} == words.differences(read, cut)
    assert words.differences(read, profile(5, ColumnProfile("a", "string", 10, 0, "aaab", "c"))) == {
        "a": "highest azz → c"
    }


def test_bounds_that_may_not_be_values_have_a_sign() -> None:
    loose = ColumnProfile("a", "bigint", 10, 1, 5, 900, is_exact=False, lowest_sign="≥", highest_sign="≤")
    assert (words.bound_text(loose, "lowest"), words.bound_text(loose, "highest")) == ("≥ 5", "≤ 900")
    assert words.nulls_text(loose) == "≈ 10 %" and words.bound_text(ColumnProfile("b", "string"), "lowest") == "–"


def test_shares_are_of_the_values_that_are_there() -> None:
    column = ColumnProfile("s", "string", 100, 50, is_exact=True, distinct=2, top=(TopValue("paid", 40),))
    assert words.top_text(column) == "paid 80 %" and words.distinct_text(column) == "≈ 2"
    assert words.spread_text((Bin(0, 1, 0), Bin(1, 2, 1), Bin(2, 3, 7))) == "▁▂█" and words.spread_text(()) == ""


def test_bars_are_drawn_against_the_fullest() -> None:
    assert frames.spread((Bin(0, 1, 5), Bin(1, 2, 0), Bin(2, 3, 20))) == [0.25, 0.0, 1.0]
    assert frames.spread((Bin(0, 1, 0),)) == []


def test_what_it_costs_is_said_before() -> None:
    said = words.cost_sentence(38_214_551, 3)
    assert said == "Reads at most 76.4 MB in 3 data files."


def test_the_log_alone_leaves_out_what_it_does_not_know() -> None:
    found = Profile(1, 10, is_read=False, columns=(ColumnProfile("a", "bigint", 10, 0, 1, 2),))
    assert list(frames.profile_frame(found).columns) == ["Column", "Type", "Null share", "Lowest", "Highest"]
    assert "from the log's statistics alone" in words.source_sentence(found)
