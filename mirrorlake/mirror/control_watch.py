"""Follow a person's intentions: pauses, and settings that were applied after this process read its own."""

from __future__ import annotations

import logging

from mirrorlake.config import identity, load, plain
from mirrorlake.config.schema import MirrorConfig
from mirrorlake.context import Context
from mirrorlake.errors import ConfigError, Fault, MirrorlakeError, SafetyError
from mirrorlake.kafka import librdkafka_options
from mirrorlake.model.control import ControlState, Intention
from mirrorlake.rules import view_of_flow

log = logging.getLogger(__name__)


class ControlWatch:
    """Read the table `control`, and adopt newly applied settings from the mirror's own file."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._control = context.control()
        self._known: Intention | None = None
        self._has_looked = False
        self._said = ""
        self.state = ControlState()

    def look(self) -> ControlState:
        """Return the state in force, and adopt newly applied settings; refuse a lake of another release."""
        try:
            self.state = self._control.state()
        except SafetyError:
            raise
        except Exception as error:
            # The streams themselves retry a store that fails; this read does not end them.
            self._say(f"the table control cannot be read: {type(error).__name__}: {str(error)[:200]}")
            return self.state
        applied = self.state.applied
        if not self._has_looked:
            self._has_looked = True
            if applied is not None and applied.at <= self._context.read_at:
                self._known = applied
        if applied is not None and applied != self._known and self._adopt(applied):
            self._known = applied
        return self.state

    def _adopt(self, applied: Intention) -> bool:
        config = self._context.config
        if identity(plain(config)) == identity(applied.value):
            return True
        if config.path is None:
            self._say("these settings were not read from a file; restart the mirror with the new ones")
            return False
        try:
            edited = load(config.path)
            if identity(plain(edited)) != identity(applied.value):
                self._say(f"{config.path} is not what was applied; apply it, or bring the applied one here")
                return False
            _check(edited, config)
        except MirrorlakeError as error:
            self._say(error.cause)
            return False
        self._context.adopt(edited)
        self._said = ""
        log.warning("settings.adopted file=%s by=%s", config.path, applied.who)
        return True

    def _say(self, why: str) -> None:
        if why != self._said:
            log.warning("settings.not_adopted why=%s; the mirror goes on as it is", why)
        self._said = why


def _check(edited: MirrorConfig, running: MirrorConfig) -> None:
    """Refuse edits that would end the running streams instead of changing them: another lake, a reference without a value."""
    if plain(edited)["lake"] != plain(running)["lake"]:
        raise ConfigError([Fault(str(edited.path), "lake", "another lake is another mirror", "restart the mirror")])
    for cluster in edited.clusters.values():
        librdkafka_options(cluster, role="admin")
    for flow in edited.flows:
        librdkafka_options(edited.cluster(flow.target), role="producer", extra=flow.producer)
        view_of_flow(flow)
