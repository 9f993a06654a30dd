"""Keep typed tables: the records of topics as tables of columns, for analysts."""

from mirrorlake.tables.definition import (
    RECORDS,
    TypedTable,
    find_table,
    find_tables,
    landed_topics,
    list_tables,
    view_name,
)
from mirrorlake.tables.erasing import RowEraser
from mirrorlake.tables.expiry import expire_rows
from mirrorlake.tables.plan import plan_tables
from mirrorlake.tables.progress import read_progress
from mirrorlake.tables.rebuild import TableRebuild, rebuild_table
from mirrorlake.tables.relay_records import session_of
from mirrorlake.tables.shared_query import SharedQueries
from mirrorlake.tables.status import Tables, TableStatus, read_tables, tables_table
from mirrorlake.tables.stream import TableStream
from mirrorlake.tables.table_page import TablePage, read_page, value_text
from mirrorlake.tables.verify import TableProof, verify_table
from mirrorlake.tables.writer import TableWriter
