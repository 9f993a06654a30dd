"""The files that put a mirror on Databricks, Kubernetes and systemd are valid, name what exists, and the job runs commands."""

from __future__ import annotations

import configparser
import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from mirrorlake.cli.app import app
from mirrorlake.cli.stopping import STOP_DEADLINE_S
from mirrorlake.config.loading import load, loads

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HOUSE = Path(__file__).parents[2]
JOBS = HOUSE / "jobs"
JOB = JOBS / "mirrorlake.py"
_VARIABLE = re.compile(r"\$\{([^}]+)\}")


def take(arguments: list[str]) -> None:
    """Have the command line read a command with its options, which raises where it does not know one; nothing runs."""
    group: Any = typer.main.get_command(app)
    command = group.commands[arguments[0]]
    command.make_context(arguments[0], list(arguments[1:]))


def bundle(kind: str) -> dict[str, Any]:
    """Read the resources of a kind in the files that the bundle includes."""
    found: dict[str, Any] = {}
    for pattern in yaml.safe_load((JOBS / "databricks.yml").read_text())["include"]:
        for file in JOBS.glob(pattern):
            found |= yaml.safe_load(file.read_text())["resources"].get(kind, {})
    return found


def test_the_bundle_s_tasks_are_commands_of_the_wheel() -> None:
    project = tomllib.loads((HOUSE / "pyproject.toml").read_text())["project"]
    variables = yaml.safe_load((JOBS / "databricks.yml").read_text())["variables"]
    jobs = bundle("jobs")
    assert [name for name, job in jobs.items() if "continuous" in job] == ["run"]
    for job in jobs.values():
        assert job["max_concurrent_runs"] == 1
        for task in job["tasks"]:
            wheel = task["python_wheel_task"]
            assert wheel["package_name"] == project["name"]
            assert wheel["entry_point"] in project["scripts"]
            for text in wheel["parameters"]:
                assert {name.removeprefix("var.") for name in _VARIABLE.findall(text)} <= variables.keys()
            take([_VARIABLE.sub("x", text) for text in wheel["parameters"]])


def test_the_settings_for_databricks_fit_the_bundle() -> None:
    config, whole = load(HOUSE / "conf" / "databricks.yml"), yaml.safe_load((JOBS / "databricks.yml").read_text())
    given = whole["targets"]["prod"]["variables"] | {"schema": whole["variables"]["schema"]["default"]}
    assert config.lake.namespace() == (given["catalog"], given["schema"])
    volume = bundle("volumes")["checkpoints"]["name"]
    assert config.lake.checkpoint_location() == f"/Volumes/{given['catalog']}/{given['schema']}/{volume}"
    assert set(re.findall(r"\$\{secret:([^/]+)/", config.text)) == {bundle("secret_scopes")["kafka"]["name"]}
    assert whole["variables"]["scratch"]["default"] in config.clusters
    assert config.flow(whole["variables"]["flow"]["default"])


@pytest.mark.parametrize("kind", ["StatefulSet", "CronJob"])
def test_a_pod_runs_a_command(kind: str) -> None:
    manifests = {one["kind"]: one for one in yaml.safe_load_all((JOBS / "kubernetes" / "mirror.yaml").read_text())}
    loads(manifests["ConfigMap"]["data"]["mirror.yml"])
    spec = manifests[kind]["spec"]
    pod = (spec["template"] if kind == "StatefulSet" else spec["jobTemplate"]["spec"]["template"])["spec"]
    [container] = pod["containers"]
    take(container["args"])
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
    if kind == "StatefulSet":
        assert spec["replicas"] == 1
        assert pod["terminationGracePeriodSeconds"] > 2 * STOP_DEADLINE_S


def test_the_spark_application_runs_the_job() -> None:
    spec = yaml.safe_load((JOBS / "kubernetes" / "spark-application.yaml").read_text())["spec"]
    assert (JOBS / Path(spec["mainApplicationFile"]).name).exists()
    take(spec["arguments"])
    assert spec["sparkConf"]["spark.speculation"] == "false"


def test_the_container_file_runs_the_mirror() -> None:
    lines = (JOBS / "container" / "Containerfile").read_text().splitlines()
    [command] = [line for line in lines if line.startswith("CMD ")]
    take(json.loads(command.removeprefix("CMD ")))
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            assert all((HOUSE / source).exists() for source in line.split()[1:-1]), line


def test_the_unit_runs_a_command_and_gives_it_time_to_stop() -> None:
    unit = configparser.RawConfigParser(strict=True, delimiters=("=",), comment_prefixes=("#",))
    unit.read_string((JOBS / "systemd" / "mirrorlake.service").read_text())
    service = unit["Service"]
    binary, *arguments = service["ExecStart"].split()
    assert Path(binary).name == "mirrorlake"
    take(arguments)
    assert service["RestartPreventExitStatus"].split() == ["2", "3"]
    assert int(service["TimeoutStopSec"]) > 2 * STOP_DEADLINE_S
    # SIGTERM goes to the command alone; Spark's JVM and workers end with it.
    assert service["KillMode"] == "mixed"


@pytest.mark.parametrize("command", ["run", "tables --run", "land --source east"])
def test_the_job_runs_a_command(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(JOB), *command.split(), "--conf", str(tmp_path / "missing.yml")])
    # As Python starts a script: its folder, which holds a module of the package's name, comes first.
    monkeypatch.setattr(sys, "path", [str(JOB.parent), *sys.path])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(JOB), run_name="__main__")
    assert ended.value.code == 2
    assert "missing.yml" in capsys.readouterr().err
    assert str(JOB.parent) not in sys.path
