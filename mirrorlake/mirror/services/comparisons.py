"""Compare source, relay and target of flows, again where records leave a relay meanwhile, and write down the proofs."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mirrorlake import verify
from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import StoreError
from mirrorlake.lake import KeptProofs, removed_from
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.verify import VerifyReports
from mirrorlake.progress import Tell, silent
from mirrorlake.rules import View, view_of_flow

if TYPE_CHECKING:
    from mirrorlake.verify import Verification

# An erasure and the pass of a retention may come one after the other.
_ATTEMPTS = 3

log = logging.getLogger(__name__)


class Comparisons:
    """Compare flows of a mirror, and keep what is proven."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @cached_property
    def _proofs(self) -> KeptProofs:
        return KeptProofs(self._context.lake)

    def compare(self, chosen: Sequence[FlowConfig], **how: Any) -> VerifyReports:
        """Compare flows at a fixed cut, and write down what is proven; `how` are the options of `_compare_once`.

        An erasure or a retention may take records out of a relay after a comparison has read which of them left: compare again.
        """
        for attempt in range(_ATTEMPTS):
            is_last = attempt == _ATTEMPTS - 1
            before = self._read_removals()
            verification, at = uuid.uuid4().hex, self._context.now()
            try:
                found = self._compare_once(chosen, verification, **how)
            except (FileNotFoundError, StoreError):
                if is_last or not self._has_left(before):
                    raise
            else:
                if is_last or all(one.equal for one in found.reports) or not self._has_left(before):
                    break
            log.info("verify.again why=%s", "records left a relay meanwhile")
        self._proofs.write(found.proofs, verification=verification, at=at)
        return VerifyReports(found.reports, verification=verification)

    def _read_removals(self) -> frozenset[tuple[str, SourcePartition, int | None]]:
        lake, sources = self._context.lake, self._context.config.sources
        acts = (one for alias in sources for one in removed_from(lake, alias))
        return frozenset((one.removal, one.source, one.relay_version) for one in acts)

    def _has_left(self, before: Collection[tuple[str, SourcePartition, int | None]]) -> bool:
        """Return whether records have left a relay since `before`, or are about to."""
        now = self._read_removals()
        return now != before or any(version is None for *_, version in now)

    def _compare_once(
        self,
        chosen: Sequence[FlowConfig],
        verification: str,
        *,
        full: bool = False,
        between: tuple[datetime | None, datetime | None] | None = None,
        sample: float | None = None,
        direct: bool = False,
        lost: Collection[str] = (),
        waits: bool = True,
        may_job: bool = True,
        tell: Tell = silent,
    ) -> Verification:
        context = self._context
        into = {
            target: self._with_redrives(target, context.config.flows_to(target))
            for target in {f.target for f in chosen}
        }
        sources = {each.source for flows in into.values() for each in flows}
        context.lake.create_all(sources)
        cuts = {target: verify.take_cut(context.lake, flows, context, lost=lost) for target, flows in into.items()}
        return verify.Verifier(
            chosen,
            lake=context.lake,
            proofs=self._proofs,
            clusters=context,
            cuts=cuts,
            relays=verify.Relays(context.lake, sources),
            views=self._views(),
            options=context.reader_options,
            scope=verify.Scope(
                full=full,
                between=None if between is None else verify.between(context.lake, sources, *between),
                sample=None if sample is None else sample / 100,
                seed=verification,
            ),
            lost=lost,
            direct=direct,
            waits=waits,
            # Beside streams a job's tasks would stand in line before those that send.
            session=context.standing_session() if may_job else None,
            tell=tell,
        ).run()

    def _with_redrives(self, target: str, flows: Iterable[FlowConfig]) -> list[FlowConfig]:
        """Return the flows into a target, and the flows that sent quarantined records of theirs again."""
        flows = list(flows)
        again = {redrive.ledger_topic: redrive for redrive in (flow.redrive() for flow in flows)}
        return [*flows, *(again[topic] for topic in sorted(self._context.admin(target).describe(again)))]

    def _views(self) -> dict[str, View]:
        """Return the view of each flow that has one, under its name and under that of its re-drive."""
        found: dict[str, View] = {}
        flows = self._context.config.flows
        for flow in flows:
            if (view := view_of_flow(flow, flows)) is not None:
                found |= {flow.name: view, flow.redrive_name: view}
        return found
