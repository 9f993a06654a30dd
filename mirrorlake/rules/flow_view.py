"""The view of a flow, which Spark's workers apply: its rules in order, then further stages."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.withheld import Withheld
from mirrorlake.rules.rule import Rule
from mirrorlake.rules.view import View, Viewed


class Stage(Protocol):
    """A step after the rules; picklable and deterministic."""

    @property
    def version(self) -> str:
        """Return the fingerprint of its effect, 8 hex digits."""

    def __call__(self, source: SourcePartition, viewed: Viewed) -> Viewed:
        """Split records into those to send and those to withhold, including those withheld before."""


@dataclass(frozen=True, kw_only=True)
class FlowView:
    """A flow's view of records: views before the rules, the rules, then the stages, with placement last.

    Its pickle is small: the worker that calls it makes the automata and DuckDB's connection.
    """

    before: tuple[View, ...] = ()
    rules: tuple[Rule, ...] = ()
    stages: tuple[Stage, ...] = ()

    @property
    def version(self) -> str:
        """Return the fingerprint of everything that decides the target's records, except secrets."""
        versions = [view.version for view in self.before]
        versions += [f"{rule.name}={rule.version}" for rule in self.rules]
        versions += [stage.version for stage in self.stages]
        return hashlib.sha256("\n".join(versions).encode()).hexdigest()[:8]

    def __call__(self, source: SourcePartition, records: pa.RecordBatch) -> Viewed:
        withheld: list[Withheld] = []
        for view in self.before:
            seen = view(source, records)
            records = seen.records
            withheld += seen.withheld
        for rule in self.rules:
            if rule.topics.matches(source.topic):
                records, held = rule(source, records)
                withheld += held
        viewed = Viewed(records=records, withheld=tuple(withheld))
        for stage in self.stages:
            viewed = stage(source, viewed)
        return viewed
