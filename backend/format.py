"""Numbers and times as people read them, on pages, in the terminal and in sentences of the domain.

Rule: pure, units always, at most three significant digits in prose, an unknown value is "–" and never 0.
"""

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

UNKNOWN = "–"
_BYTES = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_COUNTS = ("", " k", " M", " G", " T")
_EXACT_COUNT_LIMIT = 100_000  # below, the grouped count is as short as a rounded one
_INTERVAL = re.compile(r"(\d+(?:\.\d+)?) *(millisecond|second|minute|hour|day)s?", re.IGNORECASE)
_SECONDS = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86_400.0}
_SOON = timedelta(days=6)  # a weekday names the day up to here


def _three_digits(number: float) -> str:
    """`number` with at most three significant digits, never in scientific notation: 1.2, 38.2, 382."""
    magnitude = abs(number)
    decimals = 0 if magnitude >= 100 else 1 if magnitude >= 10 else 2
    text = f"{number:z.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled(number: float, units: tuple[str, ...]) -> tuple[str, str]:
    """The digits and the 1000-based unit; 999,950 is 1 M and not 1000 k."""
    step = 0
    while abs(number) >= 999.5 and step < len(units) - 1:
        number /= 1000
        step += 1
    return _three_digits(number), units[step]


def bytes_text(size_bytes: float | None) -> str:
    """A size, 1000-based: 38.2 MB."""
    if size_bytes is None:
        return UNKNOWN
    digits, unit = _scaled(size_bytes, _BYTES)
    return f"{digits} {unit}"


def bytes_exact(size_bytes: int | None) -> str:
    """A size for details and hovers: 38,214,551 bytes."""
    return UNKNOWN if size_bytes is None else f"{size_bytes:,} byte{'' if abs(size_bytes) == 1 else 's'}"


def count_text(count: float | None) -> str:
    """A count, or a mean of some: 1,204 as it is, 12.3, from 100,000 on rounded to 1.2 M."""
    if count is None:
        return UNKNOWN
    if abs(count) < _EXACT_COUNT_LIMIT and (float(count).is_integer() or abs(count) >= 1_000):
        return f"{round(count):,}"
    digits, unit = _scaled(count, _COUNTS)
    return f"{digits}{unit}"


def count_exact(count: int | None) -> str:
    """A count for details and hovers: 1,204,331."""
    return UNKNOWN if count is None else f"{count:,}"


def rows_text(rows: int | None) -> str:
    """ "1,204 rows", or that their number is not known, within a sentence."""
    return "an unknown number of rows" if rows is None else things(rows, "row")


def things(count: int | None, one: str, many: str | None = None) -> str:
    """A count with its noun: "1 file", "1,204 files", "– files"."""
    return f"{count_text(count)} {one if count == 1 else many or one + 's'}"


def signed(count: int | None) -> str:
    """A change: +1,204, −3, ±0."""
    if count is None:
        return UNKNOWN
    return "±0" if count == 0 else f"{'+' if count > 0 else '−'}{count_text(abs(count))}"


def signed_bytes(size_bytes: int | None) -> str:
    """A change of size: +38.2 MB."""
    if size_bytes is None:
        return UNKNOWN
    return "±0 B" if size_bytes == 0 else f"{'+' if size_bytes > 0 else '−'}{bytes_text(abs(size_bytes))}"


def percent(share: float | None) -> str:
    """A share of one as a percentage: 0.3 %, 92 %. Neither end is reached by rounding: 99.97 % is "> 99.9 %"."""
    if share is None:
        return UNKNOWN
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{_three_digits(100 * share) if 100 * share < 10 else f'{100 * share:.0f}'} %"


def rate_text(per_s: float | None, unit: str = "rows") -> str:
    """A rate: 1.2 M rows/s."""
    return UNKNOWN if per_s is None else f"{count_text(per_s)} {unit}/s"


def duration_text(seconds: float | None) -> str:
    """A duration in its two largest units: 850 ms, 2.4 s, 2 min 10 s, 2 h 10 min, 3 d 4 h."""
    if seconds is None:
        return UNKNOWN
    if seconds < 0:
        return f"−{duration_text(-seconds)}"
    if seconds < 0.9995:
        return f"{_three_digits(seconds * 1000)} ms" if seconds else "0 s"
    if seconds < 59.95:
        return f"{_three_digits(seconds)} s" if seconds < 10 else f"{seconds:.0f} s"
    units = ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
    size, unit, smaller_size, smaller = next(scale for scale in units if round(seconds) >= scale[0])
    rest = round(seconds) % size // smaller_size
    return f"{round(seconds) // size:,} {unit}" + (f" {rest} {smaller}" if rest else "")


def ms_text(ms: float | None) -> str:
    """Milliseconds as "420 ms", "2.35 s" or "1 min 5 s"."""
    if ms is None:
        return UNKNOWN
    if ms < 1_000:
        return f"{ms:.0f} ms"
    return f"{ms / 1_000:.3g} s" if ms < 60_000 else duration_text(ms / 1_000)


def interval_s(text: str) -> float | None:
    """Seconds of "10 seconds" or "1 day", as people write them; None where it is no interval."""
    match = _INTERVAL.fullmatch(text.strip())
    return float(match[1]) * _SECONDS[match[2].lower()] or None if match else None


def span_text(seconds: float) -> str:
    """A duration in a sentence that is read anew all the time, so without the seconds of minutes: 38 s, 12 min, 3 d."""
    whole = round(max(seconds, 0))
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s" if seconds % 1 and seconds > 0 else f"{whole} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min"
    if whole < 86_400:
        minutes = whole % 3_600 // 60
        return f"{whole // 3_600} h {minutes} min" if minutes else f"{whole // 3_600} h"
    return f"{whole // 86_400} d"


def ago(moment: datetime | None, now: datetime) -> str:
    """How long since: 2 h 10 min ago."""
    return UNKNOWN if moment is None else ago_text((now - moment).total_seconds())


def ago_short(moment: datetime | None, now: datetime) -> str:
    """How long since, in its largest unit, where there is little room: 2 h ago."""
    return UNKNOWN if moment is None else ago_short_text((now - moment).total_seconds())


def ago_short_text(seconds: float) -> str:
    """An age in seconds, in its largest unit."""
    text = ago_text(seconds)
    number, *rest = text.split()
    return f"{number} {rest[0]} ago" if len(rest) > 2 and text.endswith(" ago") else text


def ago_text(seconds: float) -> str:
    """An age in seconds: 2 h 10 min ago. A moment ahead of this clock says so instead of hiding it: in 5 min."""
    if abs(seconds) < 1:
        return "just now"
    whole = round(seconds) if abs(seconds) < 60 else seconds
    return f"{duration_text(whole)} ago" if seconds > 0 else f"in {duration_text(-whole)}"


def utc_text(moment: datetime | None) -> str:
    """The exact moment: 2026-11-20 10:04:31 UTC."""
    return UNKNOWN if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def zone_of(name: str | None) -> ZoneInfo:
    """The time zone of a name; UTC where the name is none."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def local_text(moment: datetime | None, zone: str | None) -> str:
    """The exact moment in the viewer's time zone; in UTC when the zone is unknown."""
    return UNKNOWN if moment is None else moment.astimezone(zone_of(zone)).strftime("%Y-%m-%d %H:%M:%S %Z")


def moment_help(moment: datetime | None, zone: str | None = None) -> str:
    """What a hover says of a relative time: UTC, and the viewer's own clock where it differs."""
    exact, local = utc_text(moment), local_text(moment, zone)
    return exact if local == exact else f"{exact} · {local}"


def clock_text(moment: datetime, zone: str | None, now: datetime | None = None) -> str:
    """A moment in a sentence, on the viewer's clock: "Tue 14:05" within the next six days, else "1 Nov 2026 10:30"."""
    if moment.year >= 9000:
        return "the end of the calendar"
    try:
        local = moment.astimezone(zone_of(zone))
    except OverflowError:  # a log may name the first day of the calendar
        local = moment
    name = f" {local.tzname()}" if not zone or zone == "UTC" else ""
    if now is not None and timedelta() <= moment - now < _SOON:
        return f"{local:%a %H:%M}{name}"
    return f"{local.day} {local:%b %Y %H:%M}{name}"


def datetime_text(value: datetime) -> str:
    """A timestamp of a row, exact: 2026-11-20 10:04:31.5 UTC; one without zone names none."""
    zone = " UTC" if value.tzinfo else ""
    text = (value.astimezone(UTC) if value.tzinfo else value).replace(tzinfo=None).isoformat(sep=" ")
    return f"{text.rstrip('0') if '.' in text else text}{zone}"


def age_s(moment: datetime | None, now: datetime) -> float | None:
    """Seconds since a moment, for cells that sort by age."""
    return (now - moment).total_seconds() if moment else None


def figure_text(value: Any) -> str:
    """One value of a column for people; numbers with two decimals, small ones with four digits."""
    if isinstance(value, float | Decimal) and math.isfinite(value):
        return f"{value:,.2f}".rstrip("0").rstrip(".") if abs(float(value)) >= 1 else f"{float(value):z.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value_text(value)


def value_text(value: Any) -> str:
    """One value of a column, exact."""
    match value:
        case None:
            return UNKNOWN
        case bool():
            return "true" if value else "false"
        case datetime():
            return datetime_text(value)
        case date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case float():
            return number_word(value) or repr(value).removesuffix(".0")
    return str(value)


def number_word(value: float) -> str | None:
    """What is written for a number that no digits say; None for any other."""
    return None if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def cut(text: str, most: int = 60) -> str:
    """A text short enough for a list or a sentence; what was cut ends with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
