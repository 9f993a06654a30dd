"""What a command does not load; in a process of its own, since other tests have loaded it."""

from __future__ import annotations

import subprocess
import sys

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
