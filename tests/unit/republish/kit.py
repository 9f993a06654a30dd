"""A flow that is owned, made of what a test is about."""

from __future__ import annotations

from typing import Any

from mirrorlake.model.remotes import LossResolution
from mirrorlake.republish import Tenure
from mirrorlake.republish.owned_flow import OwnedFlow


def owned_flow(**parts: Any) -> OwnedFlow:
    unused: Any = dict.fromkeys(("lake", "settings", "topics", "remotes", "copy", "claims", "progress"))
    return OwnedFlow(**{**unused, "resolution": LossResolution(), "tenure": Tenure(), **parts})
