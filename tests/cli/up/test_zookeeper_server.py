"""The ZooKeeper that `imago up` starts: how it is started, and that nothing disturbs its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_cli.exits import CommandUsageError
from imago_cli.servers.java import find_java
from imago_cli.servers.zookeeper_server import ZooKeeperServer
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import ServerProcess, wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


def test_a_server_that_is_asked_all_the_time_from_its_start_complains_of_nothing(
    tmp_path: Path,
) -> None:
    server = ZooKeeperServer(folder=tmp_path, port=free_port_block(1), heap_mb=96)
    server.write_config()
    written = (tmp_path / "log4j2.properties").read_text()
    assert ".level = off" not in written, "nothing that it says is hidden"
    for _ in range(2):  # what the first run has left does not tell of the second
        process = ServerProcess.start("zookeeper", server.command(find_java()), tmp_path)
        try:
            wait_until(server.serves, seconds_max=80, what="ZooKeeper serves", poll=0.002)
        finally:
            process.kill()
        said = process.log_tail()
        assert "Exception" not in said, said


def test_flags_of_the_environment_come_after_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ZooKeeperServer(folder=tmp_path, port=1)
    monkeypatch.setenv("SERVER_JVMFLAGS", "-Xmx1g '-Dname=two words'")
    command = server.command(find_java())
    assert command.index("-Xmx256m") < command.index("-Xmx1g") < command.index("-Dname=two words")
    assert command.index("-Dname=two words") < command.index("-cp"), "it is no argument of ours"
    monkeypatch.setenv("SERVER_JVMFLAGS", "-Dname='never ended")
    with pytest.raises(CommandUsageError, match="SERVER_JVMFLAGS cannot be read"):
        server.command(find_java())
