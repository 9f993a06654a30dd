"""Configure object stores once for three libraries: delta-rs, Arrow, and Hadoop in Spark's JVM.

A store is attached to the process, so that an address below its root is enough to open a file: `run_tasks` attaches the driver's
stores to each worker. Credentials are sent inside tasks, as Kafka's are, never in an address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlparse

from pyarrow import fs

_S3 = ("s3", "s3a", "s3n")
_AZURE = ("abfss", "abfs")
_DELTA_S3 = {
    "endpoint": "aws_endpoint",
    "region": "aws_region",
    "access_key": "aws_access_key_id",
    "secret_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
}
_DELTA_AZURE = {
    "account_key": "azure_storage_account_key",
    "client_id": "azure_storage_client_id",
    "client_secret": "azure_storage_client_secret",
    "tenant_id": "azure_storage_tenant_id",
}
_ARROW_S3 = {
    "region": "region",
    "access_key": "access_key",
    "secret_key": "secret_key",
    "session_token": "session_token",
}
_S3A = {
    "endpoint": "endpoint",
    "region": "endpoint.region",
    "access_key": "access.key",
    "secret_key": "secret.key",
    "session_token": "session.token",
}
# The libraries require a region even for servers without any.
_REGION = "us-east-1"
# By default the libraries retry for 180 s; an unreachable store fails the turn, which is retried with pauses of its own.
_PATIENCE = {"max_retries": "5", "retry_timeout": "30s", "connect_timeout": "5s"}
_CONNECT_S, _REQUEST_S = 5.0, 30.0


@dataclass(frozen=True)
class Store:
    """An object store below an address, in the scheme of `s3a:`, `abfss:` or `gs:`.

    `values` are the settings of `lake.storage`, references resolved; missing ones come from the sources of the store's own tools
    (the environment, a role of the machine).
    """

    root: str
    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    def holds(self, address: str) -> bool:
        ours, its = _parts(self.root), _parts(address)
        return its == ours or its.startswith(f"{ours}/")

    @cached_property
    def for_delta(self) -> dict[str, str]:
        if self._is_s3:
            options = _PATIENCE | _rename_keys(_DELTA_S3, self.values)
            # The store refuses the second of two writers of one version (law F).
            options["aws_conditional_put"] = "etag"
            options.setdefault("aws_region", _REGION)
            if "path_style" in self.values:
                options["aws_virtual_hosted_style_request"] = str(self.values["path_style"] != "true").lower()
        else:
            options = _PATIENCE | _rename_keys(_DELTA_AZURE, self.values)
        if self.values.get("allow_http") == "true":
            options["allow_http"] = "true"
        return options

    @cached_property
    def for_arrow(self) -> fs.FileSystem:
        if self._is_s3:
            return fs.S3FileSystem(**self._s3_arguments())
        if self._scheme in _AZURE:
            known = ("account_key", "client_id", "client_secret", "tenant_id")
            arguments = {key: self.values[key] for key in known if key in self.values}
            return fs.AzureFileSystem((urlparse(self.root).hostname or "").partition(".")[0], **arguments)
        return fs.GcsFileSystem()

    def for_hadoop(self) -> dict[str, str]:
        """Return Hadoop's S3A settings of this bucket alone, or {} for other stores, which a host configures itself."""
        if not self._is_s3:
            return {}
        bucket = urlparse(self.root).netloc
        found = _rename_keys(_S3A, self.values)
        if "path_style" in self.values:
            found["path.style.access"] = self.values["path_style"]
        if "endpoint" in self.values:
            found.setdefault("endpoint.region", _REGION)
        if "session_token" in self.values:
            found["aws.credentials.provider"] = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
        elif "access_key" in self.values:
            found["aws.credentials.provider"] = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
        return {f"fs.s3a.bucket.{bucket}.{key}": value for key, value in found.items()}

    @property
    def jar_sets(self) -> tuple[str, ...]:
        """The sets of jars that a local session's SQL needs to read the store."""
        return ("s3a",) if self._is_s3 else ()

    def _s3_arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = _rename_keys(_ARROW_S3, self.values)
        if "endpoint" in self.values:
            scheme, _, place = self.values["endpoint"].rpartition("://")
            arguments |= {"endpoint_override": place.rstrip("/"), "scheme": scheme or "https"}
            arguments["force_virtual_addressing"] = self.values.get("path_style") == "false"
            arguments.setdefault("region", _REGION)
        # A file below 10 MB is written by one request, not by three.
        return arguments | {"allow_delayed_open": True, "connect_timeout": _CONNECT_S, "request_timeout": _REQUEST_S}

    @property
    def _scheme(self) -> str:
        return urlparse(self.root).scheme

    @property
    def _is_s3(self) -> bool:
        return self._scheme in _S3

    def __reduce__(self) -> tuple[Any, ...]:
        # Opened file systems cannot be pickled.
        return Store, (self.root, dict(self.values))


def _rename_keys(names: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    return {name: values[key] for key, name in names.items() if key in values}


def _parts(address: str) -> str:
    """Return an address independent of the scheme's spelling: `s3/bucket/path`."""
    parsed = urlparse(address)
    scheme = "s3" if parsed.scheme in _S3 else "abfs" if parsed.scheme in _AZURE else parsed.scheme
    return f"{scheme}/{parsed.netloc}{parsed.path}".rstrip("/")


_ATTACHED: dict[str, Store] = {}


def attach_stores(*stores: Store) -> None:
    """Make addresses below the roots of stores usable in this process."""
    for store in stores:
        if _ATTACHED.get(store.root) != store:
            _ATTACHED[store.root] = store


def attached_stores() -> tuple[Store, ...]:
    return tuple(_ATTACHED.values())


def find_store(address: str) -> Store | None:
    if ":/" not in address:
        return None
    found = [store for store in attached_stores() if store.holds(address)]
    return max(found, key=lambda store: len(store.root), default=None)


def open_address(uri: str) -> tuple[fs.FileSystem, str]:
    """Resolve an address to its file system and the path in it."""
    parsed = urlparse(uri)
    if parsed.scheme == "file":
        return fs.LocalFileSystem(), "/" + unquote(uri.partition(":")[2]).lstrip("/")
    if (store := find_store(uri)) is not None:
        # Azure's address names the container before the account.
        return store.for_arrow, f"{parsed.netloc.partition('@')[0]}{unquote(parsed.path)}"
    if parsed.scheme in ("s3a", "s3n"):
        uri = f"s3:{uri.partition(':')[2]}"
    filesystem, path = fs.FileSystem.from_uri(uri)
    return filesystem, path
