"""The original brokers as servers under measurement: their own defaults, a heap of 1 GB."""

from __future__ import annotations

import contextlib
import socket
import struct
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import BROKER_CORE, Server, load, pin
from imago_testing.java.modules import METAQ_SERVER, ROCKETMQ5_SERVER, JavaModule
from imago_testing.java.toolchain import toolchain
from imago_testing.processes import ServerProcess, running

if TYPE_CHECKING:
    from collections.abc import Iterator

METAQ_INI = """\
[system]
brokerId=0
hostName=127.0.0.1
serverPort={port}
dashboardHttpPort={dashboard}
dataPath={data}
numPartitions=4
unflushThreshold=1000
unflushInterval=1000
maxSegmentSize=1073741824
maxTransferSize=1048576
[zookeeper]
zk.zkConnect=127.0.0.1:{zookeeper}
[topic=bench]
"""

ROCKETMQ_CONF = """\
brokerClusterName=DefaultCluster
brokerName=shard-0
brokerId=0
brokerIP1=127.0.0.1
listenPort={port}
namesrvAddr=127.0.0.1:{namesrv}
storePathRootDir={data}
storePathCommitLog={data}/commitlog
diskMaxUsedSpaceRatio=99
flushDiskType=ASYNC_FLUSH
"""


def java(module: JavaModule, main_class: str, home: Path, *arguments: str) -> list[str]:
    command = [toolchain().java, "-Xms1g", "-Xmx1g", f"-Duser.home={home}"]
    return [*command, "-cp", module.class_path(), main_class, *arguments]


@contextlib.contextmanager
def metaq(port_base: int) -> Iterator[Server]:
    """MetaQ 1.4.6.2 on one core, flushing every 1,000 messages or second (its default)."""
    with tempfile.TemporaryDirectory(prefix="imago-bench-") as name:
        folder = Path(name)
        config = folder / "server.ini"
        port, dashboard, keeper_port = port_base, port_base + 1, port_base + 2
        config.write_text(
            METAQ_INI.format(
                port=port, dashboard=dashboard, zookeeper=keeper_port, data=folder / "data"
            )
        )
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        keeper = java(METAQ_SERVER, main, folder, str(keeper_port), str(folder / "zookeeper"))
        main = "com.taobao.metamorphosis.server.MetamorphosisStartup"
        command = java(METAQ_SERVER, main, folder, "-f", str(config))
        with running(ServerProcess.start("zookeeper", keeper, folder)) as zookeeper:
            zookeeper.wait_for_port(keeper_port)
            with running(ServerProcess.start("metaq", command, folder)) as broker:
                broker.wait_for_port(port)
                pin(broker.process.pid, BROKER_CORE)
                time.sleep(2)  # the broker registers its topics behind the open port
                # One connection first: the first put makes the partitions, not safely from many.
                load("put", port, pids=[], conns=1, seconds=1, warmup=0)
                yield Server(broker.process.pid, port, 0)


@contextlib.contextmanager
def rocketmq(port_base: int) -> Iterator[Server]:
    """RocketMQ 5 on one core, asynchronous flush (its default), with its name server."""
    with tempfile.TemporaryDirectory(prefix="imago-bench-") as name:
        folder = Path(name)
        port = port_base + 3
        env = {"ROCKETMQ_HOME": name, "NAMESRV_ADDR": ""}
        namesrv_conf, broker_conf = folder / "namesrv.conf", folder / "broker.conf"
        namesrv_conf.write_text(f"listenPort={port_base}\n")
        broker_conf.write_text(
            ROCKETMQ_CONF.format(port=port, namesrv=port_base, data=folder / "store")
        )
        package = "org.apache.rocketmq"
        first = java(
            ROCKETMQ5_SERVER, f"{package}.namesrv.NamesrvStartup", folder, "-c", str(namesrv_conf)
        )
        second = java(
            ROCKETMQ5_SERVER, f"{package}.broker.BrokerStartup", folder, "-c", str(broker_conf)
        )
        with running(ServerProcess.start("namesrv", first, folder, env)) as namesrv:
            namesrv.wait_for_port(port_base)
            with running(ServerProcess.start("broker", second, folder, env)) as broker:
                broker.wait_for_port(port)
                create_topic(port, "bench", queues=4)
                pin(broker.process.pid, BROKER_CORE)
                yield Server(broker.process.pid, 0, port)


def create_topic(port: int, topic: str, *, queues: int) -> None:
    """UPDATE_AND_CREATE_TOPIC (17) as one hand-made frame: the original has no HTTP."""
    header = (
        f'{{"code":17,"extFields":{{"topic":"{topic}","defaultTopic":"TBW102",'
        f'"readQueueNums":"{queues}","writeQueueNums":"{queues}","perm":"6",'
        '"topicFilterType":"SINGLE_TAG","topicSysFlag":"0","order":"false"},"flag":0,'
        '"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":479}'
    ).encode()
    frame = struct.pack(">ii", 4 + len(header), len(header)) + header
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(frame)
        connection.recv(4096)
    time.sleep(1)  # the broker registers the topic with its name server behind the answer
