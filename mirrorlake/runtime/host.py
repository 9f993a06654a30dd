"""The user of this process, and its JVM: the one that it started, or that started it."""

from __future__ import annotations

import getpass
import os
import pwd
import sys
import tempfile

from mirrorlake.errors import StoreError
from mirrorlake.runtime.cache import cache_directory

# Set by spark-submit for the driver that it starts, on a machine or in a cluster.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_PARENT = os.getppid()


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def has_account() -> bool:
    """Return whether this user id is in passwd; in a container any number may be given."""
    try:
        return bool(pwd.getpwuid(os.getuid()))
    except KeyError:
        return False


def java_properties() -> list[str]:
    """Return the options that give Java this process' folders: it reads passwd and ignores `HOME` and `TMPDIR`."""
    home = [] if has_account() else [f"-Duser.home={cache_directory()}"]
    return [f"-Djava.io.tmpdir={tempfile.gettempdir()}", *home]


def spark_gone_error() -> StoreError:
    return StoreError(
        "Spark does not answer: its JVM ended",
        consequence="no stream can run in this process; the next one finishes its batches",
        remedy="run the same command again; if the system's log shows that memory ran out, give it more",
    )


def is_submitted() -> bool:
    """Return whether spark-submit started this process; its JVM then logs where spark-submit does."""
    return _SUBMITTED in os.environ


def is_host_gone() -> bool:
    """Return whether the JVM has ended that this process started, or that started it.

    A signal to `spark-submit` ends its JVM but not the Python driver.
    """
    if is_submitted():
        return os.getppid() != _PARENT
    # PySpark caches the gateway to a JVM for ever, and would use it again at each new start; a JVM killed during its start leaves
    # no session to check.
    # Another thread may be importing pyspark: a module without the class has started no JVM.
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    started = getattr(getattr(context, "_gateway", None), "proc", None)
    return started is not None and started.poll() is not None
