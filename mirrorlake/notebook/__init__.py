"""Floor 6: what a notebook needs beyond the package; IPython lives here and nowhere else.

Values show themselves (`mirrorlake.render`), so no extension has to be loaded.
"""

from __future__ import annotations

from mirrorlake.notebook import charts
from mirrorlake.notebook.display import show

__all__ = ["charts", "show"]
