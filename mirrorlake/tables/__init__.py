"""Keep typed tables: the records of topics as tables of columns, for analysts."""

from mirrorlake.tables.definition import RECORDS, TypedTable, find_table, find_tables, list_tables, view_name
from mirrorlake.tables.plan import plan_tables
from mirrorlake.tables.progress import read_progress
from mirrorlake.tables.status import TablePage, Tables, TableStatus, read_page, read_tables, tables_table
from mirrorlake.tables.stream import SharedQuery, TableStream
from mirrorlake.tables.upkeep import TableRebuild, erase_rows, expire_rows, rebuild_table
from mirrorlake.tables.verify import TableProof, verify_table
