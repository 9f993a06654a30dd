"""Log runs without disturbing the caller: a failure is one log line and a count, and time is bounded."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import TypeVar

from mirrorlake.config.schema import MirrorConfig, without_user
from mirrorlake.errors import ConfigError
from mirrorlake.tracking.run import TrackedRun
from mirrorlake.tracking.store import RunStore

log = logging.getLogger(__name__)

T = TypeVar("T")
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_INSTALL = "pip install 'mirrorlake[mlflow]'"


@dataclass(eq=False, repr=False)
class Tracker:
    """Log runs to a store that may be missing, locked, unreachable or silent.

    MLflow's calls run on their own thread, which is abandoned at its time-out. While it hangs, further runs are dropped at once:
    a server that never answers costs its time-out once, not at every verification. `shown` masks secrets in messages.
    """

    open_store: Callable[[], RunStore] | None
    _: KW_ONLY
    timeout_s: float = 30.0
    shown: Callable[[str], str] = str
    logged: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)
    _store: RunStore | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _opening: threading.Lock = field(default_factory=threading.Lock, init=False)
    _warming: threading.Thread | None = field(default=None, init=False)
    _hanging: threading.Thread | None = field(default=None, init=False)

    @property
    def is_on(self) -> bool:
        """Whether runs are logged."""
        return self.open_store is not None

    def warm_up(self) -> None:
        """Open the store in the background: loading mlflow and a new sqlite file take seconds."""
        if (
            self.open_store is None
            or self._store is not None
            or (self._warming is not None and self._warming.is_alive())
        ):
            return
        self._warming = threading.Thread(target=self._try_to_open, name="mirrorlake-tracking", daemon=True)
        self._warming.start()

    def log(self, run: TrackedRun) -> str | None:
        """Log a run and return its id, or None if runs are not logged or it failed. Raises nothing."""
        if self.open_store is None:
            return None
        with self._lock:
            try:
                found = self._within_time(lambda: self._opened().log(run))
            except Exception as error:
                self.failures += 1
                # The open store may be the cause.
                self._store = None
                log.warning(
                    "tracking.not_logged run=%r failures=%d why=%s", run.name, self.failures, self._line_of(error)
                )
                return None
            self.logged += 1
            return found

    # -- bounded --------------------------------------------------------------------------------------------------

    def _opened(self) -> RunStore:
        with self._opening:
            if self._store is None:
                if self.open_store is None:
                    raise RuntimeError("runs are not logged")
                self._store = self.open_store()
            return self._store

    def _try_to_open(self) -> None:
        try:
            self._opened()
        except BaseException as error:
            # Logging the run will fail alike, and report it.
            log.debug("tracking.not_opened why=%s", self._line_of(error))

    def _within_time(self, call: Callable[[], T]) -> T:
        if self._hanging is not None and self._hanging.is_alive():
            raise TimeoutError("an earlier call has not come back yet")
        results: list[T] = []
        failures: list[BaseException] = []

        def work() -> None:
            try:
                results.append(call())
            except BaseException as error:
                failures.append(error)

        # A daemon: a silent server must not stop a process from ending.
        thread = threading.Thread(target=work, name="mirrorlake-tracking", daemon=True)
        thread.start()
        thread.join(self.timeout_s)
        if thread.is_alive():
            self._hanging = thread
            raise TimeoutError(f"no answer within {self.timeout_s:g} s")
        if failures:
            raise RuntimeError(f"{type(failures[0]).__name__}: {failures[0]}") from failures[0]
        return results[0]

    def _line_of(self, error: BaseException) -> str:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return self.shown(lines[0] if lines else type(error).__name__)[:300]


def lacking(uri: str) -> str | None:
    """Return what must be installed to log runs at a URI, or None."""
    needed = ["mlflow", *(["sqlalchemy", "alembic"] if uri.startswith(_DATABASES) else [])]
    missing = [name for name in needed if find_spec(name) is None]
    return f"{', '.join(missing)} is not installed: {_INSTALL}" if missing else None


def default_uri(config: MirrorConfig) -> str | None:
    """Return the store's URI: `tracking.uri`, else a sqlite file in the lake's folder, else None."""
    folder = config.lake.folder()
    return config.tracking.tracking_uri() or (f"sqlite:///{folder}/mlflow/mlflow.db" if folder is not None else None)


def make_tracker(config: MirrorConfig) -> Tracker:
    """Return the tracker of these settings, or one that is off with its reason; it opens nothing before its first run."""
    settings = config.tracking
    if settings.enabled is False:
        return Tracker(None)
    try:
        uri = default_uri(config)
        why = "the lake is not a folder of this machine, and `tracking.uri` is not set" if uri is None else lacking(uri)
    except ConfigError as error:
        # A notebook that may read the lake need not know the server's address.
        uri, why = None, str(error.faults[0])
    if uri is None or why is not None:
        if settings.enabled is True:
            log.warning("tracking.off why=%s", why)
        return Tracker(None)
    return Tracker(
        partial(RunStore, uri, settings.experiment_name(uri)),
        timeout_s=settings.timeout.total_seconds(),
        shown=lambda text: without_user(text.replace(uri, without_user(uri))),
    )
