"""The files that put a mirror on Databricks, Kubernetes and systemd are valid, and name commands and options that exist."""

from __future__ import annotations

import configparser
import json
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
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
BUNDLE = JOBS / "databricks.yml"
_VARIABLE = re.compile(r"\$\{([^}]+)\}")


def take(arguments: list[str]) -> None:
    """Have the command line read a command with its options, which raises where it does not know one; nothing runs."""
    group: Any = typer.main.get_command(app)
    command = group.commands[arguments[0]]
    command.make_context(arguments[0], list(arguments[1:]))


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for one in value.values():
            yield from texts_of(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts_of(one)
    elif isinstance(value, str):
        yield value


# -- Databricks -----------------------------------------------------------------------------------------------------


@cache
def bundle() -> dict[str, Any]:
    """Read the bundle with what it includes, as the CLI of Databricks merges them."""
    whole: dict[str, Any] = yaml.safe_load(BUNDLE.read_text())
    for pattern in whole["include"]:
        files = sorted(JOBS.glob(pattern))
        assert files, f"{pattern} includes nothing"
        for file in files:
            included = yaml.safe_load(file.read_text())
            assert included.keys() == {"resources"}, file.name
            for kind, named in included["resources"].items():
                there = whole.setdefault("resources", {}).setdefault(kind, {})
                assert not there.keys() & named.keys(), f"{file.name} names a resource twice"
                there.update({name: {**one, "_file": file} for name, one in named.items()})
    return whole


def test_the_bundle_refers_to_what_it_defines_and_says_what_it_must() -> None:
    whole = bundle()
    for target in whole["targets"].values():
        assert target.get("variables", {}).keys() <= whole["variables"].keys()
    for text in texts_of({key: value for key, value in whole.items() if key != "include"}):
        for name in _VARIABLE.findall(text):
            kind, *path = name.split(".")
            if kind == "var":
                assert path[0] in whole["variables"], name
            elif kind == "resources":
                assert path[1] in whole["resources"][path[0]], name
            else:
                assert kind in ("workspace", "bundle"), name
    # Whoever deploys gives what has no default; nothing of ours stands in for it.
    open_ones = {name for name, one in whole["variables"].items() if "default" not in one}
    assert open_ones == {"catalog", "principal", "notify"}


def tasks() -> list[Any]:
    return [
        pytest.param(job, task, id=f"{name}.{task['task_key']}")
        for name, job in bundle()["resources"]["jobs"].items()
        for task in job["tasks"]
    ]


@pytest.mark.parametrize(("job", "task"), tasks())
def test_a_task_of_the_bundle_runs_a_command_with_options_that_it_takes(
    job: dict[str, Any], task: dict[str, Any]
) -> None:
    wheel = task["python_wheel_task"]
    project = tomllib.loads((HOUSE / "pyproject.toml").read_text())["project"]
    assert wheel["package_name"] == project["name"]
    assert wheel["entry_point"] in project["scripts"]
    take([_VARIABLE.sub("x", text) for text in wheel["parameters"]])
    if "job_cluster_key" in task:
        assert task["job_cluster_key"] in {one["job_cluster_key"] for one in job["job_clusters"]}
    else:
        assert task["environment_key"] in {one["environment_key"] for one in job["environments"]}


def test_only_the_stream_is_continuous_and_no_job_runs_twice_at_once() -> None:
    jobs = bundle()["resources"]["jobs"]
    assert [name for name, job in jobs.items() if "continuous" in job] == ["run"]
    assert {job["max_concurrent_runs"] for job in jobs.values()} == {1}
    [cluster] = jobs["run"]["job_clusters"]
    assert cluster["new_cluster"]["spark_conf"]["spark.speculation"] == "false"
    assert "autoscale" not in cluster["new_cluster"]


def test_the_settings_for_databricks_fit_the_bundle() -> None:
    config, whole = load(HOUSE / "conf" / "databricks.yml"), bundle()
    variables = {name: one.get("default") for name, one in whole["variables"].items()}
    variables |= whole["targets"]["prod"]["variables"]
    assert config.lake.namespace() == (variables["catalog"], variables["schema"])
    volume = whole["resources"]["volumes"]["checkpoints"]["name"]
    place = f"/Volumes/{variables['catalog']}/{variables['schema']}/{volume}"
    assert config.lake.checkpoint_location() == place
    assert {flow.execution for flow in config.flows} == {"streaming"}, "only Spark reads managed tables"
    scope = whole["resources"]["secret_scopes"]["kafka"]["name"]
    referred = set(re.findall(r"\$\{secret:([^/]+)/", config.text))
    assert referred == {scope}
    assert variables["scratch"] in config.clusters
    assert config.flow(variables["flow"])


# -- Kubernetes and containers --------------------------------------------------------------------------------------


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((JOBS / "kubernetes" / "mirror.yaml").read_text()))


def spark_application() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((JOBS / "kubernetes" / "spark-application.yaml").read_text())
    return found


def pods() -> list[Any]:
    found = {one["kind"]: one["spec"] for one in manifests() if "spec" in one}
    specs = {
        "StatefulSet": found["StatefulSet"]["template"]["spec"],
        "CronJob": found["CronJob"]["jobTemplate"]["spec"]["template"]["spec"],
    }
    return [pytest.param(spec, id=kind) for kind, spec in specs.items()]


@pytest.mark.parametrize("pod", pods())
def test_a_pod_runs_a_command_as_nobody_and_writes_where_it_may(pod: dict[str, Any]) -> None:
    [container] = pod["containers"]
    take(container["args"])
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
    assert container["resources"]["limits"].keys() == {"memory"}, "a limit of cores throttles what commits in time"


def test_the_mirror_has_time_to_stop_and_is_probed_where_it_answers() -> None:
    stateful = next(one for one in manifests() if one["kind"] == "StatefulSet")["spec"]
    pod = stateful["template"]["spec"]
    assert stateful["replicas"] == 1
    assert pod["terminationGracePeriodSeconds"] > 2 * STOP_DEADLINE_S
    [container] = pod["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {"metrics": int(container["args"][container["args"].index("--metrics-port") + 1])}
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    settings = next(one for one in manifests() if one["kind"] == "ConfigMap")["data"]["mirror.yml"]
    config = loads(settings)
    # The kubelet asks from outside the pod.
    assert config.metrics.address == "0.0.0.0"  # noqa: S104
    assert config.lake.location() in {one["mountPath"] for one in container["volumeMounts"]}
    secret = next(one for one in pod["volumes"] if "secret" in one)
    [mounted] = [one["mountPath"] for one in container["volumeMounts"] if one["name"] == secret["name"]]
    folder = next(one["value"] for one in container["env"] if one["name"] == "MIRRORLAKE_SECRETS_DIR")
    assert {f"{folder}/{scope}" for scope in re.findall(r"\$\{secret:([^/]+)/", settings)} == {mounted}


def test_the_spark_application_runs_a_job_with_options_that_it_takes() -> None:
    spec = spark_application()["spec"]
    assert (JOBS / Path(spec["mainApplicationFile"]).name).exists()
    take(spec["arguments"])
    assert spec["sparkConf"]["spark.speculation"] == "false"
    for part in ("driver", "executor"):
        assert {one["name"] for one in spec[part]["volumeMounts"]} == {one["name"] for one in spec["volumes"]}


def test_the_container_file_runs_the_mirror() -> None:
    file = JOBS / "container" / "Containerfile"
    command = next(line for line in file.read_text().splitlines() if line.startswith("CMD "))
    take(json.loads(command.removeprefix("CMD ")))
    for line in file.read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (HOUSE / source).exists(), source


# -- systemd --------------------------------------------------------------------------------------------------------

_DIRECTIVES = {
    "Unit": {"Description", "After", "Wants", "ConditionPathExists", "StartLimitIntervalSec"},
    "Service": {
        *("Type", "ExecStart", "User", "StateDirectory", "CacheDirectory", "WorkingDirectory", "Environment"),
        *("NoNewPrivileges", "PrivateTmp", "ProtectSystem", "ProtectHome", "MemoryMax", "Restart", "RestartSec"),
        *("RestartPreventExitStatus", "KillMode", "TimeoutStopSec"),
    },
    "Install": {"WantedBy"},
}


def test_the_unit_has_directives_that_systemd_knows_and_a_command_that_exists() -> None:
    """Read strictly: `systemd-analyze verify` wants systemd, and systemd itself passes over names that it does not know."""
    unit = configparser.RawConfigParser(strict=True, delimiters=("=",), comment_prefixes=("#",))
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((JOBS / "systemd" / "mirrorlake.service").read_text())
    assert {name: set(unit[name]) for name in unit.sections()} == _DIRECTIVES
    service = unit["Service"]
    binary, *arguments = service["ExecStart"].split()
    assert Path(binary).name == "mirrorlake"
    take(arguments)
    assert service["RestartPreventExitStatus"].split() == ["2", "3"]
    assert int(service["TimeoutStopSec"]) > 2 * STOP_DEADLINE_S
    # SIGTERM goes to the command alone; Spark's JVM and workers end with it.
    assert service["KillMode"] == "mixed"
