"""Write sales to a cluster: JSON for queries, with customers of several regions, hot keys and late records."""

from __future__ import annotations

import json
import random
import time

from confluent_kafka import KafkaException, Producer

from mirrorlake.sandbox.traffic import create_topics, not_written

SALES = "sales"
_PARTITIONS = 2
_SPREAD_MS = 3_600_000
_LATE_MS = 5 * 3_600_000
# Per hundred records, so that a few hundred have some of each.
_LATE, _TOMBSTONES, _BROKEN = 4, 2, 1
_CUSTOMERS, _ITEMS = 40, ("book", "lamp", "chair", "kettle")
_TIMEOUT_S = 60.0


def write_sales(bootstrap_servers: str, *, region: str, records: int, seed: int = 1) -> None:
    """Create the topic `sales` if it is missing, and write to it, with timestamps of the last hour and earlier.

    Of a hundred records, about four were sold five hours ago and are late, two are tombstones and one is not JSON. The same 40
    customers buy in every region, a few of them most often.

    Args:
        bootstrap_servers: the cluster.
        region: a field of every record.
        records: the number of records.
        seed: determines who buys what.

    Raises:
        SandboxError: the cluster did not take the records.
    """
    create_topics(bootstrap_servers, {SALES: _PARTITIONS})
    rng = random.Random(f"{region}-{seed}")  # noqa: S311 - repeatable on purpose
    now = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "log_level": 0})
    try:
        for number in range(records):
            customer = f"customer-{int(_CUSTOMERS * rng.random() ** 3)}"
            kind = rng.randrange(100)
            sale = {
                "region": region,
                "number": number,
                "customer": customer,
                "amount": round(rng.uniform(1, 200), 2),
                "lines": [{"item": rng.choice(_ITEMS), "pieces": rng.randint(1, 5)}],
            }
            value: bytes | None = json.dumps(sale).encode()
            if kind < _TOMBSTONES:
                value = None
            elif kind < _TOMBSTONES + _BROKEN:
                value = b'{"region": '
            sold = now - (records - number) * _SPREAD_MS // records
            producer.produce(SALES, value, customer, timestamp=sold - _LATE_MS if kind >= 100 - _LATE else sold)
            producer.poll(0)
        left = producer.flush(_TIMEOUT_S)
    except KafkaException as error:
        raise not_written(bootstrap_servers, str(error)) from error
    if left:
        raise not_written(bootstrap_servers, f"{left} records were not confirmed within {_TIMEOUT_S:.0f} s")
