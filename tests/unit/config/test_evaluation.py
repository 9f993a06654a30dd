"""The engine of predicates and of questions: lent, and never a thread's own."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest

from mirrorlake.config.predicates import engine


def test_no_two_threads_use_one_connection_and_it_is_used_again() -> None:
    both = threading.Barrier(2)

    def used() -> int:
        with engine() as connection:
            both.wait(20)
            return id(connection)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(used), pool.submit(used)
        assert first.result() != second.result()
    with engine() as connection:
        assert id(connection) in (first.result(), second.result())
        assert connection.execute("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]
        # It would be drawn on standard output, beside a JSON document.
        assert connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() == [(False,)]


def test_a_connection_that_holds_much_memory_is_closed() -> None:
    with engine() as small:
        small.execute("SELECT 1").fetchall()
    with engine() as large:
        large.execute("CREATE TABLE numbers AS SELECT * FROM range(20_000_000)")
    with pytest.raises(duckdb.ConnectionException, match="closed"):
        large.execute("SELECT 1")
    with engine() as next_one:
        assert next_one is not large


def test_a_process_forks_while_a_thread_that_asked_something_lives_on() -> None:
    # As PySpark starts its JVM: a fork that runs Python before it becomes another program.
    code = """
import subprocess, threading
from mirrorlake.config.predicates.evaluation import engine
asked, ended = threading.Event(), threading.Event()
def ask():
    with engine() as connection:
        connection.execute("SELECT 1").fetchall()
    asked.set()
    ended.wait()
thread = threading.Thread(target=ask)
thread.start()
asked.wait()
print(subprocess.Popen(["true"], preexec_fn=lambda: None).wait())
ended.set()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr
