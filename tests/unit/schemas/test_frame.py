"""The frame before a value: as confluent-kafka's own serializers write it, and nothing else is taken for one."""

from __future__ import annotations

import io

from confluent_kafka.schema_registry import _KEY_SCHEMA_ID, _VALUE_SCHEMA_ID
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.schemas import KEY_HEADER, VALUE_HEADER, WireFrame, parse_frame, parse_message_indexes

INDEXES = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20)


@given(schema_id=st.integers(0, 2**32 - 1), payload=st.binary())
def test_an_id_is_read_as_it_is_written(schema_id: int, payload: bytes) -> None:
    data = SchemaId("AVRO", schema_id).id_to_bytes() + payload
    assert parse_frame(data) == WireFrame(schema_id, None, 5)
    assert data[5:] == payload


@given(guid=st.uuids(), payload=st.binary())
def test_a_guid_is_read_as_it_is_written(guid: object, payload: bytes) -> None:
    assert parse_frame(SchemaId("AVRO", guid=str(guid)).guid_to_bytes() + payload) == WireFrame(None, str(guid), 17)


@given(indexes=INDEXES, payload=st.binary())
def test_message_indexes_are_read_as_they_are_written(indexes: list[int], payload: bytes) -> None:
    data = SchemaId("PROTOBUF", 7, message_indexes=indexes).id_to_bytes() + payload
    frame = parse_frame(data)
    assert frame is not None
    found = parse_message_indexes(data, frame.start)
    assert found is not None
    assert found[0] == tuple(indexes)
    assert data[found[1] :] == payload


@given(data=st.binary())
def test_any_bytes_are_a_frame_or_none(data: bytes) -> None:
    frame = parse_frame(data)
    assert (frame is not None) == ((data[:1] == b"\0" and len(data) >= 5) or (data[:1] == b"\1" and len(data) >= 17))
    found = parse_message_indexes(data, 0)
    if found is not None:
        indexes, end = found
        assert 0 < end <= len(data)
        # The shortest form of a path is not the only one: what is read again is the same path.
        buffer = io.BytesIO(data)
        assert tuple(SchemaId._read_index_array(buffer)) == indexes
        assert buffer.tell() == end


def test_what_is_no_frame() -> None:
    assert [parse_frame(data) for data in (None, b"", b"\0\0\0\1", b"\2\0\0\0\1", b'{"a": 1}', b"\1" * 16)] == [
        None
    ] * 6
    assert [parse_message_indexes(data, 0) for data in (b"", b"\x04\x02", b"\x01", b"\xff" * 9, b"\x02\x01")] == [
        None
    ] * 5


def test_the_headers_have_the_names_that_serializers_write() -> None:
    assert (KEY_HEADER, VALUE_HEADER) == (_KEY_SCHEMA_ID, _VALUE_SCHEMA_ID)
