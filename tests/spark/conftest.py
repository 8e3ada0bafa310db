"""One Spark session and one broker process for all tests that need them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from imago_client.blocking import Client
from imago_spark.pipelines.session import session
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.segments import SMALL_SEGMENTS
from imago_testing.processes.servers import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    events = tmp_path_factory.mktemp("spark-events")
    log = "--conf spark.eventLog.enabled=true --conf spark.eventLog.compress=false"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "PYSPARK_SUBMIT_ARGS",
            f"{log} --conf spark.eventLog.dir={events.as_uri()} pyspark-shell",
        )
        made = session("imago-tests", cores=2, memory="1g", is_short=True, tries=3)
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own process; the address of its name service."""
    base = free_port_block(20)
    folder = tmp_path_factory.mktemp("cluster")
    command = [sys.executable, "-m", "imago_cli", "up", "--zookeeper", "none", *SMALL_SEGMENTS]
    command += ["--data", str(folder / "data"), "--port-base", str(base)]
    server = ServerProcess.start("up", command, folder)
    try:
        server.wait_for_port(base)
        server.wait_for_port(base + 14)
        yield f"127.0.0.1:{base}"
    finally:
        server.stop()


@pytest.fixture
def client(cluster: str) -> Iterator[Client]:
    with Client(cluster) as made:
        yield made
