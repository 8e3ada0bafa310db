"""The original brokers: MetaQ 1.4.6.2, RocketMQ 4.9 and 5.

Small ones show what the suite may expect; as they are shipped, they are what ours is measured by.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient

from imago_testing.java.driver import SMALL as SMALL_JVM
from imago_testing.java.driver import java_command
from imago_testing.java.modules import (
    METAQ_PARTS,
    METAQ_SERVER,
    ROCKETMQ4_SERVER,
    ROCKETMQ5_PROXY,
    ROCKETMQ5_SERVER,
    JavaModule,
)
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import ServerProcess, running, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_METAQ_INI = """\
[system]
brokerId=0
hostName=127.0.0.1
serverPort={port}
dashboardHttpPort={dashboard}
dataPath={data}
numPartitions=4
unflushInterval=1000
maxTransferSize=1048576
{more}[zookeeper]
zk.zkConnect=127.0.0.1:{zookeeper}
zk.zkSessionTimeoutMs=10000
"""

_ROCKETMQ_BROKER = """\
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
brokerIP1=127.0.0.1
listenPort={port}
namesrvAddr={namesrv}
storePathRootDir={data}
storePathCommitLog={data}/commitlog
enablePropertyFilter=true
recallMessageEnable=true
diskMaxUsedSpaceRatio=99
enableLmq=true
enableMultiDispatch=true
{more}"""

_FULL_DISK_IS_OURS = (
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
)
"""A broker of 4.9 refuses messages on a disk that is 90 % full, whatever its settings say."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a broker runs: its JVM, and settings beside those that say where it is."""

    jvm: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `java_command`."""
    metaq: Mapping[str, int | str] = field(default_factory=dict)
    rocketmq: Mapping[str, int | str] = field(default_factory=dict)


SMALL = Scale(
    metaq={"unflushThreshold": 0, "maxSegmentSize": 16 << 20, "stat": "true"},
    rocketmq={
        "mappedFileSizeCommitLog": 64 << 20,
        "mappedFileSizeConsumeQueue": 600_000,
        "maxHashSlotNum": 100_000,
        "maxIndexNum": 400_000,
        "enableScheduleAsyncDeliver": "false",
        "transferMsgByHeap": "true",
    },
)
AS_SHIPPED = Scale(
    jvm={"heap_mb": 1024, "flags": ("-Xms1g",)},
    metaq={"unflushThreshold": 1000, "maxSegmentSize": 1 << 30},
)
"""The originals' own defaults: MetaQ flushes every 1,000 messages or second, RocketMQ by itself."""


@dataclass(frozen=True, slots=True)
class Part:
    """What the original broker is beside a master: one of our mains over its published classes.

    Its own, of the server wrapper, were never published.
    """

    main: str
    arguments: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class OriginalBroker:
    """A running broker on the loopback."""

    pid: int
    port: int
    registry: str
    """Address of MetaQ's ZooKeeper, of RocketMQ's name server."""

    @property
    def url(self) -> str:
        """How MetaQ's clients write it."""
        return f"meta://127.0.0.1:{self.port}"


def wait_for_topic(registry: str, topic: str) -> None:
    """Wait for all nodes of the original's topic: a put before meets those that the start makes."""
    tree = KazooClient(registry)
    tree.start(timeout=20)
    branches = ("topics", "topics-pub", "topics-sub")
    nodes = [f"/meta/brokers/{branch}/{topic}/0-m" for branch in branches]
    try:
        wait_until(
            lambda: all(tree.exists(node) for node in nodes),
            seconds_max=60,
            what=f"the nodes of {topic} stand in ZooKeeper",
        )
    finally:
        tree.stop()
        tree.close()


@contextlib.contextmanager
def metaq_original(
    folder: Path, topics: Sequence[str], scale: Scale = SMALL
) -> Iterator[OriginalBroker]:
    """Run ZooKeeper and the MetaQ broker."""
    with (
        original_zookeeper(folder) as zookeeper_port,
        metaq_broker(folder, topics, zookeeper_port, scale) as broker,
    ):
        yield broker


@contextlib.contextmanager
def original_zookeeper(folder: Path) -> Iterator[int]:
    """Run the ZooKeeper that the original broker brings; yield its port."""
    port = free_port_block(1)
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    command = java_command(METAQ_SERVER, main, folder)
    command += [str(port), str(folder / "zookeeper")]
    with running(ServerProcess.start("zookeeper", command, folder)) as zookeeper:
        zookeeper.wait_for_port(port)
        yield port


@contextlib.contextmanager
def metaq_broker(
    folder: Path,
    topics: Sequence[str],
    zookeeper_port: int,
    scale: Scale = SMALL,
    *,
    part: Part | None = None,
) -> Iterator[OriginalBroker]:
    """Run the MetaQ broker, as a master alone or in another part; its data may be there already."""
    port = free_port_block(2)
    ini = _METAQ_INI.format(
        port=port,
        dashboard=port + 1,
        data=folder / "meta",
        zookeeper=zookeeper_port,
        more=_lines(scale.metaq),
    )
    ini += "".join(f"[topic={topic}]\n" for topic in topics)
    with metaq_by_file(folder, ini, port, zookeeper_port, scale, part=part) as broker:
        yield broker


@contextlib.contextmanager
def metaq_by_file(
    folder: Path,
    ini: str,
    port: int,
    zookeeper_port: int,
    scale: Scale = SMALL,
    *,
    part: Part | None = None,
) -> Iterator[OriginalBroker]:
    """Run the MetaQ broker by a `server.ini` of one's own, which names these ports."""
    config = folder / "server.ini"
    folder.mkdir(exist_ok=True)
    config.write_text(ini)
    main = "com.taobao.metamorphosis.server.MetamorphosisStartup"
    module, arguments = METAQ_SERVER, ["-f", str(config)]
    if part is not None:
        module, main = METAQ_PARTS, f"dev.imago.interop.metaqbroker.{part.main}"
        arguments = [str(config), *part.arguments]
    command = [*java_command(module, main, folder, **scale.jvm), *arguments]
    with running(ServerProcess.start("metaq", command, folder)) as broker:
        broker.wait_for_port(port)
        yield OriginalBroker(broker.process.pid, port, f"127.0.0.1:{zookeeper_port}")


@contextlib.contextmanager
def rocketmq_original(
    folder: Path, version: int, scale: Scale = SMALL, *, also_at: Sequence[str] = ()
) -> Iterator[OriginalBroker]:
    """Run a name server and one broker of the major version.

    `also_at`: other name services with which the broker registers.
    """
    module = {4: ROCKETMQ4_SERVER, 5: ROCKETMQ5_SERVER}[version]
    # A broker also takes the ports below and above its own.
    namesrv_port = free_port_block(6)
    broker_port = namesrv_port + 3
    env = {"ROCKETMQ_HOME": str(_home(folder)), "NAMESRV_ADDR": ""}
    namesrv_conf = folder / "namesrv.conf"
    namesrv_conf.write_text(f"listenPort={namesrv_port}\n")
    broker_conf = folder / "broker.conf"
    broker_conf.write_text(
        _ROCKETMQ_BROKER.format(
            port=broker_port,
            namesrv=";".join((f"127.0.0.1:{namesrv_port}", *also_at)),
            data=folder / "store",
            more=_lines(scale.rocketmq),
        )
    )
    namesrv = _command(module, "namesrv.NamesrvStartup", folder, namesrv_conf, scale)
    command = _command(module, "broker.BrokerStartup", folder, broker_conf, scale)
    with running(ServerProcess.start("namesrv", namesrv, folder, env)) as first:
        first.wait_for_port(namesrv_port)
        with running(ServerProcess.start("broker", command, folder, env)) as second:
            second.wait_for_port(broker_port)
            yield OriginalBroker(second.process.pid, broker_port, f"127.0.0.1:{namesrv_port}")


@contextlib.contextmanager
def rocketmq_proxy(folder: Path, scale: Scale = SMALL) -> Iterator[Mapping[str, str]]:
    """Run a name server, and RocketMQ 5's proxy with a broker inside; yield their addresses.

    `pid` is its process.
    """
    namesrv_port = free_port_block(10)
    broker_port, grpc_port = namesrv_port + 3, namesrv_port + 6
    env = {"ROCKETMQ_HOME": str(_home(folder)), "NAMESRV_ADDR": ""}
    namesrv_conf, broker_conf = folder / "namesrv.conf", folder / "broker.conf"
    namesrv_conf.write_text(f"listenPort={namesrv_port}\n")
    namesrv = f"127.0.0.1:{namesrv_port}"
    # Above transactionOpBatchInterval: a check before the note of a commit is there commits again.
    more = _lines({"transactionTimeOut": 5000, "transactionCheckInterval": 1000, **scale.rocketmq})
    broker_conf.write_text(
        _ROCKETMQ_BROKER.format(port=broker_port, namesrv=namesrv, data=folder / "store", more=more)
    )
    settings = {
        "rocketMQClusterName": "DefaultCluster",
        "grpcServerPort": grpc_port,
        "remotingListenPort": grpc_port + 1,
        "namesrvAddr": namesrv,
        "localServeAddr": "127.0.0.1",
    }
    (folder / "proxy.json").write_text(json.dumps(settings))
    first = _command(ROCKETMQ5_PROXY, "namesrv.NamesrvStartup", folder, namesrv_conf, scale)
    command = _command(ROCKETMQ5_PROXY, "proxy.ProxyStartup", folder, broker_conf, scale)[:-2]
    command += ["-n", namesrv, "-pm", "local", "-bc", str(broker_conf)]
    command += ["-pc", str(folder / "proxy.json")]
    with running(ServerProcess.start("namesrv", first, folder, env)) as names:
        names.wait_for_port(namesrv_port)
        with running(ServerProcess.start("proxy", command, folder, env)) as proxy:
            proxy.wait_for_port(grpc_port, seconds_max=240)
            broker, grpc = f"127.0.0.1:{broker_port}", f"127.0.0.1:{grpc_port}"
            pid = str(proxy.process.pid)
            yield {"namesrv": namesrv, "broker": broker, "grpc": grpc, "pid": pid}


def _lines(settings: Mapping[str, int | str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _command(
    module: JavaModule, main_class: str, folder: Path, config: Path, scale: Scale
) -> list[str]:
    jvm = {"heap_mb": 512, "flags": SMALL_JVM, **scale.jvm}
    jvm["flags"] = (*jvm["flags"], *_FULL_DISK_IS_OURS)
    command = java_command(module, f"org.apache.rocketmq.{main_class}", folder, **jvm)
    return [*command, "-c", str(config)]


def _home(folder: Path) -> Path:
    """The home folder of the installation: version 4 reads its log settings there."""
    conf = folder / "home" / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    for name in ("namesrv", "broker"):
        (conf / f"logback_{name}.xml").write_text("<configuration/>\n")
    (conf / "plain_acl.yml").write_text("accounts: []\n")
    return folder / "home"
