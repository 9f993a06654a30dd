"""The face of `mirrorlake.runtime`: what other rooms use of it; its modules are its own."""

from mirrorlake.runtime.background import Duties as Duties
from mirrorlake.runtime.background import Duty as Duty
from mirrorlake.runtime.cache import locked as locked
from mirrorlake.runtime.cache import write_atomically as write_atomically
from mirrorlake.runtime.class_archive import class_data as class_data
from mirrorlake.runtime.jar_files import classpath as classpath
from mirrorlake.runtime.jar_files import jars as jars
from mirrorlake.runtime.java import Java as Java
from mirrorlake.runtime.java import find_java as find_java
from mirrorlake.runtime.log_files import keep_log_small as keep_log_small
from mirrorlake.runtime.log_files import log_file as log_file
from mirrorlake.runtime.log_files import log_into_file as log_into_file
from mirrorlake.runtime.session import local_session as local_session
from mirrorlake.runtime.session import prepare as prepare
from mirrorlake.runtime.stopping import jobs_end as jobs_end
from mirrorlake.runtime.tasks import OUTPUT as OUTPUT
from mirrorlake.runtime.tasks import BacklogMemory as BacklogMemory
from mirrorlake.runtime.tasks import GoesOn as GoesOn
from mirrorlake.runtime.tasks import HeldSlots as HeldSlots
from mirrorlake.runtime.tasks import LiveTasks as LiveTasks
from mirrorlake.runtime.tasks import TaskAnswer as TaskAnswer
from mirrorlake.runtime.tasks import failure_of as failure_of
from mirrorlake.runtime.tasks import rows as rows
from mirrorlake.runtime.tasks import run_tasks as run_tasks
