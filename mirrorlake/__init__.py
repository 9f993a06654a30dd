"""Mirror Kafka topics between clusters through Delta Lake, exactly once, with an exact offset map.

import mirrorlake as ml

mirror = ml.load("conf/demo.yml")
mirror.plan()
mirror.run(once=True)
mirror["east->central"].verify()
"""

from __future__ import annotations

from mirrorlake.lazy import attach

__version__ = "0.2.0"

# The public names are listed in `__init__.pyi`, and loaded at first use: importing the package starts nothing and stays below
# 0.3 s.
__getattr__, __dir__, __all__ = attach(__name__, "__version__")
