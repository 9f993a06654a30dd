"""Schemas go to another registry with their ids: never over another one, and its modes are afterwards what they were."""

from __future__ import annotations

import pytest

from mirrorlake.errors import RegistryError, SchemaConflict
from mirrorlake.schemas import Reference, Schema, SchemaRegistry, SubjectVersion, import_schema, keeps_ids
from tests.servers.import_registry import ImportRegistry

TEXT = '{"type": "record", "name": "Sale", "fields": [{"name": "amount", "type": "int"}]}'
AT = SubjectVersion("sales/a-value", 3)


@pytest.fixture
def target(import_registry: ImportRegistry) -> SchemaRegistry:
    return SchemaRegistry({"url": import_registry.url, "max.retries": "0"})


def test_a_schema_keeps_id_and_version(import_registry: ImportRegistry, target: SchemaRegistry) -> None:
    assert keeps_ids(target)
    assert target.find(70) is None
    import_schema(target, AT, Schema(70, "AVRO", TEXT))
    assert target.schema(70).text == TEXT, "that it was unknown a moment ago is forgotten"
    assert target.versions(70) == [AT]
    assert import_registry.modes == {}
    import_schema(target, AT, Schema(70, "AVRO", TEXT.replace(" ", "")))
    assert import_registry.subjects == {AT.subject: {3: 70}}


@pytest.mark.parametrize("mode", ["IMPORT", "READWRITE", "READONLY"])
def test_a_mode_of_the_subject_is_left_as_it_was(
    import_registry: ImportRegistry, target: SchemaRegistry, mode: str
) -> None:
    import_registry.modes[AT.subject] = mode
    import_schema(target, AT, Schema(70, "AVRO", TEXT))
    assert import_registry.modes == {AT.subject: mode}


def test_references_are_by_version(import_registry: ImportRegistry, target: SchemaRegistry) -> None:
    money = Reference("Money", SubjectVersion("money", 2), Schema(5, "AVRO", '"int"'))
    sale = Schema(70, "AVRO", TEXT, (money,))
    with pytest.raises(RegistryError, match="42201"):
        import_schema(target, AT, sale)
    assert import_registry.modes == {}, "also after a refusal"
    import_schema(target, money.at, money.schema)
    import_schema(target, AT, sale)
    assert target.schema(70) == sale


@pytest.mark.parametrize(
    ("at", "schema_id", "reason"),
    [
        (SubjectVersion("other", 1), 70, "another schema is id 70 there"),
        (AT, 71, "another schema is that version there"),
    ],
)
def test_another_schema_is_never_written_over(
    import_registry: ImportRegistry, target: SchemaRegistry, at: SubjectVersion, schema_id: int, reason: str
) -> None:
    import_schema(target, AT, Schema(70, "AVRO", TEXT))
    before = dict(import_registry.schemas)
    with pytest.raises(SchemaConflict, match=reason):
        import_schema(target, at, Schema(schema_id, "AVRO", TEXT.replace("int", "long")))
    assert (import_registry.schemas, import_registry.subjects) == (before, {AT.subject: {3: 70}})
    assert import_registry.modes == {}


def test_a_schema_without_what_it_refers_to_is_no_unknown_id(
    import_registry: ImportRegistry, target: SchemaRegistry
) -> None:
    references = [{"name": "Money", "subject": "money", "version": 2}]
    import_registry.schemas[70] = {"schema": TEXT, "references": references}
    with pytest.raises(RegistryError, match="refers to money version 2, which it does not know") as caught:
        target.find(70)
    assert type(caught.value) is RegistryError
