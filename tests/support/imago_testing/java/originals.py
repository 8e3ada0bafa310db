"""The original brokers, for checking what the suite expects: MetaQ 1.4.6.2, RocketMQ 4.9 and 5."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from imago_testing.java.driver import java_command
from imago_testing.java.modules import (
    METAQ_SERVER,
    ROCKETMQ4_SERVER,
    ROCKETMQ5_SERVER,
    JavaModule,
)
from imago_testing.ports import free_port_block
from imago_testing.processes import ServerProcess, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_METAQ_INI = """\
[system]
brokerId=0
hostName=127.0.0.1
serverPort={port}
dashboardHttpPort={dashboard}
dataPath={data}
numPartitions=4
unflushThreshold=0
unflushInterval=1000
maxSegmentSize=16777216
maxTransferSize=1048576
[zookeeper]
zk.zkConnect=127.0.0.1:{zookeeper}
zk.zkSessionTimeoutMs=10000
"""

_ROCKETMQ_BROKER = """\
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
brokerIP1=127.0.0.1
listenPort={port}
namesrvAddr=127.0.0.1:{namesrv}
storePathRootDir={data}
storePathCommitLog={data}/commitlog
mappedFileSizeCommitLog=67108864
mappedFileSizeConsumeQueue=600000
maxHashSlotNum=100000
maxIndexNum=400000
diskMaxUsedSpaceRatio=99
enableScheduleAsyncDeliver=false
transferMsgByHeap=true
"""


@contextlib.contextmanager
def metaq_original(folder: Path, topics: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Run ZooKeeper and the MetaQ broker; yield the addresses of both."""
    zookeeper_port = free_port_block(3)
    port, dashboard = zookeeper_port + 1, zookeeper_port + 2
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    command = java_command(METAQ_SERVER, main, folder)
    command += [str(zookeeper_port), str(folder / "zookeeper")]
    with running(ServerProcess.start("zookeeper", command, folder)) as zookeeper:
        zookeeper.wait_for_port(zookeeper_port)
        ini = _METAQ_INI.format(
            port=port, dashboard=dashboard, data=folder / "meta", zookeeper=zookeeper_port
        )
        config = folder / "server.ini"
        config.write_text(ini + "".join(f"[topic={topic}]\n" for topic in topics))
        main = "com.taobao.metamorphosis.server.MetamorphosisStartup"
        command = [*java_command(METAQ_SERVER, main, folder), "-f", str(config)]
        with running(ServerProcess.start("metaq", command, folder)) as broker:
            broker.wait_for_port(port)
            yield f"127.0.0.1:{zookeeper_port}", f"meta://127.0.0.1:{port}"


@contextlib.contextmanager
def rocketmq_original(folder: Path, version: int) -> Iterator[str]:
    """Run a name server and one broker of the major version; yield the name server's address."""
    module = {4: ROCKETMQ4_SERVER, 5: ROCKETMQ5_SERVER}[version]
    # A broker also takes the ports below and above its own.
    namesrv_port = free_port_block(6)
    broker_port = namesrv_port + 3
    env = {"ROCKETMQ_HOME": str(_home(folder)), "NAMESRV_ADDR": ""}
    namesrv_conf = folder / "namesrv.conf"
    namesrv_conf.write_text(f"listenPort={namesrv_port}\n")
    broker_conf = folder / "broker.conf"
    broker_conf.write_text(
        _ROCKETMQ_BROKER.format(port=broker_port, namesrv=namesrv_port, data=folder / "store")
    )
    namesrv = _command(module, "namesrv.NamesrvStartup", folder, namesrv_conf)
    broker = _command(module, "broker.BrokerStartup", folder, broker_conf)
    with running(ServerProcess.start("namesrv", namesrv, folder, env)) as first:
        first.wait_for_port(namesrv_port)
        with running(ServerProcess.start("broker", broker, folder, env)) as second:
            second.wait_for_port(broker_port)
            yield f"127.0.0.1:{namesrv_port}"


def _command(module: JavaModule, main_class: str, folder: Path, config: Path) -> list[str]:
    command = java_command(module, f"org.apache.rocketmq.{main_class}", folder, heap_mb=512)
    return [*command, "-c", str(config)]


def _home(folder: Path) -> Path:
    """The home folder of the installation: version 4 reads its log settings there."""
    conf = folder / "home" / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    for name in ("namesrv", "broker"):
        (conf / f"logback_{name}.xml").write_text("<configuration/>\n")
    (conf / "plain_acl.yml").write_text("accounts: []\n")
    return folder / "home"
