"""A disk that is full, and a folder that may not be written, are sentences; anything else in a folder is a defect."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError

from mirrorlake.errors import StoreError
from mirrorlake.runtime import translating_store_errors


def test_a_full_disk_is_a_sentence() -> None:
    with (
        pytest.raises(StoreError, match="/lake/meta is on a full disk"),
        translating_store_errors("/lake/meta"),
    ):
        Path("/dev/full").write_text("a row")
    said = "Failed to parse parquet: Generic LocalFileSystem error: No space left on device (os error 28)"
    with pytest.raises(StoreError, match="free space there"), translating_store_errors("/lake/meta"):
        raise DeltaError(said)


def test_what_may_not_be_written_is_a_sentence() -> None:
    with pytest.raises(StoreError, match="may not be written"), translating_store_errors("/lake"):
        raise OSError(30, "Read-only file system")


def test_other_errors_of_a_folder_stay_what_they_are() -> None:
    with pytest.raises(DeltaError), translating_store_errors("/lake"):
        raise DeltaError("a version that nobody knows")
    with pytest.raises(FileNotFoundError), translating_store_errors("/lake"):
        Path("/lake/that/is/not/there").read_text()
