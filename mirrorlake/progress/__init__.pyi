"""The interface of `mirrorlake.progress` for other packages; its modules are internal."""

from mirrorlake.progress.bars import choose_display as choose_display
from mirrorlake.progress.board import DRAW_INTERVAL_S as DRAW_INTERVAL_S
from mirrorlake.progress.board import Board as Board
from mirrorlake.progress.board import Display as Display
from mirrorlake.progress.board import Phase as Phase
from mirrorlake.progress.board import ProgressCallback as ProgressCallback
from mirrorlake.progress.board import ignore_progress as ignore_progress
from mirrorlake.progress.lines import LOGGER as LOGGER
from mirrorlake.progress.lines import LogLines as LogLines
from mirrorlake.progress.log_format import line_format as line_format
from mirrorlake.progress.log_format import log_context as log_context
from mirrorlake.progress.log_format import parse_log_setting as parse_log_setting
from mirrorlake.progress.run_message import MessageDisplay as MessageDisplay
from mirrorlake.progress.run_message import RunMessage as RunMessage
