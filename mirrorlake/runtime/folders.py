"""Read and write small files in a folder of this machine or under a prefix of an object store."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path

from pyarrow import fs

from mirrorlake.runtime.store_faults import translating_store_errors
from mirrorlake.runtime.stores import open_address


class Folder(ABC):
    """A folder of small files by name. A missing folder has none; its first file creates it."""

    @abstractmethod
    def names(self) -> list[str]: ...

    @abstractmethod
    def read(self, name: str) -> str:
        """Read a file; an OSError if it cannot be read (`FileNotFoundError` if it does not exist)."""

    @abstractmethod
    def write(self, name: str, text: str) -> None:
        """Write a file atomically: a reader gets the old or the new text; a file being written has a dot before its name."""

    @abstractmethod
    def has(self, name: str) -> bool: ...

    @abstractmethod
    def remove(self, name: str) -> None:
        """Delete a file, if it still exists."""

    def replace_older(self, name: str, *, spares_equals: bool = False) -> None:
        """Write an owner's empty file, and delete those of earlier owners; a name begins with the number in twenty digits.

        With `spares_equals` files of the same number are not deleted.
        """
        for other in self.names():
            is_older = other[:20] < name[:20] or (other[:20] == name[:20] and not spares_equals)
            # A name that begins with a dot is a file that another owner is writing.
            if is_older and not other.startswith("."):
                self.remove(other)
        self.write(name, "")


class LocalFolder(Folder):
    def __init__(self, path: str | Path) -> None:
        # Each live task checks up to a hundred times a second, and building a `Path` costs more than the check.
        self._path = str(path)

    def names(self) -> list[str]:
        try:
            return os.listdir(self._path)  # noqa: PTH208  a name costs less than a `Path`
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, name: str) -> str:
        with open(f"{self._path}/{name}", encoding="utf-8", errors="replace") as file:  # noqa: PTH123  likewise
            return file.read()

    def write(self, name: str, text: str) -> None:
        folder = Path(self._path)
        folder.mkdir(parents=True, exist_ok=True)
        waiting = folder / f".{name}"
        waiting.write_text(text, encoding="utf-8")
        waiting.replace(folder / name)

    def has(self, name: str) -> bool:
        return os.path.exists(f"{self._path}/{name}")  # noqa: PTH110  likewise

    def remove(self, name: str) -> None:
        Path(self._path, name).unlink(missing_ok=True)


class StoreFolder(Folder):
    """A prefix of an object store: a file is written by one request, and listed at once."""

    def __init__(self, address: str) -> None:
        self._address = address
        with translating_store_errors(address):
            self._files, self._path = open_address(address)

    def names(self) -> list[str]:
        with translating_store_errors(self._address):
            found = self._files.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        return [one.base_name for one in found]

    def read(self, name: str) -> str:
        with translating_store_errors(self._address), self._files.open_input_stream(f"{self._path}/{name}") as file:
            return bytes(file.read()).decode(errors="replace")

    def write(self, name: str, text: str) -> None:
        with translating_store_errors(self._address), self._files.open_output_stream(f"{self._path}/{name}") as file:
            file.write(text.encode())

    def has(self, name: str) -> bool:
        with translating_store_errors(self._address):
            return bool(self._files.get_file_info(f"{self._path}/{name}").type == fs.FileType.File)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError), translating_store_errors(self._address):
            self._files.delete_file(f"{self._path}/{name}")


def open_folder(address: str | Path) -> Folder:
    """Open the files below an address: a path of this machine, or the address of an object store."""
    place = str(address)
    if place.startswith("file:"):
        return LocalFolder(open_address(place)[1])
    return StoreFolder(place) if ":/" in place else LocalFolder(place)
