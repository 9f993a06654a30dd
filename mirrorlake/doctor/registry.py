"""Register the checks by name: subject, reason, layer and worst outcome."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from mirrorlake.doctor.findings import MOODS, CheckOutcome, Severity, anchor
from mirrorlake.errors import UsageError
from mirrorlake.render import Displayable, Sheet, badge, plural, table

Layer = Literal["settings", "machine", "cluster", "lake", "flow"]
# A check runs once for the mirror, each cluster that answers, each flow whose clusters both answer, or each relay.
Per = Literal["mirror", "cluster", "flow", "relay"]
Run = Callable[..., Iterable[CheckOutcome]]
Looking = TypeVar("Looking", bound=Run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One named check; `finds` is its worst outcome, `about` why it matters, `fix` its general remedy."""

    name: str
    layer: Layer
    per: Per
    finds: Severity
    about: str
    fix: str
    run: Run
    place: tuple[str, int] = ("", 0)

    def as_dict(self) -> dict[str, Any]:
        said = {"name": self.name, "layer": self.layer, "finds": self.finds, "about": self.about, "fix": self.fix}
        return {**said, "docs": f"docs/doctor.md#{anchor(self.name)}"}


_LAYERS: tuple[Layer, ...] = ("settings", "machine", "cluster", "lake", "flow")
CHECKS: dict[str, Check] = {}


def check(
    name: str, *, layer: Layer, fix: str, per: Per = "mirror", finds: Severity = "failure"
) -> Callable[[Looking], Looking]:
    """Register a function as a check; its docstring says what it checks and why."""

    def join(run: Looking) -> Looking:
        about = " ".join((inspect.getdoc(run) or "").split())
        code: Any = run
        place = (code.__module__, code.__code__.co_firstlineno)
        CHECKS[name] = Check(name=name, layer=layer, per=per, finds=finds, about=about, fix=fix, run=run, place=place)
        return run

    return join


class Catalogue(Displayable, list[Check]):
    """The checks in their order of execution: a list of `Check` that renders itself."""

    def sheet(self) -> Sheet:
        rows = [(badge(one.name, MOODS[one.finds]), one.layer, one.about) for one in self]
        parts = (table("", ["check", "layer", "looks at"], rows, least=("layer",)),)
        return Sheet(title="doctor", facts=(plural(len(self), "check"),), parts=parts)

    def as_dict(self) -> dict[str, Any]:
        return {"checks": [one.as_dict() for one in self]}


def list_checks(*, only: Collection[str] = (), skip: Collection[str] = ()) -> Catalogue:
    """List the checks of `only`, or all, without those of `skip`; a prefix such as `kafka` names several."""
    for name in (*only, *skip):
        if not any(_is_named(known, name) for known in CHECKS):
            near = [known for known in CHECKS if set(name.split(".")) & set(known.split("."))]
            raise UsageError(
                f"no check is called '{name}'",
                consequence="nothing was looked at",
                remedy=f"name one of: {', '.join(near)}" if near else "mirrorlake doctor --list shows the names",
            )
    # In any order of imports: by layer, then by file and line.
    return Catalogue(
        one
        for one in sorted(CHECKS.values(), key=lambda one: (_LAYERS.index(one.layer), one.place))
        if (not only or any(_is_named(one.name, name) for name in only))
        and not any(_is_named(one.name, name) for name in skip)
    )


def _is_named(known: str, name: str) -> bool:
    return known == name or known.startswith(f"{name}.")
