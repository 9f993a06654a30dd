"""The frame before a value: as confluent-kafka's own serializers write it, and nothing else is taken for one."""

from __future__ import annotations

import io

from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.schemas import FRAME_BYTES, parse_message_indexes, parse_schema_id

INDEXES = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20)


@given(schema_id=st.integers(0, 2**32 - 1), payload=st.binary())
def test_an_id_is_read_as_it_is_written(schema_id: int, payload: bytes) -> None:
    data = SchemaId("AVRO", schema_id).id_to_bytes() + payload
    assert parse_schema_id(data) == schema_id
    assert data[FRAME_BYTES:] == payload


@given(indexes=INDEXES, payload=st.binary())
def test_message_indexes_are_read_as_they_are_written(indexes: list[int], payload: bytes) -> None:
    data = SchemaId("PROTOBUF", 7, message_indexes=indexes).id_to_bytes() + payload
    assert parse_schema_id(data) == 7
    found = parse_message_indexes(data, FRAME_BYTES)
    assert found is not None
    assert found[0] == tuple(indexes)
    assert data[found[1] :] == payload


@given(data=st.binary())
def test_any_bytes_are_a_frame_or_none(data: bytes) -> None:
    assert (parse_schema_id(data) is not None) == (data[:1] == b"\0" and len(data) >= 5)
    found = parse_message_indexes(data, 0)
    if found is not None:
        indexes, end = found
        assert 0 < end <= len(data)
        # The shortest form of a path is not the only one: what is read again is the same path.
        buffer = io.BytesIO(data)
        assert tuple(SchemaId._read_index_array(buffer)) == indexes
        assert buffer.tell() == end


def test_what_is_no_frame() -> None:
    assert [parse_schema_id(data) for data in (None, b"", b"\0\0\0\1", b"\2\0\0\0\1", b'{"a": 1}', b"\1" * 16)] == [
        None
    ] * 6
    assert [parse_message_indexes(data, 0) for data in (b"", b"\x04\x02", b"\x01", b"\xff" * 9, b"\x02\x01")] == [
        None
    ] * 5
