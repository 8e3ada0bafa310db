"""A cluster with access control whose name service is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from imago_client.blocking import Client
from imago_client.config import ClientConfig, parse_addresses
from imago_client.errors import ClientError
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import wait_until
from imago_testing.processes.up import up

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


@pytest.mark.full
def test_the_name_service_serves_the_brokers_users(tmp_path: Path) -> None:
    data, base = tmp_path / "data", free_port_block(30)
    with up(data, "--port-base", str(base), "--set", "acl.enabled=true") as running:
        admin = running.ready["brokers"][0]["admin"]
        token = {"IMAGO_ADMIN": admin, "IMAGO_ADMIN_TOKEN_FILE": str(data / "admin-token")}

        def user(*words: str) -> None:
            subprocess.run(
                [sys.executable, "-m", "imago_cli", "user", *words],
                cwd=tmp_path,
                env=os.environ | token,
                check=True,
                capture_output=True,
            )

        def tells(name: str) -> str:
            """Report progress of a pipeline's run as a user; return why that is refused."""
            config = ClientConfig(
                bootstrap=parse_addresses(running.ready["namesrv"]),
                user=name,
                password_file=str(tmp_path / f"{name}.password"),
            )
            with Client(config) as client:
                try:
                    client.pipeline_run("lake", 0).report(rows=1, lag=0, batch=0)
                except ClientError as error:
                    return str(error)
            return ""

        user("create", "spark")
        user("create", "other")
        user("allow", "spark", "pipeline:lake", "publish")
        wait_until(lambda: not tells("spark"), seconds_max=60, what="the user is known")
        assert "User:other has no permission" in tells("other")
        user("delete", "spark", "--yes")
        gone = "User:spark is not found"
        wait_until(lambda: gone in tells("spark"), seconds_max=60, what="the user is forgotten")
