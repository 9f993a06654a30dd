"""Consumer groups of a cluster that is not there."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from mirrorlake.errors import ClusterUnreachable
from mirrorlake.kafka.groups import Groups


def test_a_cluster_that_never_answered_is_not_waited_for_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirrorlake.kafka.groups.TIMEOUT_S", 1.0)
    groups = Groups("east", {"bootstrap.servers": "127.0.0.1:9"})
    pool = ThreadPoolExecutor(max_workers=1)
    try:
        with pytest.raises(ClusterUnreachable, match="east does not answer"):
            pool.submit(groups.states).result(timeout=120)
    finally:
        pool.shutdown(wait=False)
