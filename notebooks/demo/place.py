"""Where the demo happens: clusters on free ports of this machine, a lake of its own, and a scratch directory."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mirrorlake.config.schema.mirror import MirrorConfig
from mirrorlake.errors import SandboxError, UsageError
from mirrorlake.sandbox.detached import loopback_listener
from mirrorlake.sandbox.ports import LOOPBACK, free_ports, is_free
from mirrorlake.sandbox.traffic import SAMPLE_TOPICS, sample_topics

FOLDER, MARKER = "demo", ".mirrorlake-demo"
_PREFIX, _LOCK = "mirrorlake-demo-", "lock"


def with_free_ports(config: MirrorConfig) -> tuple[MirrorConfig, dict[str, tuple[str, str]]]:
    """Return the settings with addresses on which brokers can be started, and what was changed: `alias -> (old, new)`.

    Raises:
        UsageError: an address is not on this machine, or a source has no topic that the demo could fill.
    """
    clusters, moved = dict(config.clusters), {}
    for alias in sorted({*config.sources, *config.targets}):
        wanted = config.cluster(alias).servers()
        try:
            listener = loopback_listener(alias, wanted)
        except SandboxError as error:
            raise UsageError(
                f"the demo starts its own brokers, and {alias} is at {wanted}",
                consequence="nothing was started",
                remedy="make demo CONF=conf/demo.yml; for existing clusters: mirrorlake run",
                alias=alias,
            ) from error
        address = f"{LOOPBACK}:{listener.port if is_free(listener.port) else free_ports(1)[0]}"
        clusters[alias] = clusters[alias].model_copy(update={"bootstrap_servers": (address,)})
        if not address.endswith(f":{listener.port}"):
            moved[alias] = (wanted, address)
    for alias in config.sources:
        if not sample_topics(config.flows_from(alias)):
            raise UsageError(
                f"no flow takes one of the demo's topics from {alias}",
                consequence="nothing was started",
                remedy=f"let a flow's `topics` match one of: {', '.join(SAMPLE_TOPICS)}",
                alias=alias,
            )
    return config.model_copy(update={"clusters": clusters}), moved


def claim_lake(config: MirrorConfig) -> Path:
    """Return the folder of the demo's lake, emptied of an earlier demo and marked as the demo's own.

    It lies inside the lake of the settings but is not part of it: the demo's brokers end with the demo, and other clusters
    at their addresses begin a lake of their own.

    Raises:
        UsageError: the lake is not a folder on this machine, or the demo's place in it holds something that no demo wrote.
    """
    location = config.lake.location()
    if location is None or ":/" in location:
        raise UsageError(
            "the demo keeps its lake on this machine, and the settings put it elsewhere",
            consequence="nothing was started",
            remedy="set lake.root to a folder such as ./lake",
        )
    root = Path(location) / FOLDER
    for place in (root.parent, root):
        if place.exists() and not place.is_dir():
            raise UsageError(
                f"{place} is not a folder", consequence="nothing was started", remedy="set lake.root to a folder"
            )
    if root.is_dir() and any(root.iterdir()) and not (root / MARKER).is_file():
        raise UsageError(
            f"{root} holds something that no demo created",
            consequence="nothing was started, and the folder was left as it is",
            remedy="set lake.root in the demo's settings to another folder, or move this one away",
        )
    root.mkdir(parents=True, exist_ok=True)
    # First, and never removed: a demo that is killed while it clears the folder must find it its own next time.
    (root / MARKER).write_text("This lake was made by `make demo`, which replaces it at its next run.\n")
    for entry in root.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != MARKER:
            entry.unlink()
    return root


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Give a temporary directory and remove it afterwards, with those of demos that were killed."""
    place = Path(tempfile.mkdtemp(prefix=_PREFIX))
    # The kernel releases the lock when the process ends, however it ends.
    with (place / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for other in place.parent.glob(f"{_PREFIX}*"):
            # Where this fails, it belongs to another user or to a running demo, or is not locked yet: leave it alone.
            with suppress(OSError), (other / _LOCK).open() as held:
                if other != place:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(other, ignore_errors=True)
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
