"""A schema with what it refers to."""

from __future__ import annotations

from dataclasses import replace

from mirrorlake.schemas import Reference, Schema, SubjectVersion

ZIP = Schema(1, "AVRO", '"zip"')
ZIP_NAME = Reference("Zip", SubjectVersion("zip", 1), ZIP)
ADDRESS = Schema(2, "AVRO", '"address"', (ZIP_NAME,))
ADDRESS_NAME = Reference("Address", SubjectVersion("address", 3), ADDRESS)
CUSTOMER = Schema(3, "AVRO", '"customer"', (ADDRESS_NAME, ZIP_NAME))


def test_what_is_needed_comes_once_and_before_what_needs_it() -> None:
    assert list(CUSTOMER.all_references()) == [ZIP_NAME, ADDRESS_NAME]


def test_a_schema_is_the_same_wherever_it_is_registered() -> None:
    moved = replace(ADDRESS_NAME, at=SubjectVersion("elsewhere", 1), schema=replace(ADDRESS, schema_id=9))
    assert CUSTOMER.is_same(replace(CUSTOMER, schema_id=7, references=(ZIP_NAME, moved)))
    other_zip = replace(ZIP_NAME, schema=replace(ZIP, text='"postcode"'))
    other_address = replace(ADDRESS_NAME, schema=replace(ADDRESS, references=(other_zip,)))
    assert not CUSTOMER.is_same(replace(CUSTOMER, references=(other_address, other_zip)))
    assert not CUSTOMER.is_same(replace(CUSTOMER, kind="JSON"))
    assert not CUSTOMER.is_same(replace(CUSTOMER, text='"client"'))
