"""Edit the text of a settings file; comments and references stay as their author wrote them."""

from mirrorlake.config.text.references import without_secrets
from mirrorlake.config.text.yaml_text import (
    YamlText,
    append,
    line_of,
    own,
    put,
    put_below,
    remove,
    sections,
    write_selection,
)
