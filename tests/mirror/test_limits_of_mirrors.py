"""What a mirror keeps, answers and asks at once has bounds: troubles, notes, web."""

from __future__ import annotations

import asyncio
import json
import zlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from imago_client.errors import BrokerError, ConnectionLostError
from imago_mirror import copier, troubles, web
from imago_mirror.copier import Ends
from imago_mirror.core import notes
from imago_mirror.core.assignment import QueuePlace
from imago_mirror.core.notes import CopiedQueue, MirrorNote
from imago_mirror.core.origins import SourceQueue
from imago_mirror.core.positions import CopyPosition
from imago_mirror.following import TopicFollowing
from imago_mirror.knowledge import Knowledge
from imago_mirror.mirror import RunningMirror
from imago_mirror.settings import read_settings
from imago_mirror.troubles import SOURCE, TARGET, MirrorTroubles
from imago_mirror.web import MirrorWeb
from imago_testing.processes.ports import free_port_block
from imago_wire.remoting.bodies.config import TopicConfig
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SETTINGS = """
[mirror]
name = "dr"
topics = ["orders"]
[source]
bootstrap = "127.0.0.1:1"
[target]
bootstrap = "127.0.0.1:2"
"""


def test_troubles_are_bounded_said_once_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(troubles, "TROUBLES_MAX", 2)
    found = MirrorTroubles()
    for number in range(3):
        found.note("TargetAway", f"queue {number}", "gone")
    assert len(found.all()) == 2
    assert all(each.cure for each in found.all())
    found.end("queue 0")
    assert [each.subject for each in found.all()] == ["queue 1"]


@pytest.mark.parametrize(
    ("side", "error", "reason"),
    [
        (SOURCE, ConnectionLostError("a:1", "refused"), "SourceAway"),
        (TARGET, ConnectionLostError("a:1", "refused"), "TargetAway"),
        (TARGET, BrokerError("a:1", ResponseCode.SERVICE_NOT_AVAILABLE, "x"), "TargetAway"),
        (TARGET, BrokerError("a:1", ResponseCode.NO_PERMISSION, "x"), "TargetRefused"),
        (SOURCE, BrokerError("a:1", ResponseCode.NO_PERMISSION, "x"), "SourceRefused"),
        (TARGET, BrokerError("a:1", ResponseCode.MESSAGE_ILLEGAL, "x"), "MessageRefused"),
    ],
)
def test_an_error_has_a_reason_and_every_reason_a_cure(
    side: str, error: Exception, reason: str
) -> None:
    found = MirrorTroubles()
    with pytest.raises(type(error)), found.at(side, "orders"):
        raise error
    (one,) = found.all()
    assert (one.reason, one.subject) == (reason, "orders")
    assert one.cure


def test_a_topic_that_is_there_ends_no_other_trouble_of_it() -> None:
    looking: Any = TopicFollowing.__new__(TopicFollowing)
    looking._settings, looking._troubles = read_settings(SETTINGS), MirrorTroubles()
    (topic,) = looking._settings.topics_by_name
    looking._note_missing([])
    looking._troubles.note("TargetRefused", topic, "it may not.")
    looking._note_missing([topic])
    assert [(one.reason, one.message) for one in looking._troubles.all()] == [
        ("TargetRefused", "it may not")
    ]


def test_a_topic_that_is_sealed_where_its_shard_is_drained_is_not_opened_again() -> None:
    altered: list[dict[str, Any]] = []

    async def topic_settings(topic: str) -> dict[str, TopicConfig]:
        sealed = TopicConfig(topic_name=topic, write_queue_nums=0, perm=4)
        return {"shard-0": TopicConfig(topic_name=topic, write_queue_nums=4), "shard-1": sealed}

    async def alter_topic(topic: str, **more: Any) -> None:
        altered.append({"topic": topic} | more)

    looking: Any = TopicFollowing.__new__(TopicFollowing)
    admin = SimpleNamespace(topic_settings=topic_settings, alter_topic=alter_topic)
    looking._target = SimpleNamespace(admin=admin)
    made = asyncio.run(looking._ensure("orders", 4, {}))
    assert altered == []
    assert made == {QueuePlace("shard-0", number) for number in range(4)}
    asyncio.run(looking._ensure("orders", 5, {}))
    assert altered == [{"topic": "orders", "queues": 5, "attributes": {}}]


def test_a_shard_with_more_queues_than_are_wanted_keeps_them() -> None:
    asked: list[int] = []

    async def topic_settings(topic: str) -> dict[str, TopicConfig]:
        return {
            f"shard-{shard}": TopicConfig(topic_name=topic, write_queue_nums=count)
            for shard, count in enumerate((6, 2))
        }

    async def alter_topic(_: str, *, queues: int, **more: Any) -> None:
        assert more == {"attributes": {}}
        asked.append(queues)

    looking: Any = TopicFollowing.__new__(TopicFollowing)
    admin = SimpleNamespace(topic_settings=topic_settings, alter_topic=alter_topic)
    looking._target = SimpleNamespace(admin=admin)
    assert len(asyncio.run(looking._ensure("orders", 4, {}))) == 12
    assert asked == [6]


@pytest.mark.parametrize("noted", [False, True])
def test_a_queue_goes_where_another_mirror_of_the_name_copies_it_to(noted: bool) -> None:
    queue = SourceQueue("A", "orders", 7, "shard-0", 1)
    lane = CopiedQueue(QueuePlace("shard-0", 3), 9, CopyPosition(5, 5, 0, 5, 5))

    async def newest() -> MirrorNote | None:
        return MirrorNote(lanes={queue: lane}) if noted else None

    looking: Any = TopicFollowing.__new__(TopicFollowing)
    looking._knowledge, looking._newest, looking._noted = Knowledge(), newest, None
    looking._reading = asyncio.Lock()
    targets = [QueuePlace("shard-0", number) for number in range(4)]
    asyncio.run(looking._lanes("orders", [queue], targets))
    found = looking._knowledge.note.lanes[queue]
    assert found.target == QueuePlace("shard-0", 3 if noted else 1)
    assert found.position.floor < 0, "what is there is looked for"


def test_a_note_that_inflates_too_far_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    body = zlib.compress(json.dumps({"note": 1, "filler": "x" * 1000}).encode())
    monkeypatch.setattr(notes, "INFLATED_BYTES_MAX", 500)
    assert notes.decode(body) is None


def test_a_pull_of_one_queue_is_its_share_of_what_all_may_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends: Any = Ends.__new__(Ends)
    ends.queues = 1
    assert ends.pulled_bytes == copier.PULLED_BYTES_MAX
    monkeypatch.setattr(copier, "PULLED_IN_ALL_BYTES_MAX", 1 << 20)
    ends.queues = 4
    assert ends.pulled_bytes == 1 << 18
    ends.queues = 1000
    assert ends.pulled_bytes == 32 << 10


async def asked(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def serving(work: Callable[[int], Awaitable[None]]) -> None:
    async def run() -> None:
        mirror, port = RunningMirror(read_settings(SETTINGS)), free_port_block(1)
        server = await MirrorWeb(mirror).start("127.0.0.1", port)
        try:
            await work(port)
        finally:
            server.close()

    asyncio.run(run())


def test_the_page_answers_gets_alone_and_says_nothing_secret() -> None:
    async def work(port: int) -> None:
        page = await asked(port, b"GET / HTTP/1.1\r\n\r\n")
        assert b"200 OK" in page
        assert b"Mirror dr" in page
        told = json.loads(
            (await asked(port, b"GET /status HTTP/1.1\r\n\r\n")).split(b"\r\n\r\n")[1]
        )
        assert (told["name"], told["begun"], told["lagMessages"]) == ("dr", False, 0)
        assert b"imago_mirror_state" in await asked(port, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert b" 503 " in await asked(port, b"GET /readyz HTTP/1.1\r\n\r\n")
        assert b" 200 " in await asked(port, b"GET /healthz HTTP/1.1\r\n\r\n")
        assert b" 404 " in await asked(port, b"GET /other HTTP/1.1\r\n\r\n")
        assert b" 405 " in await asked(port, b"POST /status HTTP/1.1\r\n\r\n")

    serving(work)


def test_a_request_without_end_and_too_many_at_once_get_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def long(port: int) -> None:
        request = b"GET / HTTP/1.1\r\nx: " + b"x" * (web.REQUEST_BYTES_MAX * 3)
        assert await asked(port, request + b"\r\n\r\n") == b""

    serving(long)
    monkeypatch.setattr(web, "CONNECTIONS_MAX", 0)

    async def many(port: int) -> None:
        assert await asked(port, b"GET / HTTP/1.1\r\n\r\n") == b""

    serving(many)
