"""What a command does not load; in a process of its own, since other tests have loaded it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_CODE = """
import sys
from pathlib import Path
from mirrorlake.cli.command import Invocation
from mirrorlake.errors import MirrorlakeError
try:
    Invocation(Path("nowhere.yml"), as_json=False).mirror
except MirrorlakeError:
    pass
print(sorted({"pandas", "tornado", "pyspark"} & sys.modules.keys()))
import pyarrow as pa
frame = pa.table({"n": [1, 2]}).to_pandas()
print(pa.array(frame["n"]).to_pylist())
import tornado
"""


def test_a_command_loads_no_pandas_until_it_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("[]\n[1, 2]\n", 0), done.stderr


_LOADED = """
import sys
from pathlib import Path
from mirrorlake.cli.command import Invocation
mirror = Invocation(Path(sys.argv[1]), as_json=False).mirror
print(sorted({"duckdb", "pyspark", "sqlglot", "ipywidgets", "plotly"} & sys.modules.keys()))
"""


def test_a_mirror_that_is_only_asked_loads_no_engine(tmp_path: Path) -> None:
    conf = tmp_path / "mirror.yml"
    conf.write_text(
        "lake: {root: ./lake}\nclusters: {a: {bootstrap_servers: 'a:1'}, b: {bootstrap_servers: 'b:1'}}\n"
        "flows: [{source: a, target: b, topics: orders}]\n"
    )
    done = subprocess.run([sys.executable, "-c", _LOADED, str(conf)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
