"""Times as people write them: one reader for every option, field and call."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from mirrorlake.config import when
from mirrorlake.errors import UsageError

NOON = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("now", "11-22 12:00:00"),
        ("2026-11-22 03:30", "11-22 03:30:00"),
        ("2026-11-22", "11-22 00:00:00"),
        (" 2026-11-22T03:30:00Z ", "11-22 03:30:00"),
        ("2026-11-22T03:30:00+02:00", "11-22 01:30:00"),
        ("2026-11-22 03:30 Europe/Berlin", "11-22 02:30:00"),
        ("2026-07-22 03:30 Europe/Berlin", "07-22 01:30:00"),
        ("03:30", "11-22 03:30:00"),
        ("3:30", "11-22 03:30:00"),
        ("12:00", "11-22 12:00:00"),
        ("03:30:15", "11-22 03:30:15"),
        ("03:30Z", "11-22 03:30:00"),
        # The last time that it was so: nothing was recorded later today.
        ("23:30", "11-21 23:30:00"),
        ("yesterday 14:00", "11-21 14:00:00"),
        ("today 14:00 Asia/Tokyo", "11-22 05:00:00"),
        ("-2h", "11-22 10:00:00"),
        ("2h", "11-22 10:00:00"),
        ("90 minutes ago", "11-22 10:30:00"),
        ("1795318200000", "11-22 03:30:00"),
    ],
)
def test_a_time_is_read_as_people_write_it(text: str, found: str) -> None:
    read = when(text, now=NOON)
    assert (f"{read:%m-%d %H:%M:%S}", read.utcoffset()) == (found, timedelta(0))


def test_values_of_python_are_times_too() -> None:
    assert when(timedelta(hours=2), now=NOON) == NOON - timedelta(hours=2)
    assert when(NOON.astimezone(timezone(timedelta(hours=5))), now=NOON) == NOON
    with pytest.raises(UsageError, match="no time zone"):
        when(NOON.replace(tzinfo=None), now=NOON)


@pytest.mark.parametrize(
    "wrong",
    ["noonish", "-2", "-x h", "", "yesterday noon", "25:00", "2026-13-01", "03:30 Mars/Olympus", "-9999999999d"],
)
def test_a_mistake_is_one_sentence_with_examples(wrong: str) -> None:
    with pytest.raises(UsageError, match="is not a time") as caught:
        when(wrong, now=NOON)
    for example in ("2026-11-22 03:30", "yesterday 14:00", "-2h", "UTC"):
        assert example in caught.value.remedy
