"""This broker as the gregor slave of a samsa master: `sync`, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.metaq import MetaqPeer, metaq_peer, put_place, value_body
from imago_wire.crc import crc31
from imago_wire.text.message import parse_block

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker

CAPTURED = (
    (
        b"sync test 0 5 0 -5468913290929242112 907060870 -2147483648\r\nhello",
        b"result 200 24 -2147483648\r\n-5468913290929242112 0 0",
    ),
    (
        b"sync test 0 5 0 -5468913286609108992 -1 -2147483647\r\nhello",
        b"result 200 25 -2147483647\r\n-5468913286609108992 0 25",
    ),
)
"""What a samsa master of the original sent, and what its gregor slave answered."""


@pytest.fixture
async def gregor(tmp_path: Path) -> AsyncIterator[Broker]:
    settings = ("metaq.gregor=true", "topics.test.queues=2", "metaq.topic_patterns=made-*")
    async with running_broker(tmp_path, *settings) as broker:
        yield broker


@pytest.fixture
async def master(gregor: Broker) -> AsyncIterator[MetaqPeer]:
    async with metaq_peer(gregor.metaq_port) as peer:
        yield peer


async def test_point_12_what_a_samsa_master_sends_is_stored_with_its_ids(
    master: MetaqPeer,
) -> None:
    for request, answer in CAPTURED:
        assert await master.ask(request) == answer
    found = list(parse_block(value_body(await master.get("test", 0, 0))))
    assert [each.id for each in found] == [-5468913290929242112, -5468913286609108992]
    assert [each.body for each in found] == [b"hello", b"hello"]


async def test_messages_of_one_read_are_answered_in_their_order(master: MetaqPeer) -> None:
    requests = [
        b"sync test %d %d 1 %d %d\r\n%b" % (number % 2, len(body), -number - 1, number, body)
        for number in range(100)
        for body in [b"\0\0\0\3tag%d" % number]
    ]
    await master.send(b"".join(requests))
    answers = await master.frames(100)
    assert [answer.split()[3] for answer in answers] == [b"%d" % number for number in range(100)]
    places = [put_place(answer) for answer in answers]
    assert [place[:2] for place in places] == [(-n - 1, n % 2) for n in range(100)]
    ends = [0, 0]
    for number, (_, partition, position) in enumerate(places):
        assert position == ends[partition]
        ends[partition] += 27 + len(b"%d" % number)


async def test_a_sync_that_cannot_be_stored_says_why(gregor: Broker, master: MetaqPeer) -> None:
    url = f"meta://127.0.0.1:{gregor.metaq_port}".encode()

    def failed(partition: int, detail: bytes, topic: bytes = b"test", code: int = 500) -> bytes:
        text = b"Put message to [broker '%b'] [partition '%b-%d'] failed.Detail:%b" % (
            url, topic, partition, detail,
        )  # fmt: skip
        return b"result %d %d 7\r\n%b" % (code, len(text), text)

    wrong = b"Checksum failure,message may be corrupted when transfering on networking."
    assert await master.ask(b"sync test 0 2 0 -5 1 7\r\nhi") == failed(0, wrong)
    assert await master.ask(b"sync test 9 2 0 -5 7\r\nhi") == failed(9, b"wrong partition 9")
    refused = b"The server do not accept topic nope"
    assert await master.ask(b"sync nope 0 2 0 -5 7\r\nhi") == failed(0, refused, b"nope")
    assert await master.ask(b"sync test 0 2 0 0 7\r\nhi") == failed(0, b"MetaQ id 0")
    gregor.topics.handles.close_partitions("test", 1, 1)
    closed = b"Partition[0-1] has been closed"
    assert await master.ask(b"sync test 1 2 0 -5 7\r\nhi") == failed(1, closed, code=403)
    put_place(await master.ask(b"sync made-it 0 2 0 -5 7\r\nhi"))
    # How a master sees whether its slave is back.
    probe = b"test"
    request = b"sync _metaq_slave_status_test 0 4 0 -6 %d 7\r\n%b" % (crc31(probe), probe)
    assert put_place(await master.ask(request)) == (-6, 0, 0)


async def test_a_gregor_slave_takes_nothing_from_producers(master: MetaqPeer) -> None:
    answer = await master.put("test", 0, b"no")
    assert answer.startswith(b"result 500 ")
    assert answer.endswith(b"this broker copies its samsa master, put there")


async def test_a_broker_that_is_no_slave_has_no_handler_for_sync(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, metaq_peer(broker.metaq_port) as peer:
        answer = await peer.ask(CAPTURED[0][0])
        assert answer.startswith(b"result 503 ")
        assert answer.endswith(b"com.taobao.metamorphosis.network.SyncCommand")
