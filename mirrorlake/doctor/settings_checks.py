"""Checks of the settings file, before any cluster is called."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import suppress

from mirrorlake.config import secrets
from mirrorlake.config.client import JaasError, parse
from mirrorlake.config.schema import ClusterConfig, without_user
from mirrorlake.doctor.check_context import CheckContext
from mirrorlake.doctor.findings import CheckOutcome, failure, fine, warning
from mirrorlake.doctor.registry import check
from mirrorlake.errors import ConfigError
from mirrorlake.kafka import librdkafka_options
from mirrorlake.render import plural
from mirrorlake.topics import settings_in_force

_LOGIN = "sasl.jaas.config"
_PUBLIC = ("ca.pem", "certificate.pem", "truststore.certificates")


@check("settings.file", layer="settings", finds="ok", fix="--conf names another file")
def _file(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """Which settings file is meant, how many flows it has, and where its lake is: the wrong file looks healthy, too."""
    config = inputs.config
    file = "given as values" if config.path is None else str(config.path.absolute())
    place = config.lake.location() or ".".join(config.lake.namespace() or ())
    yield fine(file, f"{plural(len(config.flows), 'flow')}, lake {place}")


@check("settings.references", layer="settings", fix="set the variable, or create the secret, that the finding names")
def _references(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """Every `${env:…}` and `${secret:…}` of clusters and tracking resolves for this user, and every PEM file is readable.

    A service has another environment than the shell in which the settings were tried.
    """
    looked = 0
    for alias in inputs.clusters:
        cluster = inputs.config.cluster(alias)
        if cluster.is_lake:
            continue
        looked += 1
        try:
            librdkafka_options(cluster, role="admin")
        except ConfigError as error:
            for fault in error.faults:
                yield failure(fault.path, fault.problem, fault.remedy)
    try:
        inputs.config.tracking.tracking_uri()
    except ConfigError as error:
        for fault in error.faults:
            yield warning(fault.path, fault.problem, fault.remedy)
    yield fine("clusters", f"looked at {plural(looked, 'cluster')}")


@check("settings.secrets-plain", layer="settings", finds="warning", fix="write ${env:NAME} or ${secret:scope/key}")
def _secrets_plain(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """No password, token or private key stands in the settings file itself: files are copied, committed and backed up."""
    places = list(_plain(inputs))
    for place, name in places:
        yield warning(place, "the secret stands in the file", f"write ${{env:{name}}} or ${{secret:scope/key}} there")
    if not places:
        yield fine("secrets", "none stands in the file")


def _plain(inputs: CheckContext) -> Iterator[tuple[str, str]]:
    """Yield the path of each plain secret in the file, and the name of a variable for it."""
    for alias, cluster in inputs.config.clusters.items():
        for key, text in cluster.client.items():
            hidden = [key] if secrets.looks_secret(key) and not key.endswith(_PUBLIC) and key != _LOGIN else []
            values = {key: text} if hidden else {}
            if key == _LOGIN and not secrets.is_bare_reference(text):
                with suppress(JaasError):
                    options = parse(text).options
                    values = {name: held for name, held in options.items() if secrets.looks_secret(name)}
            for name, held in values.items():
                # A default is the secret itself.
                if held and (not secrets.has_reference(held) or ":-" in held):
                    place = key if name == key else f"{key} ({name})"
                    yield f"clusters.{alias}.client.{place}", secrets.variable(alias, name)
    uri = inputs.config.tracking.uri
    if uri and not secrets.has_reference(uri) and without_user(uri) != uri:
        yield "tracking.uri", "MLFLOW_TRACKING_URI"


@check("settings.superseded", layer="settings", finds="warning", fix="write the setting that the finding names")
def _superseded(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """No setting of an earlier release stands in the file: it is read for one release more, then refused."""
    old = inputs.config.superseded_settings
    for place, by in old:
        yield warning(
            place, f"`{by}` took its place; the next release does not read it", f"write {by}, or leave it out"
        )
    if not old:
        yield fine("settings", "none of an earlier release")


@check("settings.file-mode", layer="settings", finds="warning", fix="chmod 600 FILE, owned by the user of the service")
def _file_mode(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """Nobody else may write the settings file, nor read one with secrets: who writes it chooses what leaves a cluster."""
    path = inputs.config.path
    if path is None:
        yield fine("settings", "given as values")
        return
    mode = path.stat().st_mode
    shown = f"{path} has mode {stat.S_IMODE(mode):04o}"
    if mode & stat.S_IWOTH:
        yield warning(path.name, f"{shown}: everybody may write it", f"chmod o-w {path}")
    elif mode & (stat.S_IRGRP | stat.S_IROTH) and any(_plain(inputs)):
        yield warning(path.name, f"{shown}: others may read the secrets in it", f"chmod 600 {path}")
    else:
        yield fine(path.name, f"mode {stat.S_IMODE(mode):04o}")


@check("settings.plain-login", layer="settings", finds="warning", fix="security.protocol: SASL_SSL")
def _plain_login(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """No password travels in the open: SASL PLAIN over an unencrypted connection to another machine shows it to the network."""
    for alias in inputs.clusters:
        cluster = inputs.config.cluster(alias)
        if _sends_password(cluster):
            yield warning(
                f"clusters.{alias}",
                "SASL PLAIN over SASL_PLAINTEXT sends the password in the open",
                f"set security.protocol: SASL_SSL under clusters.{alias}.client, or use SCRAM",
            )
    yield fine("logins", "looked at all clusters")


def _sends_password(cluster: ClusterConfig) -> bool:
    client = cluster.client
    mechanism = client.get("sasl.mechanism", client.get("sasl.mechanisms", "")).upper()
    in_the_open = client.get("security.protocol", "").upper() == "SASL_PLAINTEXT" and mechanism == "PLAIN"
    is_local = all(one.startswith(("127.", "localhost:", "[::1]")) for one in cluster.bootstrap_servers or ())
    return in_the_open and not is_local


@check(
    "settings.drift",
    layer="settings",
    finds="warning",
    fix="mirrorlake plan shows what differs, mirrorlake apply puts it in force",
)
def _drift(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """The file is what was last applied: a running mirror keeps to the settings in force, and a restart takes the file's."""
    if inputs.control().applied is None:
        yield fine("settings", "none were applied yet; runs take the file's")
        return
    changes = list(settings_in_force.settings_plan(inputs.config, inputs.context.control()).changes)
    if changes:
        named = ", ".join(dict.fromkeys(f"{one.kind} {one.name}".strip() for one in changes[:3]))
        yield warning(
            "settings",
            f"{plural(len(changes), 'change')} of the file not in force ({named})",
            "mirrorlake plan, then mirrorlake apply",
        )
    else:
        yield fine("settings", "the file is in force")
