"""Murmur2 of keys inside Spark's workers; a separate module, because the import of pandas takes half a second."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from mirrorlake.rules import murmur2_of


def hashes(keys: pd.Series) -> pd.Series:
    """Return the hash of each key, signed as in Java; the hash of a null key has no meaning."""
    return pd.Series(murmur2_of(pa.array(keys, pa.binary(), from_pandas=True)))
