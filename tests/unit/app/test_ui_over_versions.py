"""A line over very many versions keeps what stands out."""

from app.ui.view.over_versions import thinned


def test_thinning_keeps_the_peak_and_the_last() -> None:
    spiked: list[float | None] = [float(number) for number in range(5_000)]
    spiked[2_345] = 1e6
    kept = thinned(spiked, 1_000)
    assert len(kept) <= 1_000
    assert {0, 2_345, 4_999} <= set(kept)


def test_unknown_values_cost_no_known_one() -> None:
    gaps: list[float | None] = [None] * 3_000
    gaps[1_234] = 7.0
    kept = thinned(gaps, 100)
    assert len(kept) <= 100 and 1_234 in kept
    assert thinned(gaps[:50], 100) == list(range(50))
