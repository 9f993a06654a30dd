"""Step 1 of the wizard: the clusters, each tested before use; no password stays in a widget."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mirrorlake.config import is_bare_reference, keep_for_session
from mirrorlake.config.edit import BLANK_CLUSTER, MECHANISMS, SECURITY, Draft, usual_reference
from mirrorlake.doctor import Tried, try_cluster
from mirrorlake.errors import UsageError
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.listing import Entry, Listing
from mirrorlake.notebook.console.session import Session
from mirrorlake.notebook.console.view import Panel
from mirrorlake.render import Badge, badge, breakable, middle

_EMPTY = "No cluster yet: fill in the form, test it, add it."


class ClustersView(Panel):
    """A form for a cluster of a draft; `keep` stores a changed draft, `used_by` names the flows that need a cluster."""

    def __init__(
        self,
        session: Session,
        *,
        draft: Callable[[], Draft],
        keep: Callable[[Draft], None],
        used_by: Callable[[str], list[str]],
    ) -> None:
        super().__init__(session)
        self._draft = draft
        self._keep = keep
        self._used_by = used_by
        # The cluster that Add or change changes, and the cluster that filled the form; a copy has only the second.
        self._edited = self._begin = ""
        self.tried: dict[str, Tried] = {}
        self.list = Listing(
            self._runner,
            "cluster",
            {"Edit": self.on_edit, "Copy": self.on_copy, "Remove": self.on_remove},
            empty=_EMPTY,
        )
        tip = "Empty the form for another cluster"
        self.new = self.button("cluster-new", "New cluster", self.on_new, tip=tip)
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
        tip = "Connect, and read the names of its topics"
        self.test = self.button("cluster-test", "Test", self.on_test, tip=tip, changes=True)
        tip = "Add the cluster, or change it"
        self.add = self.button("cluster-add", "Add or change", self.on_add, tip=tip, main=True, changes=True)
        self.taken = controls.html("cluster-taken")
        self.result = controls.html("cluster-result")
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
            controls.buttons(self.test, self.add),
            self.result,
        )
        self.on_change(self._check_alias, self.alias)
        self.on_change(self._show_login, self.security)
        self.on_change(self._take_password, self.password)
        self.on_change(self._check_reference, self.reference)
        self._fill("")
        self.render()
        self._show_login()

    def filled_in(self) -> tuple[str, Draft]:
        alias = self.alias.value.strip()
        if not alias:
            raise UsageError("the cluster has no alias", remedy="give it a short name, such as east")
        fields = {name: field.value.strip() for name, field in self._inputs.items()}
        return alias, self._draft().with_cluster(alias, fields, of=self._begin)

    async def on_test(self) -> None:
        self.result.value = ""
        alias, draft = self.filled_in()
        found = await self._runner.ask(try_cluster, draft.cluster(alias), alias)
        self.tried[alias] = found
        self.result.value = found.to_html()
        self.render()

    async def on_add(self) -> None:
        alias, draft = self.filled_in()
        if self._is_taken:
            raise UsageError(
                f"{alias} is a cluster of these settings already",
                consequence="neither was changed",
                remedy=f"press Edit beside {alias} to change it, or give this one another alias",
            )
        draft.cluster(alias)
        before, after = ({**one.clusters.get(alias, {}), "never_leave": ""} for one in (self._draft(), draft))
        if before != after:
            self.tried.pop(alias, None)
        self._keep(draft)
        self._fill(alias, edited=alias)
        self.result.value = (
            f"{badge('in the draft', 'good').html()} {breakable(alias)}: add another, or go on to a flow."
        )
        self.render()

    async def on_new(self) -> None:
        self._fill("")

    async def on_edit(self, alias: str) -> None:
        self._fill(alias, edited=alias)

    async def on_copy(self, alias: str) -> None:
        self._fill(alias)

    async def on_remove(self, alias: str) -> None:
        """Remove a cluster from the draft unless its flows need it; the cluster itself is unchanged."""
        if flows := self._used_by(alias):
            raise UsageError(
                f"{alias} is an end of {', '.join(flows)}",
                consequence="it was not removed",
                remedy="remove the flow first (step 2)",
            )
        self._keep(self._draft().without_cluster(alias))
        self.tried.pop(alias, None)
        if self._edited == alias:
            self._fill("")
        self.render()

    @property
    def _is_taken(self) -> bool:
        alias = self.alias.value.strip()
        return alias in self._draft().clusters and alias != self._edited

    def _check_alias(self) -> None:
        alias = self.alias.value.strip()
        self.add.allow("another cluster has this alias" if self._is_taken else "")
        copied = f"Another alias is another cluster: {breakable(self._edited)} stays." if self._edited else ""
        self.taken.value = (
            f"{badge('taken', 'warn').html()} {breakable(alias)} is a cluster already: press Edit beside it to change it."
            if self._is_taken
            else copied
            if alias != self._edited
            else ""
        )

    def _check_reference(self) -> None:
        """Clear the field unless it is a reference: a password typed there must not stay in the notebook."""
        text = self.reference.value.strip()
        if text and not is_bare_reference(text):
            self.reference.value = ""
            raise UsageError(
                "the field 'Password reference' takes a reference only",
                consequence="its content was not kept",
                remedy="write ${env:NAME} or ${secret:scope/key}, and type the password into the field below",
            )

    def _take_password(self) -> None:
        """Store the typed password for this session under the settings' reference, and clear the field."""
        typed = self.password.value
        if not typed:
            return
        # First: no failure below may leave the password in the widget's state, which notebooks save.
        self.password.value = ""
        if not self.reference.value.strip():
            self.reference.value = usual_reference(self.alias.value.strip() or "cluster")
        reference = self.reference.value.strip()
        keep_for_session(reference, typed)
        kept = badge("kept in memory for this session", "good").html()
        self.kept.value = f"{kept} The settings hold <code>{breakable(reference)}</code>; a job needs it to be set."

    def _fill(self, begin: str, *, edited: str = "") -> None:
        """Show a cluster in the form, or an empty form; `edited` is the cluster that Add or change changes."""
        self._edited, self._begin = edited, begin
        self.alias.value = edited
        fields = dict(self._draft().clusters.get(begin, BLANK_CLUSTER))
        for name, known in (("security", SECURITY), ("mechanism", MECHANISMS)):
            if fields[name] not in known:
                fields[name] = BLANK_CLUSTER[name]
        for name, field in self._inputs.items():
            field.value = fields[name]
        self.kept.value = self.result.value = ""
        self.title.value = f"<b>{'Edit ' + breakable(edited) if edited else 'A new cluster'}</b>"
        self._check_alias()

    def _show_login(self) -> None:
        self._login.layout.display = None if self.security.value.startswith("SASL") else "none"
        self.ca.layout.display = None if self.security.value.endswith("SSL") else "none"

    def render(self) -> None:
        self.list.show([self._entry(*one) for one in self._draft().clusters.items()])

    def _entry(self, alias: str, fields: Mapping[str, str]) -> Entry:
        said = [middle(fields["servers"], 60) or "a lake cluster", fields["security"]]
        said += [f"never leave: {fields['never_leave']}"] if fields["never_leave"] else []
        html = f"<b>{breakable(alias)}</b> {breakable(' · '.join(said))} {self._answer(alias).html()}"
        return Entry(alias, html, ("Edit", "Copy", "Remove"))

    def _answer(self, alias: str) -> Badge:
        tried = self.tried.get(alias)
        if tried is None:
            return badge("not tested", "off")
        return badge("answers", "good") if tried.ok else badge("failed")
