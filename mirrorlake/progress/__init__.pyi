"""The face of `mirrorlake.progress`: what other rooms use of it; its modules are its own."""

from mirrorlake.progress.bars import display_here as display_here
from mirrorlake.progress.board import DRAW_EVERY_S as DRAW_EVERY_S
from mirrorlake.progress.board import Board as Board
from mirrorlake.progress.board import Display as Display
from mirrorlake.progress.board import Phase as Phase
from mirrorlake.progress.board import Tell as Tell
from mirrorlake.progress.board import silent as silent
from mirrorlake.progress.lines import LOGGER as LOGGER
from mirrorlake.progress.lines import LogLines as LogLines
from mirrorlake.progress.log_format import about as about
from mirrorlake.progress.log_format import asked_of_log as asked_of_log
from mirrorlake.progress.log_format import line_format as line_format
from mirrorlake.progress.said import Said as Said
from mirrorlake.progress.said import Speaker as Speaker
