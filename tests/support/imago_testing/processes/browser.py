"""Debian's chromium, and how tests start it and look at a page in it."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SECONDS_MAX = 60
SILENT = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,1000",
]


def browser() -> str:
    """Return the path of the browser."""
    path = shutil.which("chromium")
    assert path, "chromium is missing: apt-get install chromium (`make system` does it as root)"
    return path


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
        """Return what an expression of the page's own scripts gives, at last if it is a promise."""
        answer = await self._evaluate(expression)
        assert "exceptionDetails" not in answer, (expression, answer["exceptionDetails"])
        return answer["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until it holds; what cannot be evaluated yet does not."""
        end = time.monotonic() + SECONDS_MAX
        while not (await self._evaluate(expression))["result"].get("value"):
            shown = "location.hash + ' ' + document.body.innerText"
            assert time.monotonic() < end, f"never: {expression}\n{await self.value(shown)}"
            await asyncio.sleep(0.1)

    async def _evaluate(self, expression: str) -> dict[str, Any]:
        return await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )

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
