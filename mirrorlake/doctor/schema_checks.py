"""Checks of the schema registries of a flow's clusters."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from mirrorlake.doctor.check_context import FlowCheckContext
from mirrorlake.doctor.findings import CheckOutcome, fine, some, warning
from mirrorlake.doctor.registry import check
from mirrorlake.render import plural
from mirrorlake.topics import SchemaUseReader, unknown_ids

_NEWEST = timedelta(days=1)


@check("registry.ids", layer="flow", per="flow", finds="warning", fix="sync: {schemas: true}, then mirrorlake apply")
def _ids(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """The target's schema registry knows the ids that mirrored records name: without their schema, consumers cannot read them."""
    flow, context = at.flow, at.inputs.context
    target = context.registry(flow.target)
    if target is None:
        yield fine(flow.name, f"{flow.target} has no schema registry in the settings")
        return
    uses = SchemaUseReader(at.inputs.lake, flow, context.audit(), newest=_NEWEST).read(at.inputs.now)
    unknown = unknown_ids(uses, source=context.registry(flow.source), target=target)
    for schema_id in unknown:
        names, count = sorted(uses.subjects[schema_id]), uses.records.get(schema_id, 0)
        records = f" ({plural(count, 'record')} lately)" if count else ""
        fix = f"register it there under this id, or set sync: {{schemas: true}} on {flow.name}, then mirrorlake apply"
        yield warning(
            flow.name, f"the registry of {flow.target} does not know id {schema_id} of {some(names)}{records}", fix
        )
    if not unknown:
        yield fine(flow.name, f"the registry of {flow.target} knows what records of the last day name")
