"""How a command leaves its process: with its code, and without a word of the libraries that it used."""

from __future__ import annotations

import subprocess
import sys

# What Spark's client leaves: a thread that waits for ever. DuckDB then tells of its own objects while Python ends.
_USED = """
import sys, threading, time
import duckdb
connection = duckdb.connect(":memory:")
threading.Thread(target=lambda: time.sleep(600), daemon=True).start()
from mirrorlake.cli import main
sys.argv = ["mirrorlake", *sys.argv[1:]]
main()
"""


def test_a_command_ends_with_its_code_and_its_own_words_only() -> None:
    for arguments, code, said in ((("--help",), 0, ""), (("status", "--conf", "none.yml"), 2, "error: 1 fault")):
        done = subprocess.run([sys.executable, "-c", _USED, *arguments], capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stderr
        assert done.stderr.startswith(said)
        assert "nanobind" not in done.stderr


def test_a_line_of_the_log_is_said_once_also_where_a_library_sets_logging_up() -> None:
    # As py4j does where the JVM has gone.
    code = (
        "import logging; from mirrorlake.cli.output import log_to_stderr; log_to_stderr(None);"
        "logging.warning('a library'); logging.getLogger('mirrorlake.x').warning('said once')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("said once") == 1, done.stderr
