"""Get the Spark session: the running one, else a local one with the jars of the pinned set."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrorlake.daemon import LOADED_BY_WORKERS
from mirrorlake.errors import SandboxError, UsageError
from mirrorlake.model.causes import root_cause
from mirrorlake.runtime.class_archive import class_data
from mirrorlake.runtime.host import has_account, java_properties, user_name
from mirrorlake.runtime.jar_files import JAR_SETS, jars
from mirrorlake.runtime.java import Java, find_java
from mirrorlake.runtime.log_files import log_into_file
from mirrorlake.runtime.pyspark_modules import load_pyspark
from mirrorlake.runtime.stores import Store

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

# Settings that belong to the host; an existing session (Databricks, spark-submit) is used unchanged.
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # For the UI's pages Spark retains 1 000 finished jobs, stages and queries each, and 100 000 tasks by default.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.driver.memory": "2g",
    # With the default cache of 100 entries, a warm drain compiles 127 classes again.
    "spark.sql.codegen.cache.maxEntries": "3000",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Nothing is stored there, and a folder in the working directory would only confuse.
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "mirrorlake-warehouse"),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Two attempts of one lane must never run at once.
    "spark.speculation": "false",
    "spark.python.worker.reuse": "true",
    # Each Python task costs 140 ms of CPU without it, 40 ms with it (2026-11-22, 40 warm tasks, 2 cores).
    "spark.python.daemon.module": "mirrorlake.daemon",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # Secrets are passed as reader options; these are the option names that hold Kafka's secrets.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore|pem|credential",
    "spark.sql.redaction.options.regex": "(?i)url|jaas|keystore|pem|secret|password|token|credential",
}

_ANSWER_TIMEOUT_S = 30.0
_OPTIONS = "spark.driver.extraJavaOptions"
# Spark's launcher appends it to the class path that it builds.
_LAST_ON_CLASS_PATH = "SPARK_DIST_CLASSPATH"
_JAVA_OPTIONS = (
    # On a driver of two cores G1 uses a third one; ParallelGC does not.
    "-XX:+UseParallelGC",
    # Spark's parser of its own messages recurses deeply when a job is interrupted.
    "-Xss4m",
    f"-Dlog4j2.configurationFile={Path(__file__).absolute().with_name('log4j2.properties').as_uri()}",
)

# Settings that a new session under spark-submit needs; the host's own values take precedence.
_HOSTED = (
    "spark.sql.extensions",
    "spark.sql.catalog.spark_catalog",
    "spark.speculation",
    "spark.redaction.regex",
    "spark.sql.redaction.options.regex",
)
_DELTA = _HOSTED[:2]
_KAFKA = "Spark's Kafka source"
# A class of each jar of the connector and Delta.
_PARTS = {"Delta's jar": "io.delta.tables.DeltaTable", _KAFKA: "org.apache.spark.sql.kafka010.KafkaSourceProvider"}
# Set by a Spark Connect client.
_CONNECT = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
# Set by spark-submit and by a Spark Connect client: a JVM, or a server, exists.
_HOSTS = ("PYSPARK_GATEWAY_PORT", *_CONNECT, "DATABRICKS_RUNTIME_VERSION")

# Runtime settings of the mirror's own queries; each is safe for other queries of the same session.
RUNTIME = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # The byte check computes every vector's size after each row, and a NULL header list makes that quadratic.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.shuffle.partitions": "2",
    # By default 50 tasks compute a table's state at every commit and query: 89 CPU-s for a first run, not 47.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.streaming.pollingDelay": "5ms",
    "spark.sql.adaptive.enabled": "false",
}


# Each task that runs as long as its stream uses a slot; without spare slots they would leave none for other work.
_STANDING_SLOTS = 24


def local_session(
    *, cores: int | None = None, also: Sequence[str] = (), workers_load: Sequence[str] = ()
) -> SparkSession:
    """Return the active session, create one on the host's Spark, or start a local one with the pinned connector and Delta jars.

    `cores` is the parallelism of ordinary work in a local session (None: this machine's cores); the session gets more task slots, for
    tasks that mostly wait. `also` are further `JAR_SETS`. `workers_load` are modules that tasks import: a local session loads them
    before its Python workers are forked.
    """
    load_pyspark()
    from pyspark.sql import SparkSession

    # A client of Spark Connect alone has no such class.
    _drop_stopped(getattr(getattr(sys.modules["pyspark"], "SparkContext", None), "_active_spark_context", None))
    active = SparkSession.getActiveSession()
    if active is None and any(map(os.environ.get, _HOSTS)):
        active = _hosted_session()
    if active is None:
        # A Spark Connect client has no SparkConf, and needs none.
        from pyspark import SparkConf

        _leave_jvm_without_jars()
        java, cores = find_java(), cores or os.cpu_count() or 1
        # Spark's launcher reads only this variable, once, when the JVM starts.
        os.environ["JAVA_HOME"] = str(java.spark_java_home)
        # Workers must run this interpreter, with its installed packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if also:
            given = filter(None, os.environ.get(_LAST_ON_CLASS_PATH, "").split(os.pathsep))
            more = (str(jar) for name in also for jar in jars(name))
            os.environ[_LAST_ON_CLASS_PATH] = os.pathsep.join(dict.fromkeys([*given, *more]))
        settings = {
            "spark.app.name": "mirrorlake",
            "spark.master": f"local[{cores + _STANDING_SLOTS}]",
            # Otherwise ranges, file splits and RDDs would be partitioned by the number of slots.
            "spark.default.parallelism": str(cores),
            **_LOCAL,
            **_driver_conf(java),
            f"spark.executorEnv.{LOADED_BY_WORKERS}": ",".join(workers_load),
        }
        conf = SparkConf()
        for key, value in settings.items():
            conf.set(key, value)
        _launch(conf)
        active = SparkSession.builder.config(conf=conf).getOrCreate()
    return prepare(active)


def _hosted_session() -> SparkSession:
    """Create a session on the JVM of spark-submit, with the master, jars and memory of its command line, or over Connect."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    if "PYSPARK_GATEWAY_PORT" in os.environ and "SPARK_REMOTE" not in os.environ:
        from pyspark import SparkConf, SparkContext

        # Before the JVM is connected, a SparkConf lacks the submitted settings.
        SparkContext._ensure_initialized()  # noqa: SLF001  PySpark has no other way to it
        said = SparkConf()
        for key in _HOSTED:
            if not said.contains(key):
                builder = builder.config(key, _LOCAL[key])
    return builder.getOrCreate()


def _launch(conf: SparkConf) -> None:
    """Start the JVM unless it runs, with its output and that of its Python workers in the log file.

    Java warns of incubating modules, Spark advises on log levels, and an interrupted job prints stack traces.
    """
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    path = log_into_file()
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    known = SparkContext._gateway  # noqa: SLF001  a session that was stopped leaves its JVM
    with path.open("ab") as out:
        try:
            # Only `launch_gateway` accepts `popen_kwargs`; the session's builder does not.
            gateway = known or launch_gateway(conf, popen_kwargs={"stdout": out, "stderr": out})
            if not has_account():
                # Hadoop's own login fails for a user without a name.
                users = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
                users.setLoginUser(users.createRemoteUser(user_name()))
            SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001
        except PySparkException as error:
            raise SandboxError(
                f"Spark's JVM did not start ({root_cause(str(error))})",
                consequence="nothing was landed or sent",
                remedy=f"read the end of {path}, then `mirrorlake doctor`",
            ) from error


def is_stopped(spark: SparkSession) -> bool:
    """Return whether a session was stopped in this process; its JVM, which may hang, is not asked."""
    # Over Connect there is no context.
    context = getattr(spark, "sparkContext", None)
    return bool(getattr(spark, "is_stopped", False)) if context is None else context._jsc is None  # noqa: SLF001  likewise


def _drop_stopped(context: Any) -> None:
    """Stop a context that its JVM has stopped: PySpark would give it out for ever."""
    # A test of a context that is not there, and of a JVM that is gone, fails.
    with suppress(Exception):
        if context._jsc.sc().isStopped():  # noqa: SLF001  PySpark has no other way to it
            context.stop()


def _leave_jvm_without_jars() -> None:
    """End the JVM that a stopped session left, if it lacks jars, which are chosen at its start."""
    from pyspark import SparkContext

    left = SparkContext._gateway  # noqa: SLF001  likewise
    if left is None or "proc" not in vars(left) or SparkContext._active_spark_context is not None:  # noqa: SLF001
        return
    if not all(_has_class(left.jvm, name) for name in _PARTS.values()):
        left.shutdown()
        # It ends with its standard input.
        left.proc.stdin.close()
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001


def reads_local_files(spark: SparkSession) -> bool:
    """Return whether a path is one of this machine for a session, even a stopped one."""
    with suppress(Exception):
        context = spark.sparkContext
        hadoop = context._jvm.org.apache.spark.deploy.SparkHadoopUtil.get()  # noqa: SLF001  likewise
        settings = hadoop.newConfiguration(context._conf._jconf)  # noqa: SLF001  likewise
        return str(settings.get("fs.defaultFS")).startswith("file:")
    return False


def _has_class(jvm: Any, name: str) -> bool:
    return type(reduce(getattr, name.split("."), jvm)).__name__ != "JavaPackage"


def require_parts(spark: SparkSession, *, kafka: bool = False) -> None:
    """Refuse a session of the host without Delta, or with `kafka` without Spark's Kafka source.

    Raises:
        UsageError: it names all that this session lacks, and the settings that bring it.
    """
    context = getattr(spark, "sparkContext", None)
    if context is None or "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return
    # A platform may have a catalog of its own.
    lacking = [what for what, name in _PARTS.items() if not _has_class(context._jvm, name)]  # noqa: SLF001  likewise
    lacking += [key for key in _DELTA if spark.conf.get(key, None) in (None, "", "builtin")]
    if not lacking or (lacking == [_KAFKA] and not kafka):
        return
    packages = ",".join(
        one for one in JAR_SETS["spark"].coordinates if "spark-sql-kafka" in one or "delta-spark" in one
    )
    settings = {"spark.jars.packages": packages, **{key: _LOCAL[key] for key in _DELTA}}
    raise UsageError(
        f"this Spark session lacks {', '.join(lacking)}",
        consequence="nothing was read or written through it; questions about a lake in a folder need no Spark",
        remedy="stop it (spark.stop()), and mirrorlake starts one of its own; or start it with "
        + " ".join(_conf(settings)),
    )


def is_gone(session: SparkSession) -> bool:
    """Return whether a session's JVM does not answer within 30 s."""
    answers: list[str] = []

    def ask() -> None:
        with suppress(Exception):
            answers.append(session.conf.get("spark.sql.session.timeZone"))

    # In a thread, because the caller has other streams to run.
    thread = threading.Thread(target=ask, name="is Spark there", daemon=True)
    thread.start()
    thread.join(_ANSWER_TIMEOUT_S)
    return not answers


def _driver_conf(java: Java) -> dict[str, str]:
    from pyspark.find_spark_home import _find_spark_home

    home, own = Path(_find_spark_home()), jars("spark")
    # On the JVM's own class path, because Spark would copy `spark.jars` at each start, and read them class by class.
    class_path = {"spark.driver.extraClassPath": os.pathsep.join(map(str, own))}
    last = map(Path, filter(None, os.environ.get(_LAST_ON_CLASS_PATH, "").split(os.pathsep)))
    archived = class_data("spark", java, [*own, *(home / "jars").glob("*.jar")], last)
    return class_path | {_OPTIONS: shlex.join((*_JAVA_OPTIONS, *java_properties(), *archived))}


def _conf(settings: Mapping[str, str]) -> list[str]:
    return [text for key, value in settings.items() for text in ("--conf", f"{key}={value}")]


def set_up_hadoop(spark: SparkSession, store: Store) -> None:
    """Configure the session's Hadoop for a store's bucket alone; do nothing over Connect, whose Hadoop is the server's.

    These are no settings of Spark's, so that they appear in no plan, event log or checkpoint location.
    """
    from pyspark.errors import PySparkException

    with suppress(PySparkException, AttributeError):
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001  PySpark has no other way to it
        for key, value in store.for_hadoop().items():
            hadoop.set(key, value)


def reads_store(spark: SparkSession, store: Store) -> bool:
    """Return whether the session's Hadoop has a file system for a store, or True if that is unknown."""
    from pyspark.errors import PySparkException

    with suppress(PySparkException, AttributeError):
        context = spark.sparkContext
        hadoop = context._jsc.hadoopConfiguration()  # noqa: SLF001  likewise
        scheme = store.root.partition(":")[0]
        try:
            context._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, hadoop)  # noqa: SLF001  likewise
        except Exception:
            return False
    return True


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is a Spark Connect client, whose Python functions run in processes of the server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def require_classic_session(spark: SparkSession | None) -> None:
    """Refuse a Spark Connect client, or None if this process' session would be one.

    Raises:
        UsageError: it is one; a stream's Python functions would run in the server, without its clients and its state.
    """
    if is_connect(spark) if spark is not None else any(map(os.environ.get, _CONNECT)):
        raise UsageError(
            "this session is a Spark Connect client, and streams need a classic Spark session",
            consequence="nothing was landed, sent or published; questions and SQL work over Connect",
            remedy="run the same command without SPARK_REMOTE, or on compute with a classic session (docs/clusters.md)",
        )


def own_session(spark: SparkSession) -> SparkSession:
    return prepare(spark.newSession())


def prepare(spark: SparkSession) -> SparkSession:
    """Set the runtime settings of the mirror's queries, except those a platform locks, and return the session.

    Raises:
        UsageError: the session was stopped.
    """
    load_pyspark()
    from pyspark.errors import PySparkException

    _drop_stopped(getattr(spark, "sparkContext", None))
    if is_stopped(spark):
        raise UsageError(
            "the Spark session that this mirror was given was stopped",
            consequence="nothing was read or written through it",
            remedy="load the mirror with a session that runs, or without `spark`: it then starts one of its own",
        )

    for key, value in RUNTIME.items():
        # Setting is tried, because `isModifiable` is false for Delta's own settings until Delta is loaded.
        with suppress(PySparkException):
            spark.conf.set(key, value)
    return spark
