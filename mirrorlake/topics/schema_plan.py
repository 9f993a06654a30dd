"""Plan and carry out the copies of schemas that a flow's records use, ids kept, references first (law G)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import RegistryError, SchemaConflict
from mirrorlake.lake import Audit, Lake
from mirrorlake.model.plan import Change, Note, Plan
from mirrorlake.schemas import Schema, SchemaRegistry, SubjectVersion, find_conflict, import_schema, keeps_ids
from mirrorlake.topics.used_schemas import MARK, SchemaUseReader, SchemaUses

SCHEMA = "schema"
_EVER = datetime.min.replace(tzinfo=timezone.utc)
# Keys that are numbers name a thousand ids that are none, and a running flow plans each minute.
_ASK_AGAIN = timedelta(minutes=10)


class SchemaSync:
    """Copy the schemas of one flow's records from the registry of its source to that of its target."""

    def __init__(
        self, flow: FlowConfig, *, source: SchemaRegistry, target: SchemaRegistry, lake: Lake, audit: Audit
    ) -> None:
        self.flow = flow
        self._source = source
        self._target = target
        self._audit = audit
        self._uses = SchemaUseReader(lake, flow, audit)
        self._unknown: dict[int, datetime] = {}

    def plan(self) -> Plan:
        """Plan the versions that the target's registry lacks; another schema with their id or version is a conflict.

        Raises:
            RegistryError: a registry does not answer, or refuses the login.
        """
        if self._source.url == self._target.url:
            return Plan()
        now = self._audit.now()
        uses = self._uses.read(now)
        ids = {key: subjects for key, subjects in uses.subjects.items() if self._is_schema(key, now)}
        plan = plan_schemas(self.flow, ids, source=self._source, target=self._target)
        return plan + Plan((self._uses.mark(ids, now),)) if uses.needs_mark else plan

    def _is_schema(self, schema_id: int, now: datetime) -> bool:
        """Return whether the source knows an id; others are bytes of another kind, or none of the mirror's."""
        if now - self._unknown.get(schema_id, _EVER) < _ASK_AGAIN:
            return False
        if self._source.find(schema_id) is None:
            self._unknown[schema_id] = now
            return False
        return True

    def carry_out(self, changes: Sequence[Change], *, command: str, plan: Plan) -> None:
        """Carry out the changes of the flow in their order, and record each in `audit`, also those before a refused one.

        Raises:
            SchemaConflict: one of them is a conflict, and nothing was copied; or became one since the plan.
            RegistryError: a registry does not answer or refuses; earlier changes remain.
        """
        if conflict := next((change for change in changes if change.action == "conflict"), None):
            raise conflict_error(conflict)
        done: list[Change] = []
        try:
            for change in changes:
                if change.kind == SCHEMA:
                    self._copy(change)
                done.append(change)
        finally:
            self._audit.record(done, command=command, plan=plan)

    def _copy(self, change: Change) -> None:
        subject, _, version = change.name.rpartition(" version ")
        at = SubjectVersion(subject, int(version))
        schema = self._source.registered(at)
        if schema.schema_id != change.after["id"]:
            raise RegistryError(
                f"{at} of the source's registry is id {schema.schema_id} now, and was {change.after['id']} in the plan",
                consequence="it was not copied",
                remedy="make a new plan",
            )
        import_schema(self._target, at, schema)


def plan_schemas(
    flow: FlowConfig, ids: Mapping[int, frozenset[str]], *, source: SchemaRegistry, target: SchemaRegistry
) -> Plan:
    """Plan the copies of schemas that the source knows, and of those that they refer to; `ids` have their topics' subjects.

    Raises:
        RegistryError: a registry does not answer, or refuses the login.
    """
    notes: list[Note] = []
    wanted: dict[SubjectVersion, Schema] = {}
    for schema_id, subjects in sorted(ids.items()):
        schema = source.schema(schema_id)
        versions = source.versions(schema_id)
        own = [at for at in versions if at.subject in subjects] or versions
        if not own:
            reason = f"it is deleted on {flow.source}, and has no version that could be copied"
            notes.append(Note(where=flow.target, kind=SCHEMA, name=f"id {schema_id}", reason=reason))
        for reference in schema.all_references() if own else ():
            wanted.setdefault(reference.at, reference.schema)
        wanted.update(dict.fromkeys(own, schema))
    changes = [found for at, schema in wanted.items() if (found := _change(flow, at, schema, target)) is not None]
    if any(change.action == "create" for change in changes) and not keeps_ids(target):
        reason = "the target's registry has no import mode: it would give schemas other ids than records name"
        changes = [replace(change, action="conflict", reason=reason) for change in changes]
    return Plan(tuple(changes), tuple(notes))


def _change(flow: FlowConfig, at: SubjectVersion, schema: Schema, target: SchemaRegistry) -> Change | None:
    after = {"id": schema.schema_id, "type": schema.kind}
    if (conflict := find_conflict(target, at, schema)) is not None:
        return _of(flow, str(at), "conflict", after, conflict)
    if target.find(at) is None:
        return _of(flow, str(at), "create", after, "records use it, and the target's registry lacks it")
    return None


def _of(flow: FlowConfig, name: str, action: str, after: object, reason: str) -> Change:
    return Change(where=flow.target, kind=SCHEMA, name=name, action=action, after=after, reason=reason, flow=flow.name)


def unknown_ids(uses: SchemaUses, *, source: SchemaRegistry | None, target: SchemaRegistry) -> list[int]:
    """List the ids that the source's registry knows and the target's does not; without a source's, all that the target's lacks.

    Raises:
        RegistryError: a registry does not answer, or refuses the login.
    """
    return [
        schema_id
        # Ids begin with 1.
        for schema_id in sorted(set(uses.subjects) - {0})
        if (source is None or source.find(schema_id) is not None) and target.find(schema_id) is None
    ]


def is_of_schemas(change: Change) -> bool:
    """Return whether a change belongs to a registry, not to the brokers of its cluster."""
    return change.kind in (SCHEMA, MARK)


def conflict_error(conflict: Change) -> SchemaConflict:
    """Return the error of a plan with a conflict of schemas."""
    return SchemaConflict(
        f"the plan holds a conflict: {conflict}",
        consequence="nothing was changed",
        remedy="give the target a registry of its own with Confluent's import mode, or set sync.schemas: false",
    )
