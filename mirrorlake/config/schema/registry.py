"""Settings of a schema registry that speaks Confluent's API (docs/schemas.md)."""

from __future__ import annotations

from pydantic import Field, field_validator

from mirrorlake.config import secrets
from mirrorlake.config.base import Options, Settings
from mirrorlake.config.faults import SettingsFault, did_you_mean, fault_error, raise_any
from mirrorlake.errors import ConfigError, Fault

_USER_INFO = "basic.auth.user.info"
_SECRET_OPTIONS = {_USER_INFO, "bearer.auth.token", "bearer.auth.client.secret", "ssl.key.password"}
_FILES = {"ssl.ca.location", "ssl.certificate.location", "ssl.key.location"}
_NUMBERS = {"timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms"}
_BEARER = ("credentials.source", "logical.cluster", "identity.pool.id", "client.id", "scope", "issuer.endpoint.url")
_OPTIONS = _SECRET_OPTIONS | _FILES | _NUMBERS | {"proxy", *(f"bearer.auth.{name}" for name in _BEARER)}


class RegistryConfig(Settings):
    """One schema registry. `client` has the names of confluent-kafka's `SchemaRegistryClient`; its secrets are references.

    Example:
        >>> RegistryConfig(url="http://localhost:8081").options()
        {'url': 'http://localhost:8081'}
    """

    url: str = Field(description="address of its Confluent API, or several with commas")
    client: Options = Field(default_factory=dict, description="options of its client: login, TLS, timeout, retries")

    @field_validator("url")
    @classmethod
    def _has_no_login(cls, url: str) -> str:
        if not secrets.has_reference(url) and any("@" in one or not _is_address(one) for one in url.split(",")):
            raise fault_error(
                "the value (hidden) is not an address, or has a login in it",
                f"write https://host:port, and the login under client as {_USER_INFO}",
            )
        return url

    @field_validator("client")
    @classmethod
    def _known_options(cls, client: dict[str, str]) -> dict[str, str]:
        raise_any(fault for key, value in client.items() for fault in _option_faults(key, value))
        return client

    def options(self) -> dict[str, str]:
        """Return url and client options with references resolved, and files absolute to the settings file.

        Raises:
            ConfigError: a reference cannot be resolved, or the address is none of HTTP.
        """
        url = self.resolved(self.url, "url")
        if not all(map(_is_address, url.split(","))):
            problem = "the reference resolves to something that is not an address"
            raise ConfigError([Fault(self.file, f"{self.place}.url", problem, "set it to https://host:port")])
        options = {key: self.resolved(value, f"client.{key}") for key, value in self.client.items()}
        return {"url": url} | {key: self.beside_file(text) if key in _FILES else text for key, text in options.items()}


def _is_address(text: str) -> bool:
    scheme, separator, host = text.strip().partition("://")
    return bool(scheme in ("http", "https") and separator and host)


def _option_faults(key: str, value: str) -> list[SettingsFault]:
    if key not in _OPTIONS:
        return [SettingsFault((key,), f"the registry's client does not know '{key}'", did_you_mean(key, _OPTIONS))]
    if key in _NUMBERS and not secrets.has_reference(value) and not value.replace(".", "", 1).isdigit():
        return [SettingsFault((key,), "a number is expected", "write 10")]
    if key in _SECRET_OPTIONS:
        # The name before the colon is no secret.
        secret = value.partition(":")[2] if key == _USER_INFO and not secrets.is_reference(value) else value
        if not secrets.is_bare_reference(secret):
            remedy = "write ${env:NAME} or ${secret:scope/key}"
            return [SettingsFault((key,), "the value (hidden) stands in the file", remedy)]
    return []
