"""Settings of a flow's `rules:`, applied to records in order, each with one action."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from mirrorlake.config import secrets
from mirrorlake.config.base import Exclusion, Flag, Selection, Settings
from mirrorlake.config.faults import SettingsFault, below, fault_error, findings_of, inner_findings, raise_any
from mirrorlake.config.predicates.parse import Predicate, compile_predicate, declared_fields
from mirrorlake.config.schema.selection import NameMatcher
from mirrorlake.errors import UsageError
from mirrorlake.model.json_path import Path, PathError, parse_path, path_text
from mirrorlake.model.patterns import TopicPattern

ACTIONS = ("keep", "drop", "mask", "remove", "null", "hash", "headers", "function")
HIDING = ("mask", "remove", "null", "hash")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_FUNCTION = re.compile(r"[A-Za-z0-9_-]+|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def _paths(value: Any) -> tuple[Path, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not texts or not all(isinstance(text, str | tuple) for text in texts):
        raise fault_error("not a list of paths", "write [email, address.city, ..ssn]")
    found, findings = [], []
    for place, text in enumerate(texts):
        try:
            # `$` is the whole key; a rule of the value refuses it (`RuleConfig`).
            found.append(text if isinstance(text, tuple) else () if text.strip() == "$" else parse_path(text))
        except PathError as error:
            findings.append(SettingsFault((place,) if isinstance(value, list) else (), error.problem, error.remedy))
    raise_any(findings)
    return tuple(found)


def _key(value: Any) -> Any:
    # The value may be the key itself: no message shows it.
    if not isinstance(value, str) or not value:
        raise fault_error("the key (hidden) is not text", "write key: ${secret:scope/key}")
    return value


def _hash(value: Any) -> Any:
    if not isinstance(value, dict | HashConfig):
        raise fault_error(
            "the value (hidden) is not a mapping",
            "write {fields: [email], key: ${secret:scope/key}}",
        )
    return value


Paths = Annotated[
    tuple[Path, ...],
    BeforeValidator(_paths),
    PlainSerializer(lambda paths: [path_text(path) for path in paths], return_type=list),
]


class HashConfig(Settings):
    """Settings of members that are replaced by their keyed hash."""

    fields: Paths = Field(description="paths of the members")
    key: Annotated[str, BeforeValidator(_key)] = Field(description="the key, by reference: ${secret:scope/key}")

    @property
    def shown_key(self) -> str:
        """The reference to the key; a literal key is masked."""
        return self.key if secrets.is_bare_reference(self.key) else secrets.MASK

    def __repr_args__(self) -> Any:
        for name, value in super().__repr_args__():
            yield name, self.shown_key if name == "key" else value


class HeadersConfig(Settings):
    """Settings of dropped and renamed headers."""

    drop: Exclusion = Field(default=TopicPattern(), description="headers that are left out")
    rename: dict[str, str] = Field(default_factory=dict, description="{old: new}")
    ignore_case: Flag = Field(default=False, description="whether Authorization is also authorization")

    @property
    def dropped(self) -> NameMatcher:
        """The matcher for dropped headers."""
        if not self.ignore_case:
            return NameMatcher(self.drop)
        return NameMatcher(TopicPattern(tuple(f"(?i:{expression})" for expression in self.drop.expressions)))

    @model_validator(mode="after")
    def _does_something(self) -> HeadersConfig:
        if not self.drop.expressions and not self.rename:
            raise fault_error("neither drop nor rename", "write {drop: [name], rename: {old: new}}")
        return self


class RuleConfig(Settings):
    """One rule of a flow: its topics, one action, and the handling of failures."""

    name: str = Field(default="", description="default: rule-1, rule-2, ...")
    topics: Selection = Field(default=TopicPattern((".*",)), description="source topics that it is for")
    keep: str | None = Field(default=None, description="a predicate; only records for which it is true go out")
    drop: str | None = Field(default=None, description="a predicate; records for which it is true are withheld")
    fields: dict[str, str] = Field(default_factory=dict, description="{member of the value: type} of keep and drop")
    mask: Paths | None = Field(default=None, description='paths of members that become "***"')
    remove: Paths | None = Field(default=None, description="paths of members that are left out")
    null: Paths | None = Field(default=None, description="paths of members that become null")
    hash: Annotated[HashConfig | None, BeforeValidator(_hash)] = Field(
        default=None, description="{fields: paths, key: reference}: members that become their HMAC-SHA256"
    )
    of: Literal["value", "key"] = Field(
        default="value",
        description="what mask, remove, null and hash change: members of the value, or the key; $ is all of it",
    )
    headers: HeadersConfig | None = Field(default=None, description="{drop: [...], rename: {old: new}}")
    function: str | None = Field(default=None, description="a registered name, or package.module:callable")
    on_error: Literal["quarantine", "pass", "drop"] = Field(
        default="quarantine", description="what to do with records that the rule fails on"
    )

    _predicate: Predicate | None = PrivateAttr(default=None)

    @field_validator("name")
    @classmethod
    def _name_letters(cls, name: str) -> str:
        if name and not _NAME.fullmatch(name):
            raise fault_error(f"'{name}' is not a rule name", "use letters, digits, . _ and -, at most 100")
        if name == "unsendable":
            raise fault_error("'unsendable' names what no client can send", "give the rule another name")
        return name

    @field_validator("function")
    @classmethod
    def _function_shape(cls, function: str | None) -> str | None:
        if function is not None and not _FUNCTION.fullmatch(function):
            raise fault_error(
                f"'{function}' is not a function", "write a name given to ml.rule_function, or package.module:callable"
            )
        return function

    @model_validator(mode="after")
    def _one_action(self) -> RuleConfig:
        given = [action for action in ACTIONS if getattr(self, action) is not None]
        known = ", ".join(ACTIONS)
        findings = []
        if not given:
            findings.append(SettingsFault((), "the rule does nothing", f"add one of: {known}"))
        findings += [
            SettingsFault(
                (action,), f"'{action}' beside '{given[0]}'", "a rule has one action; make it a rule of its own"
            )
            for action in given[1:]
        ]
        findings += self._read_predicate()
        if not findings:
            findings += self._unused_keys()
        raise_any(findings)
        return self

    def _read_predicate(self) -> tuple[SettingsFault, ...]:
        try:
            with below("fields"):
                declared = declared_fields(self.fields)
            for action in ("keep", "drop"):
                if (text := getattr(self, action)) is not None:
                    with below(action):
                        self._predicate = compile_predicate(text, declared)
        except PydanticCustomError as error:
            return inner_findings(error)
        return ()

    def _unused_keys(self) -> list[SettingsFault]:
        findings = []
        if self.fields and self._predicate is None:
            findings.append(SettingsFault(("fields",), "'fields' without keep or drop", "leave it out"))
        hidden = self.hidden
        if self.of == "key" and self.action not in HIDING:
            findings.append(
                SettingsFault(("of",), "'of' chooses what to hide, but this rule hides nothing", "leave it out")
            )
        if self.of == "value" and () in hidden:
            problem, remedy = "'$' names the whole value", "name a member, like $.email; drop withholds whole records"
            findings.append(SettingsFault((self.action,), problem, remedy))
        if () in hidden and len(hidden) > 1:
            findings.append(SettingsFault((self.action,), "'$' is the whole key already", "leave the other paths out"))
        return findings

    @property
    def action(self) -> str:
        """The rule's action."""
        return next(action for action in ACTIONS if getattr(self, action) is not None)

    @property
    def hidden(self) -> tuple[Path, ...]:
        """The paths of mask, remove, null or hash; () for other actions."""
        found: tuple[Path, ...] = self.hash.fields if self.hash is not None else getattr(self, self.action)
        return found if self.action in HIDING else ()

    @property
    def predicate(self) -> Predicate | None:
        """The predicate of keep or drop, or None."""
        return self._predicate

    @property
    def reads_json(self) -> bool:
        """Whether the value, or a key with hidden members, must be JSON."""
        return self.action in HIDING or (self._predicate is not None and self._predicate.reads_json)

    @cached_property
    def matcher(self) -> NameMatcher:
        """The matcher for the rule's source topics."""
        return NameMatcher(self.topics)

    @property
    def definition(self) -> dict[str, Any]:
        """The rule in plain values without secrets, from which its version is derived."""
        # Without defaults: a setting that a later release adds must not change the versions of rules that lack it.
        plain = self.model_dump(mode="json", exclude_defaults=True)
        if self.hash is not None:
            plain["hash"]["key"] = self.hash.shown_key
        return plain

    @property
    def version(self) -> str:
        """The fingerprint of the definition: 8 hex digits, independent of secrets."""
        text = json.dumps(self.definition, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def __str__(self) -> str:
        what = self.definition[self.action]
        return f"{self.action} {what if isinstance(what, str) else json.dumps(what, ensure_ascii=False)}"


def keeping(name: str, predicate: str) -> RuleConfig:
    """Return the rule that passes only records for which a caller's predicate is true.

    It also withholds records that the predicate cannot judge.

    Raises:
        UsageError: the predicate cannot be parsed.

    Example:
        >>> keeping("where", "partition = 3").action
        'keep'
    """
    content = {"name": name, "keep": predicate, "on_error": "drop"}
    try:
        return RuleConfig.model_validate(content)
    except ValidationError as error:
        found = findings_of(error, RuleConfig, content)
        raise UsageError(
            "; ".join(f"the predicate {predicate}: {one.problem}" for one in found),
            consequence="nothing was done",
            remedy="; ".join(one.remedy for one in found if one.remedy),
        ) from None


def named(value: Any) -> Any:
    """Return the rules of a file; unnamed rules get a name by their position: rule-1, rule-2."""
    if not isinstance(value, list):
        return value
    return [
        {**rule, "name": f"rule-{place}"} if isinstance(rule, dict) and not rule.get("name") else rule
        for place, rule in enumerate(value, start=1)
    ]


def check_names(rules: tuple[RuleConfig, ...]) -> tuple[RuleConfig, ...]:
    """Return the rules; refuse two of one name."""
    names, remedy = [rule.name for rule in rules], "give each rule of the flow a name of its own"
    raise_any(
        SettingsFault((place, "name"), f"a second rule '{name}'", remedy)
        for place, name in enumerate(names)
        if name in names[:place]
    )
    return rules
