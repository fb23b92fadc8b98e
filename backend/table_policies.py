"""What hosts do to tables by themselves: the part `policies` of the settings, and when its windows are open.

Rule: pure; times are UTC, so that no clock change opens a window twice. cronsim enters here alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Annotated, Any

from cronsim import CronSim, CronSimError
from pydantic import BaseModel, ConfigDict, Field, model_validator

_MINUTE = timedelta(minutes=1)
_ANY_DAY = datetime(2026, 1, 1, tzinfo=UTC)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OptimizeWhen(_Part):
    spares_files: Annotated[int, Field(ge=1, description="Merging spares at least so many files.")] = 100
    spares_share: Annotated[float, Field(ge=0, le=1, description="And at least this share of the table's files.")] = 0.0
    every_hours: Annotated[
        float, Field(ge=0, description="At least so long after the table's last OPTIMIZE, in hours.")
    ] = 0.0
    most_bytes: Annotated[
        int | None, Field(gt=0, description="Most bytes rewritten at once: the smallest files go first.")
    ] = None


class VacuumWhen(_Part):
    every_hours: Annotated[float, Field(gt=0, description="So long after the table's last VACUUM, in hours.")] = 168.0
    lite: Annotated[bool, Field(description="Find the files by the log, not by listing the table.")] = False


class ExpireWhen(_Part):
    column: Annotated[str, Field(min_length=1, description="Column of a time or a day, which says how old a row is.")]
    older_than_days: Annotated[float, Field(gt=0, description="Rows that are older are deleted, in days.")]
    every_hours: Annotated[float, Field(gt=0, description="So long after it was last done, in hours.")] = 24.0


class TablePolicy(_Part):
    """One act that is done to each table of a pattern when it is due."""

    tables: Annotated[
        str, Field(min_length=1, description="Name or URI of a table, or a pattern of either: `bronze/*`.")
    ]
    window: Annotated[
        str, Field(description="Cron expression of five fields, UTC: when it may begin. Empty: at any time.")
    ] = ""
    window_minutes: Annotated[
        int, Field(ge=1, le=10_080, description="How long the window stays open, in minutes.")
    ] = 60
    optimize: Annotated[
        OptimizeWhen | None, Field(description="Merge small files. Exactly one of `optimize`, `vacuum`, `expire`.")
    ] = None
    vacuum: Annotated[
        VacuumWhen | None, Field(description="Delete files that no version within the retention needs.")
    ] = None
    expire: Annotated[ExpireWhen | None, Field(description="Delete old rows; not while a stream writes the table.")] = (
        None
    )

    @model_validator(mode="after")
    def _one_act_and_a_window_that_opens(self) -> "TablePolicy":
        if len([when for when in (self.optimize, self.vacuum, self.expire) if when is not None]) != 1:
            raise ValueError("a policy has exactly one of optimize, vacuum and expire")
        if self.window:
            _check(self.window)
        return self

    @property
    def when(self) -> OptimizeWhen | VacuumWhen | ExpireWhen:
        when = self.optimize or self.vacuum or self.expire
        assert when is not None
        return when

    @property
    def opening(self) -> "Window":
        return Window(self.window, self.window_minutes)

    @property
    def text(self) -> str:
        """All that it says, by which its runs are known: "optimize bronze/*: spares_files 20, window 0 2 * * *"."""
        given: dict[str, Any] = self.model_dump(exclude_defaults=True, exclude={"tables"})
        ((act, limits),) = [(key, value) for key, value in given.items() if isinstance(value, Mapping)]
        terms = {**limits, **{key: value for key, value in given.items() if key != act}}
        return f"{act} {self.tables}" + (f": {', '.join(f'{k} {v}' for k, v in terms.items())}" if terms else "")

    def is_for(self, name: str, uri: str) -> bool:
        return fnmatchcase(name, self.tables) or fnmatchcase(uri, self.tables.rstrip("/"))


@dataclass(frozen=True, slots=True)
class Window:
    """When acts may begin: for `minutes` from each firing of `cron`; always where that is empty."""

    cron: str
    minutes: int

    def opens_at(self, now: datetime) -> datetime:
        """This moment where it is open, else when it opens next."""
        if not self.cron:
            return now
        last = next(CronSim(self.cron, now.replace(second=0, microsecond=0) + _MINUTE, reverse=True))
        return now if now < last + timedelta(minutes=self.minutes) else self.next_after(now)

    def next_after(self, now: datetime) -> datetime:
        """The next time that it opens, whether it is open now or not."""
        return next(CronSim(self.cron, now))


def _check(cron: str) -> None:
    """Raises `ValueError` for what is no cron expression, or names a day that never comes."""
    if len(cron.split()) != 5:
        raise ValueError(f"window {cron!r} is no cron expression of five fields, such as '0 2 * * *'")
    try:
        CronSim(cron, _ANY_DAY)
    except CronSimError as exc:
        raise ValueError(f"window {cron!r} is no cron expression: {exc}") from exc
