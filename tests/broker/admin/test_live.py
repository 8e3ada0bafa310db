"""Server-sent events: what a page looks at, told as it changes."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.admin.current import live
from imago_broker.model.topics.topics import TopicConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from imago_testing.peers.admin import Admin

TOPICS = "/admin/v1/topics?contains=orders"
SECONDS = 10.0


@asynccontextmanager
async def watching(admin: Admin, *paths: str) -> AsyncIterator[Any]:
    """Give a function that returns the next event."""
    url = f"http://127.0.0.1:{admin.broker.ports.admin_port}{live.PATH}"
    asked = [("path", path) for path in paths] + [("every", "1000")]
    async with admin.session.get(url, params=asked) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")

        async def following() -> Any:
            async with asyncio.timeout(SECONDS):
                lines = [await answer.content.readline() for _ in range(2)]
            assert lines[1] == b"\n"
            return json.loads(lines[0].removeprefix(b"data: "))

        yield following


async def test_what_changes_is_told_and_nothing_else(admin: Admin) -> None:
    missing = "/admin/v1/topics/nothing"
    async with watching(admin, TOPICS, missing) as following:
        first = await following()
        assert first[TOPICS] == {"status": 200, "body": {"items": [], "next": None, "total": 0}}
        assert (first[missing]["status"], first[missing]["body"]["error"]) == (
            404,
            "topic_not_found",
        )
        assert await following() == {}
        admin.broker.topics.create_or_update(
            TopicConfig(name="orders", read_queues=1, write_queues=1)
        )
        changed: dict[str, Any] = {}
        while not changed:
            changed = await following()
        assert list(changed) == [TOPICS]
        assert [item["name"] for item in changed[TOPICS]["body"]["items"]] == ["orders"]


@pytest.mark.parametrize("path", ["/metrics", f"{live.PATH}?path=x", "/admin/v1/liv%2565", ""])
async def test_other_paths_are_refused(admin: Admin, path: str) -> None:
    status, body = await admin.call("GET", f"{live.PATH}?path={path}")
    assert (status, body["error"]) == (400, "bad_request")


async def test_paths_and_streams_have_a_limit(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PATHS_MAX", 2)
    monkeypatch.setattr(live, "STREAMS_MAX", 1)
    status, _ = await admin.call("GET", live.PATH + "?" + "&".join([f"path={TOPICS}"] * 3))
    assert status == 400
    async with watching(admin, TOPICS, TOPICS) as following:
        await following()
        status, body = await admin.call("GET", f"{live.PATH}?path=/admin/v1/status")
        assert (status, body["error"]) == (503, "too_many_streams")
    async with asyncio.timeout(SECONDS):
        while status != 200:  # the page that went makes room
            try:
                async with watching(admin, "/admin/v1/status") as following:
                    status = (await following())["/admin/v1/status"]["status"]
            except AssertionError:
                await asyncio.sleep(0.05)


async def test_the_end_of_a_broker_ends_streams(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    async with watching(admin, TOPICS) as following:
        await following()
        async with asyncio.timeout(SECONDS):
            await admin.broker.stop()
        with pytest.raises(AssertionError):
            await following()
    assert "drain_incomplete" not in caplog.text
