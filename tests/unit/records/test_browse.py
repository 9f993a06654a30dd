"""Pages and passports as they are shown and told: nothing of a record becomes markup, every offset has a word (law E)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import UsageError
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import GAP_KINDS
from mirrorlake.records import Passport, Seek
from mirrorlake.records.page import missing_between
from mirrorlake.records.record import WHY_MISSING, Missing, Outcome, in_words
from mirrorlake.render import document
from tests.builders import browsed, page_of, passport_of

EVIL = b'<script>alert("x")</script><img src=x onerror=alert(1)>'


@pytest.mark.law("E")
@given(st.sets(st.integers(0, 60)), st.integers(0, 30), st.integers(0, 30))
def test_law_e_every_offset_of_a_page_is_a_record_or_missing(offsets: set[int], start: int, length: int) -> None:
    end = start + length
    inside = sorted(offset for offset in offsets if start <= offset < end)
    missing = [o for first, last in missing_between(inside, start, end) for o in range(first, last + 1)]
    assert sorted([*inside, *missing]) == list(range(start, end))


@pytest.mark.law("E")
def test_law_e_every_kind_of_gap_has_words() -> None:
    assert set(GAP_KINDS) <= set(WHY_MISSING)
    for kind in WHY_MISSING:
        assert str(Missing(first=3, last=4, kind=kind)).startswith("offsets 3 to 4: ")


@pytest.mark.law("C")
@given(st.none() | st.binary(max_size=20))
def test_law_c_payloads_survive_json(data: bytes | None) -> None:
    import base64

    told = json.loads(json.dumps(document(data)))
    back = None if told is None else told["text"].encode() if "text" in told else base64.b64decode(told["base64"])
    assert back == data


def test_nothing_of_a_record_becomes_markup() -> None:
    odd = browsed(7, key=EVIL, value=EVIL, headers=((EVIL.decode(), EVIL), ("h", None)))
    shown = page_of([odd], start=7, end=8, side="relay", topic=EVIL.decode())
    outcome = Outcome(flow="f", target="t", status="quarantined", words=EVIL.decode(), rule="r", reason="why")
    passport = passport_of(7, outcome, words=EVIL.decode(), record=odd)
    for html in (shown.to_html(), passport.to_html()):
        assert "<script" not in html
        assert "<img" not in html
        assert "&lt;script" in html
    assert "‹null›" in shown.to_text(), "null and empty are two things (law C)"


def test_a_passport_says_plainly_where_law_e_does_not_hold() -> None:
    source, place = SourcePartition("orders", 1, 0), TopicPartition("east.orders", 0)
    sent = Outcome(flow="a", target="t", status="republished", words="t", place=place, offset=1, lane=0, ledger_seq=2)
    lost = Outcome(flow="b", target="t", status="unexplained", words="NOT accounted for")
    words = in_words("east", source, 7, None, (sent, lost))
    passport = passport_of(7, sent, lost, words=words)
    assert "NOT accounted for in 1" in words
    assert not passport.accounted_for
    assert "✗ not accounted for" in str(passport)
    assert passport.as_dict()["accounted_for"] is False
    for kind, accounted_for in (("unexplained", False), ("compacted", True)):
        missing = Missing(first=7, last=7, kind=kind)
        found = Passport(cluster="e", source=source, offset=7, words="", missing=missing)
        assert found.accounted_for == accounted_for


@pytest.mark.parametrize(
    "seek",
    [{"count": 0}, {"count": 1001}, {"offset": -1}, {"max_bytes": 0}, {"look": 0}, {"offset": 1, "before": {0: 1}}],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_read(seek: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Seek(**seek)
