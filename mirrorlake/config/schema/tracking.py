"""Settings of the MLflow runs that log verifications and benchmarks."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from mirrorlake.config import secrets, values
from mirrorlake.config.base import Interval, Settings, at_least
from mirrorlake.config.faults import fault_error

_SCHEME = re.compile(r"(databricks|https?|sqlite|postgresql|mysql|mssql)(\+[a-z0-9]+)?(://.+)?")
_USER = re.compile(r"(?<=://)[^/@]*(?=@)")
_DATABRICKS = "databricks"
# Three slashes begin a relative path, four an absolute one.
_SQLITE_FILE = re.compile(r"(sqlite:///)([^?]+)(\?.*)?")


class TrackingConfig(Settings):
    """The tracking of runs; a mirror never depends on it.

    Example:
        >>> "secret" in repr(TrackingConfig(uri="https://me:secret@mlflow.example/"))
        False
    """

    enabled: Annotated[Literal["auto", True, False], BeforeValidator(values.auto_or_flag)] = Field(
        default="auto", description="auto: true if mlflow is installed and the runs can be stored"
    )
    uri: str | None = Field(default=None, description="MLflow's tracking URI; a sqlite file in the lake without it")
    experiment: str = Field(default="mirrorlake", min_length=1, description="the experiment that holds the runs")
    timeout: Annotated[
        Interval,
        at_least(timedelta.resolution, "'0s' leaves no time to log anything", "write 30s, or `enabled: false`"),
    ] = Field(default=timedelta(seconds=30), description="the longest that one run may take to log")

    @field_validator("uri")
    @classmethod
    def _known_scheme(cls, uri: str | None) -> str | None:
        if uri is None or secrets.has_reference(uri):
            return uri
        match = _SCHEME.fullmatch(uri)
        if match is None or (match.group(1) != _DATABRICKS and match.group(3) is None):
            # MLflow refuses its old store of plain files since 3.7.
            remedy = "write sqlite:////folder/mlflow.db, https://server or databricks"
            raise fault_error("the value (hidden) is not a tracking URI", remedy)
        return uri

    def tracking_uri(self) -> str | None:
        """Return the URI with references resolved; a sqlite file is relative to the settings file's folder.

        Raises:
            ConfigError: a reference cannot be resolved.
        """
        if self.uri is None:
            return None
        uri = self.resolved(self.uri, "uri")
        match = _SQLITE_FILE.fullmatch(uri)
        return uri if match is None else f"{match[1]}{self.beside_file(match[2])}{match[3] or ''}"

    def experiment_name(self, uri: str) -> str:
        """Return the experiment's name at a URI; a Databricks workspace requires a path."""
        is_path = self.experiment.startswith("/") or not uri.startswith(_DATABRICKS)
        return self.experiment if is_path else f"/Shared/{self.experiment}"

    def __repr_args__(self) -> Any:
        for name, value in super().__repr_args__():
            yield name, without_user(value) if name == "uri" and value else value


def without_user(text: str) -> str:
    """Return a text with user and password of every URI masked.

    >>> without_user("cannot reach postgresql://me:pw@db/mlflow")
    'cannot reach postgresql://********@db/mlflow'
    """
    return _USER.sub(secrets.MASK, text)
