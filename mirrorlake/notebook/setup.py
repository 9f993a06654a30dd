"""The set-up form: clusters, a flow with a live preview of its topics, the plan, apply, and the settings file.

The form edits the YAML itself, whose comments and order stay. Settings and widgets hold references to passwords, never a password.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruamel.yaml.comments import CommentedMap

from mirrorlake.config import BadReferenceError, expand, is_bare_reference, keep_for_session, loads, preview, secrets
from mirrorlake.config.schema import MirrorConfig
from mirrorlake.config.text import (
    YamlText,
    append,
    line_of,
    own,
    put,
    put_below,
    remove,
    sections,
    without_secrets,
    write_selection,
)
from mirrorlake.doctor import try_cluster
from mirrorlake.errors import MirrorlakeError, UsageError
from mirrorlake.mirror import Mirror
from mirrorlake.notebook import fields
from mirrorlake.notebook.fragments import code_html, error_text
from mirrorlake.render import badge, breakable, plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECURITY = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
POLICIES = ("default", "identity", "template")
NEW = "a new one"
_NEW_FILE = "lake:\n  root: {root}\n\nclusters:\n\nflows:\n"
_CLIENT = {
    "security": "security.protocol",
    "ca": "ssl.ca.location",
    "mechanism": "sasl.mechanism",
    "username": "sasl.username",
    "reference": "sasl.password",
}
_PREVIEWED = 20


class Setup:
    """Set a mirror up, or change one; `mirror` is that of the settings that were applied here, or None."""

    def __init__(self, path: Path, *, spark: SparkSession | None = None) -> None:
        self.path = path.expanduser().absolute()
        self.mirror: Mirror | None = None
        self._spark = spark
        self._read = self.path.read_text(encoding="utf-8") if self.path.exists() else None
        if self._read is not None:
            loads(self._read, path=self.path)
        root = "../lake" if self.path.parent.name == "conf" else "./lake"
        text, literal = (_NEW_FILE.format(root=root), {}) if self._read is None else without_secrets(self._read)
        for reference, secret in literal.items():
            # An unresolved reference is reported when it is needed, by name.
            with suppress(BadReferenceError):
                keep_for_session(reference, expand(secret))
        self.text = text
        """The settings with all that was added or changed; the flow in the form is not in it yet."""
        self.topics: dict[str, tuple[str, ...]] = {}
        self.work = fields.ButtonThreads()
        self.yaml, self.saved = fields.html("yaml"), fields.html("saved")
        self.box = fields.PlanBox(self.work, "setup", "Apply", self._apply)
        steps = (self._cluster_form(), self._flow_form(), self._review())
        self.tabs = fields.tabs("steps", steps, ("1 Clusters", "2 Flow", "3 Review and apply"))
        self.widget = fields.column(self.work.widget, self.tabs)
        self.widget.add_class("ml-setup")
        self._edited_flow = NEW
        self._filled: dict[str, Any] = {}
        self._changed()
        self._fill_cluster()
        self._fill_flow()

    # -- clusters -------------------------------------------------------------------------------------------------

    def _cluster_form(self) -> Any:
        self.cluster = fields.choice("cluster", "Cluster", [NEW])
        self.alias = fields.text("cluster-alias", "Alias", hint="east")
        self.servers = fields.text("cluster-servers", "Bootstrap servers", hint="host:9092, host:9092")
        self.security = fields.choice("cluster-security", "Connection", SECURITY)
        self.ca = fields.text("cluster-ca", "CA file", hint="a PEM file that driver and workers can read")
        self.mechanism = fields.choice("cluster-mechanism", "Login", MECHANISMS)
        self.username = fields.text("cluster-username", "User")
        self.reference = fields.text("cluster-reference", "Password reference", hint="${env:NAME}", live=False)
        self.password = fields.password("cluster-password", "Password")
        self.never_leave = fields.text("cluster-never-leave", "Never leave", hint="topics no flow may take: pii.*")
        self.cluster_result = fields.html("cluster-result")
        test = self.work.button(
            "cluster-test", "Test", self.test_cluster, tip="Connect, and read the names of its topics"
        )
        add = self.work.button(
            "cluster-add", "Add or change", self.add_cluster, tip="Change the settings, not the cluster"
        )
        self.work.on_change(self._fill_cluster, self.cluster)
        self.work.on_change(self._take_password, self.password)
        self.work.on_change(self._check_reference, self.reference)
        login = (self.security, self.ca, self.mechanism, self.username, self.reference, self.password)
        buttons = fields.row(test, add)
        return fields.column(
            self.cluster, self.alias, self.servers, *login, self.never_leave, buttons, self.cluster_result
        )

    def _fill_cluster(self) -> None:
        alias = self.cluster.value
        node = (YamlText(self.text).root.get("clusters") or {}).get(alias, {})
        client = node.get("client") or {}
        self.alias.value = "" if alias == NEW else alias
        self.servers.value = line_of(node.get("bootstrap_servers") or "")
        self.never_leave.value = line_of(node.get("never_leave") or "")
        for name, option in _CLIENT.items():
            field, value = getattr(self, name), str(client.get(option, ""))
            options = getattr(field, "options", None)
            field.value = value if options is None or value in options else options[0]
        self.cluster_result.value = ""

    def _with_cluster(self) -> tuple[str, str]:
        """Return the alias of the form's cluster, and the settings with it."""
        alias, document = self.alias.value.strip(), YamlText(self.text)
        if not alias:
            raise UsageError("the cluster has no alias", remedy="give it a short name, such as east")
        clusters = document.root.get("clusters") or {}
        if alias not in clusters:
            put_below(document.root, "clusters", alias, {"bootstrap_servers": self.servers.value.strip()})
        node = own(document.root["clusters"], alias)
        _write(node, "bootstrap_servers", self.servers.value)
        client, has_login = dict(node.get("client") or {}), self.security.value.startswith("SASL")
        wanted = {option: getattr(self, name).value.strip() for name, option in _CLIENT.items()}
        if "sasl.jaas.config" in client:
            wanted = {option: value for option, value in wanted.items() if not option.startswith("sasl.")}
        elif has_login:
            wanted["sasl.password"] = wanted["sasl.password"] or _usual_reference(alias)
        else:
            wanted |= dict.fromkeys(("sasl.mechanism", "sasl.username", "sasl.password"), "")
        if self.security.value == SECURITY[0]:
            wanted["security.protocol"] = ""
        for option, value in wanted.items():
            if value and client.get(option) != value:
                put_below(node, "client", option, value)
            elif not value and option in client:
                remove(own(node, "client"), option)
        if "client" in node and not node["client"]:
            remove(node, "client")
        _write(node, "never_leave", self.never_leave.value)
        return alias, str(document)

    def add_cluster(self) -> None:
        alias, text = self._with_cluster()
        _check_cluster(text, alias)
        self.text = text
        self._changed()
        self.cluster.value = alias
        self.cluster_result.value = f"{badge('in the settings', 'good').html()} {breakable(alias)}, not saved yet"

    def test_cluster(self) -> None:
        alias, text = self._with_cluster()
        tried = try_cluster(_check_cluster(text, alias).cluster(alias), alias)
        self.cluster_result.value = tried.to_html()
        if tried.ok:
            self.topics[alias] = tried.topics
            self._preview()

    def _take_password(self) -> None:
        """Store the typed password for this session under its reference, and clear the field."""
        typed = self.password.value
        if typed:
            # First: no failure below may leave the password in the widget's state, which notebooks save.
            self.password.value = ""
            self.reference.value = self.reference.value.strip() or _usual_reference(
                self.alias.value.strip() or "cluster"
            )
            keep_for_session(self.reference.value, typed)
            known = f"{badge('in memory for this session', 'good').html()} The settings hold "
            self.cluster_result.value = (
                f"{known}<code>{breakable(self.reference.value)}</code>; a job needs it to be set."
            )

    def _check_reference(self) -> None:
        """Clear the field unless it is a reference: a password typed there must not stay in the notebook."""
        typed = self.reference.value.strip()
        if typed and not is_bare_reference(typed):
            self.reference.value = ""
            raise UsageError(
                "the field 'Password reference' takes a reference only",
                consequence="its content was forgotten",
                remedy="write ${env:NAME} or ${secret:scope/key}, and type the password into the field below",
            )

    # -- the flow -------------------------------------------------------------------------------------------------

    def _flow_form(self) -> Any:
        self.flow = fields.choice("flow", "Flow", [NEW])
        self.source, self.target = fields.choice("flow-source", "Source"), fields.choice("flow-target", "Target")
        self.name = fields.text("flow-name", "Name", hint="source->target, unless there are several")
        self.topics_field = fields.text("flow-topics", "Topics", hint="orders, clicks.*")
        self.exclude_topics = fields.text("flow-exclude", "Exclude topics", hint="the usual temporary ones")
        self.policy = fields.choice("flow-policy", "Names on the target", POLICIES)
        self.template = fields.text("flow-template", "Template", hint="all.{topic}, for the policy template")
        self.preview = fields.html("flow-preview")
        self._inputs = {
            "source": self.source,
            "target": self.target,
            "name": self.name,
            "topics": self.topics_field,
            "exclude_topics": self.exclude_topics,
            "policy": self.policy,
            "template": self.template,
        }
        read = self.work.button("flow-read", "Read the source", self.read_source, tip="Read the names of its topics")
        add = self.work.button(
            "flow-add", "Add or change", self.add_flow, tip="Change the settings; then fill in another"
        )
        self.work.on_change(self._other_flow, self.flow)
        self.work.on_change(self._typed, *self._inputs.values())
        return fields.column(self.flow, *self._inputs.values(), fields.row(read, add), self.preview)

    def _fill_flow(self) -> None:
        self._edited_flow = self.flow.value
        node = self._flow_nodes(YamlText(self.text)).get(self.flow.value, {})
        policy = node.get("policy", POLICIES[0])
        values = {
            name: line_of(node.get(name) or "") for name in ("name", "source", "target", "topics", "exclude_topics")
        }
        template = policy.get("template", "") if isinstance(policy, Mapping) else ""
        named = policy.get("name", POLICIES[0]) if isinstance(policy, Mapping) else policy
        values |= {"policy": POLICIES[2] if template else named, "template": template}
        for name, field in self._inputs.items():
            options = getattr(field, "options", None)
            field.value = values[name] if not options or values[name] in options else options[0]
        self._filled = self._flow_values()
        self._preview()

    def _other_flow(self) -> None:
        """Add the flow that was typed, then show the chosen one; a flow that cannot be added stays in the form."""
        chosen = self.flow.value
        if chosen == self._edited_flow:
            return
        if self._flow_values() != self._filled:
            try:
                text = self.settings().text
            except MirrorlakeError:
                self.flow.value = self._edited_flow
                raise
            self.text, self._filled = text, self._flow_values()
            self._changed()
            self.flow.value = chosen
        self._fill_flow()

    def _flow_values(self) -> dict[str, str]:
        return {name: (field.value or "").strip() for name, field in self._inputs.items()}

    @staticmethod
    def _flow_nodes(document: YamlText) -> dict[str, Any]:
        nodes = document.root.get("flows") or ()
        return {str(node.get("name") or f"{node['source']}->{node['target']}"): node for node in nodes}

    def _with_flow(self) -> str:
        """Return the settings with the form's flow, of which only what was typed is written.

        Another name is another flow, with a ledger of its own: the flow of the old name stays.
        """
        values, before = self._flow_values(), self._filled
        if values == before:
            return self.text
        document = YamlText(self.text)
        name = values["name"] or f"{values['source']}->{values['target']}"
        node = self._flow_nodes(document).get(self._edited_flow)
        if node is None or name != self._edited_flow:
            node, before = CommentedMap(), {}
            if document.root.get("flows"):
                append(document.root["flows"], node)
            else:
                put(document.root, "flows", [node])
        for key in ("name", "source", "target", "topics", "exclude_topics"):
            if values[key] != before.get(key, ""):
                _write(node, key, values[key])
        policy = (values["policy"], values["template"])
        if policy != (before.get("policy", POLICIES[0]), before.get("template", "")):
            put(node, "policy", {"template": policy[1]} if policy[0] == POLICIES[2] else policy[0])
        return str(document)

    def add_flow(self) -> None:
        self.text, self._filled = self.settings().text, self._flow_values()
        self._changed()
        self.flow.value = NEW
        self._fill_flow()

    def read_source(self) -> None:
        alias = self.source.value
        if not alias:
            raise UsageError("no source is chosen", remedy="add clusters first")
        tried = try_cluster(_check_cluster(self.text, alias).cluster(alias), alias)
        if not tried.ok:
            raise UsageError(tried.problem, remedy=tried.remedy)
        self.topics[alias] = tried.topics
        self._preview()

    def _typed(self) -> None:
        self.box.withdraw()
        self._preview()

    def _preview(self) -> None:
        values = self._flow_values()
        if not (values["source"] and values["target"] and values["topics"]):
            self.preview.value = "Choose source and target, and name the topics."
            return
        try:
            flow = self.settings().flow(values["name"] or f"{values['source']}->{values['target']}")
        except MirrorlakeError as error:
            # Half-typed patterns are often invalid: that is shown here, and no alarm.
            self.preview.value = f"{badge('not yet', 'warn').html()} {code_html(error_text(error))}"
            return
        known = self.topics.get(values["source"])
        self.preview.value = (
            "Read the source to see which topics match."
            if known is None
            else preview(flow, known).to_html(rows=_PREVIEWED)
        )

    # -- the settings ---------------------------------------------------------------------------------------------

    def _review(self) -> Any:
        plan = self.work.button("setup-plan", "Show the plan", self.show_plan, tip="Ask the clusters; changes nothing")
        save = self.work.button("save", "Save the settings", self.save, tip="Write the file", main=True)
        where = fields.html("setup-path")
        where.value = f"Settings file: <code>{breakable(str(self.path))}</code>"
        return fields.column(where, fields.row(plan, save), self.saved, self.box.widget, self.yaml)

    def settings(self) -> MirrorConfig:
        """Return the settings with the form's flow, checked. Raises ConfigError: they have faults."""
        return loads(self._with_flow(), path=self.path)

    def _changed(self) -> None:
        """Offer the clusters and flows of the settings, show their YAML, and withdraw the plan."""
        self.box.withdraw()
        self.saved.value, self.yaml.value = "", code_html(self.text)
        document = YamlText(self.text)
        aliases = [str(alias) for alias in document.root.get("clusters") or {}]
        for field, options in (
            (self.cluster, [NEW, *aliases]),
            (self.flow, [NEW, *self._flow_nodes(document)]),
            (self.source, ["", *aliases]),
            (self.target, ["", *aliases]),
        ):
            if list(field.options) != options:
                chosen = field.value
                field.options = options
                field.value = chosen if chosen in options else options[0]

    def show_plan(self) -> None:
        self.yaml.value = code_html(self.settings().text)
        self.box.propose(self._with_flow, self._plan)

    def _plan(self, text: str) -> tuple[Any, str]:
        config = loads(text, path=self.path)
        self._planned = Mirror(config, spark=self._spark, display=lambda: None)
        word = config.flows[0].name if len(config.flows) == 1 else "all flows"
        return self._planned.plan(), word

    def _apply(self, plan: Any) -> str:
        done = self._planned.apply(plan=plan)
        self.mirror = self._planned
        self.text = self.mirror.config.text
        self._changed()
        return f"<p>{badge('applied').html()} {plural(len(done.changes), 'change')}. Now save the settings, and run it.</p>"

    def save(self) -> None:
        """Write the file, unless somebody changed it since it was read; atomic, as a job may read it at this moment."""
        text = self.settings().text
        now = self.path.read_text(encoding="utf-8") if self.path.exists() else None
        if now not in (self._read, text):
            raise UsageError(
                f"{self.path} has changed since it was read",
                consequence="nothing was written",
                remedy="open the form again, and repeat your change",
            )
        file = self.path.resolve()
        fresh = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(text, encoding="utf-8")
            if now is not None:
                shutil.copymode(file, fresh)
            fresh.replace(file)
        except OSError as error:
            problem = f"{self.path} cannot be written ({error.strerror})"
            raise UsageError(problem, remedy="open the form with a file in a folder you may write") from error
        finally:
            fresh.unlink(missing_ok=True)
        self._read = text
        self.saved.value = f"{badge('saved', 'good').html()} {breakable(str(self.path))}"

    def close(self) -> None:
        fields.close_all(self.widget)

    def __repr__(self) -> str:
        return f"Setup({str(self.path)!r})"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return {**self.widget._repr_mimebundle_(**options), "text/plain": repr(self)}


def _usual_reference(alias: str) -> str:
    return f"${{env:{secrets.variable(alias, 'sasl.password')}}}"


def _write(node: Any, key: str, text: str) -> None:
    """Write a field if it differs from what the file shows, into the file's list if it has one."""
    if text.strip() != line_of(node.get(key) or ""):
        write_selection(node, key, text.strip() or None)


def _check_cluster(text: str, alias: str) -> MirrorConfig:
    """Return settings with this cluster as the source of a flow. Raises ConfigError: it has faults."""
    node, other = YamlText(text).root["clusters"][alias], "other-end" if alias != "other-end" else "other"
    clusters = {alias: node, other: {"bootstrap_servers": "127.0.0.1:9092"}}
    flow = {"source": alias, "target": other, "topics": ".*"}
    return loads(sections({"lake": {"root": "./lake"}, "clusters": clusters, "flows": [flow]}))
