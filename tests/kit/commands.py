"""Settings files, and commands in this process."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.cli import main
from mirrorlake.sandbox.ports import free_ports


def write_conf(
    folder: Path,
    clusters: Mapping[str, str],
    flows: list[dict[str, Any]],
    *,
    lake: Mapping[str, Any] | None = None,
    tables: Sequence[Mapping[str, Any]] = (),
    **cluster_settings: Mapping[str, Any],
) -> Path:
    """Write a settings file, of a lake beside it where no other is given; JSON is YAML."""
    path = folder / "mirror.yml"
    addresses = {alias: {"bootstrap_servers": address} for alias, address in clusters.items()}
    entries = {
        alias: {**addresses.get(alias, {}), **cluster_settings.get(alias, {})} for alias in addresses | cluster_settings
    }
    # To load mlflow and make its tables takes seconds, and what is tracked has its own test.
    settings = {"lake": lake or {"root": str(folder / "lake")}, "clusters": entries, "flows": flows}
    path.write_text(json.dumps({**settings, "tables": [*tables], "tracking": {"enabled": False}}))
    return path


def copy_demo_conf(folder: Path) -> Path:
    """Copy the settings files of this repository into a folder; return the demo's, whose ports are free here."""
    shutil.copytree(Path(__file__).parents[2] / "conf", folder / "conf")
    conf = folder / "conf" / "demo.yml"
    settings = conf.read_text()
    ports = iter(free_ports(settings.count("127.0.0.1:")))
    conf.write_text(re.sub(r"127\.0\.0\.1:\d+", lambda _: f"127.0.0.1:{next(ports)}", settings))
    return conf


def ports(count: int) -> list[str]:
    """Return free ports, as arguments of a command."""
    return [str(port) for port in free_ports(count)]


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, on the Spark session that the tests share; `Process` is one of its own."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(arguments)
    assert "Traceback" not in out.getvalue() + err.getvalue()
    return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), out.getvalue(), err.getvalue())


def told(*arguments: str, code: int = 0) -> Any:
    """Run a command that ends with this code, and return the JSON document that it prints."""
    done = run_cli(*arguments, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)
