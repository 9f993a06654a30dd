"""Settings of a lake's object store: one spelling for delta-rs, Arrow and Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field, field_validator, model_validator

from mirrorlake.config import secrets
from mirrorlake.config.base import Flag, Settings
from mirrorlake.config.faults import SettingsFault, fault_error, raise_any

_S3 = ("endpoint", "region", "access_key", "secret_key", "session_token", "path_style", "allow_http")
_AZURE = ("account_key", "client_id", "client_secret", "tenant_id")
_KEYS = {
    **dict.fromkeys(("s3", "s3a"), _S3),
    **dict.fromkeys(("abfss", "abfs"), _AZURE),
    "gs": (),
}
_SECRETS = ("secret_key", "session_token", "account_key", "client_secret")


class StorageConfig(Settings):
    """Access to a lake on an object store without Spark; omitted settings come from the environment of the process.

    Example:
        >>> StorageConfig(region="eu-central-1", access_key="${env:KEY}", secret_key="${secret:lake/key}").values_of("s3a")
        {'region': 'eu-central-1', 'access_key': '${env:KEY}', 'secret_key': '${secret:lake/key}'}
    """

    endpoint: str | None = Field(default=None, description="https://host:port of an S3 server that is not Amazon's")
    region: str | None = Field(default=None, description="the bucket's region")
    access_key: str | None = Field(default=None, description="S3's access key id")
    secret_key: str | None = Field(default=None, description="S3's secret access key, a reference")
    session_token: str | None = Field(default=None, description="the token of temporary S3 credentials, a reference")
    path_style: Flag | None = Field(default=None, description="the bucket in the path, not in the host's name")
    allow_http: Flag | None = Field(default=None, description="permit an endpoint without TLS")
    account_key: str | None = Field(default=None, description="Azure's storage account key, a reference")
    client_id: str | None = Field(default=None, description="Azure's application, with client_secret and tenant_id")
    client_secret: str | None = Field(default=None, description="the application's secret, a reference")
    tenant_id: str | None = Field(default=None, description="the application's tenant")

    @field_validator(*_SECRETS)
    @classmethod
    def _by_reference(cls, value: str | None) -> str | None:
        if value is not None and not secrets.is_bare_reference(value):
            raise fault_error("the value (hidden) is written in the file", "write ${env:NAME} or ${secret:scope/key}")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> StorageConfig:
        findings = []
        if self.endpoint and self.endpoint.lower().startswith("http://") and not self.allow_http:
            problem = "'endpoint' has no TLS: credentials are only used to sign, but records are sent unencrypted"
            findings.append(SettingsFault(("endpoint",), problem, "write https://…, or add `allow_http: true`"))
        if (self.access_key is None) != (self.secret_key is None):
            findings.append(
                SettingsFault((), "'access_key' and 'secret_key' belong together", "write both, or neither")
            )
        if self.session_token and self.access_key is None:
            findings.append(SettingsFault(("session_token",), "it needs a key", "add access_key and secret_key"))
        raise_any(findings)
        return self

    def faults_of(self, root: str) -> Iterator[SettingsFault]:
        """Yield the faults of settings that do not fit the lake's address."""
        scheme, is_address, _ = root.partition("://")
        known = _KEYS.get(scheme) if is_address else None
        if known is None:
            remedy = "leave it out, or write root: s3a://bucket/path, abfss://… or gs://…"
            yield SettingsFault(("storage",), "'storage' is for a root on an object store", remedy)
            return
        for key in self.model_fields_set:
            if key not in known:
                remedy = f"leave it out; allowed keys: {', '.join(known) or 'none, the environment holds all settings'}"
                yield SettingsFault(("storage", key), f"'{key}' has no effect for {scheme}://", remedy)

    def values_of(self, scheme: str) -> dict[str, str]:
        """Return the given values as texts, with references unresolved."""
        given: dict[str, Any] = {key: getattr(self, key) for key in _KEYS.get(scheme, ())}
        return {
            key: str(value).lower() if isinstance(value, bool) else value
            for key, value in given.items()
            if value is not None
        }
