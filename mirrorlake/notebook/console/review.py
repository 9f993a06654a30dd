"""Step 3 of the wizard: the settings as YAML, what they would change as a plan, and apply once the flow's name is typed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mirrorlake.config.edit import Draft, save
from mirrorlake.errors import SafetyError
from mirrorlake.mirror import Mirror
from mirrorlake.model.plan import Plan
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.flow import escape_lines
from mirrorlake.notebook.console.session import Session
from mirrorlake.render import badge, escape


@dataclass(frozen=True)
class Reviewed:
    """What a person looked at: exactly this plan is applied (law G)."""

    flow: str
    yaml: str
    mirror: Mirror
    plan: Plan


class ReviewView:
    """Review and apply what `draft` returns; `applied` is called with the mirror after its plan was applied."""

    def __init__(
        self, session: Session, *, draft: Callable[[], Draft], applied: Callable[[Mirror], None], root: str = "./lake"
    ) -> None:
        self._session = session
        self._runner = runner = session.runner
        self._draft = draft
        self._applied = applied
        self.reviewed: Reviewed | None = None
        self.root = controls.text("lake-root", "Lake", hint="any path Spark can write", value=root)
        self.review = controls.button("review", "Review", tip="Check the settings and ask the clusters for the plan")
        self.yaml = controls.html("yaml")
        self.plan = controls.html("plan")
        self.path = controls.text("save-path", "File", value="conf/mirror.yml")
        self.replace = controls.checkbox("save-replace", "Replace the file's settings")
        self.save = controls.button("save", "Save the settings")
        self.saved = controls.html("saved")
        self.confirm = controls.text("confirm", "Flow's name", hint="type it to apply")
        self.apply = controls.button("apply", "Apply", tip="Carry out the plan above", main=True)
        self.outcome = controls.html("applied")
        self.widget = controls.column(
            self.root,
            self.review,
            self.yaml,
            controls.row(self.path, self.replace, self.save),
            self.saved,
            self.plan,
            controls.paragraph("Nothing was changed so far. Type the flow's name to carry this plan out."),
            self.confirm,
            self.apply,
            self.outcome,
        )
        runner.on_click(self.review, self.on_review, settle=self._settle)
        runner.on_click(self.save, self.on_save, settle=self._settle)
        runner.on_click(self.apply, self.on_apply, settle=self._settle)
        self.confirm.observe(runner.guarded(self._settle), "value")
        self.root.observe(runner.guarded(self.forget), "value")
        self._settle()

    def forget(self) -> None:
        """Withdraw the review: the draft has changed since."""
        if self.reviewed is not None:
            self.reviewed = None
            self.plan.value = f"{badge('changed since', 'warn').html()} Review it again."
        self._settle()

    async def on_review(self) -> None:
        """Check the draft, show it as YAML, and ask for the plan; changes nothing (law G)."""
        self.reviewed, self.yaml.value, self.plan.value, self.outcome.value = None, "", "", ""
        draft = self._draft()
        config = draft.config()
        self.yaml.value = f'<pre class="ml-yaml-text">{escape_lines(config.text)}</pre>'
        mirror = self._session.open(config)
        name = draft.flow.called
        plan = await self._runner.ask(mirror.plan, name)
        if draft != self._draft():
            # A person went on typing while the clusters were asked.
            self.plan.value = f"{badge('changed since', 'warn').html()} Review it again."
            return
        self.reviewed = Reviewed(name, config.text, mirror, plan)
        # All of it: what is not seen is not agreed to.
        self.plan.value = plan.to_html(rows=None)

    async def on_save(self) -> None:
        """Write the reviewed settings to the file."""
        if self.reviewed is None:
            raise SafetyError("nothing is reviewed", consequence="nothing was written", remedy="press Review first")
        path = await self._runner.ask(save, self.reviewed.yaml, self.path.value.strip(), replace=self.replace.value)
        self.saved.value = f"{badge('saved', 'good').html()} {escape(str(path))}"

    async def on_apply(self) -> None:
        """Carry out the plan that was reviewed.

        Raises:
            SafetyError: nothing is reviewed, or the name that was typed is not the flow's; nothing was changed.
        """
        reviewed = self.reviewed
        if reviewed is None or self.confirm.value.strip() != reviewed.flow:
            raise SafetyError(
                "the flow's name was not typed" if reviewed else "nothing is reviewed",
                consequence="nothing was changed",
                remedy=f"type {reviewed.flow} beside Apply" if reviewed else "press Review first",
            )
        done = await self._runner.ask(reviewed.mirror.apply, reviewed.flow, plan=reviewed.plan)
        self.outcome.value = f"{badge('applied').html()} {len(done.changes)} change(s)"
        self.reviewed, self.confirm.value = None, ""
        self._applied(reviewed.mirror)

    def _settle(self) -> None:
        """Enable and disable the buttons by what was reviewed and typed."""
        self.save.disabled = self.reviewed is None
        self.apply.disabled = self.reviewed is None or self.confirm.value.strip() != self.reviewed.flow
