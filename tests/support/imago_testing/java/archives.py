"""Archives of classes: with one a ZooKeeper starts in half the time, and a Spark does with less.

Made once in an environment (`make test` does), used by every server and session that a test, or a
process of a test, starts. Not by those of another environment: Spark ends when it finds its jars in
another place than those of the archive.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

ZOOKEEPER, SPARK = (Path(sys.prefix) / f"{name}.jsa" for name in ("zookeeper", "spark"))
"""Beside the jars that they are made of: an environment has archives of its own."""
VARIABLES: Final = {ZOOKEEPER: "SERVER_JVMFLAGS", SPARK: "SPARK_SUBMIT_OPTS"}
"""By which a JVM is told more flags."""


def use() -> None:
    """Have what this process and its children start use the archives that were made."""
    for archive, variable in VARIABLES.items():
        if archive.exists():
            os.environ.setdefault(variable, f"-XX:SharedArchiveFile={archive}")


def make() -> None:
    """Make those that are not there."""
    for archive, run in ((ZOOKEEPER, _run_zookeeper), (SPARK, _run_spark)):
        if not archive.exists():
            _make(archive, run)


def _make(archive: Path, run: Callable[[Path], None]) -> None:
    unfinished = archive.with_suffix(f".{os.getpid()}")
    os.environ[VARIABLES[archive]] = f"-XX:ArchiveClassesAtExit={unfinished}"
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder))
    if not unfinished.exists():  # a Java without an archive of its own classes adds none to it
        print(f"{archive.name} was not written: what would use it starts as ever, only later")
        return
    unfinished.rename(archive)


def _run_zookeeper(folder: Path) -> None:
    """Have a server serve a client."""
    from kazoo.client import KazooClient

    from imago_testing.processes.zookeeper import running_zookeeper

    with running_zookeeper(folder) as server:
        client = KazooClient(server.address)
        client.start(timeout=50)
        client.create("/made/here", b"", makepath=True)
        client.stop()
        client.close()


def _run_spark(folder: Path) -> None:
    """Have a session read a topic as a table and as a stream, and write what it has read."""
    from imago_client import Message
    from imago_client.blocking import Client
    from imago_spark.pipelines.session import session
    from imago_testing.processes.broker import broker_process

    with broker_process(folder, {}) as broker:
        bootstrap = f"127.0.0.1:{broker.namesrv}"
        with Client(bootstrap) as client:
            client.admin.create_topic("orders", queues=2)
            client.producer().send(Message("orders", b"one"))
        spark = session("archive", cores=1, memory="512m", is_short=True)
        options = {"bootstrap": bootstrap, "subscribe": "orders", "startingOffsets": "earliest"}
        table = spark.read.format("imago").options(**options).load()
        assert table.groupBy("queue").count().count() == 1
        table.write.parquet(str(folder / "table"))
        stream = spark.readStream.format("imago").options(**options).load()
        stream.writeStream.foreachBatch(_count).option(
            "checkpointLocation", str(folder / "checkpoint")
        ).trigger(availableNow=True).start().awaitTermination()
        gateway: Any = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # at which it ends, and writes the archive
        gateway.proc.wait(timeout=120)


def _count(batch: DataFrame, _: int) -> None:
    batch.count()


if __name__ == "__main__":
    make()
