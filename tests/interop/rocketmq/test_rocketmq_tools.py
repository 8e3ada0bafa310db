"""RocketMQ's command line, mqadmin, of 4.9 and 5: exit code and output of its commands."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from imago_testing.java.driver import java_command
from imago_testing.java.modules import ROCKETMQ4_CLIENT, ROCKETMQ5_CLIENT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imago_testing.interop.rocketmq import Admin, RocketmqClient

    Mqadmin = Callable[[str], str]

pytestmark = [pytest.mark.interop, pytest.mark.shows("admin")]
MAIN = "org.apache.rocketmq.tools.command.MQAdminStartup"
SECONDS_MAX = 120


@pytest.fixture
def mqadmin(rocketmq: RocketmqClient, tmp_path: Path) -> Mqadmin:
    """Run a command as `mqadmin` does; return what it prints."""
    module = ROCKETMQ4_CLIENT if rocketmq.version == 4 else ROCKETMQ5_CLIENT
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "logback_tools.xml").write_text("<configuration/>")
    java = java_command(module, MAIN, tmp_path)
    java.insert(1, f"-Drocketmq.home.dir={tmp_path}")
    environment = os.environ | {"NAMESRV_ADDR": rocketmq.namesrv}

    def run(line: str) -> str:
        done = subprocess.run(
            [*java, *line.split()],
            check=True,
            capture_output=True,
            text=True,
            env=environment,
            timeout=SECONDS_MAX,
        )
        return done.stdout + done.stderr

    return run


@pytest.mark.both_clients
def test_settings_of_a_broker_are_changed_and_shown(admin: Admin, mqadmin: Mqadmin) -> None:
    address = next(iter(admin.masters().values()))
    change = f"updateBrokerConfig -b {address} -k defaultQueryMaxNum -v"
    done = f"update broker config success, {address}"
    assert done in mqadmin(f"{change} 64")
    lines = mqadmin(f"getBrokerConfig -b {address}").splitlines()
    shown = [line.split() for line in lines if line.startswith("defaultQueryMaxNum ")]
    assert shown == [["defaultQueryMaxNum", "=", "64"]]
    assert done in mqadmin(f"{change} 32")
