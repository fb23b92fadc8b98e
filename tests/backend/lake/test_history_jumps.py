"""Unusual changes of rows, against steps that are known."""

import random
from datetime import UTC, datetime

from backend.lake.history.unusual import MOST_JUMPS, unusual_jumps
from backend.lake.model import VersionTotals

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def totals(rows: list[int | None]) -> list[VersionTotals]:
    return [VersionTotals(v, NOW, "WRITE", 1, 1, each, 0) for v, each in enumerate(rows)]


def growing(count: int, step: int = 10) -> list[int | None]:
    return [1_000 + step * number for number in range(count)]


def test_a_jump_among_even_steps_is_found_with_what_is_usual() -> None:
    rows = growing(30)
    rows[20:] = [each + 500 for each in rows[20:] if each is not None]
    (jump,) = unusual_jumps(totals(rows))
    assert (jump.version, jump.change, jump.usual, jump.operation) == (20, 510, 10, "WRITE")


def test_a_loss_of_rows_is_a_jump_too_and_maintenance_is_none() -> None:
    rows = growing(20)
    rows[10:] = [600] * 5 + [610, 620, 630, 640, 650]  # the four after the loss change no row
    assert [(jump.version, jump.change) for jump in unusual_jumps(totals(rows))] == [(10, -490)]


def test_uneven_steps_and_small_ones_are_usual() -> None:
    chance = random.Random(7)
    rows, now = [], 1_000
    for _ in range(500):
        now += chance.randint(50, 150)
        rows.append(now)
    assert unusual_jumps(totals(list(rows))) == []
    still = growing(30, step=1)
    still[15:] = [each + 20 for each in still[15:] if each is not None]  # 2 % of the rows
    assert unusual_jumps(totals(still)) == []


def test_the_first_load_few_commits_and_unknown_rows_are_no_jump() -> None:
    assert unusual_jumps(totals([0, *(50_000 + 10 * number for number in range(20))])) == []
    assert unusual_jumps(totals([10, 20, 30, 5_000])) == []
    assert unusual_jumps(totals([None] * 30)) == []


def test_of_many_jumps_the_largest_are_told_oldest_first() -> None:
    rows, now = [], 10_000
    for number in range(60):
        now += 10 + 1_000 * number * (number % 10 == 9)
        rows.append(now)
    found = unusual_jumps(totals(list(rows)))
    assert len(found) == MOST_JUMPS and [jump.version for jump in found] == [39, 49, 59]
