"""Laws reach the typed tables: what leaves the relay for good leaves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirrorlake.context import Context
from mirrorlake.maintenance.erased_targets import ErasedSpans
from mirrorlake.model.removed import Removed
from mirrorlake.tables import RowEraser, landed_topics, list_tables


def out_of_typed_tables(context: Context, source: str, removed: Sequence[Removed]) -> Mapping[str, int]:
    """Erase the rows of a source's erased records from every typed table; return their numbers by table.

    A table that no entry of the settings makes loses its rows, too.
    """
    if not removed:
        return {}
    lake = context.lake
    spans = ErasedSpans.of(removed, {}, reason="").spans
    eraser = RowEraser(lake, source, spans, now=context.now)
    known = {one.name: one for one in list_tables(context.config, {source: {at.topic for at in spans}})}
    of_other_topics = {one.name for one in list_tables(context.config, landed_topics(lake, context.config.sources))}
    names = {name for name in known if lake.exists(lake.typed_location(name))}
    names |= {*lake.typed_names()} - of_other_topics
    return {name: eraser.erase(name, known.get(name)) for name in sorted(names)}
