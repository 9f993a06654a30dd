"""Format numbers, durations, sizes and times with units."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Literal

NOTHING = "–"


def format_count(value: float | None) -> str:
    """Group the digits of a quantity by three; round a fraction to three significant digits.

    Print offsets, partitions and ids unchanged: people copy them into commands.

    >>> format_count(1234567), format_count(-1234), format_count(0.12345), format_count(None)
    ('1 234 567', '-1 234', '0.123', '–')
    """
    if value is None or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


def plural(number: int, word: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "record"), plural(1200, "record")
    ('1 record', '1 200 records')
    """
    return f"{format_count(number)} {word}{'' if number == 1 else 's'}"


def format_duration(value: float | timedelta | None) -> str:
    """Return a duration, in milliseconds or a timedelta, in its two largest units.

    >>> format_duration(320), format_duration(3210), format_duration(252_000), format_duration(timedelta(hours=27)), format_duration(0)
    ('320 ms', '3.2 s', '4 min 12 s', '1 d 3 h', '0 ms')
    """
    if value is None:
        return NOTHING
    ms = value / timedelta(milliseconds=1) if isinstance(value, timedelta) else float(value)
    if not math.isfinite(ms):
        return format_count(ms)
    if ms < 0:
        return f"-{format_duration(-ms)}"
    if ms < 999.5:
        # Microseconds help nobody.
        return f"{ms:.0f} ms" if ms >= 10 or ms < 0.05 else f"{ms:.2g} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    first = next(index for index, (number, _) in enumerate(units) if number)
    return " ".join(f"{format_count(number)} {unit}" for number, unit in units[first : first + 2])


def format_size(value: float | None) -> str:
    """Return a number of bytes with its unit; 1 kB is 1000 B.

    >>> format_size(999), format_size(1234), format_size(12_345_678), format_size(None)
    ('999 B', '1.2 kB', '12 MB', '–')
    """
    if value is None or not math.isfinite(value):
        return format_count(value)
    if value < 0:
        return f"-{format_size(-value)}"
    unit = "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 999.5:
            break
        unit, value = larger, value / 1000
    return f"{value:.1f} {unit}" if unit != "B" and value < 9.95 else f"{format_count(round(value))} {unit}"


def format_time(
    value: datetime | None, *, zone: tzinfo | None = None, precision: Literal["s", "ms"] = "s", date: bool = True
) -> str:
    """Return a time in a zone (the machine's by default) with its UTC offset, and in UTC.

    Example:
        >>> format_time(datetime(2026, 1, 1, 23, 30, tzinfo=timezone.utc), zone=timezone(timedelta(hours=1)))
        '2026-01-02 00:30:00 +01:00 (2026-01-01 23:30:00 UTC)'
        >>> format_time(datetime(2026, 1, 1, 12, tzinfo=timezone.utc), zone=timezone.utc)
        '2026-01-01 12:00:00 UTC'
    """
    if value is None:
        return NOTHING
    if value.tzinfo is None:
        raise ValueError(f"{value.isoformat()} does not know its zone")
    utc = value.astimezone(timezone.utc)
    try:
        here = utc.astimezone(zone)
    except OverflowError:  # the first and last hours of the calendar
        here = utc
    spoken = _clock(utc, precision, date=date and here.date() != utc.date()) + " UTC"
    if not here.utcoffset():
        return _clock(utc, precision, date=date) + " UTC"
    offset = f"{here:%z}"
    return f"{_clock(here, precision, date=date)} {offset[:3]}:{offset[3:5]} ({spoken})"


def _clock(value: datetime, precision: str, *, date: bool) -> str:
    text = value.isoformat(sep=" ", timespec="seconds" if precision == "s" else "milliseconds")
    # `%Y` pads years before 1000 only on some systems; isoformat always does.
    text = text[: 19 if precision == "s" else 23]
    return text if date else text[11:]
