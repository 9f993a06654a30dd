"""Kafka's murmur2 and what it makes of keys: the Java vectors, and the vectorised form against the plain one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.rules import murmur2_of, partitions_for
from mirrorlake.rules.murmur2 import murmur2
from tests.builders import partition_for

# org.apache.kafka.common.utils.UtilsTest.testMurmur2
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}

KEYS = st.lists(st.none() | st.binary(max_size=40) | st.integers(500, 530).map(lambda size: b"\xfe" * size))


@pytest.mark.parametrize(("key", "expected"), JAVA.items())
def test_java_vectors(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected
    assert murmur2_of(pa.array([key])).tolist() == [expected]


@pytest.mark.law("D")
@given(keys=KEYS, count=st.integers(1, 2**31 - 1), skipped=st.integers(0, 3))
def test_law_d_vectorised_and_plain_partitions_agree(keys: list[bytes | None], count: int, skipped: int) -> None:
    expected = [-7 if key is None else partition_for(key, count) for key in keys]
    found = partitions_for(pa.array(keys, pa.binary()), count, nulls=-7)
    assert found.dtype == np.int32
    assert found.tolist() == expected
    # A slice shares its buffers with the whole; a chunked array has several.
    sliced = pa.array(keys, pa.large_binary()).slice(skipped)
    assert partitions_for(sliced, count, nulls=-7).tolist() == expected[skipped:]
    chunked = pa.chunked_array([pa.array(keys, pa.binary()), sliced.cast(pa.binary())])
    assert partitions_for(chunked, count, nulls=-7).tolist() == expected + expected[skipped:]


def test_a_topic_without_partitions_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        partitions_for(pa.array([b"a"]), 0)
