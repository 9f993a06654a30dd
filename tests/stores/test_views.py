"""Pieces of a view's time, asked of a store by a process that holds nothing but what a task of Spark's is given; no JVM."""

from __future__ import annotations

import pickle
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from mirrorlake.lag.lag_queries import LagQueries
from mirrorlake.lag.view_intervals import LONGEST, VIEWS, choose_interval, count_intervals, query_intervals
from pyspark import cloudpickle

from mirrorlake.config.loading import loads
from mirrorlake.lake import SIDE_TABLES, FolderTables, Lake, micros
from mirrorlake.lake.duckdb_query import to_rows
from mirrorlake.runtime import stores
from tests.hourly_looks import FLOW, HOURS, hourly_looks
from tests.kit.lake import arrow
from tests.servers.store import StoreServer
from tests.stores.test_tables import conf, no_spark

NOW = datetime(2026, 1, 3, 17, tzinfo=timezone.utc)
DAYS = 2


def test_pieces_of_a_view_are_asked_of_a_store(
    store_server: StoreServer, store_keys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = store_server.make_bucket(f"views-{uuid4().hex[:8]}")
    lake = Lake(no_spark, loads(conf(store_server, f"s3://{bucket}/lake")).lake)
    lake.create_all(["east"])
    locations = {table.name: lake.meta_location(table) for table in SIDE_TABLES} | {
        "relay": lake.relay_location("east")
    }
    for name, rows in hourly_looks(NOW - timedelta(hours=HOURS - 1)).items():
        FolderTables().append(locations[name], arrow(name, rows))
    assert {choose_interval(lake, name) for name in VIEWS} == {LONGEST}
    asked = LagQueries(lake, [FLOW], now=lambda: NOW)
    plain = {name: view.ask(asked, NOW - timedelta(days=DAYS), NOW).rows() for name, view in VIEWS.items()}
    sent = {
        name: cloudpickle.dumps(query_intervals(lake.address, lake.store, [FLOW], view, DAYS, LONGEST))
        for name, view in VIEWS.items()
    }

    # A worker has neither the driver's stores nor what the settings refer to.
    monkeypatch.setattr(stores, "_ATTACHED", {})
    monkeypatch.delenv("STORE_ACCESS_KEY")
    monkeypatch.delenv("STORE_SECRET_KEY")
    numbers = pa.RecordBatch.from_pylist([{"id": n, "now": micros(NOW)} for n in range(count_intervals(DAYS, LONGEST))])
    for name, function in sent.items():
        ask: Any = pickle.loads(function)  # noqa: S301  our own
        shown = to_rows(pa.Table.from_batches(ask(iter([numbers]))))
        assert sorted(map(repr, shown)) == sorted(map(repr, plain[name])), name
        assert shown
