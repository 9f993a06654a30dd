"""pyspark in threads that first need it at one time; in a process of its own, since other tests have loaded it."""

from __future__ import annotations

import subprocess
import sys

_CODE = """
import sys, threading
from importlib import import_module
from mirrorlake.runtime import load_pyspark

sys.setswitchinterval(1e-6)
begin, failed = threading.Barrier(4), []

def use(name):
    begin.wait()
    try:
        load_pyspark()
        import_module(name)
    except Exception as error:
        failed.append(error)

names = ("pyspark.sql.functions", "pyspark.errors", "pyspark.cloudpickle", "pyspark.sql.streaming")
threads = [threading.Thread(target=use, args=(name,)) for name in names]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(failed)
"""


def test_threads_that_need_pyspark_at_one_time_get_all_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
