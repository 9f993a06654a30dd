"""Two clusters, a mirror between them, applications on the source, checkers, and the faults of a schedule."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic
from deltalake.exceptions import TableNotFoundError

from tests.chaos.cluster import Side
from tests.chaos.disks import Disk, can_mount
from tests.chaos.faults import DOING
from tests.chaos.groups import Groups
from tests.chaos.history import History
from tests.chaos.mirror import Keeper
from tests.chaos.schedule import Planned
from tests.chaos.traffic import Plain, Transactional, Writer
from tests.kit.map_check import assert_map_is_exact
from tests.kit.processes import environment, wait_until
from tests.kit.records import assert_equal_topics, consume, count

_SETTLE_S = 200.0
_COMMAND_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is drawn from the seed besides the faults."""

    brokers: int = 1
    # Of each topic.
    partitions: int = 3
    # Long-lived tasks, or Spark's own batches.
    live: bool = True
    upkeep_s: int = 0
    verify_s: int = 0
    lanes: int = 2
    rate: int = 150

    @classmethod
    def of(cls, seed: int, *, brokers: int, partitions: int = 3) -> Setting:
        random = Random(f"setting {seed}")
        return cls(
            brokers=brokers,
            partitions=partitions,
            live=random.random() < 0.75,
            upkeep_s=random.choice([0, 10, 30]),
            verify_s=random.choice([0, 0, 15]),
            lanes=random.choice([1, 2, 3]),
        )


class World:
    """Everything of one run; a `with` block starts and ends it."""

    flow = "source->target"

    def __init__(self, folder: Path, seed: int, setting: Setting, history: History) -> None:
        self.folder, self.history, self.setting = folder, history, setting
        # Too little for the lake of an hour, and enough for any run here.
        names = ("lake", "spark") if can_mount(folder) else ()
        self.disks = {name: Disk(folder / name, mib=512) for name in names}
        self.source = Side("source", folder, brokers=setting.brokers)
        self.target = Side("target", folder, brokers=setting.brokers)
        self.sides = {side.alias: side for side in (self.source, self.target)}
        kinds: dict[str, type[Writer]] = {"app.orders": Plain, "app.payments": Transactional}
        self.writers = {
            topic: kind(self.source.direct, topic, seed=seed, rate=setting.rate) for topic, kind in kinds.items()
        }
        self.topics = sorted(self.writers)
        servers = (self.source.direct, self.target.direct)
        self.groups = Groups(*servers, lambda topic: self.writers[topic].partitions, self.topics, seed=seed)
        self.conf = self._write_conf()
        self.records = 0

    def __enter__(self) -> World:
        starts = [threading.Thread(target=side.start) for side in self.sides.values()]
        for start in starts:
            start.start()
        for start in starts:
            start.join()
        new = [NewTopic(topic, self.setting.partitions, self.source.replication) for topic in self.topics]
        admin = self.source.admin()
        for future in admin.create_topics(new).values():
            future.result()
        for writer in self.writers.values():
            writer.partitions = self.setting.partitions
            writer.start()
        self.keeper = Keeper(self.folder, self.conf, self.history)
        self.keeper.start()
        self.groups.start()
        return self

    def __exit__(self, *_: object) -> None:
        for side in self.sides.values():
            side.set_weather()
        for writer in self.writers.values():
            writer.end()
        self.keeper.end()
        self.groups.end()
        for side in self.sides.values():
            side.kill()
        for disk in self.disks.values():
            disk.unmount()

    def wait_begun(self) -> None:
        """Wait until the first records have arrived: what is to be disturbed has to run."""
        wait_until(
            lambda: any(count(self.target.direct, f"source.{topic}") for topic in self.topics), "a record arrives"
        )
        self.history.say("the first records have arrived")

    def carry_out(self, schedule: Sequence[Planned]) -> None:
        """Do what the schedule says, and return when its last fault has ended."""
        began = time.monotonic()
        running = []
        for planned in schedule:
            time.sleep(max(0.0, began + planned.at_s - time.monotonic()))
            thread = threading.Thread(target=self._do, args=(planned,), name=planned.kind)
            thread.start()
            running.append((planned, thread))
        for planned, thread in running:
            thread.join(600)
            if thread.is_alive():
                self.history.find("chaos", f"{planned} did not end")

    def _do(self, planned: Planned) -> None:
        self.history.say(f"{planned.kind} begins, for {planned.for_s:.0f} s")
        try:
            with DOING[planned.kind](self, Random(planned.draw)):
                time.sleep(planned.for_s)
        except Exception as error:
            self.history.find("chaos", f"{planned} could not be done: {error!r}")
        self.history.say(f"{planned.kind} has ended")

    def settle(self) -> None:
        """End the writers, and hold the target against the source once everything had time to arrive."""
        for writer in self.writers.values():
            writer.end()
        for writer in self.writers.values():
            writer.join(150)
            if writer.failure is not None or writer.is_alive():
                self.history.find("chaos", f"{writer.name}: {writer.failure!r}")
        self.history.say("writers have ended")
        self.groups.end()
        for topic in self.topics:
            with suppress(KafkaException):
                self.groups.read_on(topic, 0.5)
        began, faults = time.monotonic(), list[str]()

        def has_arrived() -> bool:
            faults[:] = self._faults()
            return not faults

        self.wait(has_arrived, _SETTLE_S)
        self.history.say(f"settled after {time.monotonic() - began:.0f} s")
        for text in faults:
            self.history.find("promise", text)
        done = self.command("verify", "--json")
        if done.returncode != 0:
            self.history.find("verify", f"exit {done.returncode}: {(done.stdout or done.stderr)[:1500]}")

    def _faults(self) -> list[str]:
        """Hold each topic's copy, the offset map and the positions of its group against what the source has committed."""
        found, self.records = list[str](), 0
        for topic in self.topics:
            source, target = consume(self.source.direct, topic), consume(self.target.direct, f"source.{topic}")
            try:
                assert_equal_topics(source, target)
                assert_map_is_exact(self.lake, self.flow, topic, source, target)
            except (AssertionError, TableNotFoundError) as error:
                found.append(f"{topic}: {error}"[:1500])
                continue
            self.records += sum(map(len, source.values()))
            self.groups.look(topic)
            found += self.groups.faults(topic, source, target)
        return found

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of mirrorlake; what it does not do is a finding only where nothing disturbs it."""
        done = subprocess.run(
            [sys.executable, "-m", "mirrorlake", *arguments, "--conf", str(self.conf)],
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            env=environment(),
            check=False,
        )
        self.history.say(f"{' '.join(arguments)}: exit {done.returncode}")
        if "Traceback" in done.stderr:
            self.history.find("traceback", f"{' '.join(arguments)}: {done.stderr[-1500:]}")
        return done

    @property
    def lake(self) -> Path:
        return self.folder / "lake" / "tables"

    @staticmethod
    def wait(condition: Callable[[], Any], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with suppress(KafkaException):
                if condition():
                    return True
            time.sleep(0.3)
        return False

    def _write_conf(self) -> Path:
        setting = self.setting
        execution = "live" if setting.live else "streaming"
        land = {"land": {"execution": execution}}
        flow: dict[str, Any] = {"source": "source", "target": "target", "topics": r"app\..*", "lanes": setting.lanes}
        # Half a minute until groups are in step would be all of the time that some runs have.
        flow |= {"sync": {"groups_interval": "3s"}, "chunk_records": 500, "execution": execution}
        settings = {
            "lake": {"root": str(self.lake)},
            "clusters": {
                "source": {"bootstrap_servers": self.source.proxied, **land},
                "target": {"bootstrap_servers": self.target.proxied},
            },
            "flows": [flow],
            "tracking": {"enabled": False},
            "maintenance": {"every": f"{setting.upkeep_s}s"},
            "verify": {"every": f"{setting.verify_s}s"},
        }
        path = self.folder / "mirror.yml"
        path.write_text(json.dumps(settings, indent=1))
        self.history.say(f"setting: {asdict(setting)}")
        return path
