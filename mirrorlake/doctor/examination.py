"""Named checks, what they find, and their examination: layer by layer, and nothing is changed.

A check yields problems; without one its subject is fine. A check that fails reports why, and the others run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from mirrorlake.context import Context
from mirrorlake.doctor.inputs import Inputs
from mirrorlake.errors import ConfigError, MirrorlakeError, UsageError
from mirrorlake.render import Displayable, Mood, Sheet, Table, badge, document, plural, table

Severity = Literal["ok", "warning", "failure"]
Layer = Literal["settings", "machine", "cluster", "lake", "flow"]
# What a check is called with, each time with the inputs: nothing, each cluster that a flow uses, those of them with brokers that
# answer, each relay that exists, or, instead of the inputs, each flow whose clusters both answer.
Per = Literal["mirror", "cluster", "answering cluster", "relay", "flow"]

_LAYERS: tuple[Layer, ...] = ("settings", "machine", "cluster", "lake", "flow")
_MOODS: dict[Severity, Mood] = {"failure": "bad", "warning": "warn", "ok": "note"}
_MAX_SUBJECTS = 3
_MAX_DETAIL = 300


class Problem(NamedTuple):
    """A problem that a check found; fields left out default to the check's own. With severity `ok` it is a note, not a problem."""

    detail: str
    fix: str = ""
    subject: str = ""
    severity: Severity | None = None


Run = TypeVar("Run", bound=Callable[..., Iterable[Problem] | None])


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One named check; `finds` is its usual severity, `about` what it checks and why, `fix` its general remedy."""

    name: str
    layer: Layer
    per: Per
    finds: Severity
    about: str
    fix: str
    run: Callable[..., Iterable[Problem] | None]

    json_include: ClassVar[tuple[str, ...]] = ("docs",)
    json_exclude: ClassVar[tuple[str, ...]] = ("per", "run")

    @property
    def docs(self) -> str:
        return _docs(self.name)


_CHECKS: dict[str, Check] = {}


def check(
    name: str, *, layer: Layer, fix: str, per: Per = "mirror", finds: Severity = "failure"
) -> Callable[[Run], Run]:
    """Register a function as a check; its docstring says what it checks and why."""

    def register(run: Run) -> Run:
        about = " ".join((inspect.getdoc(run) or "").split())
        _CHECKS[name] = Check(name=name, layer=layer, per=per, finds=finds, about=about, fix=fix, run=run)
        return run

    return register


class Catalogue(Displayable, list[Check]):
    """The checks in their order of execution: a list of `Check` that renders itself."""

    def sheet(self) -> Sheet:
        rows = [(badge(one.name, _MOODS[one.finds]), one.layer, one.about) for one in self]
        parts = (table("", ["check", "layer", "looks at"], rows, least=("layer",)),)
        return Sheet(title="doctor", facts=(plural(len(self), "check"),), parts=parts)

    def as_dict(self) -> dict[str, Any]:
        return {"checks": document([*self])}


def list_checks(*, only: Collection[str] = (), skip: Collection[str] = ()) -> Catalogue:
    """List the checks of `only`, or all, without those of `skip`; a prefix such as `kafka` names several."""
    for name in (*only, *skip):
        if not any(_is_of(known, [name]) for known in _CHECKS):
            near = [known for known in _CHECKS if set(name.split(".")) & set(known.split("."))]
            raise UsageError(
                f"no check is called '{name}'",
                consequence="nothing was looked at",
                remedy=f"name one of: {', '.join(near)}" if near else "mirrorlake doctor --list shows the names",
            )
    # One file registers the checks of a layer, so they stay in its order, whichever file is imported first.
    return Catalogue(
        one
        for one in sorted(_CHECKS.values(), key=lambda one: _LAYERS.index(one.layer))
        if (not only or _is_of(one.name, only)) and not _is_of(one.name, skip)
    )


def _is_of(name: str, prefixes: Collection[str]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in prefixes)


def _docs(name: str) -> str:
    return f"docs/doctor.md#{name.replace('.', '')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of one check for one subject; `fix` is the next command or setting if it is not fine.

    Example:
        >>> Finding(check="target.in-sync", layer="flow", subject="east->central").docs
        'docs/doctor.md#targetin-sync'
    """

    json_include: ClassVar[tuple[str, ...]] = ("ok", "docs")

    check: str
    layer: str
    subject: str
    severity: Severity = "ok"
    detail: str = ""
    fix: str = ""

    @property
    def ok(self) -> bool:
        """Whether the subject is fine."""
        return self.severity == "ok"

    @property
    def docs(self) -> str:
        """The address of the check's documentation."""
        return _docs(self.check)


class Findings(Displayable, list[Finding]):
    """The findings in the order of the layers: a list of `Finding` that renders itself, by layer what is fine."""

    @property
    def bad(self) -> list[Finding]:
        """The findings that are not fine, failures first."""
        return sorted((one for one in self if not one.ok), key=lambda one: one.severity != "failure")

    def sheet(self) -> Sheet:
        """Return first the findings that are not fine, with their fixes, then the notes and what is fine."""
        bad, good = self.bad, [one for one in self if one.ok]
        parts: list[Table | str] = []
        if bad:
            # In badges, names are never shortened, so that they can be copied.
            found = [(badge(one.check, _MOODS[one.severity]), one.subject, one.detail, one.fix) for one in bad]
            parts.append(table("", ["check", "subject", "finding", "next"], found))
        parts += [f"{one.subject}: {one.detail}" for one in good if one.detail]
        if good:
            layers = ((layer, [one.check for one in of]) for layer, of in groupby(good, key=lambda one: one.layer))
            rows = [(badge(layer, "good"), len(set(names)), some(names)) for layer, names in layers]
            parts.append(table("fine", ["layer", "checks", "such as"], rows))
        mood: Mood = "bad" if any(one.severity == "failure" for one in bad) else "warn"
        return Sheet(
            title="doctor",
            badge=badge(plural(len(bad), "finding"), mood) if bad else badge("ok"),
            facts=(f"{plural(len(self), 'subject')} checked",),
            parts=tuple(parts),
        )


def some(texts: Iterable[str]) -> str:
    """Join the first three texts, each once, and count the others.

    >>> some(["a", "b", "c", "d", "e", "a"])
    'a, b, c and 2 more'
    """
    several = list(dict.fromkeys(texts))
    more = len(several) - _MAX_SUBJECTS
    return ", ".join(several[:_MAX_SUBJECTS]) + (f" and {more} more" if more > 0 else "")


def examine(context: Context, *, only: Collection[str] = (), skip: Collection[str] = ()) -> Findings:
    """Examine settings, this machine, clusters, lake and flows; `kafka` in `only` or `skip` names all that begin with it."""
    inputs, found, told, chosen = Inputs(context), Findings(), set[tuple[str, str]](), list_checks(only=only, skip=skip)
    # Where a cluster is away, the checks that ask it look at nothing, which must not seem fine.
    asks = any(one.per == "answering cluster" or (one.layer == "flow" and one.per != "mirror") for one in chosen)
    also = [one for one in list_checks(skip=skip) if asks and one.name == "kafka.reachable" and one not in chosen]
    for one in (*also, *chosen):
        for name, arguments in _subjects(one, inputs):
            for problem in _run(one, arguments) or ([] if one in also else [Problem("", severity="ok")]):
                severity, subject = problem.severity or one.finds, problem.subject or name
                # A subject that one check cannot read fails the next checks alike: report it once.
                if severity != "ok" and (subject, problem.detail) in told:
                    continue
                told.add((subject, problem.detail))
                fix = "" if severity == "ok" else problem.fix or one.fix
                finding = Finding(
                    check=one.name, layer=one.layer, subject=subject, severity=severity, detail=problem.detail, fix=fix
                )
                found.append(finding)
    return found


def _subjects(one: Check, inputs: Inputs) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the name of each subject of a check with the arguments of its call; `kafka.reachable` reports clusters left out here."""
    config = inputs.config
    if one.per == "mirror":
        yield one.layer, (inputs,)
    elif one.per == "flow":
        yield from ((at.flow.name, (at,)) for at in inputs.flows)
    elif one.per == "relay":
        yield from ((alias, (inputs, alias)) for alias in config.sources if inputs.has_relay(alias))
    else:
        for alias in inputs.clusters:
            if one.per == "cluster" or (not config.cluster(alias).is_lake and inputs.answers(alias)):
                yield alias, (inputs, alias)


def _run(one: Check, arguments: tuple[Any, ...]) -> list[Problem]:
    found: list[Problem] = []
    try:
        found.extend(one.run(*arguments) or ())
    except Exception as error:
        found.extend(problems_of(error, severity="failure"))
    return found


def problems_of(error: Exception, *, severity: Severity) -> list[Problem]:
    """Return the problems of an error: each fault of the settings, or its cause and remedy."""
    if isinstance(error, ConfigError):
        return [Problem(fault.problem, fault.remedy, fault.path, severity) for fault in error.faults]
    if isinstance(error, MirrorlakeError):
        return [Problem(error.cause, error.remedy, severity=severity)]
    detail = (str(error).strip() or type(error).__name__).splitlines()[0][:_MAX_DETAIL]
    fix = "MIRRORLAKE_DEBUG=1 in the environment shows where"
    return [Problem(f"it cannot be looked at: {detail}", fix, severity=severity)]
