"""Step 1 of the wizard: the clusters, each tried before it is used; passwords never stay in a widget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mirrorlake.config import is_bare_reference, keep_for_session
from mirrorlake.config.edit import MECHANISMS, SECURITY, ClusterDraft, check_cluster
from mirrorlake.doctor import Tried, try_cluster
from mirrorlake.errors import UsageError
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.session import Session
from mirrorlake.render import badge, escape, table

_NEW = "a new cluster"


class ClustersView:
    """The clusters of a draft, and a form for one of them; `changed` is called when one was added, changed or removed."""

    def __init__(self, session: Session, clusters: tuple[ClusterDraft, ...], changed: Callable[[], None]) -> None:
        self._runner = runner = session.runner
        self._changed = changed
        self.clusters = {cluster.alias: cluster for cluster in clusters}
        self.tried: dict[str, Tried] = {}
        self.chosen = controls.dropdown("cluster-choose", "Cluster", [_NEW, *self.clusters], _NEW)
        self.alias = controls.text("cluster-alias", "Alias", hint="east", wide=False)
        self.servers = controls.text("cluster-servers", "Bootstrap servers", hint="host:9092, host:9092")
        self.security = controls.dropdown("cluster-security", "Connection", SECURITY, SECURITY[0])
        self.ca = controls.text("cluster-ca", "CA file", hint="a PEM file that driver and workers can read")
        self.mechanism = controls.dropdown("cluster-mechanism", "Login", MECHANISMS, "SCRAM-SHA-512")
        self.username = controls.text("cluster-username", "User")
        self.reference = controls.text(
            "cluster-reference", "Password reference", hint="${env:NAME} or ${secret:scope/key}", live=False
        )
        self.password = controls.password("cluster-password", "Password")
        self.kept = controls.html("cluster-password-kept")
        self.never_leave = controls.text(
            "cluster-never-leave", "Never leave", hint="topics that no flow may take: pii.*"
        )
        self.test = controls.button("cluster-test", "Test", tip="Connect, and read the names of its topics")
        self.add = controls.button("cluster-add", "Add or change", tip="Add the cluster, or change it", main=True)
        self.remove = controls.button("cluster-remove", "Remove")
        self.result = controls.html("cluster-result")
        self.list = controls.html("cluster-list")
        # By the field of the draft.
        self._inputs = {
            "servers": self.servers,
            "security": self.security,
            "mechanism": self.mechanism,
            "username": self.username,
            "password": self.reference,
            "ca": self.ca,
            "never_leave": self.never_leave,
        }
        self._login = controls.column(self.mechanism, self.username, self.reference, self.password, self.kept)
        self.widget = controls.column(
            self.list,
            self.chosen,
            self.alias,
            self.servers,
            self.security,
            self.ca,
            self._login,
            self.never_leave,
            controls.row(self.test, self.add, self.remove),
            self.result,
        )
        self.chosen.observe(runner.guarded(self._fill), "value")
        self.security.observe(runner.guarded(self._show_login), "value")
        self.password.observe(runner.guarded(self._take_password), "value")
        self.reference.observe(runner.guarded(self._check_reference), "value")
        runner.on_click(self.test, self.on_test)
        runner.on_click(self.add, self.on_add)
        runner.on_click(self.remove, self.on_remove)
        self._render()
        self._show_login()

    def draft(self) -> ClusterDraft:
        """Return the form's content.

        Raises:
            UsageError: there is no alias.
        """
        alias = self.alias.value.strip()
        if not alias:
            raise UsageError("the cluster has no alias", remedy="give it a short name, such as east")
        before = self.clusters.get(alias, ClusterDraft(alias=alias))
        return replace(before, **{name: field.value.strip() for name, field in self._inputs.items()})

    async def on_test(self) -> None:
        """Connect to the cluster of the form and show what it answers."""
        self.result.value = ""
        draft = self.draft()
        config = check_cluster(draft)
        found = await self._runner.ask(try_cluster, config, draft.alias)
        self.tried[draft.alias] = found
        self.result.value = found.to_html()
        self._render()

    async def on_add(self) -> None:
        """Take the form's cluster into the draft, or change the one of its alias."""
        draft = self.draft()
        check_cluster(draft)
        before = self.clusters.get(draft.alias)
        if before is not None and replace(before, never_leave="") != replace(draft, never_leave=""):
            self.tried.pop(draft.alias, None)
        self.clusters[draft.alias] = draft
        controls.refill(self.chosen, [_NEW, *self.clusters], draft.alias)
        self._render()
        self._changed()

    async def on_remove(self) -> None:
        """Take the chosen cluster out of the draft; nothing happens to the cluster itself."""
        self.clusters.pop(self.alias.value.strip(), None)
        self.tried.pop(self.alias.value.strip(), None)
        controls.refill(self.chosen, [_NEW, *self.clusters], _NEW)
        self._render()
        self._changed()

    def _check_reference(self) -> None:
        """Empty the field of anything but a reference: who types a password there must not find it in the notebook."""
        text = self.reference.value.strip()
        if text and not is_bare_reference(text):
            self.reference.value = ""
            raise UsageError(
                "the field 'Password reference' takes a reference only",
                consequence="its content was not kept",
                remedy="write ${env:NAME} or ${secret:scope/key}, and type the password into the field below",
            )

    def _take_password(self) -> None:
        """Keep what was typed for this session, under the reference that the settings will hold, and empty the field."""
        typed = self.password.value
        if not typed:
            return
        # First of all: whatever fails below must not leave it in the widget's state, which notebooks save.
        self.password.value = ""
        if not self.reference.value.strip():
            self.reference.value = ClusterDraft(alias=self.alias.value.strip() or "cluster").usual_reference
        reference = self.reference.value.strip()
        keep_for_session(reference, typed)
        kept = badge("kept in memory for this session", "good").html()
        self.kept.value = f"{kept} The settings hold <code>{escape(reference)}</code>; a job needs it to be set."

    def _fill(self) -> None:
        draft = self.clusters.get(self.chosen.value, ClusterDraft(alias=""))
        self.alias.value = draft.alias
        known = replace(
            draft,
            security=draft.security if draft.security in SECURITY else SECURITY[0],
            mechanism=draft.mechanism if draft.mechanism in MECHANISMS else MECHANISMS[-1],
        )
        for name, field in self._inputs.items():
            field.value = getattr(known, name)
        self.kept.value = self.result.value = ""

    def _show_login(self) -> None:
        self._login.layout.display = None if self.security.value.startswith("SASL") else "none"
        self.ca.layout.display = None if self.security.value.endswith("SSL") else "none"

    def _render(self) -> None:
        rows = [
            (one.alias, one.servers or "a lake cluster", one.security, one.never_leave or None, self._answer(one.alias))
            for one in self.clusters.values()
        ]
        shown = table("", ["alias", "bootstrap servers", "connection", "never leave", "test"], rows)
        self.list.value = shown.html() if rows else "No cluster yet: fill in the form, test it, add it."

    def _answer(self, alias: str) -> object:
        tried = self.tried.get(alias)
        if tried is None:
            return badge("not tested", "off")
        return badge("answers", "good") if tried.ok else badge("failed")
