"""Every command of MetaQ's line protocol: without the rights that it needs, with each, with all.

The needs are made from the table; who has them is whoever comes without a certificate.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest

from imago_broker.model.access.access import AccessKind, AccessRule, Resource
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.metaq.access.guard import RIGHTS
from imago_broker.service.access.access_edits import Actor
from imago_testing.peers.metaq import metaq_peer
from imago_wire.text import commands
from imago_wire.text.decoder import Decoder
from imago_wire.text.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_broker.app import Broker
    from imago_broker.model.access.access import Need

BY = Actor("the tests", "nowhere")
FORBIDDEN = Status.FORBIDDEN.value
SAMPLES: Final[dict[type[Any], tuple[bytes, ...]]] = {
    commands.Put: (b"put orders 0 5 0 1\r\nhello", b"put orders 0 5 0 TX:s1:9 1\r\nhello"),
    commands.Get: (b"get orders readers 0 0 1024 1\r\n",),
    commands.Offset: (b"offset orders readers 0 0 1\r\n",),
    commands.Stats: (b"stats 1\r\n", b"stats orders 1\r\n"),
    commands.Transaction: tuple(
        b"transaction %s s %s 1\r\n" % (key, each.value.encode())
        for key in (b"TX:s1:9", b"XID:100:676c:6271:uq")
        for each in commands.TransactionType
    ),
    commands.Sync: (b"sync orders 0 5 0 9999 907060870 1\r\nhello",),
    commands.Version: (b"version 1\r\n",),
}
WITHOUT_A_RIGHT = {commands.Auth, commands.Quit, commands.Result, commands.Value}
"""Who proves what he is, the end, and what is no request."""
OF_TYPE: Final[Mapping[Any, Any]] = RIGHTS
CASES = [(kind, line) for kind, lines in SAMPLES.items() for line in lines]


def test_every_command_is_asked() -> None:
    assert {*SAMPLES, *WITHOUT_A_RIGHT} == set(RIGHTS)
    assert not any(list(OF_TYPE[kind](None)) for kind in WITHOUT_A_RIGHT)


def grant(need: Need) -> AccessRule:
    operations, kind, name = need
    cluster = kind is AccessKind.CLUSTER
    return AccessRule(Resource(kind, "" if cluster else name), frozenset({operations[-1]}))


@pytest.mark.parametrize(
    ("kind", "line"), CASES, ids=[line.split(b"\r")[0].decode() for _, line in CASES]
)
async def test_a_command_needs_all_of_its_rights(
    broker: Broker, kind: type[Any], line: bytes
) -> None:
    broker.topics.create_or_update(TopicConfig(name="orders", read_queues=1, write_queues=1))
    decoder = Decoder(line_bytes_max=4096, body_bytes_max=4096)
    decoder.feed(line)
    command = decoder.next_command()
    assert type(command) is kind
    needs = list(OF_TYPE[kind](command))

    async def denied(granted: Iterable[Need]) -> bool:
        broker.core.access.set_rules("anonymous", [grant(need) for need in granted], BY)
        async with metaq_peer(broker.ports.metaq_port) as peer:
            async with asyncio.timeout(50):
                answer = await peer.ask(line + b"version 2\r\n")  # END has no answer of its own
        return answer.split()[1] == b"%d" % FORBIDDEN

    assert await denied(()) == bool(needs)
    for missing in needs:
        assert await denied(need for need in needs if need != missing), f"served without {missing}"
    assert not await denied(needs)


@pytest.mark.parametrize(
    ("kind", "line"), CASES, ids=[line.split(b"\r")[0].decode() for _, line in CASES]
)
async def test_before_rights_only_what_runs_the_cluster_is_refused(
    broker: Broker, kind: type[Any], line: bytes
) -> None:
    broker.topics.create_or_update(TopicConfig(name="orders", read_queues=1, write_queues=1))
    broker.core.access.denials.audit = True
    async with metaq_peer(broker.ports.metaq_port) as peer:
        async with asyncio.timeout(50):
            answer = await peer.ask(line + b"version 2\r\n")
    refused = answer.split()[1] == b"%d" % FORBIDDEN
    assert refused == (kind is commands.Sync), "it has messages of all topics"
