"""The runtime of all packages: the Spark session, Java and its jars, background work."""

from mirrorlake.runtime.cache import cache_directory, existing_folder, locked, named_cache, write_atomically
from mirrorlake.runtime.class_archive import class_data
from mirrorlake.runtime.cluster import is_cluster
from mirrorlake.runtime.durable import flush, flush_files, flush_folder
from mirrorlake.runtime.folders import Folder, open_folder
from mirrorlake.runtime.host import is_host_gone, is_submitted, java_properties, spark_gone_error, user_name
from mirrorlake.runtime.jar_files import classpath, inspect_jars, jars
from mirrorlake.runtime.java import Java, find_java
from mirrorlake.runtime.live_tasks import BacklogMemory, LiveTasks, RunMarker
from mirrorlake.runtime.log_files import log_file, log_into_file, rotate_log
from mirrorlake.runtime.periodic import PeriodicTask, PeriodicTasks
from mirrorlake.runtime.pyspark_modules import load_pyspark
from mirrorlake.runtime.session import (
    is_connect,
    is_gone,
    is_stopped,
    local_session,
    own_session,
    prepare,
    reads_local_files,
    reads_store,
    require_classic_session,
    require_parts,
    set_up_hadoop,
)
from mirrorlake.runtime.slots import LiveTaskSlots
from mirrorlake.runtime.store_faults import describe_fault, translating_store_errors
from mirrorlake.runtime.stores import Store, attach_stores, attached_stores, find_store, open_address
from mirrorlake.runtime.task_heartbeats import send_heartbeats
from mirrorlake.runtime.tasks import OUTPUT, TaskResult, find_failure, result_batches, run_tasks
from mirrorlake.runtime.worker_log import WorkerLog
from mirrorlake.runtime.workers import require_usable_workers
