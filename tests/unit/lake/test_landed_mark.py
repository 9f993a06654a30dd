"""The mark of a live lander: what it says, and of which relay; and the sign that a stream works."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrorlake.lake import LandedMark, LandedMarks, StreamSign, marks_address, read_mark
from mirrorlake.lake.landing_commits import APP
from mirrorlake.lake.reader import Commit
from mirrorlake.model.flow import TopicPartition
from mirrorlake.progress import ignore_progress
from tests.builders import NOON

SECOND = timedelta(seconds=1)
ORDERS, CLICKS = TopicPartition("orders", 3), TopicPartition("clicks", 0)
MARK = LandedMark(
    landed=(4, 7),
    complete_at=NOON,
    behind={ORDERS: NOON - SECOND, CLICKS: None},
    answered_at=NOON,
    silent_at=NOON + SECOND,
)


def lake_of(folder: Path, *, number: int, batch: tuple[int, int] | None, restored: bool = False) -> Any:
    """Return a lake whose relay is claimed under a number and holds batches up to one."""
    log = [] if batch is None else [Commit(1, {"app": APP, "checkpoint": batch[0], "batch": batch[1], "owner": "a"})]
    if restored:
        log.insert(0, Commit(2, {}, operation="RESTORE"))
    return SimpleNamespace(
        checkpoint_root=lambda: str(folder),
        relay_location=lambda alias: alias,
        relay_log=lambda _: object(),
        exists=lambda _: True,
        properties=lambda _: {"mirrorlake.checkpoint": str(number)},
        commits=lambda _: iter(log),
    )


@pytest.mark.law("E")
@pytest.mark.parametrize(
    ("topics", "complete_at"), [({"users"}, NOON), ({"users", "orders"}, NOON - SECOND), ({"orders", "clicks"}, None)]
)
def test_law_e_a_flow_is_as_complete_as_its_latest_partition(topics: set[str], complete_at: datetime | None) -> None:
    assert MARK.complete_for(topics.__contains__) == complete_at


@pytest.mark.law("E")
def test_law_e_a_mark_counts_for_the_relay_of_its_lander_and_batch_only(tmp_path: Path) -> None:
    current = lake_of(tmp_path, number=4, batch=(4, 7))
    assert read_mark(current, "east") is None
    marks = LandedMarks(marks_address(current, "east"), 4)
    assert read_mark(current, "east") is None, "its lander has marked nothing yet"
    marks.write(MARK)
    assert read_mark(current, "east") == MARK
    assert read_mark(lake_of(tmp_path, number=4, batch=(4, 8)), "east") == MARK
    assert read_mark(lake_of(tmp_path, number=5, batch=(4, 8)), "east") is None, "replaced"
    assert read_mark(lake_of(tmp_path, number=4, batch=(4, 6)), "east") is None, "put back from a backup"
    assert read_mark(lake_of(tmp_path, number=4, batch=(4, 8), restored=True), "east") is None
    LandedMarks(marks_address(current, "east"), 5)
    marks.write(MARK)
    assert read_mark(lake_of(tmp_path, number=5, batch=(4, 8)), "east") is None, "the sleeper wrote, and is not asked"


@pytest.mark.law("E")
def test_law_e_a_source_is_landed_up_to_where_all_its_groups_have_landed(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, number=4, batch=(4, 8))
    address = marks_address(lake, "east")
    LandedMarks(address, 3).write(MARK)
    first, second = (LandedMarks(address, 4, group, groups=2) for group in (0, 1))
    first.write(MARK)
    assert read_mark(lake, "east") is None, "the other group has marked nothing yet"
    second.write(LandedMark(landed=(4, 8), complete_at=NOON - 2 * SECOND, answered_at=NOON + 2 * SECOND))
    both = read_mark(lake, "east")
    assert both == LandedMark(
        landed=(4, 8), complete_at=NOON - 2 * SECOND, behind=MARK.behind, answered_at=NOON + 2 * SECOND
    ), "a source is silent where none of its leaders answers"
    assert read_mark(lake_of(tmp_path, number=4, batch=(4, 7)), "east") is None, "put back from a backup"
    second.write(LandedMark(landed=None, complete_at=None))
    assert read_mark(lake, "east").complete_at is None  # type: ignore[union-attr]
    assert sorted(one.name for one in Path(address).iterdir()) == [f"{4:020}.{group}.2" for group in (0, 1)]
    Path(address, f"{4:020}.0.2").unlink()
    assert read_mark(lake, "east") is None


def sign_in(root: str, times: list[int]) -> StreamSign:
    lake: Any = SimpleNamespace(checkpoint_root=lambda: root)
    return StreamSign(lake, "east", now_ms=lambda: times[0])


@pytest.mark.parametrize("scheme", ["", "file:"])
def test_a_sign_is_the_time_of_the_last_turn(tmp_path: Path, scheme: str) -> None:
    times = [5]
    sign = sign_in(f"{scheme}{tmp_path}/checkpoints", times)
    assert sign.read() is None, "landing never worked"
    heard: list[Any] = []
    tell = sign.signing(cast("Any", lambda *report: heard.append(report)), interval_s=3600)
    tell("land east", 0, None)
    times[0] = 6
    tell("land east", 10, 20)
    assert sign.read() == 5, "at its interval, not at every turn"
    times[0] = 7
    tell("land east", 20, 20)
    assert sign.read() == 7, "a drain that is done says so"
    assert [report[1] for report in heard] == [0, 10, 20]


def test_a_store_that_cannot_be_written_to_stops_no_landing(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file where a folder should be")
    sign = sign_in(str(tmp_path / "checkpoints"), [5])
    sign.signing(ignore_progress, interval_s=1)("land east", 1, 1)
    assert sign.read() is None
