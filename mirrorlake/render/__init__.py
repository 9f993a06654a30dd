"""Render values: tables, badges, numbers with units, record content; the standard library only, and Rich for wrapping text.

Foreign text is escaped once, in this package: the result of `html()` can be put on a page unchanged.
"""

from __future__ import annotations

from mirrorlake.render.badge import Badge, Mood, badge
from mirrorlake.render.chart import (
    COLOURS,
    MAX_POINTS,
    broken_at_gaps,
    duration_ticks,
    limit_labels,
    split_limits,
)
from mirrorlake.render.content import (
    breakable,
    brief,
    clean,
    escape,
    headers,
    middle,
    payload,
    payload_html,
)
from mirrorlake.render.encoder import by_fields, document, json_file
from mirrorlake.render.linked_text import LinkedText, link
from mirrorlake.render.numbers import format_count, format_duration, format_size, format_time, plural
from mirrorlake.render.table import (
    MAX_NAME,
    MAX_ROWS,
    OPENS,
    Displayable,
    JsonDisplayable,
    Sheet,
    StepTime,
    Table,
    condensed,
    html_page,
    table,
)
from mirrorlake.render.whole import hex_text, json_text, whole_text
