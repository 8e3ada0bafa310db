"""The ingest application into a bucket, as a process that is killed and run again."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from imago_client import Message, batches
from imago_testing.processes.object_server import running_object_server
from imago_testing.processes.servers import ServerProcess, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from imago_client.blocking import Client
    from imago_spark.pipelines.tables.bucket import LakeBucket

pytestmark = [pytest.mark.spark, pytest.mark.processes]

TOPIC, LAKE = "into-a-bucket", "lake"
ROWS = 2500


def command_of(cluster: str, folder: Path, bucket: LakeBucket) -> list[str]:
    file = folder / "pipeline.toml"
    file.write_text(
        f'bootstrap = "{cluster}"\ntopics = ["{TOPIC}"]\npath = "s3://{LAKE}/orders"\n'
        "maxRowsPerTrigger = 500\n"
        '[config]\ntrigger = "available-now"\nlanding = "ranges"\nformat = "delta"\n'
        f's3Endpoint = "{bucket.endpoint}"\ns3CredentialsFile = "{bucket.credentials_file}"\n'
    )
    program = [sys.executable, "-m", "imago_spark.pipelines.ingest", "--short", "--cores", "1"]
    return [*program, "--memory", "512m", "--config", str(file)]


def opened(bucket: LakeBucket) -> DeltaTable | None:
    url, options = f"s3://{LAKE}/orders", bucket.delta_options()
    if not DeltaTable.is_deltatable(url, options):
        return None
    return DeltaTable(url, storage_options=options)


@pytest.mark.traces_wanted  # of the kill alone: a JVM without its driver may print where it was
def test_killed_driver_leaves_each_row_once(cluster: str, client: Client, tmp_path: Path) -> None:
    client.admin.create_topic(TOPIC, queues=2)
    messages = [Message(TOPIC, b"%06d" % number) for number in range(ROWS)]
    for batch in batches(messages, bytes_max=20_000):
        client.producer().send_batch(batch)
    with running_object_server(tmp_path / "objects", LAKE) as bucket:
        command = command_of(cluster, tmp_path, bucket)
        first = ServerProcess.start("ingest", command, tmp_path)

        def has_committed() -> bool:
            assert first.process.poll() is None, first.log_tail()
            table = opened(bucket)
            return table is not None and table.version() >= 2

        wait_until(has_committed, seconds_max=200, what="a commit in the bucket")
        first.kill()
        table = opened(bucket)
        assert table is not None
        assert table.version() < 6, "it was killed before it was done"
        ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        told: Any = json.loads(ended.stdout or "null")
        assert (ended.returncode, told and told["rows"]) == (0, ROWS), ended.stderr[-4000:]
        table = opened(bucket)
        assert table is not None
        rows = table.to_pyarrow_table(columns=["queue", "offset", "value", "crc_ok"]).to_pydict()
    assert len(set(zip(rows["queue"], rows["offset"], strict=True))) == len(rows["queue"]) == ROWS
    assert sorted(rows["value"]) == [message.body for message in messages]
    assert set(rows["crc_ok"]) == {True}
