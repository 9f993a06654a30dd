"""Step 3 of the wizard: the settings as YAML and their file, the plan of their changes, and apply."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mirrorlake.config.edit import Draft, difference, save
from mirrorlake.config.schema import MirrorConfig
from mirrorlake.errors import SafetyError, UsageError
from mirrorlake.model.plan import Plan
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.progress_view import ProgressView
from mirrorlake.notebook.console.session import Session
from mirrorlake.notebook.console.view import Panel, is_typed, require_shown, require_typed
from mirrorlake.render import badge, breakable, plural


@dataclass(frozen=True)
class Reviewed:
    """A reviewed plan: exactly this plan is applied (law G), once `word` is typed. `flow` is its only flow, None for all."""

    draft: Draft
    flow: str | None
    word: str
    config: MirrorConfig
    plan: Plan


class ReviewView(Panel):
    """Review, save and apply a draft.

    `scope` returns the names of the reviewed flows, and refuses a taken name. `applied` is called with the review after its plan was
    applied. `read` is the file's text when it was read; None without a file.
    """

    def __init__(
        self,
        session: Session,
        *,
        draft: Callable[[], Draft],
        scope: Callable[[], tuple[str, ...]],
        applied: Callable[[Reviewed], None],
        path: Path,
        begin: Draft = Draft(),  # noqa: B008  frozen
        read: str | None = None,
    ) -> None:
        super().__init__(session)
        self._draft = draft
        self._scope = scope
        self._applied = applied
        self._read = read
        self._read_from = None if read is None else path.absolute()
        # The text to save: the last reviewed, else the last applied.
        self._text: str | None = None
        self._in_force: str | None = None
        self.after_action: Callable[[], None] = lambda: None
        self.reread: Callable[[str, Path], None] = lambda _text, _path: None
        self.reviewed: Reviewed | None = None
        # A lake in a catalog has no root.
        self.has_root = begin.root is not None
        root = "../lake" if path.parent.name == "conf" and not begin.clusters else begin.root or ""
        self.path = controls.text("save-path", "Settings file", value=str(path.absolute()))
        self.root = controls.text("lake-root", "Lake", hint="any path Spark can write", value=root)
        self.where = controls.html("lake-where")
        tip = "Check the settings and ask the clusters for the plan"
        self.review = self.button("review", "Review", self.on_review, tip=tip, main=True)
        self.looking = ProgressView("review-progress", "looking")
        self.yaml = controls.html("yaml")
        self.plan = controls.html("plan")
        self.replace = controls.checkbox("save-replace", "Replace what another file holds")
        self.save = self.button("save", "Save the settings", self.on_save, changes=True)
        self.saved = controls.html("saved")
        self.difference = controls.html("save-difference")
        tip = "Begin with what the file holds now; your form stays"
        self.again = self.button("save-read-again", "Read the file again", self.on_read_again, tip=tip)
        self.state = controls.html("review-state")
        self.confirm = controls.text("confirm", "Type the name")
        self.apply = self.button(
            "apply", "Apply", self.on_apply, tip="Carry out the plan above", main=True, changes=True
        )
        self.applying = ProgressView("apply-progress", "applying")
        self.widget = controls.column(
            self.path,
            self.root,
            self.where,
            self.review,
            self.looking.widget,
            self.yaml,
            controls.buttons(self.save, self.replace),
            self.saved,
            self.difference,
            self.again,
            self.plan,
            self.state,
            controls.buttons(self.confirm, self.apply),
            self.applying.widget,
        )
        self.on_change(self.update_controls, self.confirm)
        self.on_change(self._moved, self.root, self.path)
        self.root.layout.display = None if self.has_root else "none"
        self.again.layout.display = "none"
        self._moved()

    @property
    def file(self) -> Path | None:
        """The settings file, absolute; None if none is named."""
        named = self.path.value.strip()
        return Path(named).expanduser().absolute() if named else None

    @property
    def is_saved(self) -> bool:
        """Whether the file has the settings applied last; if none were applied, whether it was read."""
        return self._read is not None and self._read_from == self.file and self._in_force in (None, self._read)

    def forget(self) -> None:
        if self.reviewed is not None or self._text is not None:
            self.reviewed = self._text = None
            self.plan.value = f"{badge('changed since', 'warn').html()} Review it again."
        self.saved.value = self.difference.value = ""
        self.update_controls()

    async def on_review(self) -> None:
        """Check the draft, show it as YAML, and ask for the plan; changes nothing (law G)."""
        self.reviewed = self._text = None
        self.yaml.value = self.plan.value = self.saved.value = self.difference.value = ""
        scope, draft = self._scope(), self._draft()
        config = draft.config()
        self.yaml.value = controls.code(config.text, "yaml-text")
        mirror = self._session.open(config, display=self.looking)
        # Removing a flow changes the settings as a whole.
        one = scope[0] if len(scope) == 1 and scope[0] in [flow.name for flow in config.flows] else None
        plan = await self.looking.during(self._runner.ask(mirror.plan, one))
        if draft != self._draft():
            # The person continued typing meanwhile.
            self.plan.value = f"{badge('changed since', 'warn').html()} Review it again."
            return
        word = scope[0] if len(scope) == 1 else plural(len(scope), "flow") if scope else "all flows"
        self.reviewed, self._text = Reviewed(draft, one, word, config, plan), config.text
        # All rows: a person cannot agree to hidden rows.
        self.plan.value = plan.to_html(rows=None)

    async def on_save(self) -> None:
        """Write the reviewed settings to the file, unless its content was never read."""
        file, text = self.file, self._text or self._in_force
        if text is None or file is None:
            what = "nothing is reviewed" if text is None else "no file is named"
            raise SafetyError(what, consequence="nothing was written", remedy="name a file, and press Review first")
        read = self._read if file == self._read_from else None
        try:
            await self._runner.ask(save, text, file, read=read, replace=self.replace.value and read is None)
        except UsageError:
            if read is not None and file.exists():
                self._show_difference(read, file)
            raise
        self._read, self._read_from = text, file
        self.saved.value = f"{badge('saved', 'good').html()} {breakable(str(file))}"
        self.difference.value, self.again.layout.display = "", "none"

    def _show_difference(self, read: str, file: Path) -> None:
        changed = difference(read, file.read_text(encoding="utf-8", errors="replace"))
        shown = controls.code(changed or "Only secrets differ.")
        self.difference.value = f"<p>Meanwhile somebody changed the file:</p>{shown}"
        self.again.layout.display = None

    async def on_read_again(self) -> None:
        """Start again with the file's present content; the form's flow becomes a change of it."""
        file = self.file
        if file is None:
            raise UsageError("no file is named", remedy="name one beside Settings file")
        text = await self._runner.ask(file.read_text, encoding="utf-8")
        self.reread(text, file)
        self._read, self._read_from, self._text = text, file, None
        self._in_force = None
        self.difference.value, self.again.layout.display = "", "none"
        self.saved.value = f"{badge('read again', 'good').html()} {breakable(str(file))}: review it."

    async def on_apply(self) -> None:
        reviewed = require_shown(self.reviewed, first="press Review first")
        require_typed(self.confirm, reviewed.word, beside="Apply")
        self.state.value = ""
        mirror = self._session.open(reviewed.config, display=self.applying)
        done = await self.applying.during(self._runner.ask(mirror.apply, reviewed.flow, plan=reviewed.plan))
        self.reviewed, self.confirm.value, self._in_force = None, "", reviewed.config.text
        self.plan.value = (
            f"{badge('applied').html()} {plural(len(done.changes), 'change')} to {breakable(reviewed.word)}"
        )
        self._applied(reviewed)

    def _moved(self) -> None:
        """Show the lake's location, and withdraw the review."""
        file, root = self.file, self.root.value.strip()
        where = root
        if self.has_root and root and file is not None and ":/" not in root and "${" not in root:
            where = os.path.normpath(file.parent / root)
        said = f"The lake is in <code>{breakable(where)}</code>; a relative path counts from the settings file."
        self.where.value = said if self.has_root and root else ""
        self.forget()

    def update_controls(self) -> None:
        self.save.allow("press Review first" if self._text is None and self._in_force is None else "")
        reviewed = self.reviewed
        if reviewed is None:
            self.apply.allow("press Review first")
        else:
            self.apply.allow("" if is_typed(self.confirm, reviewed.word) else f"type {reviewed.word} beside it first")
        self.confirm.layout.display = None if reviewed else "none"
        self.state.value = (
            f"Nothing was changed so far. Type <b>{breakable(reviewed.word)}</b> to carry this plan out."
            if reviewed
            else ""
        )
        self.after_action()
