"""Paths in a settings file are relative to it, and a file is found from any folder of its project."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlake.config import find_settings, load
from mirrorlake.errors import ConfigError
from mirrorlake.kafka import librdkafka_options
from mirrorlake.kafka.options import java_options

TEXT = """
lake: {root: ../lake}
clusters:
  east:
    bootstrap_servers: "127.0.0.1:1"
    client: {security.protocol: SSL, ssl.ca.location: certs/ca.pem}
  west: {bootstrap_servers: "127.0.0.1:2"}
flows:
  - {source: east, target: west, topics: orders}
tracking: {uri: "sqlite:///runs.db?timeout=3"}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a project with one settings file, seen from a folder of notebooks in it."""
    for name in (".git", "conf", "notebooks/deep"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "conf/demo.yml").write_text(TEXT)
    monkeypatch.chdir(tmp_path / "notebooks/deep")
    return tmp_path


def test_every_path_of_a_file_is_relative_to_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    config = load("conf/demo.yml")
    monkeypatch.chdir("/")
    assert config.lake.location() == str(project / "lake")
    assert config.lake.folder() == project / "lake"
    assert config.lake.checkpoint_location() == str(project / "lake/checkpoints")
    east = config.cluster("east")
    assert librdkafka_options(east, role="admin")["ssl.ca.location"] == str(project / "conf/certs/ca.pem")
    assert java_options(east)["ssl.truststore.location"] == str(project / "conf/certs/ca.pem")
    assert config.tracking.tracking_uri() == f"sqlite:///{project}/conf/runs.db?timeout=3"


def test_a_path_is_looked_for_upwards(project: Path) -> None:
    assert find_settings("conf/demo.yml") == project / "conf/demo.yml"
    near = project / "notebooks/deep/conf"
    near.mkdir()
    (near / "demo.yml").write_text(TEXT)
    assert find_settings("conf/demo.yml").absolute() == near / "demo.yml"


def test_nothing_above_the_repository_is_taken(project: Path) -> None:
    (project / "notebooks/.git").mkdir()
    with pytest.raises(ConfigError, match="no such file in"):
        find_settings("conf/demo.yml")


def test_without_a_name_the_only_file_is_meant_else_the_usual_one(project: Path) -> None:
    assert find_settings() == project / "conf/demo.yml"
    (project / "conf/other.yml").write_text(TEXT)
    with pytest.raises(ConfigError, match=r"conf/demo\.yml, conf/other\.yml"):
        find_settings()
    (project / "conf/mirror.yml").write_text(TEXT)
    assert find_settings() == project / "conf/mirror.yml"


def test_a_missing_file_names_the_closest(project: Path) -> None:
    with pytest.raises(ConfigError, match=r"did you mean .*conf/demo\.yml"):
        find_settings("conf/dmeo.yml")
