"""The progress of long work, from facts the work already has: no query and no cluster call is made for it.

Work calls a `ProgressCallback`. A `Board` collects its reports and draws them with a `Display`: bars in a notebook
and a terminal, else a log line every few seconds. Only the thread that made the board draws: output of Spark's
threads would end up below any cell.
"""

from mirrorlake.progress.bars import choose_display
from mirrorlake.progress.board import DRAW_INTERVAL_S, Board, Display, Phase, ProgressCallback, ignore_progress
from mirrorlake.progress.lines import LOGGER, LogLines
from mirrorlake.progress.log_format import line_format, log_context, parse_log_setting
from mirrorlake.progress.run_message import MessageDisplay, RunMessage
