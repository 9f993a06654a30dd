"""The arithmetic of the benchmark of targets, and the settings that it gives MirrorMaker 2."""

from __future__ import annotations

from tests.bench import mm2
from tests.bench.figures import MM2_EXACTLY_ONCE, MM2_TUNED
from tests.bench.targets import COLD, WARM, Row, table


def row(subject: str, targets: int, cpu: float) -> Row:
    return Row(subject, targets, 1000, cpu, 1.0, 0.0)


def test_the_table_holds_medians_and_shares_and_says_what_is_lacking() -> None:
    rows = [row(MM2_TUNED, 1, 6.0), row(MM2_TUNED, 3, 18.0), row(COLD, 1, 20.0)]
    rows += [row(WARM, 1, cpu) for cpu in (8.0, 9.0, 30.0)]
    assert table(rows).splitlines() == [
        "|  | 1 target | 3 targets |",
        "| --- | ---: | ---: |",
        "| mirrorlake, cold | 20.0 | – |",
        "| mirrorlake, warm | 9.0 | – |",
        "| MM2, tuned | 6.0 | 18.0 |",
        "| mirrorlake, warm / MM2, tuned | 1.50 | – |",
    ]


def test_one_process_of_mirrormaker_has_a_flow_to_each_target_and_none_between_them() -> None:
    servers = {"east": "e:1", "central": "c:1", "central2": "d:1"}
    found = mm2.fan_out(MM2_EXACTLY_ONCE, "east", ["central", "central2"], servers, rest_port=1)
    assert found["clusters"] == "east,central,central2"
    assert {key for key, value in found.items() if key.endswith("->central2.enabled") and value == "true"} == {
        "east->central2.enabled"
    }
    assert found["central->central2.emit.heartbeats.enabled"] == "false"
    for target in ("central", "central2"):
        assert found[f"{target}.producer.batch.size"] == "1000000"
        assert found[f"{target}.exactly.once.source.support"] == "enabled"
