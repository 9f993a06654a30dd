"""Over Spark Connect every stream ends at once, before anything is read or written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mirrorlake.errors import UsageError
from mirrorlake.mirror import Mirror, from_settings

STREAMS: dict[str, Callable[[Mirror], object]] = {
    "republish": lambda mirror: mirror.republish("east->central"),
    "publish": lambda mirror: mirror.publish(None, topic="orders"),  # type: ignore[arg-type]
    "producer": lambda mirror: mirror.producer(),
}


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_is_refused_over_connect(stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    clusters = {alias: {"bootstrap_servers": "127.0.0.1:1"} for alias in ("east", "central")}
    settings = {
        "lake": {"root": str(tmp_path / "lake")},
        "clusters": {**clusters, "app": {"kind": "lake", "topics": {"orders": {"partitions": 1}}}},
        "flows": [{"source": source, "target": "central", "topics": ".*"} for source in ("east", "app")],
    }
    with pytest.raises(UsageError, match="streams need a classic Spark session"):
        STREAMS[stream](from_settings(settings))
    assert not (tmp_path / "lake").exists()
