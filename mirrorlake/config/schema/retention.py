"""Settings of a topic's retention in the relay; unlimited without them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field, model_validator

from mirrorlake.config.base import Flag, Interval, Settings, Size, at_least
from mirrorlake.config.faults import fault_error


class RetentionConfig(Settings):
    """The retention of topics in the relay: records past either bound may leave it once every flow has sent them."""

    age: Annotated[Interval, at_least(timedelta(hours=1), "less than an hour", 'write "1h" or more')] | None = Field(
        default=None, description="how old a record may become, by its timestamp"
    )
    bytes: Size | None = Field(default=None, description="how large the files of one partition may become")
    proven: Flag = Field(default=False, description="only what verify has proven on every target may leave")

    @model_validator(mode="after")
    def _says_when(self) -> RetentionConfig:
        if self.age is None and self.bytes is None:
            raise fault_error("no bound", "write {age: 90d}, {bytes: 500 GB} or both")
        return self
