"""The bounded cache: what stays, what goes, and how often a value is made."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from backend.caches import DiskCache, Lru


def test_what_was_used_or_put_longest_ago_goes_first():
    cache: Lru[str, int] = Lru(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1  # now b was used longest ago
    cache.put("c", 3)
    assert cache.find("abc") == {"a": 1, "c": 3}
    cache.put("a", 4)  # again: it is the newest, and counts once
    cache.put("d", 5)
    assert cache.find("abcd") == {"a": 4, "d": 5} and len(cache) == 2


def test_a_bound_by_weight_is_kept_and_what_was_put_last_stays_however_heavy_it_is():
    cache: Lru[str, bytes] = Lru(10, len)
    for key, weight in (("a", 4), ("b", 4), ("c", 6)):
        cache.put(key, b"x" * weight)
    assert cache.find("abc").keys() == {"b", "c"}
    cache.put("d", b"x" * 99)
    assert cache.find("abcd").keys() == {"d"}
    cache.put("e", b"x")
    assert cache.find("de").keys() == {"e"}


def test_the_weight_counted_is_that_of_the_moment_of_the_put():
    cache: Lru[str, list[int]] = Lru(4, len)
    growing = [1, 2]
    cache.put("growing", growing)
    growing += [3, 4, 5]
    cache.put("growing", growing)
    cache.put("b", [1])
    assert cache.find(["growing", "b"]).keys() == {"b"}
    cache.put("c", [1, 2, 3])
    assert cache.find(["b", "c"]).keys() == {"b", "c"}


def test_cleared_values_are_gone_and_leave_room():
    cache: Lru[str, bytes] = Lru(4, len)
    cache.put("a", b"xxx")
    cache.clear()
    cache.clear()
    cache.put("b", b"xx")
    cache.put("c", b"xx")
    assert cache.find("abc").keys() == {"b", "c"}
    cache.clear()
    cache.put("d", b"xxxx")
    assert cache.find("abcd").keys() == {"d"}


def test_what_cannot_be_made_is_tried_again_and_none_is_a_value_like_any_other():
    cache: Lru[str, int | None] = Lru(2)
    with pytest.raises(ZeroDivisionError):
        cache.get_or_make("a", lambda: 1 // 0)
    assert cache.get_or_make("a", lambda: 7) == 7
    assert cache.get_or_make("a", lambda: 1 // 0) == 7
    cache.put("a", None)
    assert cache.find("ab") == {"a": None}


def test_a_value_is_made_once_however_many_ask_for_it():
    cache: Lru[str, int] = Lru(2)
    begun, may_end, made = threading.Event(), threading.Event(), []

    def make() -> int:
        made.append(threading.get_ident())
        begun.set()
        assert may_end.wait(60)
        return 7

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(cache.get_or_make, "a", make)
        assert begun.wait(60)
        others = [pool.submit(cache.get_or_make, "a", make) for _ in range(7)]
        assert cache.get_or_make("b", lambda: 8) == 8  # another key does not wait
        may_end.set()
        assert [each.result(120) for each in (first, *others)] == [7] * 8
    assert len(made) == 1


def test_whoever_waited_for_a_failure_tries_itself():
    cache: Lru[str, int] = Lru(2)
    begun, may_fail = threading.Event(), threading.Event()

    def fail() -> int:
        begun.set()
        assert may_fail.wait(60)
        raise ValueError

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get_or_make, "a", fail)
        assert begun.wait(60)
        second = pool.submit(cache.get_or_make, "a", lambda: 7)
        may_fail.set()
        assert isinstance(first.exception(10), ValueError)
        assert second.result(120) == 7


def test_many_threads_at_once_keep_the_bound_and_mix_nothing_up():
    cache: Lru[int, int] = Lru(100)
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        start.wait(60)
        for step in range(1_000):
            key = (seed * 7_919 + step * 31) % 200
            assert cache.get_or_make(key, lambda key=key: key * 3 + 1) == key * 3 + 1
            if step % 5 == 0:
                cache.put(key, key * 3 + 1)
            if step % 211 == 0:
                cache.clear()

    with ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(work, seed) for seed in range(8)]:
            each.result(60)
    left = cache.find(range(200))
    assert 0 < len(left) == len(cache) <= 100
    assert all(value == key * 3 + 1 for key, value in left.items())
    assert all(cache.get_or_make(key, lambda key=key: key * 3 + 1) == key * 3 + 1 for key in range(200))


def test_what_is_kept_on_disk_is_whole_or_not_there(tmp_path):
    cache = DiskCache(tmp_path / "home" / "kind", 2)
    assert cache.load("a", 1) is None
    cache.save(b"one\ntwo", "a", 1)
    assert (cache.load("a", 1), cache.load("a", 2)) == (b"one\ntwo", None)
    (file,) = (tmp_path / "home" / "kind").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert cache.load("a", 1) is None


def test_the_oldest_files_go_and_a_folder_that_cannot_be_made_costs_nothing(tmp_path):
    cache = DiskCache(tmp_path / "kind", 2)
    for number in range(4):
        cache.save(b"x", number)
        (newest,) = [file for file in (tmp_path / "kind").iterdir() if file.stat().st_mtime > 10]
        os.utime(newest, (number, number))
    assert [cache.load(number) for number in range(4)] == [None, None, b"x", b"x"]
    (tmp_path / "file").write_text("no folder")
    for nowhere in (DiskCache(tmp_path / "file", 2), DiskCache(None, 2)):
        nowhere.save(b"x", 1)
        assert nowhere.load(1) is None
