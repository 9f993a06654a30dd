"""A schema with what it refers to."""

from __future__ import annotations

from mirrorlake.schemas import Reference, Schema

ZIP = Schema(1, "AVRO", '"zip"')
ZIP_NAME = Reference("Zip", ZIP)
ADDRESS = Schema(2, "AVRO", '"address"', (ZIP_NAME,))
ADDRESS_NAME = Reference("Address", ADDRESS)
CUSTOMER = Schema(3, "AVRO", '"customer"', (ADDRESS_NAME, ZIP_NAME))


def test_what_is_needed_comes_once_and_before_what_needs_it() -> None:
    assert list(CUSTOMER.all_references()) == [ZIP_NAME, ADDRESS_NAME]
