"""MetaQ's messages over HTTP: the text protocol's answers, with HTTP's codes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

import aiohttp
import pytest

from imago_broker.admin.metaq import metaq_http
from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.metaq import metaq_peer, value_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker

PUT = {"topic": "test", "partition": 0, "flag": 0, "length": 5}
GET = {"topic": "test", "partition": 0, "group": "g", "offset": 0, "maxsize": 1000}
OFFSET = {"topic": "test", "partition": 0, "group": "g", "offset": 10**9}


class Http:
    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session, self._port = session, port

    async def call(
        self, path: str, query: dict[str, object], body: bytes = b"", method: str = "POST"
    ) -> tuple[int, bytes]:
        url = f"http://127.0.0.1:{self._port}{path}?{urlencode(query)}"
        data = body or None
        async with self._session.request(method, url, data=data, allow_redirects=False) as answer:
            return answer.status, await answer.read()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    settings = ("topics.test.queues=1", "metaq.http=true", "metaq.topic_patterns=logs-*")
    async with running_broker(tmp_path, *settings) as running:
        yield running


@pytest.fixture
async def http(broker: Broker) -> AsyncIterator[Http]:
    async with aiohttp.ClientSession() as session:
        yield Http(session, broker.ports.admin_port)


async def test_what_is_put_over_http_is_read_over_both(broker: Broker, http: Http) -> None:
    status, text = await http.call("/put/0", PUT, b"hello")
    assert (status, text.split(b" ")[1:]) == (200, [b"0", b"0"])
    status, text = await http.call("/putIt", PUT | {"checksum": 907060870}, b"hello")
    assert (status, text.split(b" ")[1:]) == (200, [b"0", b"25"])
    status, found = await http.call("/get/0", GET, method="GET")
    assert status == 200
    async with metaq_peer(broker.metaq_port) as peer:
        assert found == value_body(await peer.get("test", 0, 0, 1000))
    assert await http.call("/offset", OFFSET) == (200, b"50")
    assert await http.call("/get", GET | {"offset": 50}, method="GET") == (
        404,
        b"Could not find message at position 50",
    )
    assert await http.call("/get", GET | {"offset": -1}, method="GET") == (301, b"0")
    assert await http.call("/get", GET | {"maxsize": 0}) == (
        400,
        b"Bad request,invalid max size:0",
    )
    assert (await http.call("/put", PUT | {"topic": "logs-web"}, b"hello"))[0] == 200


async def test_an_empty_message_is_put_as_over_the_text_protocol(
    broker: Broker, http: Http
) -> None:
    async with metaq_peer(broker.metaq_port) as peer:
        told = await peer.put("test", 0, b"")
    assert told.startswith(b"result 200 ")
    status, text = await http.call("/put/0", PUT | {"length": 0})
    assert (status, text.split(b" ")[1:]) == (200, [b"0", b"20"])


@pytest.mark.parametrize(
    ("path", "query", "status", "said"),
    [
        ("/put", PUT | {"topic": "nope"}, 500, b"do not accept topic nope"),
        ("/put", PUT | {"partition": 9}, 500, b"wrong partition 9"),
        ("/put", PUT | {"checksum": 1}, 500, b"Checksum failure"),
        ("/put", PUT | {"length": 6}, 500, b"the body has 5"),
        ("/put", PUT | {"length": -1}, 500, b"must be 0 to"),
        ("/put", PUT | {"length": 1 << 40}, 500, b"must be 0 to"),
        ("/put", PUT | {"flag": "x"}, 500, b"flag: 'x'"),
        ("/put", PUT | {"topic": "a b"}, 500, b"topic: 'a b'"),
        ("/put", PUT | {"topic": "a\r\nquit"}, 500, b"must be a word"),
        ("/put", {}, 500, b"topic: ''"),
        ("/get", GET | {"offset": "x"}, 400, b"offset: 'x'"),
        ("/get", GET | {"topic": "nope"}, 404, b"is not exists"),
        ("/get", GET | {"partition": 10**15}, 400, b"Invalid request"),
        ("/offset", {"topic": "test"}, 400, b"group: ''"),
    ],
)
async def test_what_cannot_be_done_is_answered(
    http: Http, path: str, query: dict[str, object], status: int, said: bytes
) -> None:
    answer = await http.call(path, query, b"hello")
    assert answer[0] == status
    assert said in answer[1]


async def test_an_answer_that_does_not_come_in_time_is_not_waited_for(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A put is answered in a later turn, a read at once."""
    monkeypatch.setattr(metaq_http, "SECONDS_MAX", 0)
    assert (await http.call("/put", PUT, b"hello"))[0] == 504
    monkeypatch.undo()
    assert (await http.call("/get", GET, method="GET"))[0] == 200, "it was put all the same"
    monkeypatch.setattr(metaq_http, "SECONDS_MAX", 0)
    assert (await http.call("/get", GET, method="GET"))[0] == 200


async def test_it_is_off_unless_it_is_wanted(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "off", "topics.test.queues=1") as broker,
        aiohttp.ClientSession() as session,
    ):
        status, text = await Http(session, broker.ports.admin_port).call("/put", PUT, b"hello")
        assert status == 404
        assert b"metaq.http" in text
        assert broker.store.queue_range("test", 0) == (0, 0)
