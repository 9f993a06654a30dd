"""Connections of every kind by both clients, what is said where one fails, a password that is rotated, and no secret left anywhere."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import nbformat
import psutil
import pytest
from deltalake import DeltaTable
from nbclient import NotebookClient
from pyspark.sql import SparkSession

import mirrorlake as ml
from mirrorlake.errors import ClusterUnreachable, LoginRefused
from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import run_cli, write_conf
from tests.kit.processes import Process, wait_until
from tests.kit.records import count, create_topic, new_topic, send, topic_name
from tests.servers.secured import PASSWORD, STORE_PASSWORD, Secured

LISTENERS = ["TLS", "MTLS", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTH"]


@pytest.fixture(scope="module")
def topic(secured: Secured) -> str:
    return new_topic(secured.cluster, 5, partitions=1)


def without(client: dict[str, str], *names: str) -> dict[str, str]:
    return {key: value for key, value in client.items() if key not in names}


FILES = ("ssl.certificate.location", "ssl.key.location")
FORMS = {
    "the CA as text": "TLS",
    "a trust store of Java": "TLS",
    "names unchecked, as Java writes it": "WRONG_HOST",
    "key and chain in two files": "MTLS",
    "an encrypted key": "MTLS",
    "an encrypted key in one file": "MTLS",
    "a key in PKCS#1": "MTLS",
    "a PKCS#12 store": "MTLS",
    "certificate and key as text": "MTLS",
    "a login line of Java": "PLAIN",
}


def client_of(form: str, secured: Secured) -> dict[str, str]:
    at, held = secured.certificates.path, secured.certificates.text
    client = secured.client(FORMS.get(form, form))
    match form:
        case "the CA as text":
            return {**without(client, "ssl.ca.location"), "ssl.ca.pem": held("ca.pem")}
        case "a trust store of Java":
            store = {"ssl.truststore.location": at("trust.p12"), "ssl.truststore.password": STORE_PASSWORD}
            return {**without(client, "ssl.ca.location"), **store}
        case "names unchecked, as Java writes it":
            return {**client, "ssl.endpoint.identification.algorithm": ""}
        case "key and chain in two files":
            return {**client, FILES[0]: at("client.crt"), FILES[1]: at("client.key")}
        case "an encrypted key":
            key = {FILES[1]: at("client-encrypted.key"), "ssl.key.password": STORE_PASSWORD}
            return {**client, FILES[0]: at("client.crt"), **key}
        case "an encrypted key in one file":
            return {**client, **dict.fromkeys(FILES, at("client-encrypted.pem")), "ssl.key.password": STORE_PASSWORD}
        case "a key in PKCS#1":
            return {**client, FILES[0]: at("client.crt"), FILES[1]: at("client-pkcs1.key")}
        case "a PKCS#12 store":
            store = {"ssl.keystore.location": at("client.p12"), "ssl.keystore.password": STORE_PASSWORD}
            return {**without(client, *FILES), **store}
        case "certificate and key as text":
            text = {"ssl.certificate.pem": held("client.crt"), "ssl.key.pem": held("client.key")}
            return {**without(client, *FILES), **text}
        case "a login line of Java":
            escaped = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            line = f'{module} required username="mirror" password="{escaped}";'
            return {**without(client, "sasl.username", "sasl.password"), "sasl.jaas.config": line}
    return client


def test_one_section_serves_both_clients(
    secured: Secured, central: KafkaCluster, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Python's client lists the topics, Java's reads the records."""
    sources = {f"s{number}": form for number, form in enumerate((*LISTENERS, *FORMS))}
    clusters = {alias: secured.address(FORMS.get(form, form)) for alias, form in sources.items()}
    flows = [{"source": alias, "target": "central", "topics": topic, "execution": "streaming"} for alias in sources]
    settings = {
        alias: {"client": client_of(form, secured), "land": {"execution": "streaming"}}
        for alias, form in sources.items()
    }
    conf = write_conf(tmp_path, {**clusters, "central": central.bootstrap_servers}, flows, **settings)
    mirror = ml.load(conf, spark=spark)
    for alias, form in sources.items():
        assert topic in {one.topic for one in mirror.topics(alias)}, form
        assert mirror.land(alias, once=True).records == 5, form


FAILURES: dict[str, tuple[str, dict[str, str | None], str, str]] = {
    "wrong CA": ("TLS", {"ssl.ca.location": "other-ca.pem"}, "TLS", "name the CA that issued it"),
    "wrong host name": ("WRONG_HOST", {}, "TLS", "write a name of the certificate"),
    "expired certificate": ("EXPIRED", {}, "TLS", "renew the broker's certificate"),
    "no client certificate": ("MTLS", dict.fromkeys(FILES), "TLS", "add ssl.certificate.location"),
    "plain client, TLS listener": (
        "TLS",
        {"security.protocol": None, "ssl.ca.location": None},
        "TLS",
        "security.protocol of clusters.east.client to SSL",
    ),
    "login in plain text, TLS listener": (
        "PLAIN",
        {"security.protocol": "SASL_PLAINTEXT", "ssl.ca.location": None},
        "TLS",
        "SASL_SSL",
    ),
    "TLS client, plain listener": ("PLAINTEXT", {}, "TLS", "name a TLS listener"),
    "wrong password": ("PLAIN", {"sasl.password": "canary-wrong-9f1"}, "SASL", "check sasl.username"),
    "wrong SCRAM password": ("SCRAM-SHA-512", {"sasl.password": "canary-wrong-9f1"}, "SASL", "check sasl.username"),
    "unknown mechanism": ("OAUTH as PLAIN", {}, "SASL", "one of the broker's mechanisms"),
    "wrong client secret": (
        "OAUTH",
        {"sasl.oauthbearer.client.secret": "canary-wrong-9f1"},
        "SASL (token)",
        "the client's id and secret",
    ),
    "no token server": (
        "OAUTH",
        {"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"},
        "SASL (token)",
        "token.endpoint.url of clusters.east.client answers",
    ),
}


def source_of(secured: Secured, kind: str, **change: str | None) -> ml.Mirror:
    """Return a mirror whose source has the `client:` section of a listener with these changes; None takes a key out."""
    client = secured.client({"PLAINTEXT": "TLS", "OAUTH as PLAIN": "PLAIN"}.get(kind, kind)) | change
    at = {
        name: secured.certificates.path(text) if text.endswith(".pem") else text
        for name, text in client.items()
        if text
    }
    listener = kind.partition(" ")[0]
    address = secured.cluster.address(listener) if listener == "PLAINTEXT" else secured.address(listener)
    at["socket.connection.setup.timeout.ms"] = "3000"
    clusters = {"east": {"bootstrap_servers": address, "client": at}, "west": {"bootstrap_servers": "west:1"}}
    flow = {"source": "east", "target": "west", "topics": "t"}
    return ml.from_settings({"lake": {"root": "./lake"}, "clusters": clusters, "flows": [flow]})


@pytest.mark.parametrize("what", FAILURES)
def test_a_connection_that_fails_names_client_cluster_layer_and_fix(what: str, secured: Secured) -> None:
    kind, change, layer, remedy = FAILURES[what]
    with pytest.raises(ClusterUnreachable) as said:
        source_of(secured, kind, **change).topics("east")
    assert said.value.exit_code == 4
    assert f"cluster east: {layer} fails at 127.0.0.1:" in said.value.cause
    assert "librdkafka" in said.value.cause
    assert remedy in said.value.remedy
    assert "canary" not in str(said.value)
    assert isinstance(said.value, LoginRefused) == layer.startswith("SASL")


def test_a_token_server_that_was_away_is_asked_again(secured: Secured, topic: str) -> None:
    secured.tokens.is_down = True
    with pytest.raises(LoginRefused, match=r"SASL \(token\)"):
        source_of(secured, "OAUTH").topics("east")
    secured.tokens.is_down = False
    assert topic in {one.topic for one in source_of(secured, "OAUTH").topics("east")}


# Where the kernel finds the package.
AT_HOME = {"metadata": {"path": str(Path(__file__).parents[2])}}

# docs/logs.md.
LOGS = Path(os.environ.get("MIRRORLAKE_CACHE") or "~/.cache/mirrorlake").expanduser() / "logs"
OLD, NEW, HASH_KEY = "canaryold9f1", "canarynew9f1", "canaryhashkey9f1"


class Canaries:
    """What must stand nowhere, and where to look."""

    def __init__(self, secured: Secured) -> None:
        lines = [
            line for name in ("client.key", "client-encrypted.key") for line in secured.certificates.text(name).split()
        ]
        # A line from the middle of each key: its beginning is alike in all.
        keys = [line for line in lines if len(line) == 64][4::11]
        secrets = [OLD, NEW, HASH_KEY, STORE_PASSWORD, "canarywrong9f1", *keys]
        self._found = re.compile(b"|".join(re.escape(one.encode()) for one in secrets))

    def look(self, text: str | bytes, where: object) -> None:
        found = self._found.search(text if isinstance(text, bytes) else text.encode(errors="replace"))
        assert found is None, f"a secret stands in {where}: {found.group()[:9]!r}…" if found else ""

    def look_at(self, folder: Path) -> int:
        files = [path for path in folder.rglob("*") if path.is_file()]
        for path in files:
            with suppress(FileNotFoundError):
                self.look(path.read_bytes(), path)
        return len(files)

    def look_at_tables(self, lake: Path) -> int:
        tables = [path.parent for path in lake.rglob("_delta_log") if any(path.glob("*.json"))]
        for path in tables:
            table = DeltaTable(str(path))
            self.look(str(table.history()), f"the history of {path}")
            self.look(str(table.to_pyarrow_table().to_pylist()), path)
        return len(tables)

    def look_at_processes(self, root: int) -> int:
        tree = [psutil.Process(root), *psutil.Process(root).children(recursive=True)]
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                self.look(" ".join(process.cmdline()), f"the command line of {process.pid}")
        return len(tree)


@pytest.fixture
def settings(
    secured: Secured, central: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Write settings with a secret of every kind; the SCRAM password is in a file, and is `OLD`."""
    secrets = tmp_path / "secrets" / "kafka"
    secrets.mkdir(parents=True)
    (secrets / "password").write_text(OLD)
    (secrets / "hash-key").write_text(HASH_KEY)
    monkeypatch.setenv("MIRRORLAKE_SECRETS_DIR", str(tmp_path / "secrets"))
    monkeypatch.setenv("CANARY_PASSPHRASE", STORE_PASSWORD)
    secured.set_scram(OLD)
    at = secured.certificates.path
    east = {
        **secured.client("SCRAM-SHA-512"),
        "sasl.password": "${secret:kafka/password}",
        "ssl.certificate.location": at("client.crt"),
        "ssl.key.location": at("client-encrypted.key"),
        "ssl.key.password": "${env:CANARY_PASSPHRASE}",
    }
    place = tmp_path / "place"
    place.mkdir()
    flow = {
        # The shared target has a ledger of another cluster's east->central.
        "name": "canary",
        "source": "east",
        "target": "central",
        "topics": topic_name("canary"),
        "rules": [{"name": "pii", "hash": {"fields": ["email"], "key": "${secret:kafka/hash-key}"}}],
    }
    clusters = {
        "east": {"bootstrap_servers": secured.address("SCRAM-SHA-512"), "client": east},
        "central": {"bootstrap_servers": central.bootstrap_servers},
    }
    path = place / "mirror.yml"
    path.write_text(json.dumps({"lake": {"root": "./lake"}, "clusters": clusters, "flows": [flow]}))
    yield path
    secured.set_scram(PASSWORD)


@pytest.mark.law("F")
def test_a_rotated_password_needs_no_restart_and_no_secret_is_left_anywhere(
    settings: Path, secured: Secured, central: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = settings.parent
    [flow] = json.loads(settings.read_text())["flows"]
    name, remote = flow["topics"], f"east.{flow['topics']}"
    create_topic(secured.cluster, name, 1)

    def write(number: int) -> None:
        send(secured.cluster, name, [(json.dumps({"email": f"{one}@example.com"}).encode(),) for one in range(number)])

    def said(*arguments: str, code: int | None = 0) -> str:
        done = run_cli(*arguments, "--conf", str(settings))
        (place / f"{arguments[0]}.out").write_text(done.stdout + done.stderr)
        assert code in (None, done.returncode), done.stdout + done.stderr
        return done.stdout + done.stderr

    write(20)
    said("apply")
    said("run", "--once")
    assert count(central, remote) == 20

    events = place / "events"
    events.mkdir()
    given = f"--conf spark.eventLog.enabled=true --conf spark.eventLog.compress=false --conf spark.eventLog.dir={events.as_uri()}"
    with monkeypatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"{given} pyspark-shell")
        patch.setenv("MIRRORLAKE_LOG", "DEBUG")
        process = Process(place / "always-on.log", "run", "--conf", str(settings))
        try:
            write(10)
            wait_until(lambda: count(central, remote) == 30 or not process.is_running, "records arrive")
            canaries = Canaries(secured)
            assert canaries.look_at_processes(process.popen.pid) > 2
            # The password is changed on the cluster, which ends its connections, before the mirror's file follows.
            secured.set_scram(NEW)
            secured.cluster.restart()
            write(10)
            wait_until(
                lambda: "LoginRefused" in process.output or "SASL" in process.output,
                "the login is refused",
            )
            (tmp_path / "secrets" / "kafka" / "password").write_text(NEW)
            wait_until(lambda: count(central, remote) == 40 or not process.is_running, "with the new one")
            assert process.is_running, process.output
            assert count(central, remote) == 40, "law F"
        finally:
            process.terminate()
    logs = [log for pid in (process.popen.pid, os.getpid()) for log in LOGS.glob(f"*-{pid}.log")]
    assert len(logs) == 2

    said("verify", "--full")
    said("doctor", code=None)
    said("plan")
    (tmp_path / "secrets" / "kafka" / "password").write_text("canarywrong9f1")
    assert "SASL fails" in said("status", code=4)
    assert "SASL fails" in said("doctor", "--json", code=4)
    (tmp_path / "secrets" / "kafka" / "password").write_text(NEW)

    cells = [
        f"import mirrorlake as ml\nmirror = ml.load({str(settings)!r})\nmirror",
        "mirror.doctor()",
        "mirror['canary']",
        "mirror.config",
        "ml.console(mirror)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    executed = NotebookClient(notebook, timeout=400, kernel_name="python3", resources=AT_HOME).execute()
    (place / "executed.ipynb").write_text(nbformat.writes(executed))

    with pytest.raises(AssertionError, match="a secret stands in"):
        canaries.look_at(tmp_path / "secrets")
    assert canaries.look_at(place) > 20
    assert canaries.look_at(events) > 0
    assert canaries.look_at_tables(place / "lake") > 5
    for log in logs:
        canaries.look(log.read_bytes(), log)
    canaries.look_at_processes(os.getpid())
