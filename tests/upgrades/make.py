"""Let earlier releases write a lake, a ledger and checkpoint locations, and keep them with their brokers' files.

    python -m tests.upgrades.make 2026-11-21-first=1880388 2026-11-21-last=095fa69 0.1.0=eca72ae

Each release lands and republishes a topic of its own, between the same two clusters, and leaves some records landed and not
sent, and some not landed. The brokers' own files are kept instead of a copy of their records: they hold the ids of clusters and
topics that a lake refers to, the offsets between records, and the transactional ids of the lanes.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from mirrorlake.sandbox import KafkaCluster, start_all
from tests.flow.kit import ABORTED, commit, create_topic, odd_record, produce, send_transactions

ARCHIVE = Path(__file__).with_name("released.tar.xz")
GROUP, POSITION = "readers", 15


def topic_of(name: str) -> str:
    """Name the topic of a release."""
    return f"old-{name}"


def conf_of(name: str, folder: Path, east: str, central: str) -> Path:
    """Write a settings file that every release reads."""
    path = folder / f"{name}.yml"
    clusters = {"east": {"bootstrap_servers": east}, "central": {"bootstrap_servers": central}}
    flow = {"name": topic_of(name), "source": "east", "target": "central", "topics": topic_of(name)}
    path.write_text(json.dumps({"lake": {"root": str(folder / name)}, "clusters": clusters, "flows": [flow]}))
    return path


def fill(east: KafkaCluster, name: str) -> None:
    """Write records of every kind that law C names, an aborted transaction among them."""
    topic, rng = topic_of(name), random.Random(7)
    create_topic(east, topic, 2)
    produce(east, topic, 40)
    odd = [[{**odd_record(rng, n), "partition": n % 2} for n in range(20)] for _ in range(2)]
    aborted = [(b"k", ABORTED, partition) for partition in (0, 1)]
    send_transactions(east, topic, [(odd[0], True), (aborted, False), (odd[1], True)])


def run_release(tree: Path, *arguments: str) -> None:
    """Run a command of a release."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    subprocess.run([sys.executable, "-m", "mirrorlake", *arguments], cwd=tree, env=environment, check=True)


def write_as(commit_id: str, name: str, folder: Path, east: KafkaCluster, central: KafkaCluster) -> None:
    """Let a release land and republish, and stop in the middle of its work."""
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place)
        packed = subprocess.run(["git", "archive", commit_id], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", place], input=packed, check=True)
        conf = str(conf_of(name, folder, east.bootstrap_servers, central.bootstrap_servers))
        fill(east, name)
        commit(east, GROUP, topic_of(name), {0: POSITION})
        run_release(tree, "run", "--once", "--conf", conf)
        produce(east, topic_of(name), 20, seed=2)
        run_release(tree, "land", "--source", "east", "--once", "--conf", conf)
        produce(east, topic_of(name), 10, seed=3)


def main(releases: dict[str, str]) -> None:
    """Write the archive."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        clusters = [KafkaCluster(alias, directory=folder / alias) for alias in ("east", "central")]
        east, central = start_all(clusters)
        try:
            for name, commit_id in releases.items():
                write_as(commit_id, name, folder, east, central)
        finally:
            for cluster in clusters:
                cluster.stop()
        with tarfile.open(ARCHIVE, "w:xz") as archive:
            for part in (*releases, "east/data", "central/data"):
                archive.add(folder / part, part, filter=_kept)
    sys.stdout.write(f"{ARCHIVE.name}: {ARCHIVE.stat().st_size:,} bytes\n")


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out checksums that Hadoop makes beside its files, and who packed it."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return None if entry.name.endswith(".crc") and "/." in entry.name else entry


if __name__ == "__main__":
    main(dict(argument.split("=", 1) for argument in sys.argv[1:]))
