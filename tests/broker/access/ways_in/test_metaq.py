"""MetaQ's commands behind the rules: the user is whom the certificate names, or anonymous."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.processors.metaq.access.guard import RIGHTS
from imago_broker.processors.metaq.asks import ASKS
from imago_broker.processors.metaq.puts import PutProcessor
from imago_broker.server.session import common_name
from imago_broker.service.access.access_edits import Actor

if TYPE_CHECKING:
    from imago_broker.app import Broker

BY = Actor("the tests", "nowhere")
WAIT_SECONDS = 50


def rule(kind: AccessKind, name: str, *operations: Operation, hosts: str = "") -> AccessRule:
    networks = (hosts,) if hosts else ()
    return AccessRule(Resource(kind, name), frozenset(operations), networks)


def test_every_command_has_a_right() -> None:
    assert set(RIGHTS) == set(ASKS)


class Line:
    """One connection that says lines and reads the codes of their answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, broker: Broker) -> Line:
        return cls(*await asyncio.open_connection("127.0.0.1", broker.ports.metaq_port))

    async def codes(self, data: bytes, count: int) -> dict[int, int]:
        """Send commands; return the code of each answer by its number."""
        self._writer.write(data)
        found = {}
        async with asyncio.timeout(WAIT_SECONDS):
            for _ in range(count):
                word, *numbers = (await self._reader.readline()).split()
                if word == b"value":
                    size, opaque = map(int, numbers)
                    code = 200
                else:
                    code, size, opaque = map(int, numbers)
                await self._reader.readexactly(size)
                found[opaque] = code
        return found

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


PUT = b"put orders 0 5 0 %d\r\nhello"
OTHER_PUT = b"put other 0 5 0 %d\r\nhello"
GET = b"get orders readers 0 0 1024 %d\r\n"
COMMANDS = (
    PUT % 1
    + OTHER_PUT % 2
    + PUT % 3
    + GET % 4
    + b"offset orders readers 0 0 5\r\n"
    + b"stats orders 6\r\n"
    + b"version 7\r\n"
    + b"transaction TX:s1:9 s BEGIN 8\r\n"
)


async def test_commands_that_are_denied_and_those_beside_them(broker: Broker) -> None:
    access = broker.core.access
    for topic in ("orders", "other"):
        broker.topics.create_or_update(_topic(topic))
    line = await Line.to(broker)
    denied = await line.codes(COMMANDS, 8)
    assert denied == {**dict.fromkeys(range(1, 9), 403), 7: 200}
    rules = [
        rule(AccessKind.TOPIC, "orders", Operation.PUBLISH, hosts="127.0.0.0/8"),
        rule(AccessKind.TOPIC, "other", Operation.PUBLISH, hosts="10.0.0.0/8"),
    ]
    access.set_rules("anonymous", rules, BY)
    codes = await line.codes(COMMANDS, 8)
    assert codes == {1: 200, 2: 403, 3: 200, 4: 403, 5: 403, 6: 403, 7: 200, 8: 403}
    rules += [
        rule(AccessKind.TOPIC, "orders", Operation.PUBLISH, Operation.SUBSCRIBE),
        rule(AccessKind.GROUP, "readers", Operation.SUBSCRIBE),
        AccessRule(Resource(AccessKind.CLUSTER), frozenset({Operation.DESCRIBE})),
        rule(AccessKind.TRANSACTION, "TX:s1:9", Operation.PUBLISH),
    ]
    access.set_rules("anonymous", rules, BY)
    codes = await line.codes(COMMANDS, 8)
    assert codes.pop(8) != 403
    assert codes == {1: 200, 2: 403, 3: 200, 4: 200, 5: 200, 6: 200, 7: 200}
    access.set_rules("anonymous", [], BY)
    assert await line.codes(PUT % 9, 1) == {9: 403}
    access.set_white_addresses(["127.0.0.1"], BY)
    assert await line.codes(OTHER_PUT % 10, 1) == {10: 200}
    await line.close()


@pytest.mark.parametrize("pieces", [1, 7, 64])
async def test_commands_in_pieces(broker: Broker, pieces: int) -> None:
    broker.topics.create_or_update(_topic("orders"))
    broker.topics.create_or_update(_topic("other"))
    allowed = rule(AccessKind.TOPIC, "orders", Operation.PUBLISH)
    broker.core.access.set_rules("anonymous", [allowed], BY)
    data = b"".join((OTHER_PUT if n % 3 else PUT) % n for n in range(30))
    line = await Line.to(broker)
    for at in range(0, len(data), pieces):
        line._writer.write(data[at : at + pieces])
        await asyncio.sleep(0)
    codes = await line.codes(b"", 30)
    assert codes == {n: 403 if n % 3 else 200 for n in range(30)}
    stored = sum(broker.store.queue_range("other", queue)[1] for queue in range(1))
    assert stored == 0
    await line.close()


async def test_puts_that_are_allowed_take_the_short_way(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    closer: list[str] = []
    take_one = PutProcessor._take_one

    def counted(self: PutProcessor, peer: Any, item: Any) -> bool:
        closer.append(item.topic)
        return take_one(self, peer, item)

    monkeypatch.setattr(PutProcessor, "_take_one", counted)
    for topic in ("orders", "other"):
        broker.topics.create_or_update(_topic(topic))
    near = rule(AccessKind.TOPIC, "orders", Operation.PUBLISH, hosts="127.0.0.0/8")
    broker.core.access.set_rules("anonymous", [near], BY)
    line = await Line.to(broker)
    put = PUT.replace(b" 0 %d", b" 0 -1 %d")  # with a checksum, as clients write it
    other = OTHER_PUT.replace(b" 0 %d", b" 0 -1 %d")
    assert await line.codes(put % 1, 1) == {1: 200}
    assert closer == ["orders"]
    assert await line.codes(put % 2 + put % 3, 2) == {2: 200, 3: 200}
    codes = await line.codes(put % 4 + other % 5 + put % 6, 3)
    assert codes == {4: 200, 5: 403, 6: 200}
    assert closer == ["orders"] * 2, "the first of the queue, and the one behind the other"
    broker.core.access.set_rules("anonymous", [], BY)
    assert await line.codes(put % 7, 1) == {7: 403}
    await line.close()
    assert broker.store.queue_range("orders", 0)[1] == 5


def _topic(name: str):  # type: ignore[no-untyped-def]
    from imago_broker.model.topics.topics import TopicConfig

    return TopicConfig(name=name, read_queues=1, write_queues=1)


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        (None, ""),
        ({}, ""),
        ({"subject": ((("commonName", "ann"),),)}, "ann"),
        ({"subject": ((("organizationName", "x"),), (("commonName", "ann"),))}, "ann"),
        ({"subject": ((("commonName", "ann"),), (("commonName", "root"),))}, ""),
        ({"subject": ((("commonName", "ann"), ("commonName", "root")),)}, ""),
    ],
)
def test_whom_a_certificate_names(certificate: object, name: str) -> None:
    assert common_name(certificate) == name
