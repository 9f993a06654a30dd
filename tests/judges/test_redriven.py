"""Records of a quarantine stand on the target where they were sent again, before or after others: groups must not skip them."""

from __future__ import annotations

import pytest

from tests.kit.records import commit, send
from tests.servers.lakes import Pair


@pytest.mark.law("A")
def test_law_a_a_group_reads_what_was_sent_again_before_it_reads_what_followed(pair: Pair) -> None:
    pair.create(partitions=1)
    send(pair.east, pair.topic, [(b"no JSON", b"%d" % n, 0) for n in range(10)])
    pair.mirror(rules=[{"name": "kept", "keep": "value.kept = true"}]).run(once=True)
    mirror = pair.mirror(sync={"groups": False})
    mirror.apply()
    flow = mirror["east->central"]
    assert flow.quarantine.redrive().sent == 10
    send(pair.east, pair.topic, [(b'{"kept": true}', b"%d" % n, 0) for n in range(10, 14)])
    mirror.run(once=True)
    for group, offset, there in (("within", 4, 4), ("before", 0, 0), ("after", 12, 13)):
        commit(pair.east, group, pair.topic, {0: offset})
        [found] = flow.groups(groups=[group])
        assert (found.resume.downstream_offset, found.resume.exact) == (there, True), group
    assert flow.offsets.translate_back(pair.remote, 0, 4).offset == 4
