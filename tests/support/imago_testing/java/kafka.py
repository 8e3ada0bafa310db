"""The original Kafka broker, which Spark's own Kafka source is measured with."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

from imago_testing.java.driver import java_command
from imago_testing.java.modules import KAFKA_SERVER, JavaBuildError
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import ServerProcess, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
num.partitions={partitions}
offsets.topic.replication.factor=1
"""
_CLUSTER_ID = "aW1hZ28tYmVuY2gtMDAwMQ"
_FORMAT_SECONDS_MAX = _START_SECONDS_MAX = 300


@contextlib.contextmanager
def kafka_original(folder: Path, *, partitions: int) -> Iterator[str]:
    """Run one broker that is its own controller, as shipped; yield its address.

    A topic is made by whoever writes to it first.
    """
    port = free_port_block(2)
    config = folder / "kafka.properties"
    config.write_text(
        _SETTINGS.format(
            port=port, controller=port + 1, data=folder / "kafka-data", partitions=partitions
        )
    )
    flags = ("-Xms1g", f"-Dlog4j.configuration={_logging(folder).as_uri()}")
    made = java_command(KAFKA_SERVER, "kafka.tools.StorageTool", folder, flags=flags, heap_mb=1024)
    made += ["format", "-t", _CLUSTER_ID, "-c", str(config)]
    done = subprocess.run(
        made, check=False, capture_output=True, text=True, timeout=_FORMAT_SECONDS_MAX
    )
    if done.returncode:
        raise JavaBuildError(f"Kafka's log could not be made:\n{done.stdout}{done.stderr}")
    command = java_command(KAFKA_SERVER, "kafka.Kafka", folder, flags=flags, heap_mb=1024)
    with running(ServerProcess.start("kafka", [*command, str(config)], folder)) as server:
        server.wait_for_port(port, seconds_max=_START_SECONDS_MAX)
        yield f"127.0.0.1:{port}"


def _logging(folder: Path) -> Path:
    path = folder / "log4j.properties"
    path.write_text(
        "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.out.layout.ConversionPattern=%d %p %m (%c)%n\n"
    )
    return path
