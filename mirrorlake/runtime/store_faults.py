"""Explain errors of the lake's store: delta-rs, Arrow and the stores themselves word the same fault differently."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlparse

from mirrorlake.errors import StoreError
from mirrorlake.runtime.stores import Store, find_store

# The constant parts of the errors of stores and their libraries; the first match counts.
_SIGNS = (
    (
        ("requesttimetooskewed", "request_time_too_skewed"),
        "refuses the request's time: this machine's clock is off",
        "set the clock of this machine (NTP)",
    ),
    (
        ("nosuchbucket", "no_such_bucket", "containernotfound", "specified bucket does not exist"),
        "has no such bucket",
        "create the bucket {bucket}, or correct lake.root",
    ),
    (
        (
            *("invalidaccesskeyid", "invalid_access_key_id", "signaturedoesnotmatch", "signature_does_not_match"),
            *("accessdenied", "access_denied", "access denied", "expiredtoken", "authenticationfailed"),
            *("403", "401", "forbidden", "unauthorized", "credential"),
        ),
        "refuses the credentials",
        "check the keys that lake.storage refers to, and that they may list, read, write and delete below {root}",
    ),
    (
        (
            *(
                "network_connection",
                "connection refused",
                "couldn't connect",
                "connect error",
                "error trying to connect",
            ),
            *("dns error", "timed out", "timeout", "curlcode", "http error", "error sending request"),
        ),
        "does not answer",
        "check lake.storage.endpoint and region, and that this machine may connect there",
    ),
)

# The same for a folder; any other error of a folder is a defect and is raised with its traceback.
_SIGNS_OF_FOLDER = (
    (
        ("no space left on device", "disk quota exceeded"),
        "is on a full disk",
        "free space there, or move the lake to a larger disk",
    ),
    (
        ("permission denied", "read-only file system"),
        "may not be written",
        "let the user that runs mirrorlake read and write there",
    ),
)


def describe_fault(store: Store, error: Exception) -> tuple[str, str]:
    text = " ".join(str(error).split())
    lower, bucket = text.lower(), urlparse(store.root).netloc
    place = store.values.get("endpoint", urlparse(store.root).scheme)
    for signs, problem, fix in _SIGNS:
        if any(sign in lower for sign in signs):
            return f"the store at {place} {problem}", fix.format(bucket=bucket, root=store.root)
    return f"the store at {place} failed: {text[:200]}", f"check lake.storage and the permissions below {store.root}"


@contextmanager
def translating_store_errors(address: str, *passed: type[Exception]) -> Iterator[None]:
    """Raise errors of an object store, or of a folder's disk, as `StoreError`, except `passed` ones and missing files."""
    try:
        yield
    except Exception as error:
        known = (FileNotFoundError, IsADirectoryError, StoreError, *passed)
        store = find_store(address)
        named = _describe_folder_fault(address, error) if store is None else describe_fault(store, error)
        is_of_store = isinstance(error, OSError) or type(error).__module__.startswith(("deltalake", "_internal"))
        if named is None or isinstance(error, known) or not is_of_store:
            raise
        cause, remedy = named
        raise StoreError(cause, consequence="the last write there may not have been made", remedy=remedy) from error


def _describe_folder_fault(address: str, error: Exception) -> tuple[str, str] | None:
    lower = str(error).lower()
    return next(
        (
            (f"{address} {problem}", fix)
            for signs, problem, fix in _SIGNS_OF_FOLDER
            if any(sign in lower for sign in signs)
        ),
        None,
    )
