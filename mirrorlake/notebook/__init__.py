"""Support for notebooks; only this package uses IPython.

Values render themselves (`mirrorlake.render`), so no extension has to be loaded.
"""

from __future__ import annotations

from mirrorlake.notebook import charts
from mirrorlake.notebook.display import show
