"""Logging in to the dashboard of a broker with access control, in a real browser."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from imago_testing.processes.browser import SILENT, browser
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.segments import SMALL_SEGMENTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.processes

SECONDS_MAX = 60
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


class Page:
    """One page, by the browser's own protocol for its tools."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._number = socket, 0

    async def call(self, method: str, **params: object) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                answer = await self._socket.receive_json()
                if answer.get("id") == self._number:
                    assert "error" not in answer, answer
                    result: dict[str, Any] = answer["result"]
                    return result

    async def value(self, expression: str) -> Any:
        """Return what an expression of the page's own scripts gives."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until it holds."""
        async with asyncio.timeout(SECONDS_MAX):
            while not await self.value(expression):  # noqa: ASYNC110  what the page comes to
                await asyncio.sleep(0.1)

    async def log_in(self, user: str, password: str) -> None:
        """Fill in the form and send it, as a person does."""
        told = json.dumps([user, password])
        await self.value(
            f"[document.getElementById('login-user').value,"
            f" document.getElementById('login-password').value] = {told};"
            " document.getElementById('login').requestSubmit(); true"
        )

    async def picture(self, path: Path) -> None:
        """Keep what a person would see."""
        shown = await self.call("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shown["data"]))


@asynccontextmanager
async def opened(url: str, folder: Path) -> AsyncIterator[Page]:
    """Open a page in a browser of its own."""
    command = [browser(), *SILENT, f"--user-data-dir={folder}", "--remote-debugging-port=0", url]
    silent = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=silent, stderr=silent)
    try:
        port = ""
        async with asyncio.timeout(SECONDS_MAX):
            while not port:
                await asyncio.sleep(0.1)
                port = await asyncio.to_thread(_port, folder / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:
            target: dict[str, Any] | None = None
            async with asyncio.timeout(SECONDS_MAX):
                while target is None:
                    async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                        pages = await answer.json()
                    target = next((p for p in pages if p["url"].startswith(url)), None)
                    await asyncio.sleep(0.1)
            async with session.ws_connect(
                target["webSocketDebuggerUrl"], max_msg_size=64 << 20
            ) as socket:
                yield Page(socket)
    finally:
        process.terminate()
        await process.wait()


def _port(file: Path) -> str:
    """Return what the browser has written of its port; "" as long as it has not."""
    words = file.read_text().split() if file.exists() else []
    return words[0] if words else ""


async def test_who_may_see_it_logs_in_and_sees_it(broker: dict[str, Any], tmp_path: Path) -> None:
    async with opened(broker["admin"], tmp_path / "profile") as page:
        form = "document.getElementById('login')"
        text = "document.body.innerText"
        await page.until(f"{form} && !{form}.hidden")
        assert "orders" not in await page.value(text), "nothing is shown before"
        await page.picture(tmp_path / "before.png")
        await page.log_in("ann", "another")
        await page.until(f"{text}.includes('There is no such user, or the password is another')")
        assert not await page.value(f"{form}.hidden")
        await page.log_in("ann", PASSWORD)
        await page.until(f"{form}.hidden && {text}.includes('orders')")
        await page.until(f"{text}.includes('producerBytesPerSecond 1,000')")
        await page.picture(tmp_path / "after.png")
        assert await page.value("document.cookie") == "", "no script can read the session"
        assert PASSWORD not in await page.value("document.documentElement.outerHTML")
        await page.call("Page.reload")
        out = "document.getElementById('logout')"
        await page.until(f"{text}.includes('orders') && {form}.hidden && !{out}.hidden")
        await page.value(f"{out}.click()")
        await page.until(f"!{form}.hidden && {out}.hidden && !{text}.includes('orders')")
        token = broker["token of ann"]
        await page.log_in("", f"{token}x")
        await page.until(f"{text}.includes('The token is not known here, or has ended')")
        assert not await page.value(f"{form}.hidden")
        await page.log_in("", token)
        await page.until(f"{form}.hidden && {text}.includes('orders')")
        assert await page.value("document.cookie") == ""
        assert token not in await page.value("document.documentElement.outerHTML")
        assert await page.value("document.getElementById('login-password').value") == ""


@pytest.mark.full
async def test_who_may_see_nothing_is_told_so(broker: dict[str, Any], tmp_path: Path) -> None:
    async with opened(broker["admin"], tmp_path / "profile") as page:
        await page.until("!document.getElementById('login').hidden")
        await page.log_in("bob", PASSWORD)
        await page.until("document.body.innerText.includes('User bob may not')")
        assert await page.value("document.getElementById('login').hidden")
        assert "orders" not in await page.value("document.body.innerText")
