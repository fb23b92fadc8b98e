"""Versions by name: a number, `latest`, an offset or a time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone

import pytest

from backend.changes.versions import Offset, check_name, parse_version, resolve_version
from backend.errors import VersionFormatError, VersionNotFoundError
from backend.lake.model import Commit, OperationMetrics, TableRef
from backend.times import Clock

REF = TableRef("/lake/t", "t", "/lake")
START = datetime(2026, 1, 1, tzinfo=UTC)
CLOCK = Clock(START + timedelta(minutes=400, seconds=20), timezone(timedelta(hours=2)))


def commit(version: int) -> Commit:
    return Commit(version, START + timedelta(minutes=version), "WRITE", {}, OperationMetrics(), {}, None, None, None)


@dataclass
class LakeWithLog:
    """Fifty-two pages would be slow to write; a log of `length` commits a minute apart."""

    length: int
    names: Mapping[str, int] = field(default_factory=dict)

    def named_versions(self, ref: TableRef) -> Mapping[str, int]:
        return self.names

    def latest_version(self, ref: TableRef) -> int:
        return self.length - 1

    def history(
        self,
        ref: TableRef,
        *,
        limit: int | None = None,
        starting_version: int | None = None,
        ending_version: int | None = None,
    ) -> list[Commit]:
        last = self.length - 1 if ending_version is None else ending_version
        return [commit(v) for v in range(last, -1, -1)][:limit]

    def version_at(self, ref: TableRef, when: datetime) -> int | None:
        return min(self.length - 1, (when - START) // timedelta(minutes=1)) if when >= START else None


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("7", 7),
        (7, 7),
        ("v7", 7),
        ("latest", Offset(0)),
        ("-5", Offset(5)),
        (-5, Offset(5)),
        ("latest-2", Offset(2)),
        ("2026-11-20T10:00Z", datetime(2026, 11, 20, 10, tzinfo=UTC)),
        ("2026-11-20T12:00+02:00", datetime(2026, 11, 20, 10, tzinfo=UTC)),
        ("2026-11-20", datetime(2026, 11, 20, tzinfo=UTC)),
    ],
)
def test_versions_are_named_in_four_ways(text: str | int, meaning: object) -> None:
    assert parse_version(text, CLOCK) == meaning


@pytest.mark.parametrize("text", ["", "banana", "1.5", "v", "2026-13-01", "latest+1x", "tomorrow", "today 08:41"])
def test_what_names_no_version_is_refused_with_the_forms_that_do(text: str) -> None:
    with pytest.raises(VersionFormatError) as caught:
        parse_version(text, CLOCK)
    assert "latest" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("latest", 499),
        ("-5", 494),
        ("2026-01-01T00:10:30Z", 10),
        ("2026-01-01T00:10:00Z", 10),
        ("2030-01-01", 499),
        ("30 min ago", 370),
        ("2 h ago", 280),
        ("today 04:30", 150),
        ("08:40", 400),
        ("02:00", 0),
        ("0", 0),
    ],
)
def test_versions_resolve_against_the_log(text: str, version: int) -> None:
    assert resolve_version(LakeWithLog(500), REF, text, CLOCK) == version


@pytest.mark.parametrize("text", ["500", "-501", "2025-12-31T23:59Z", "yesterday", "24 h ago"])
def test_a_version_that_is_not_there_is_not_found(text: str) -> None:
    with pytest.raises(VersionNotFoundError):
        resolve_version(LakeWithLog(500), REF, text, CLOCK)


def test_a_pins_name_means_its_version_and_hides_no_other() -> None:
    lake = LakeWithLog(500, {"features-2026-11": 118, "gone": 900, "latest": 3, "30 min ago": 3})
    assert resolve_version(lake, REF, " features-2026-11 ", CLOCK) == 118
    assert resolve_version(lake, REF, "gone", CLOCK) == 900, "so that it can be unpinned by its name"
    assert resolve_version(lake, REF, "latest", CLOCK) == 499 and resolve_version(lake, REF, "30 min ago", CLOCK) == 370
    with pytest.raises(VersionFormatError, match="'Features-2026-11'"):
        resolve_version(lake, REF, "Features-2026-11", CLOCK)


@pytest.mark.parametrize("name", ["features-2026-11", " Q3 audit ", "möbel_v2", "x", "a" * 80])
def test_what_may_be_a_name_means_nothing_else(name: str) -> None:
    assert check_name(name) == name.strip()


@pytest.mark.parametrize(
    "name",
    [
        "",
        "118",
        "v118",
        "latest",
        "-5",
        "2 h ago",
        "yesterday",
        "2026-11-20",
        "now",
        "Oldest",
        "a'b",
        "a/b",
        "-x",
        "a" * 81,
    ],
)
def test_what_means_a_version_or_cannot_be_typed_is_no_name(name: str) -> None:
    with pytest.raises(VersionFormatError, match="no name for a version"):
        check_name(name)
