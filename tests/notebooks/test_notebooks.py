"""The notebooks run from top to bottom against real brokers, and assert inside what they tell.

They share brokers and one kernel, emptied in between: a JVM for each of them would cost more than all that they do. No two of
them use one cluster as a target with lakes of their own, so they keep apart. The tour, which starts brokers of its own, is last.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from mirrorlake.sandbox import KafkaCluster, Place, write_sales
from mirrorlake.sandbox.traffic import SAMPLE_TOPICS
from tests.unit.markup import unwrapped

FOLDER = Path(__file__).parents[2] / "notebooks"
RECORDS = 300

Execute = Callable[..., nbformat.NotebookNode]


def read(name: str, **parameters: Any) -> nbformat.NotebookNode:
    """Return a notebook with its parameters set below their cell, as papermill does."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    place = next(i for i, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", []))
    assignments = "\n".join(f"{key} = {value!r}" for key, value in parameters.items())
    notebook.cells.insert(place + 1, nbformat.v4.new_code_cell(assignments))
    return notebook


def shown(notebook: nbformat.NotebookNode, kind: str = "text/html") -> str:
    """Join the output of a notebook's cells."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    found = [output["data"].get(kind, "") for output in outputs if "data" in output]
    printed = [output["text"] for output in outputs if output.output_type == "stream"]
    return unwrapped("\n".join([*found, *printed]))


@pytest.fixture(scope="module")
def execute(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Execute]:
    """Run a notebook by its name and parameters in the kernel that the tests share, without what earlier ones left in it."""
    folder = tmp_path_factory.mktemp("notebooks")
    paths = os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")])
    kernel = KernelManager(kernel_name="python3")
    environment = {**os.environ, "IPYTHONDIR": str(folder / "ipython"), "PYTHONPATH": paths}
    kernel.start_kernel(env=environment, cwd=str(folder))

    def in_shared_kernel(name: str, **parameters: Any) -> nbformat.NotebookNode:
        notebook = read(name, **parameters)
        notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
        return NotebookClient(notebook, km=kernel, timeout=600).execute()

    yield in_shared_kernel
    # Brokers that a notebook started, and Spark, end with the kernel's process.
    kernel.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def place(east: KafkaCluster, west: KafkaCluster, central: KafkaCluster) -> Iterator[Place]:
    """Give two regions and a centre with sample records and sales, on the brokers that all tests share."""
    addresses = {"east": east.bootstrap_servers, "west": west.bootstrap_servers, "central": central.bootstrap_servers}
    sample = {**SAMPLE_TOPICS, "sales": 2}
    with Place(["east->central", "west->central"], records=RECORDS, sample=sample, addresses=addresses) as made:
        for region in ("east", "west"):
            write_sales(made[region], region=region, records=RECORDS)
        yield made


def test_set_up_a_mirror(execute: Execute, place: Place) -> None:
    notebook = execute("10_set_up_a_mirror", east=place["east"], central=place["west"], records=0)
    assert "east.payments.card" in shown(notebook), "the plan is not shown as a table"


def test_offset_map_check(execute: Execute, place: Place) -> None:
    notebook = execute("20_offset_map_check", conf=str(place.conf))
    assert "✓ equal" in shown(notebook)
    assert "in_a_hole" in shown(notebook), "an offset without a record is not told as such"


def test_lag_and_objectives(execute: Execute, place: Place) -> None:
    write_sales(place["east"], region="east", records=RECORDS, seed=2)
    notebook = execute("30_lag_and_objectives", conf=str(place.conf))
    assert "missed the objective of 120 s" in shown(notebook, "text/plain")
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
    figures = [found for output in outputs if (found := output["data"].get("application/vnd.plotly.v1+json"))]
    titles = [figure["layout"]["annotations"][0]["text"].partition(";")[0] for figure in figures]
    assert titles == ["offset lag", "RPO"], "both charts are drawn"


def test_failover_drill(execute: Execute, place: Place) -> None:
    notebook = execute("40_failover_drill", conf=str(place.conf))
    assert "drill east->central" in shown(notebook, "text/plain"), "the report of the drill is shown"


def test_replay(execute: Execute, place: Place) -> None:
    notebook = execute("50_replay", conf=str(place.conf))
    assert "orders.replayed" in shown(notebook), "the plan names the topic"


def test_query_the_lake(execute: Execute, place: Place) -> None:
    conf = place.folder / "tables.yml"
    conf.write_text(yaml.safe_dump({**place.settings, "tables": [{"topics": "sales"}]}))
    notebook = execute("60_query_the_lake", conf=str(conf))
    assert "customer-0" in shown(notebook), "the busiest customer is not shown"
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    charts = [one for one in outputs if "application/vnd.plotly.v1+json" in one.get("data", {})]
    assert len(charts) == 1, "the chart of the typed table is not shown"


def test_migrate_from_mm2(execute: Execute, place: Place) -> None:
    notebook = execute("70_migrate_from_mm2", east=place["west"], central=place["east"])
    assert "✓ equal" in shown(notebook)
    assert "MirrorMaker still runs: group" in shown(notebook, "text/plain"), "a running MirrorMaker is the reason"


def test_the_tour(execute: Execute) -> None:
    html = shown(execute("00_tour", records=1200))
    assert "east.payments.card" in html, "the plan is not shown as a table"
    assert {"✓ equal", "✓ OK"} <= {*re.findall(r"✓ \w+", html)}
    assert re.search(r"1\s200\srecords verified", re.sub("<[^>]+>", "", html))
    assert re.search(r"\|payments\.invoice\|\s*300\|", html), "the answer of Spark is not printed"
