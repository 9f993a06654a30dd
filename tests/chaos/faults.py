"""The faults by name: what each does to the world, and how it ends."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING

import psutil
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewPartitions

from mirrorlake.errors import SandboxError
from tests.chaos.cluster import Side
from tests.chaos.proxy import FAIR, Weather
from tests.chaos.schedule import Kind

if TYPE_CHECKING:
    from tests.chaos.world import World

Doing = Callable[["World", Random], AbstractContextManager[None]]
KINDS: dict[str, Kind] = {}
DOING: dict[str, Doing] = {}
_READY_S = 180.0


def _fault(
    name: str, subject: str, seconds: tuple[float, float] = (0, 0), *, weight: int = 2, needs_brokers: int = 1
) -> Callable[[Callable[[World, Random], Iterator[None]]], None]:
    def keep(do: Callable[[World, Random], Iterator[None]]) -> None:
        KINDS[name] = Kind(name=name, subject=subject, seconds=seconds, weight=weight, needs_brokers=needs_brokers)
        DOING[name] = contextmanager(do)

    return keep


# The mirror.


@_fault("mirror-kill", "mirror", weight=8)
def _(world: World, random: Random) -> Iterator[None]:
    with world.keeper.lock:
        world.keeper.now.kill()
    yield


@_fault("mirror-term", "mirror", weight=4)
def _(world: World, random: Random) -> Iterator[None]:
    with world.keeper.lock:
        world.keeper.now.ask_to_end(world.history)
    yield


@_fault("mirror-hang", "mirror", (5, 25), weight=4)
def _(world: World, random: Random) -> Iterator[None]:
    held = world.keeper.now
    held.send(signal.SIGSTOP)
    yield
    held.send(signal.SIGCONT)


@_fault("jvm-kill", "mirror", weight=4)
def _(world: World, random: Random) -> Iterator[None]:
    _kill_one(world, world.keeper.now.jvms(), random)
    yield


@_fault("worker-kill", "mirror", weight=5)
def _(world: World, random: Random) -> Iterator[None]:
    _kill_one(world, world.keeper.now.workers(), random)
    yield


@_fault("zombie", "mirror", (0, 20), weight=2)
def _(world: World, random: Random) -> Iterator[None]:
    """A second mirror takes over from one that hangs; the first wakes up, and has to end by itself with exit 3."""
    # One that hangs before it owns the flow takes it over from the second one when it wakes up.
    if "ready: flow" not in world.keeper.now.output:
        world.history.say("nothing to replace yet")
        yield
        return
    with world.keeper.lock:
        old = world.keeper.now
        old.send(signal.SIGSTOP)
        new = world.keeper.now = world.keeper.begin()
    world.wait(lambda: "ready: flow" in new.output or new.popen.poll() is not None, _READY_S)
    yield
    # One that another fault killed before it owned the flow has replaced nobody.
    if "ready: flow" not in new.output:
        world.history.say("the replacement ended first")
        old.kill()
        return
    old.send(signal.SIGCONT)
    try:
        code = old.popen.wait(90)
    except subprocess.TimeoutExpired:
        world.history.find("zombie", f"the mirror that was replaced still runs: {old.log.name}")
        old.kill()
        return
    world.history.say(f"the mirror that was replaced ended with {code}")
    if code not in (3, 4):
        world.history.find("zombie", f"the mirror that was replaced ended with {code}: {old.log.name}")


def _kill_one(world: World, processes: list[psutil.Process], random: Random) -> None:
    if not processes:
        world.history.say("nothing to kill yet")
        return
    victim = random.choice(sorted(processes, key=lambda one: one.pid))
    with suppress(psutil.NoSuchProcess):
        world.history.say(f"kills {victim.pid}, {victim.name()}")
        victim.kill()


# Brokers, and the way to them: the same for both clusters.


def _faults_of(alias: str) -> None:
    def side(world: World) -> Side:
        return world.sides[alias]

    @_fault(f"{alias}-kill", alias, (0, 20), weight=3)
    def _(world: World, random: Random) -> Iterator[None]:
        node = random.choice(side(world).nodes)
        node.kill()
        yield
        # A broker whose former session has not ended yet is refused, and started again by its keeper.
        with suppress(SandboxError):
            node.start()
        if not node.running:
            node.start()

    @_fault(f"{alias}-hang", alias, (3, 45))
    def _(world: World, random: Random) -> Iterator[None]:
        node = random.choice(side(world).nodes)
        node.pause()
        yield
        node.resume()

    @_fault(f"{alias}-leaders", alias, (2, 10), needs_brokers=3, weight=3)
    def _(world: World, random: Random) -> Iterator[None]:
        """A clean restart of one broker moves the leadership of its partitions away, and back."""
        node = random.choice(side(world).nodes)
        node.stop()
        yield
        node.start()

    network = f"{alias}-network"
    for name, seconds, weathers in (
        ("cut", (2, 40), [Weather(accepts=False)]),
        ("silent", (2, 75), [Weather(requests=False, answers=False)]),
        ("one-way", (2, 45), [Weather(answers=False), Weather(requests=False)]),
        ("slow", (10, 30), [Weather(delay_s=0.2), Weather(bytes_per_s=20_000)]),
    ):

        @_fault(f"{alias}-{name}", network, seconds)
        def _(world: World, random: Random, weathers: list[Weather] = weathers) -> Iterator[None]:
            weather = random.choice(weathers)
            world.history.say(f"{alias}: {weather}")
            side(world).set_weather(weather)
            if not weather.accepts:
                side(world).reset()
            yield
            # What was kept is lost with its connection, or arrives late.
            if not (weather.requests and weather.answers) and random.random() < 0.5:
                world.history.say(f"{alias}: connections are lost with what they kept")
                side(world).reset()
                time.sleep(0.2)
            side(world).set_weather(FAIR)

    @_fault(f"{alias}-reset", network, weight=3)
    def _(world: World, random: Random) -> Iterator[None]:
        for _ in range(random.randint(1, 5)):
            side(world).reset()
            time.sleep(random.random())
        yield


for _alias in ("source", "target"):
    _faults_of(_alias)


# Disks.


def _full(name: str) -> None:
    @_fault(f"{name}-full", name, (3, 25))
    def _(world: World, random: Random) -> Iterator[None]:
        if name not in world.disks:
            world.history.say("no disk of its own can be mounted here")
            yield
            return
        disk = world.disks[name]
        disk.fill()
        yield
        disk.free()


for _name in ("lake", "spark"):
    _full(_name)


# What applications and administrators do.


@_fault("partitions", "topics", weight=1)
def _(world: World, random: Random) -> Iterator[None]:
    topic = random.choice(world.topics)
    admin = world.source.admin()
    with suppress(KafkaException):
        count = len(admin.list_topics(topic, timeout=5).topics[topic].partitions) + 1
        for future in admin.create_partitions([NewPartitions(topic, count)]).values():
            future.result()
        world.history.say(f"{topic} has {count} partitions")
        world.writers[topic].partitions = count
    yield


@_fault("hung-transaction", "topics", (10, 40), weight=1)
def _(world: World, random: Random) -> Iterator[None]:
    """A transaction stays open on the source: nothing after it may be read until it ends."""
    mark = f"hung{random.randrange(10**9)}"
    options = {"transactional.id": mark, "transaction.timeout.ms": 120_000, "log_level": 0}
    producer = Producer({"bootstrap.servers": world.source.direct, **options})
    begun = False
    with suppress(KafkaException):
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce(random.choice(world.topics), mark.encode(), partition=0)
        begun = producer.flush(10) == 0
    yield
    if begun:
        with suppress(KafkaException):
            (producer.commit_transaction if random.random() < 0.5 else producer.abort_transaction)(30)


@_fault("flow-pause", "control", (5, 20), weight=1)
def _(world: World, random: Random) -> Iterator[None]:
    """An operator pauses the flow, or one topic, and resumes it."""
    what = random.choice([[], ["--topic", random.choice(world.topics)]])
    world.command("pause", "--flow", world.flow, *what)
    yield
    world.command("resume", "--flow", world.flow, *what)
