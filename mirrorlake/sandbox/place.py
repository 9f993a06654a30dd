"""A playground: brokers on this machine with records, a lake, and their settings file."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from mirrorlake.errors import UsageError
from mirrorlake.sandbox.cluster import KafkaCluster, start_all
from mirrorlake.sandbox.traffic import SAMPLE_TOPICS, SampleTraffic, write_sample_traffic


class Place:
    """Clusters and a lake for a notebook; all end with `close()`, at the latest with this process.

    Args:
        flows: `source->target`, by aliases.
        records: sample records for each source; 0 for none.
        sample: partitions by topic of the sample records; the flows carry these topics.
        addresses: running clusters, by alias; a broker is started for every other alias.
        lake: the lake's location; "" for a temporary folder.
        tables: entries of `tables:`.

    Raises:
        UsageError: a flow is not written `source->target`.
        SandboxError: a broker does not start, or does not take the records.

    Example:
        >>> place = ml.sandbox.Place(["east->central"], records=300)  # doctest: +SKIP
        >>> mirror = ml.load(place.conf)  # doctest: +SKIP
        >>> place.close()  # doctest: +SKIP
    """

    def __init__(
        self,
        flows: Sequence[str],
        *,
        records: int = 0,
        sample: Mapping[str, int] = SAMPLE_TOPICS,
        addresses: Mapping[str, str] | None = None,
        lake: str = "",
        tables: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        ends = [_ends(flow) for flow in flows]
        aliases = list(dict.fromkeys(alias for pair in ends for alias in pair))
        given = {alias: address for alias, address in (addresses or {}).items() if address}
        self._folder = Path(tempfile.mkdtemp(prefix="mirrorlake-place-"))
        self._clusters = [KafkaCluster(alias) for alias in aliases if alias not in given]
        self._end = weakref.finalize(self, _close, self._clusters, self._folder)
        start_all(self._clusters)
        started = {cluster.alias: cluster.bootstrap_servers for cluster in self._clusters}
        self.addresses: dict[str, str] = {alias: (given | started)[alias] for alias in aliases}
        sources = dict.fromkeys(source for source, _ in ends)
        self.written: dict[str, SampleTraffic] = {
            alias: write_sample_traffic(self[alias], region=alias, records=records, topics=sample)
            for alias in (sources if records else ())
        }
        self.settings: dict[str, Any] = {
            "lake": {"root": lake or str(self._folder / "lake")},
            "clusters": {alias: {"bootstrap_servers": address} for alias, address in self.addresses.items()},
            "flows": [{"source": source, "target": target, "topics": ", ".join(sample)} for source, target in ends],
            **({"tables": [dict(entry) for entry in tables]} if tables else {}),
        }
        self.conf.write_text(yaml.safe_dump(self.settings, sort_keys=False))

    @property
    def folder(self) -> Path:
        """A folder that `close` removes."""
        return self._folder

    @property
    def conf(self) -> Path:
        return self._folder / "mirror.yml"

    def __getitem__(self, alias: str) -> str:
        return self.addresses[alias]

    def __repr__(self) -> str:
        started = {cluster.alias for cluster in self._clusters}
        clusters = ", ".join(
            f"{alias} at {address}{' (started here)' if alias in started else ''}"
            for alias, address in self.addresses.items()
        )
        return f"Place({clusters})"

    def close(self) -> None:
        """End the started brokers; remove the folder with their data and the lake in it."""
        self._end()

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ends(flow: str) -> tuple[str, str]:
    source, arrow, target = flow.partition("->")
    if not (source and arrow and target):
        raise UsageError(
            f"{flow!r} names no source and target",
            consequence="nothing was started",
            remedy='write it as "east->central"',
        )
    return source, target


def _close(clusters: list[KafkaCluster], folder: Path) -> None:
    for cluster in clusters:
        cluster.kill()
    shutil.rmtree(folder, ignore_errors=True)
