"""Address the tables of a lake: in a folder, on an object store, or in a catalog."""

from __future__ import annotations

import re
from pathlib import Path

from mirrorlake.config.schema import LakeConfig
from mirrorlake.lake.table_schema import TableSchema
from mirrorlake.runtime import Store, attach_stores

_PLAIN = re.compile(r"[A-Za-z0-9_]+")


class LakeAddresses:
    def __init__(self, config: LakeConfig, store: Store | None = None) -> None:
        self._store = _attached(config, store)
        self._root = config.location() if self._store is None else self._store.root
        self._namespace = config.namespace()
        self._checkpoints = config.checkpoint_location() if self._store is None else f"{self._root}/checkpoints"

    @property
    def address(self) -> str:
        return self._root or ".".join(self._namespace or ())

    def relay_location(self, alias: str) -> str:
        return self._join(f"relay/{alias}", f"relay_{_identifier(alias)}")

    def meta_location(self, table: TableSchema) -> str:
        return self._join(f"meta/{table.name}", table.name)

    def typed_location(self, name: str) -> str:
        return self._join(f"tables/{name}", _identifier(name))

    def typed_names(self) -> list[str]:
        """List the typed tables in a folder of this machine, also those that the settings no longer name."""
        return (
            sorted(log.parent.name for log in Path(self._root or "").glob("tables/*/_delta_log")) if self._root else []
        )

    def view_name(self, name: str) -> str:
        return self._join(name, name)

    def checkpoint_root(self) -> str:
        return self._checkpoints.rstrip("/")

    @property
    def is_catalog(self) -> bool:
        return self._namespace is not None

    @property
    def store(self) -> Store | None:
        """The object store with the tables that is reached without Spark; None for any other lake."""
        return self._store

    def _join(self, folder: str, table: str) -> str:
        if self._namespace is None:
            return f"{self._root}/{folder}"
        catalog, schema = self._namespace
        return f"`{catalog}`.`{schema}`.`{table}`"


def _attached(config: LakeConfig, store: Store | None) -> Store | None:
    """Attach and return the given object store or that of the settings, or return None without one."""
    if store is None:
        told = config.store()
        if told is None:
            return None
        root, values = told
        # Hadoop's spelling, which delta-rs and Arrow also accept.
        store = Store(f"s3a{root[2:]}" if root.startswith("s3:") else root, values)
    attach_stores(store)
    return store


def _identifier(alias: str) -> str:
    return alias if _PLAIN.fullmatch(alias) else "".join(c if _PLAIN.fullmatch(c) else f"_{ord(c):x}_" for c in alias)
