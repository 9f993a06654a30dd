"""References: resolved at the edge only, named when they cannot be, and never printed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.config import loads, secrets
from mirrorlake.errors import ConfigError
from mirrorlake.kafka import librdkafka_options
from mirrorlake.kafka.options import java_options

CONFIG = """
lake: {root: ./lake}
clusters:
  east:
    bootstrap_servers: "${env:EAST:-east:9092}"
    client:
      security.protocol: SASL_SSL
      sasl.mechanism: PLAIN
      sasl.username: mirror
      sasl.password: %s
  west: {bootstrap_servers: "west:9092"}
flows:
  - {source: east, target: west, topics: orders}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "password").write_text("hunter2\n", encoding="utf-8")
    monkeypatch.setenv(secrets.SECRETS_DIR, str(tmp_path))
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION", raising=False)
    return tmp_path


def test_references_resolve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ML_HOST", "east")
    monkeypatch.delenv("ML_PORT", raising=False)
    assert secrets.resolve("${env:ML_HOST}:${env:ML_PORT:-9092}") == "east:9092"
    assert secrets.resolve("${env:ML_PORT:-}") == ""
    assert secrets.resolve("a ${secret:kafka/password} b") == "a hunter2 b"
    assert secrets.resolve("$${env:ML_HOST} $5 {x}") == "${env:ML_HOST} $5 {x}"


@pytest.mark.parametrize(
    ("content", "read"),
    [(b" x \r\n", " x "), (b"x\n\n", "x\n"), (b"${env:HOME} $${", "${env:HOME} $${")],
)
def test_a_secret_file_is_read_once_as_it_is_but_for_one_trailing_newline(
    content: bytes, read: str, folder: Path
) -> None:
    (folder / "kafka" / "tricky").write_bytes(content)
    assert secrets.resolve("${secret:kafka/tricky}") == read


@pytest.mark.parametrize(
    "text", ["${NAME}", "${env:}", "${env:A", "${secret:scope}", "${secret:a/b/c}", "${file:/x}", "${}"]
)
def test_a_malformed_reference_is_refused(text: str) -> None:
    with pytest.raises(secrets.BadReferenceError, match="not a reference"):
        secrets.check(text)


def test_an_unresolvable_reference_names_file_path_and_what_was_tried(folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        secrets.resolve("${secret:kafka/nope}", file="conf/prod.yml", path="clusters.east.client.sasl.password")
    text = str(caught.value)
    assert "conf/prod.yml clusters.east.client.sasl.password: ${secret:kafka/nope} cannot be resolved" in text
    assert "tried in order: Databricks secrets (not running on Databricks); the file" in text


def test_a_secret_file_is_not_looked_for_outside_the_folder(folder: Path) -> None:
    (folder.parent / "password").write_text("outside", encoding="utf-8")
    with pytest.raises(ConfigError, match="are not names"):
        secrets.resolve("${secret:../password}")


def test_databricks_is_asked_first_and_its_error_text_is_not_repeated(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(*, scope: str, key: str) -> str:
        if key == "broken":
            raise RuntimeError("denied; the value was hunter3")
        return f"{scope}-{key}-from-databricks"

    runtime = SimpleNamespace(dbutils=SimpleNamespace(secrets=SimpleNamespace(get=get)))
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    monkeypatch.setattr(secrets.importlib, "import_module", lambda _: runtime)
    assert secrets.resolve("${secret:kafka/password}") == "kafka-password-from-databricks"
    with pytest.raises(ConfigError) as caught:
        secrets.resolve("${secret:kafka/broken}")
    assert "RuntimeError" in str(caught.value)
    assert "hunter3" not in str(caught.value)


def test_settings_keep_the_reference_and_the_edge_resolves_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = loads(CONFIG % "${secret:kafka/password}", path=Path("conf/prod.yml"))
    cluster = config.cluster("east")
    assert "${secret:kafka/password}" in repr(config)
    assert "hunter2" not in repr(config)
    assert librdkafka_options(cluster, role="admin")["sasl.password"] == "hunter2"
    assert 'password="hunter2"' in java_options(cluster)["sasl.jaas.config"]
    assert cluster.servers() == "east:9092"
    monkeypatch.setenv("EAST", "no address")
    with pytest.raises(ConfigError, match=r"conf/prod.yml clusters.east.bootstrap_servers"):
        cluster.servers()


def test_a_secret_with_a_control_character_is_refused_without_showing_it(folder: Path) -> None:
    (folder / "kafka" / "two-lines").write_text("one\ntwo\n", encoding="utf-8")
    config = loads(CONFIG % "${secret:kafka/two-lines}")
    with pytest.raises(ConfigError, match="control character") as caught:
        librdkafka_options(config.cluster("east"), role="admin")
    assert "one" not in str(caught.value).replace("nothing", "").replace("remove", "")


# The sign in front keeps hypothesis from finding a password that is a word of the message.
visible = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_characters="\x7f"), max_size=24).map(
    "§{}".format
)


@given(visible)
def test_a_password_in_the_file_is_never_printed(password: str) -> None:
    quoted = "'" + password.replace("$", "$$").replace("'", "''") + "'"
    try:
        shown = repr(loads(CONFIG % quoted))
    except ConfigError as error:
        shown = str(error)
    assert password not in shown
    for section in ("%s", "[%s]", "{sasl.password: [%s]}", "{sasl.pasword: %s}"):
        start, end = CONFIG.index("    client:"), CONFIG.index("  west:")
        with pytest.raises(ConfigError) as caught:
            loads(CONFIG[:start] + "    client: " + section % quoted + "\n" + CONFIG[end:])
        assert password not in str(caught.value)
    broken = CONFIG.replace("sasl.username: mirror", "sasl.usernme: mirror").replace("topics: orders", "topics: '('")
    with pytest.raises(ConfigError) as caught:
        loads(broken % quoted)
    assert password not in str(caught.value)
    assert password not in repr(caught.value.as_dict())


@given(st.lists(visible, min_size=1, max_size=3), st.text(max_size=10))
def test_redaction_leaves_nothing_of_a_secret(values: list[str], noise: str) -> None:
    text = noise + " ".join(f'{value} password="{value}" {value!r}' for value in values)
    redacted = secrets.redact(text, values)
    assert not any(value in redacted for value in values if value.strip("*")), "a secret appears nowhere"


def test_redaction_leaves_other_text_alone() -> None:
    assert secrets.redact("a plain text", ["", "secret"]) == "a plain text"
    assert secrets.redact("abcdef abc", ["abc", "abcdef"]) == "******** ********"
    assert secrets.redact(r'password="a\"b\\c";', ['a"b\\c']) == 'password="********";', "as a login line escapes it"
