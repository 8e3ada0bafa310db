"""What openssl's own client finds wrong with the certificate of a broker, on each port with TLS."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING

import pytest

from imago_testing.clusters.brokers import running_broker
from imago_testing.processes.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("nothing", "0 (ok)"),
        ("authority", "unable to get local issuer certificate"),
        ("host", "hostname mismatch"),
        ("time", "certificate has expired"),
    ],
)
async def test_openssl_says_what_is_wrong_with_a_certificate(
    tmp_path: Path, wrong: str, said: str
) -> None:
    authority = Authority(tmp_path / "authority")
    trusted = Authority(tmp_path / "other") if wrong == "authority" else authority
    pair = authority.issue("server", days=-1) if wrong == "time" else authority.issue("server")
    files = (f"tls.certificate_file={pair.certificate}", f"tls.key_file={pair.key}")
    async with running_broker(tmp_path / "data", *files, "tls.metaq_port=0") as started:
        ports = started.ports
        for port in (
            *(started.rocketmq_port, ports.fast_port, ports.namesrv_port, ports.admin_port),
            ports.metaq_tls.port,
        ):
            command = ["openssl", "s_client", "-connect", f"localhost:{port}"]
            command += ["-verify_return_error", "-CAfile", str(trusted.file)]
            command += ["-verify_hostname", "elsewhere" if wrong == "host" else "localhost"]
            process = await asyncio.create_subprocess_exec(
                *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            out, _ = await process.communicate()
            assert said in out.decode(errors="replace"), out
            assert (process.returncode == 0) == (wrong == "nothing"), out
