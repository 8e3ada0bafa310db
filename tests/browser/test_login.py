"""Logging in to the dashboard of a broker with access control, in a real browser."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imago_testing.processes.browser import opened
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.segments import SMALL_SEGMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.processes

PASSWORD = "password-of-ann"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """One broker with access control, by the command a user types; ann may see it, bob nothing."""
    imago = str(Path(sys.executable).with_name("imago"))
    command = [imago, "up", "--json", "--zookeeper", "none", "--no-restart", *SMALL_SEGMENTS]
    command += ["--set", "acl.enabled=true", "--data", str(tmp_path / "data")]
    command += ["--port-base", str(free_port_block(20))]
    with (tmp_path / "up.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert line, (tmp_path / "up.log").read_text()
        found = json.loads(line)["brokers"][0]
        token = (tmp_path / "data" / "admin-token").read_text().strip()
        make(found["admin"], token)
        told = call(found["admin"], token, "POST", "users/ann/tokens", {"expiresSeconds": 3600})
        yield found | {"token of ann": told["token"]}
    finally:
        process.terminate()
        process.communicate(timeout=30)


def make(admin: str, token: str) -> None:
    """Make users, a topic and a limit."""
    rule = {"resource": {"type": "Cluster"}, "operations": ["all"]}
    for path, body in (
        ("users/ann", {"password": PASSWORD, "signs": False, "rules": [rule]}),
        ("users/bob", {"password": PASSWORD, "signs": False}),
        ("topics/orders", {"queues": 3}),
        ("quotas/user:bob", {"quotas": {"producerBytesPerSecond": 1000}}),
    ):
        call(admin, token, "PUT", path, body)


def call(admin: str, token: str, method: str, path: str, body: object) -> Any:
    """Call the admin interface; return what it answers."""
    request = urllib.request.Request(
        f"{admin}/admin/v1/{path}",
        method=method,
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


async def test_who_may_see_it_logs_in_and_sees_it(broker: dict[str, Any], tmp_path: Path) -> None:
    async with opened(broker["admin"], tmp_path / "profile") as page:
        form = "document.getElementById('login')"
        text = "document.body.innerText"
        topics = "location.hash = '#/topics'; true"
        await page.until(f"{form} && !{form}.hidden")
        assert "orders" not in await page.value(text), "nothing is shown before"
        await page.picture(tmp_path / "before.png")
        await page.log_in("ann", "another")
        await page.until(f"{text}.includes('There is no such user, or the password is another')")
        assert not await page.value(f"{form}.hidden")
        await page.log_in("ann", PASSWORD)
        await page.until(f"{form}.hidden && {text}.includes('Members')")
        await page.value(topics)
        await page.until(f"{form}.hidden && {text}.includes('orders')")
        await page.value("location.hash = '#/limits'; true")
        await page.until(f"{text}.includes('producerBytesPerSecond 1,000')")
        await page.value(topics)
        await page.picture(tmp_path / "after.png")
        assert await page.value("document.cookie") == "", "no script can read the session"
        assert PASSWORD not in await page.value("document.documentElement.outerHTML")
        await page.call("Page.reload")
        out = "document.getElementById('logout')"
        await page.until(f"{text}.includes('orders') && {form}.hidden && !{out}.hidden")


async def test_who_has_a_token_logs_in_with_it(broker: dict[str, Any], tmp_path: Path) -> None:
    async with opened(broker["admin"], tmp_path / "profile") as page:
        form = "document.getElementById('login')"
        text, out = "document.body.innerText", "document.getElementById('logout')"
        await page.until(f"{form} && !{form}.hidden")
        await page.value("location.hash = '#/topics'; true")
        token = broker["token of ann"]
        await page.log_in("", f"{token}x")
        await page.until(f"{text}.includes('The token is not known here, or has ended')")
        assert not await page.value(f"{form}.hidden")
        await page.log_in("", token)
        await page.until(f"{form}.hidden && {text}.includes('orders')")
        assert await page.value("document.cookie") == ""
        assert token not in await page.value("document.documentElement.outerHTML")
        assert await page.value("document.getElementById('login-password').value") == ""
        await page.until(f"!{out}.hidden")
        await page.value(f"{out}.click()")
        await page.until(f"!{form}.hidden && {out}.hidden && !{text}.includes('orders')")


@pytest.mark.full
async def test_who_may_see_nothing_is_told_so(broker: dict[str, Any], tmp_path: Path) -> None:
    async with opened(broker["admin"], tmp_path / "profile") as page:
        await page.until("!document.getElementById('login').hidden")
        await page.log_in("bob", PASSWORD)
        await page.until("document.body.innerText.includes('User bob may not')")
        assert await page.value("document.getElementById('login').hidden")
        assert "orders" not in await page.value("document.body.innerText")
