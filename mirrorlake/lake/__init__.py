"""Delta tables: their columns, how they are read and appended to."""

from mirrorlake.lake.accounts import OffsetAccounts
from mirrorlake.lake.arrow_types import arrow_table, arrow_type
from mirrorlake.lake.audit import MAINTAIN, Audit
from mirrorlake.lake.broken import BrokenFile, broken_files, broken_rows
from mirrorlake.lake.control import Control
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.duckdb_query import to_rows
from mirrorlake.lake.fates import QUARANTINE, WITHHELD, dense_ranges, quarantine_sql, ranges_of, withheld_sql
from mirrorlake.lake.fenced_writer import FencedRelayWriter
from mirrorlake.lake.file_spans import FileSpan, spans_from_text
from mirrorlake.lake.fixed_relay import FixedRelay, LandedCount
from mirrorlake.lake.incarnations import IncarnationFilter, load_incarnation_filter, remote_names
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.lake_query import LakeQuery
from mirrorlake.lake.landed_mark import LandedMark, LandedMarks, marks_address, read_mark
from mirrorlake.lake.landing_commits import (
    CLUSTER_PROPERTY,
    LandingCommit,
    RelayClaim,
    batch_time,
)
from mirrorlake.lake.landing_log import LandingLog
from mirrorlake.lake.landing_progress import ReadProgress
from mirrorlake.lake.landing_state import (
    CheckpointLocation,
    LandedPositions,
    accounted_positions,
    accounted_until,
    count_landed_since,
    kafka_positions,
    land_checkpoint_path,
    landed_and_republished,
    landed_positions,
    last_kafka_offsets,
    location_positions,
    newest_location,
    read_checkpoint_location,
    read_landing_positions,
    rewind_positions,
    summarize_landed_after,
    update_landed_positions,
)
from mirrorlake.lake.log_commits import LiveFile
from mirrorlake.lake.metadata import (
    KnownTopic,
    Observations,
    SourceTopics,
    list_carried_topics,
    newest_topics,
    next_generation,
    source_at,
)
from mirrorlake.lake.offset_map import translated, translated_back, with_stale
from mirrorlake.lake.opening import broken_checkpoints, broken_commits
from mirrorlake.lake.pace import copy_interval_s, landing_interval_s, poll_interval_s
from mirrorlake.lake.partitions import folder_values, split_rows
from mirrorlake.lake.proofs import (
    RELAY_TARGET,
    SOURCE_RELAY,
    ProofCache,
    ProvenRange,
    RangeProof,
    proven_until,
    read_proofs,
)
from mirrorlake.lake.publish_log import APP, PublishLog, Signature, Tail
from mirrorlake.lake.reading_order import read_by_source
from mirrorlake.lake.relay_ends import last_rows
from mirrorlake.lake.relay_files import COLUMNS, RelayFile, is_whole_or_replaced, read_file, read_in_order
from mirrorlake.lake.relay_log import RelayLog
from mirrorlake.lake.relay_part import RelayPart
from mirrorlake.lake.relay_writer import WrittenFile, land_rows, relay_schema, write_files
from mirrorlake.lake.removed import erased_from, left_before, removed_between, removed_from, unfinished, write_removed
from mirrorlake.lake.rows import Row, gap_row, position_row
from mirrorlake.lake.samples import (
    NAME_SQL,
    SUBJECT_SQL,
    LastSamples,
    PositionKey,
    PositionState,
    Subject,
    SubjectSample,
    load_last_samples,
    prune_samples,
    write_samples,
)
from mirrorlake.lake.schema import (
    AUDIT,
    BAD_RECORDS,
    CHECKPOINTS,
    GAPS,
    METADATA,
    OFFSET_MAP,
    POSITIONS,
    RELAY,
    SAMPLES,
    SIDE_TABLES,
)
from mirrorlake.lake.side_files import Leaves, delete_rows, read_rows, write_rows
from mirrorlake.lake.signs import StreamSign, flow_sign
from mirrorlake.lake.spark_tables import quote
from mirrorlake.lake.store_check import check_store
from mirrorlake.lake.table_content import TableColumn
from mirrorlake.lake.table_maintenance import RELAY_ROWS, TableMaintenance
from mirrorlake.lake.table_schema import APPEND_ONLY, REMOVABLE, TableSchema, measured_columns
from mirrorlake.lake.times import TICK, from_micros, micros
from mirrorlake.lake.uncompressed_files import UncompressedBudget, is_uncompressed
