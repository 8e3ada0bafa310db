"""The parse application on bodies of Avro: events, and rejects with their reasons."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from imago_client import Message
from imago_spark.pipelines import parse

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from imago_client.blocking import Client

pytestmark = [pytest.mark.spark, pytest.mark.processes]

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "amount", "type": ["null", "double"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}


def test_avro_becomes_events_and_rejects(
    spark: SparkSession, cluster: str, client: Client, tmp_path: Path
) -> None:
    client.admin.create_topic("orders-avro", queues=1)
    producer, header = client.producer(), b"\0\0\0\0\1"
    amount = b"\2" + struct.pack("<d", 2.5)
    for body in (
        header + b"\x0e" + amount + b"\x80\x89\x7a",  # 7, 1 second
        header + b"\x10" + b"\0" + b"\0",  # 8, null
        header + b"\x10" + b"\0",
        b'{"id": 1}',
        header + b"\x12" + b"\0" + b"\0" + b"more",
    ):
        producer.send(Message("orders-avro", body))
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
    own = {"bodyFormat": "avro", "schemaFile": str(tmp_path / "order.avsc"), "headerBytes": 5}
    schema = StructType.fromDDL("id bigint, amount double, at timestamp")
    assert isinstance(schema, StructType)
    how = parse.parsing(own, schema)
    options = {"bootstrap": cluster, "subscribe": "orders-avro"}
    rows = parse.build(spark, options, how).orderBy("offset").collect()
    second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert [(row.id, row.amount) for row in rows[:2]] == [(7, 2.5), (8, None)]
    assert rows[0]["at"].astimezone(UTC) == second
    assert [row.rejected for row in rows] == [False, False, True, True, True]
    reasons = [row.reject_reason for row in rows[2:]]
    assert all(why.startswith("the body is no avro of the schema: ") for why in reasons)
    assert reasons[2].endswith("4 bytes are left over")
    assert rows[3].reject_value == b'{"id": 1}'
