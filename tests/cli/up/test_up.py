"""`imago up`: real processes, from the first start to the last stop."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from kazoo.client import KazooClient

from imago_cli.exits import CommandUsageError
from imago_cli.up import state as up_state
from imago_cli.up.command import refuse_busy_ports
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import accepts, wait_until
from imago_testing.processes.up import SECONDS_MAX, command, up

if TYPE_CHECKING:
    from pathlib import Path

    from imago_testing.processes.zookeeper import RunningZooKeeper

pytestmark = pytest.mark.processes

PORTS = 30


class KazooReader:
    """Reads ZooKeeper as a stranger would."""

    def __init__(self, address: str) -> None:
        self._client = KazooClient(hosts=address)

    def __enter__(self) -> KazooReader:
        self._client.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()

    def get(self, path: str) -> str:
        data: bytes = self._client.get(path)[0]
        return data.decode()


def refused(data: Path, *options: str, code: int = 2) -> str:
    """Run until it refuses; return what it said."""
    done = subprocess.run(
        command(data, *options), capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def alone(base: int) -> list[str]:
    return ["--zookeeper", "none", "--port-base", str(base)]


def test_up_says_where_everything_is_once_it_serves(tmp_path: Path) -> None:
    base = free_port_block(PORTS)
    with up(tmp_path / "data", "--shards", "2", "--port-base", str(base)) as running:
        ready = running.ready
        assert list(ready) == ["ready", "namesrv", "zookeeper", "data", "brokers"]
        assert ready["ready"] is True
        assert ready["namesrv"] == f"127.0.0.1:{base}"
        assert ready["zookeeper"] == f"127.0.0.1:{base + 1}"
        assert ready["data"] == str(tmp_path / "data")
        assert [broker["shard"] for broker in ready["brokers"]] == ["shard-0", "shard-1"]
        for number, broker in enumerate(ready["brokers"]):
            first = base + 10 + 10 * number
            assert broker == {
                "shard": f"shard-{number}",
                "replica": 0,
                "pid": broker["pid"],
                "role": "master",
                "metaq": f"127.0.0.1:{first + 1}",
                "rocketmq": f"127.0.0.1:{first + 2}",
                "fast": f"127.0.0.1:{first}",
                "grpc": f"127.0.0.1:{first + 5}",
                "replication": f"127.0.0.1:{first + 3}",
                "admin": f"http://127.0.0.1:{first + 4}",
                "data": str(tmp_path / "data" / f"shard-{number}"),
            }
            assert psutil.pid_exists(broker["pid"])
            assert all(accepts(first + offset) for offset in (0, 1, 2, 4, 5))
        bound = {
            connection.laddr.port
            for process in [psutil.Process(running.process.pid), *running.children()]
            for connection in process.net_connections(kind="inet")
            if connection.status == psutil.CONN_LISTEN
        }
        assert bound
        assert bound <= set(range(base, base + PORTS)), "a port outside the block"
        assert running.stop() == 0
    open_to_others = [
        path
        for path in (tmp_path / "data", *(tmp_path / "data").rglob("*"))
        if path.stat().st_mode & 0o077
    ]
    assert open_to_others == []


def test_sigint_stops_everything_in_order(tmp_path: Path) -> None:
    with up(tmp_path / "data", *alone(free_port_block(PORTS))) as running:
        assert running.stop(signal.SIGINT) == 0
    assert "clean=True" in (tmp_path / "data" / "logs" / "shard-0.log").read_text()


def test_a_killed_broker_is_started_again(tmp_path: Path) -> None:
    base = free_port_block(PORTS)
    with up(tmp_path / "data", *alone(base)) as running:
        pid_file = tmp_path / "data" / "run" / "shard-0.pid"
        for _ in range(2):
            before = int(pid_file.read_text())
            os.kill(before, signal.SIGKILL)
            wait_until(
                lambda before=before: (
                    pid_file.exists()  # type: ignore[misc]  # bound in the loop
                    and int(pid_file.read_text() or before) != before
                    and accepts(base + 11)
                ),
                seconds_max=SECONDS_MAX,
                what="another broker serves MetaQ",
            )
        assert running.stop() == 0


def test_a_killed_broker_stays_dead_when_told_so(tmp_path: Path) -> None:
    base = free_port_block(PORTS)
    with up(tmp_path / "data", *alone(base), "--no-restart") as running:
        os.kill(running.ready["brokers"][0]["pid"], signal.SIGKILL)
        wait_until(
            lambda: "process_died name=shard-0" in running.log(),
            seconds_max=SECONDS_MAX,
            what="the death is noticed",
        )
        assert not running.children()
        assert running.stop() == 0


@pytest.mark.full
def test_a_broker_that_cannot_come_back_is_tried_again_and_the_others_go_on(tmp_path: Path) -> None:
    base, data = free_port_block(PORTS), tmp_path / "data"
    with up(data, "--shards", "2", "--port-base", str(base)) as running:
        first, second = running.ready["brokers"]
        config = data / "config" / "shard-1.toml"
        right = config.read_text()
        config.write_text("[broker]\nnonsense = 1\n")
        os.kill(second["pid"], signal.SIGKILL)
        wait_until(
            lambda: running.log().count("process_not_ready name=shard-1") >= 2,
            seconds_max=SECONDS_MAX,
            what="it was tried twice",
        )
        assert "nonsense" in running.log()
        assert psutil.pid_exists(first["pid"])
        assert accepts(base + 11)
        assert int((data / "run" / "shard-0.pid").read_text()) == first["pid"]
        config.write_text(right)
        wait_until(
            lambda: accepts(base + 21), seconds_max=SECONDS_MAX, what="it serves MetaQ again"
        )
        assert running.stop() == 0


@pytest.mark.full
def test_a_damaged_folder_ends_the_start_and_nothing_is_left_running(tmp_path: Path) -> None:
    base, data = free_port_block(PORTS), tmp_path / "data"
    options = ["--shards", "2", "--port-base", str(base)]
    with up(data, *options) as running:
        assert running.stop() == 0
    file = next((data / "shard-1" / "commitlog").iterdir())
    wrong = file.rename(file.with_name(f"{1234:020d}"))
    said = refused(data, code=3)
    assert "error: shard-1: " in said
    assert f"{wrong} at byte 0" in said
    assert f"its log is {data}/logs/shard-1.log" in said
    assert not list((data / "run").iterdir()), "a process was not stopped"
    assert not any(accepts(port) for port in range(base, base + PORTS))


def test_children_die_with_a_killed_parent(tmp_path: Path) -> None:
    base = free_port_block(PORTS)
    with up(tmp_path / "data", "--port-base", str(base)) as running:
        children = running.children()
        assert len(children) == 3
        running.process.kill()
        running.process.wait()
        _, alive = psutil.wait_procs(children, timeout=SECONDS_MAX)
        assert alive == []


def test_the_same_folder_is_the_same_cluster(tmp_path: Path) -> None:
    base, data = free_port_block(PORTS), tmp_path / "data"
    with up(data, "--shards", "2", "--port-base", str(base), "--cluster", "mine") as running:
        first = running.ready
        uuids = [(data / f"shard-{n}" / "uuid").read_text() for n in range(2)]
        assert running.stop() == 0
    with up(data) as running:
        again = running.ready
        assert running.stop() == 0
    for ready in (first, again):
        for broker in ready["brokers"]:
            del broker["pid"]
    assert again == first
    assert [(data / f"shard-{n}" / "uuid").read_text() for n in range(2)] == uuids
    assert "holds cluster mine, not other" in refused(data, "--cluster", "other")
    assert "holds 2 shards" in refused(data, "--shards", "1")


def test_a_busy_port_is_named_and_nothing_is_left_running(tmp_path: Path) -> None:
    base = free_port_block(PORTS)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", base + 11))
        taken.listen()
        said = refused(tmp_path / "data", *alone(base))
    assert f"port {base + 11}, for MetaQ of shard-0, cannot be bound" in said
    with up(tmp_path / "data", *alone(base)) as running:
        assert running.stop() == 0


def test_a_port_that_only_root_may_bind_says_who_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bind(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    plan = up_state.plan(
        tmp_path, shards=1, replicas=1, cluster=None, zookeeper="none", port_base=80
    )
    monkeypatch.setattr(socket.socket, "bind", bind)
    with pytest.raises(CommandUsageError, match="port 80, for the name service, cannot") as refusal:
        refuse_busy_ports(plan, "127.0.0.1")
    assert "root" in refusal.value.cure
    assert "another --port-base" in refusal.value.cure


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    with up(tmp_path / "data", *alone(free_port_block(PORTS))) as running:
        said = refused(tmp_path / "data", *alone(free_port_block(PORTS)))
        assert "locked by another imago up" in said
        assert running.stop() == 0


@pytest.mark.full
def test_a_folder_that_a_broker_of_its_own_uses_is_refused(tmp_path: Path) -> None:
    data, base = tmp_path / "data", free_port_block(PORTS)
    with up(data, *alone(base)) as running:
        assert running.stop() == 0
    config = data / "config" / "shard-0.toml"
    broker = [sys.executable, "-m", "imago_cli", "broker", "--config", str(config)]
    with subprocess.Popen(broker, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: accepts(base + 11), seconds_max=SECONDS_MAX, what="the broker serves")
        said = refused(data, *alone(free_port_block(PORTS)))
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0
    assert "shard-0" in said
    assert "locked" in said


def test_settings_reach_the_brokers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    options = [*alone(free_port_block(PORTS)), "--set", "metaq.default_partitions=3"]
    options += ["--set", "rocketmq.enabled=false", "--set", "broker.bind=0.0.0.0"]
    options += ["--set", "broker.host=localhost"]
    with up(data, *options) as running:
        assert "default_partitions = 3" in (data / "config" / "shard-0.toml").read_text()
        assert running.ready["brokers"][0]["metaq"].startswith("localhost:")
        assert running.stop() == 0


@pytest.mark.zookeeper
@pytest.mark.full
def test_an_ensemble_that_is_there_is_used(tmp_path: Path, zookeeper: RunningZooKeeper) -> None:
    connect = f"{zookeeper.address}/some/root"
    base = free_port_block(PORTS)
    options = ["--zookeeper", connect, "--port-base", str(base), "--cluster", "guest"]
    with up(tmp_path / "data", *options) as running:
        assert running.ready["zookeeper"] == connect
        assert len(running.children()) == 2, "a name service and a broker, no ZooKeeper"
        with KazooReader(zookeeper.address) as tree:
            master = tree.get("/some/root/meta/brokers/ids/0/master")
            assert master == f"meta://127.0.0.1:{base + 11}"
            assert '"host":"127.0.0.1"' in tree.get("/some/root/imago/guest/brokers/0-0")
        assert running.stop() == 0


def test_a_registry_that_does_not_answer_ends_the_start(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port_block(1)}"
    done = subprocess.run(
        command(
            tmp_path / "data", "--zookeeper", address, "--port-base",
            str(free_port_block(PORTS)), "--set", "zookeeper.connect_timeout_ms=300",
        ),
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"no ZooKeeper answers at {address}" in done.stderr
    assert "Traceback" not in done.stderr


def test_topics_of_server_ini_exist_once_it_serves(tmp_path: Path) -> None:
    ini = tmp_path / "server.ini"
    ini.write_text(
        "[system]\nbrokerId=7\nserverPort=1\nnumPartitions=4\nunflushThreshold=1\n"
        "unflushInterval=1000\nmaxSegmentSize=16777216\nmaxTransferSize=1048576\n"
        "[zookeeper]\nzk.zkConnect=elsewhere:2181\n"
        "[topic=orders]\n[topic=returns]\nnumPartitions=2\n"
    )
    base = free_port_block(PORTS)
    options = ["--port-base", str(base), "--metaq-ini", str(ini)]
    with up(tmp_path / "data", *options) as running:
        with KazooReader(running.ready["zookeeper"]) as tree:
            assert tree.get("/meta/brokers/ids/7/master") == f"meta://127.0.0.1:{base + 11}"
            node = "/meta/brokers/topics-pub/{}/7-m"
            assert tree.get(node.format("orders")) == '{"numParts":4,"broker":"7-m"}'
            assert tree.get(node.format("returns")) == '{"numParts":2,"broker":"7-m"}'
        assert running.stop() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--zookeeper", "none", "--replicas", "2"], "runs exactly one broker"),
        (["--set", "broker.replicas=2"], "--replicas decides this"),
        (["--zookeeper", "none", "--shards", "2"], "runs exactly one broker"),
        (["--shards", "0"], "must be 1 to 64"),
        (["--cluster", ""], "cannot be the name"),
        (["--set", "metaq.prot=1"], "did you mean metaq.port?"),
        (["--set", "metaq.port=1"], "--port-base decides this"),
        (["--set", "nonsense"], "write section.key=value"),
        (["--metaq-ini", "/nowhere/server.ini"], "No such file"),
        (["--port-base", "65530"], "its block would end at"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    tmp_path: Path, options: list[str], said: str
) -> None:
    output = refused(tmp_path / "data", *options)
    assert said in output
    assert sum(line.startswith("error: ") for line in output.splitlines()) == 1
