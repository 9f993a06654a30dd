"""What real results show: nothing that stands on a cluster gets into a page or a terminal as a command of its own."""

from __future__ import annotations

from pyspark.sql import SparkSession

from mirrorlake.render import Displayable, clean, headers, payload, payload_html, table
from tests.kit.records import commit, send
from tests.servers.lakes import Pair
from tests.unit.markup import Markup

SCRIPT = "<script>alert('x')</script>"
IMAGE = "\x1b[2J</td><img src=x onerror=alert(1)>"


def jobs(spark: SparkSession) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def test_stored_attacks_are_shown_as_text_and_showing_starts_nothing(pair: Pair, spark: SparkSession) -> None:
    topic = pair.topic
    pair.create(partitions=1)
    send(pair.east, topic, [{"value": SCRIPT, "key": IMAGE, "headers": [(SCRIPT, IMAGE.encode())]}])
    commit(pair.east, SCRIPT, topic, {0: 1}, metadata=IMAGE)
    mirror = pair.mirror(groups=["<script>.*"])
    handle = mirror["east->central"]
    plan, ran = mirror.apply(), mirror.run(once=True)
    groups, status, report = handle.groups(), mirror.status(), mirror.verify()
    held = handle.pause(reason=IMAGE)
    found: list[Displayable] = [mirror, handle, plan, ran, groups, status, status[handle.name], report, report[0], held]
    found += [handle.offsets.translate(topic, 0, 0), mirror.doctor()]
    [record] = mirror.lake.relay("east").where(f"topic = '{topic}'").collect()

    before = jobs(spark)
    for value in found:
        assert Markup(value._repr_html_()).foreign == [], type(value)
        lines = [*str(value).split("\n"), *repr(value).split("\n")]
        assert [line for line in lines if clean(line) != line] == [], type(value)
    assert jobs(spark) == before, "showing a value started a Spark job"

    assert SCRIPT in Markup(groups._repr_html_()).text
    assert clean(IMAGE) in Markup(groups._repr_html_()).text, "the metadata of a commit"
    assert str(status).startswith("Status: ✓ OK · 1 flow · 1 partition · offset lag 0")
    assert str(report).startswith("verify: ✓ equal · 1 flow · 1 record verified")
    assert str(ran).startswith("run: 1 record landed · 1 record republished")
    pairs = [(one["key"], bytes(one["value"])) for one in record.headers]
    shown = table("", ["key", "value", "headers"], [(bytes(record.key), bytes(record.value), headers(pairs))])
    assert Markup(shown.html()).foreign == []
    assert Markup(payload_html(bytes(record.value))).text == SCRIPT
    assert payload(bytes(record.key)).startswith("0x1b5b324a"), "a key that moves the cursor is not text"

    said = pair.cli("groups", "--flow", "east->central", "--wide")
    assert (said.returncode, SCRIPT in said.stdout, "\x1b" in said.stdout) == (0, True, False), (
        said.stdout + said.stderr
    )
