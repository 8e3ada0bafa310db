"""The dashboard in a real browser: Debian's chromium, headless, against a real broker process."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imago_testing.processes.browser import SILENT, browser
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.segments import SMALL_SEGMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.processes

BROWSER_SECONDS_MAX = 60


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """One broker, by the command a user types."""
    imago = str(Path(sys.executable).with_name("imago"))
    command = [imago, "up", "--json", "--zookeeper", "none", "--no-restart", *SMALL_SEGMENTS]
    command += ["--data", str(tmp_path / "data"), "--port-base", str(free_port_block(20))]
    with (tmp_path / "up.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert line, (tmp_path / "up.log").read_text()
        yield json.loads(line)["brokers"][0]
    finally:
        process.terminate()
        process.communicate(timeout=30)


def call(admin: str, method: str, path: str, body: object) -> None:
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"{admin}{path}", method=method, data=data)
    urllib.request.urlopen(request, timeout=60).close()


def page(admin: str, folder: Path) -> str:
    """The page's text after its scripts have run and fetched."""
    command = [browser(), *SILENT, f"--user-data-dir={folder}", "--virtual-time-budget=5000"]
    done = subprocess.run(
        [*command, "--dump-dom", f"{admin}/"],
        capture_output=True,
        check=True,
        text=True,
        timeout=BROWSER_SECONDS_MAX,
    )
    return done.stdout


def test_the_dashboard_shows_topics_groups_and_brokers(
    broker: dict[str, Any], tmp_path: Path
) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    call(broker["admin"], "PUT", "/admin/v1/topics/orders", {"queues": 3})
    call(broker["admin"], "PUT", "/admin/v1/groups/billing", {"retry_queues": 2})
    call(
        broker["admin"],
        "PUT",
        "/admin/v1/topics/marked",
        {"queues": 1, "attributes": {"note": hostile}},
    )
    shown = page(broker["admin"], tmp_path / "profile")
    assert "<td>orders</td>" in shown
    assert "<td>billing</td>" in shown
    assert f"<td>{broker['metaq']}</td>" in shown
    assert "<th>in sync</th>" in shown
    assert 'id="waiting" hidden' in shown
    assert ">master</span>" in shown
    assert hostile not in shown
    assert 'id="problem" role="alert" style="display: none;"' in shown
