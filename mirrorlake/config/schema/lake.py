"""Settings of the lake: a path, or a catalog and schema."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from mirrorlake.config import secrets
from mirrorlake.config.base import Settings
from mirrorlake.config.faults import SettingsFault, raise_any
from mirrorlake.config.schema.storage import StorageConfig
from mirrorlake.errors import ConfigError, Fault


class LakeConfig(Settings):
    """The location of the lake: a path, or a catalog and schema with a folder for checkpoint locations."""

    root: str | None = Field(
        default=None, description="any path Spark can write; a relative one starts at this file's folder"
    )
    catalog: str | None = Field(default=None, description="a Unity Catalog catalog, instead of root")
    schema_name: str | None = Field(default=None, alias="schema", description="the schema in the catalog")
    checkpoints: str | None = Field(default=None, description="a volume path for checkpoint locations, with catalog")
    storage: StorageConfig | None = Field(
        default=None, description="how an object store of root is reached without Spark: {region: ...}"
    )

    @model_validator(mode="after")
    def _one_place(self) -> LakeConfig:
        findings = []
        named = {"catalog": self.catalog, "schema": self.schema_name, "checkpoints": self.checkpoints}
        given = [key for key, value in named.items() if value]
        if self.root and given:
            findings = [SettingsFault((key,), f"'{key}' beside 'root'", "keep either root or catalog") for key in given]
        elif not self.root and not given:
            findings = [
                SettingsFault(
                    (), "the relay has no location", "add `root:` or `catalog:`, `schema:` and `checkpoints:`"
                )
            ]
        elif not self.root:
            missing = [key for key, value in named.items() if not value]
            findings = [SettingsFault((), f"'{key}' is missing", f"add `{key}:` beside {given[0]}") for key in missing]
        if self.storage is not None and not secrets.has_reference(self.root or ""):
            findings += self.storage.faults_of(self.root or "")
        raise_any(findings)
        return self

    def store(self) -> tuple[str, dict[str, str]] | None:
        """Return the address of the object store and the settings of `storage` by name; None without `storage`.

        Raises:
            ConfigError: a reference cannot be resolved, or does not resolve to an object store.
        """
        root = self.location()
        if self.storage is None or root is None:
            return None
        for fault in self.storage.faults_of(root):
            raise ConfigError([Fault(self.file, f"{self.place}.storage", fault.problem, fault.remedy)])
        given = self.storage.values_of(root.partition(":")[0])
        return root, {key: self.resolved(value, f"storage.{key}") for key, value in given.items()}

    def location(self) -> str | None:
        """Return the absolute root, relative to the settings file's folder; None on a catalog.

        Example:
            >>> mirror.config.lake.location()  # doctest: +SKIP
            '/home/me/project/lake'
        """
        if self.root is None:
            return None
        root = self.resolved(self.root, "root")
        return root.rstrip("/") if ":/" in root else self.beside_file(root)

    def folder(self) -> Path | None:
        """Return the root if it is a folder of this machine, or None."""
        root = self.location()
        return None if root is None or is_elsewhere(root) else Path(root)

    def namespace(self) -> tuple[str, str] | None:
        """Return (catalog, schema) with references resolved, or None on a path."""
        if self.catalog is None or self.schema_name is None:
            return None
        return self.resolved(self.catalog, "catalog"), self.resolved(self.schema_name, "schema")

    def checkpoint_location(self) -> str:
        """Return the folder for checkpoint locations: `checkpoints`, or `<root>/checkpoints`."""
        if self.checkpoints is not None:
            place = self.resolved(self.checkpoints, "checkpoints")
            return place if ":/" in place else self.beside_file(place)
        return f"{self.location()}/checkpoints"


def is_elsewhere(root: str) -> bool:
    """Return whether a root is outside this machine's own file system."""
    # Databricks mounts object stores below these paths, where a sqlite file cannot be locked.
    return ":/" in root or root.startswith(("/Volumes/", "/dbfs/", "/Workspace/"))
