"""Murmur2 of keys inside Spark's workers; a room of its own, because pandas takes half a second to import."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from mirrorlake.rules import murmur2_of


def hashes(keys: pd.Series) -> pd.Series:
    """Return the hash of each key, signed as Java has it; what stands for a null key means nothing."""
    return pd.Series(murmur2_of(pa.array(keys, pa.binary(), from_pandas=True)))
