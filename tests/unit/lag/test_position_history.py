"""Lag that is made in columns for a folder says what the text says that Spark is asked; without Spark."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mirrorlake.lag.sql import LagTables, lag, loss, materialize_hops, rpo

from tests.builders import NOON
from tests.unit.lag.kit import question

MOMENTS, END = 5, 12
# Two flows from one source, one of which comes back; two lives of a topic.
FLOWS = {"east->central": ("east", "central"), "east->west": ("east", "west"), "west->east": ("west", "east")}
SPOTS = [("east", "t", 1, 0), ("east", "t", 2, 0), ("east", "t", 2, 1), ("west", "t", 1, 0)]
SUBJECTS = [*(("cluster", a) for a in ("east", "central", "west")), ("relay", "east"), ("relay", "west")]
SUBJECTS += [("flow", flow) for flow in FLOWS]
KEY = ("source", "topic", "generation", "partition")


def _lines() -> list[tuple[str, tuple[str, str, int, int]]]:
    return [(flow, spot) for flow, (source, _) in FLOWS.items() for spot in SPOTS if spot[0] == source]


def _tables(rng: Random) -> LagTables:
    places: list[tuple[Any, ...]] = [(kind, None, *spot, None) for kind in ("last_stable", "reached") for spot in SPOTS]
    places += [("republished", flow, *spot, None) for flow, spot in _lines()]
    places += [("group", None, *spot, "billing") for spot in SPOTS]
    places += [
        ("group", None, target, f"{source}.t", 1, partition, group)
        for source, target in FLOWS.values()
        for partition, group in product((0, 1), ("audit", "billing"))
    ]
    names = ("kind", "flow", *KEY, "group_id")
    moments = [NOON + timedelta(seconds=30 * number) for number in range(MOMENTS)]
    seen = list(product(places, moments))
    # Looks are not in the order of time, nor is each position seen at a look.
    positions = [
        {**dict(zip(names, place, strict=True)), "observed_at": moment}
        | {"position": None if rng.random() < 0.1 else rng.randint(0, END)}
        for place, moment in rng.sample(seen, len(seen))
        if rng.random() < 0.6
    ]
    samples = [
        {"observed_at": moment, "subject": subject, "name": name, "complete": rng.random() < 0.3}
        | {"error": None if rng.random() < 0.8 else "away"}
        for moment, (subject, name) in product(moments, SUBJECTS)
        if rng.random() < 0.9
    ]
    relays = [
        {**dict(zip(KEY, spot, strict=True)), "offset": offset}
        | {"timestamp": NOON - timedelta(seconds=rng.randint(-60, 60))}
        for spot in SPOTS
        for offset in range(END + 1)
        if rng.random() < 0.8
    ]
    runs = [run for line in _lines() for run in _runs(rng, *line)]
    withheld = [
        {"flow": flow, **dict(zip(KEY[1:], spot[1:], strict=True))}
        | {"first_offset": first, "last_offset": first + length - 1, "ranges": [{"first": first, "length": length}]}
        for flow, spot in _lines()
        for first, length in [(rng.randint(0, END), rng.randint(1, 3)) for _ in range(rng.randint(0, 2))]
    ]
    since = rng.choice([None, *moments])
    held = {"positions": positions, "samples": samples, "offset_map": runs, "withheld": withheld}
    return question(relays, FLOWS, since=since, **held)


def _runs(rng: Random, flow: str, spot: tuple[str, str, int, int]) -> list[dict[str, Any]]:
    """Cut the offsets of a line into runs, some with a hole, some written twice; several lines may share a target partition."""
    runs, first, downstream = [], 0, rng.randint(0, 3)
    while first < END:
        last = first + rng.randint(0, 5)
        hole = rng.randint(first, last)
        holes = [{"first": hole, "length": 1}] if last > first and rng.random() < 0.5 else []
        count = last - first + 1 - len(holes)
        run = {"flow": flow, "source_topic": spot[1], "generation": spot[2], "source_partition": spot[3]}
        run |= {"first_upstream": first, "last_upstream": last, "holes": holes, "first_downstream": downstream}
        run |= {"target_topic": f"{spot[0]}.t", "target_partition": spot[3], "record_count": count}
        runs += [{**run, "committed_at": NOON}] * rng.choice((0, 1, 1, 2))
        first, downstream = last + 1, downstream + count + rng.randint(0, 1)
    return runs


@pytest.mark.law("A")
@pytest.mark.law("E")
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32).map(Random).map(_tables))
# The relay holds a record past what one flow waits for, and what another one waits for tells it.
@example(_tables(Random(39123)))
@example(_tables(Random(56877)))
def test_law_a_and_e_columns_say_what_the_text_says(tables: LagTables) -> None:
    made = materialize_hops(tables)
    for asked in (lag, rpo, loss):
        plain, quick = (sorted(map(repr, asked(about).rows())) for about in (tables, made))
        assert quick == plain, asked.__name__
