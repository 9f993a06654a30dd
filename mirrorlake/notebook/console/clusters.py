"""Step 1 of the wizard: the clusters, each tried before it is used; passwords never stay in a widget."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from mirrorlake.config import is_bare_reference, keep_for_session
from mirrorlake.config.edit import MECHANISMS, SECURITY, ClusterDraft, check_cluster
from mirrorlake.doctor import Tried, try_cluster
from mirrorlake.errors import UsageError
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.listing import Entry, Listing
from mirrorlake.notebook.console.session import Session
from mirrorlake.render import Badge, badge, escape, middle

_EMPTY = "No cluster yet: fill in the form, test it, add it."


class ClustersView:
    """The clusters of a draft, and a form for one of them.

    `changed` is called when one was added, changed or removed; `used_by` names the flows that need a cluster.
    """

    def __init__(
        self,
        session: Session,
        clusters: Iterable[ClusterDraft],
        *,
        changed: Callable[[], None],
        used_by: Callable[[str], list[str]],
    ) -> None:
        self._runner = runner = session.runner
        self._changed = changed
        self._used_by = used_by
        self._edited, self._begin = "", ClusterDraft(alias="")
        self.clusters = {cluster.alias: cluster for cluster in clusters}
        self.tried: dict[str, Tried] = {}
        self.list = Listing(
            runner,
            "cluster",
            {"Edit": self.on_edit, "Copy": self.on_copy, "Remove": self.on_remove},
            empty=_EMPTY,
        )
        self.new = controls.button("cluster-new", "New cluster", tip="Empty the form for another cluster")
        self.title = controls.html("cluster-form")
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
        self.taken = controls.html("cluster-taken")
        self.result = controls.html("cluster-result")
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
            self.list.widget,
            self.new,
            self.title,
            self.alias,
            self.taken,
            self.servers,
            self.security,
            self.ca,
            self._login,
            self.never_leave,
            controls.row(self.test, self.add),
            self.result,
        )
        self.alias.observe(runner.guarded(self._check_alias), "value")
        self.security.observe(runner.guarded(self._show_login), "value")
        self.password.observe(runner.guarded(self._take_password), "value")
        self.reference.observe(runner.guarded(self._check_reference), "value")
        runner.on_click(self.test, self.on_test)
        runner.on_click(self.add, self.on_add)
        runner.on_click(self.new, self.on_new)
        self._fill(ClusterDraft(alias=""))
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
        # A copy keeps what the form does not show, too.
        before = self.clusters.get(alias) or replace(self._begin, alias=alias)
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
        """Take the form's cluster into the draft, or change the one that is edited.

        Raises:
            UsageError: another cluster has its alias.
        """
        draft = self.draft()
        if self._is_taken:
            raise UsageError(
                f"{draft.alias} is a cluster of these settings already",
                consequence="neither was changed",
                remedy=f"press Edit beside {draft.alias} to change it, or give this one another alias",
            )
        check_cluster(draft)
        before = self.clusters.get(draft.alias)
        if before is not None and replace(before, never_leave="") != replace(draft, never_leave=""):
            self.tried.pop(draft.alias, None)
        self.clusters[draft.alias] = draft
        self._fill(draft, edited=draft.alias)
        self._render()
        self._changed()

    async def on_new(self) -> None:
        """Empty the form."""
        self._fill(ClusterDraft(alias=""))

    async def on_edit(self, alias: str) -> None:
        """Fill the form with a cluster."""
        self._fill(self.clusters[alias], edited=alias)

    async def on_copy(self, alias: str) -> None:
        """Fill the form with a cluster that has no alias yet."""
        self._fill(replace(self.clusters[alias], alias=""))

    async def on_remove(self, alias: str) -> None:
        """Take a cluster out of the draft; nothing happens to the cluster itself.

        Raises:
            UsageError: flows of the draft need it.
        """
        if flows := self._used_by(alias):
            raise UsageError(
                f"{alias} is an end of {', '.join(flows)}",
                consequence="it was not removed",
                remedy="remove the flow first (step 2)",
            )
        self.clusters.pop(alias)
        self.tried.pop(alias, None)
        if self._edited == alias:
            self._fill(ClusterDraft(alias=""))
        self._render()
        self._changed()

    def renew(self, clusters: Iterable[ClusterDraft]) -> None:
        """Go on with the clusters as a settings file has them now; the form stays."""
        self.clusters = {cluster.alias: cluster for cluster in clusters}
        self._render()

    @property
    def _is_taken(self) -> bool:
        alias = self.alias.value.strip()
        return alias in self.clusters and alias != self._edited

    def _check_alias(self) -> None:
        """Say at once that another cluster has the alias."""
        alias = self.alias.value.strip()
        self.add.disabled = self._is_taken
        copied = f"Another alias is another cluster: {escape(self._edited)} stays." if self._edited else ""
        self.taken.value = (
            f"{badge('taken', 'warn').html()} {escape(alias)} is a cluster already: press Edit beside it to change it."
            if self._is_taken
            else copied
            if alias != self._edited
            else ""
        )

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

    def _fill(self, draft: ClusterDraft, *, edited: str = "") -> None:
        """Show a cluster in the form; `edited` is the one of the draft that Add or change changes."""
        self._edited, self._begin = edited, draft
        self.alias.value = draft.alias
        known = replace(
            draft,
            security=draft.security if draft.security in SECURITY else SECURITY[0],
            mechanism=draft.mechanism if draft.mechanism in MECHANISMS else MECHANISMS[-1],
        )
        for name, field in self._inputs.items():
            field.value = getattr(known, name)
        self.kept.value = self.result.value = ""
        self.title.value = f"<b>{'Edit ' + escape(edited) if edited else 'A new cluster'}</b>"
        self._check_alias()

    def _show_login(self) -> None:
        self._login.layout.display = None if self.security.value.startswith("SASL") else "none"
        self.ca.layout.display = None if self.security.value.endswith("SSL") else "none"

    def _render(self) -> None:
        self.list.show([self._entry(one) for one in self.clusters.values()])

    def _entry(self, cluster: ClusterDraft) -> Entry:
        said = [middle(cluster.servers, 60) or "a lake cluster", cluster.security]
        said += [f"never leave: {cluster.never_leave}"] if cluster.never_leave else []
        html = f"<b>{escape(cluster.alias)}</b> {escape(' · '.join(said))} {self._answer(cluster.alias).html()}"
        return Entry(cluster.alias, html, ("Edit", "Copy", "Remove"))

    def _answer(self, alias: str) -> Badge:
        tried = self.tried.get(alias)
        if tried is None:
            return badge("not tested", "off")
        return badge("answers", "good") if tried.ok else badge("failed")
