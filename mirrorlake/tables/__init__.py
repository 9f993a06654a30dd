"""Keep typed tables: the records of topics as tables of columns, for analysts."""

from mirrorlake.tables.definition import TypedTable, find_tables, landed_topics, list_tables
from mirrorlake.tables.status import Tables, read_tables
from mirrorlake.tables.stream import TableStream, session_of
from mirrorlake.tables.writer import TableWriter
