"""Transactions on the MetaQ port, byte for byte: local and XA, their ends and their limits."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_brokers import until
from imago_testing.peers.metaq import MetaqPeer, metaq_peer, put_place, value_body
from imago_wire.text.message import parse_block

if TYPE_CHECKING:
    from pathlib import Path

    from imago_broker.app import Broker

LOCAL = "TX:host-1-1:1"
XA = "XID:100:676c:6271:uq"


def result(code: int, text: str = "", opaque: int = 9) -> bytes:
    body = text.encode()
    return b"result %d %d %d\r\n%b" % (code, len(body), opaque, body)


def xa_error(code: int, text: str) -> bytes:
    return result(500, f"XAException:code={code},msg={text}")


OK = result(200)


class Client:
    """One connection, and the commands of transactions."""

    def __init__(self, peer: MetaqPeer) -> None:
        self.peer = peer

    async def do(self, kind: str, key: str = XA, *more: object) -> bytes:
        words = ["transaction", key, "host-1-1", kind, *map(str, more), "9"]
        return await self.peer.ask(" ".join(words).encode() + b"\r\n")

    async def put(
        self, body: bytes, *, key: str = XA, topic: str = "test", partition: int = 0, flag: int = 0
    ) -> bytes:
        checksum = zlib.crc32(body) & 0x7FFFFFFF
        head = f"put {topic} {partition} {len(body)} {flag} {checksum} {key} 9\r\n"
        return await self.peer.ask(head.encode() + body)

    async def stored(self, topic: str = "test", partition: int = 0) -> list[bytes]:
        return [body for _, body in await self.found(topic, partition)]

    async def found(self, topic: str = "test", partition: int = 0) -> list[tuple[int, bytes]]:
        answer = await self.peer.get(topic, partition, 0)
        if answer.startswith(b"result 404"):
            return []
        return [(each.id, each.body) for each in parse_block(value_body(answer))]


@pytest.fixture
def client(peer: MetaqPeer) -> Client:
    return Client(peer)


async def test_local_transaction_is_seen_when_it_is_committed_and_not_before(
    client: Client,
) -> None:
    assert await client.do("BEGIN", LOCAL) == OK
    first = await client.put(b"one", key=LOCAL)
    second = await client.put(b"two", key=LOCAL)
    other = await client.put(b"three", key=LOCAL, partition=2)
    assert [put_place(each)[1:] for each in (first, second, other)] == [(0, -1), (0, -1), (2, -1)]
    assert await client.stored() == []
    assert await client.do("COMMIT_ONE_PHASE", LOCAL) == OK
    assert await client.found() == [(put_place(first)[0], b"one"), (put_place(second)[0], b"two")]
    assert await client.stored(partition=2) == [b"three"]


async def test_message_alone_keeps_its_id_attribute_and_place(client: Client) -> None:
    await client.do("BEGIN", LOCAL)
    answer = await client.put(b"\0\0\0\5colorhello", key=LOCAL, flag=1)
    assert await client.do("COMMIT_TWO_PHASE", LOCAL) == OK  # of a local one it is the same
    block = value_body(await client.peer.get("test", 0, 0))
    [message] = parse_block(block)
    assert (message.id, message.attribute, message.payload) == (
        put_place(answer)[0], "color", b"hello",
    )  # fmt: skip


async def test_rollback_leaves_nothing(client: Client, broker: Broker) -> None:
    before = broker.store.log_end
    await client.do("BEGIN", LOCAL)
    await client.put(b"one", key=LOCAL)
    assert await client.do("ROLLBACK", LOCAL) == OK
    assert await client.do("ROLLBACK", LOCAL) == OK  # again
    unknown = f"Local transaction '{LOCAL}' has not been started."
    assert await client.do("COMMIT_ONE_PHASE", LOCAL) == result(500, unknown)
    assert await client.put(b"two", key=LOCAL) == result(500, unknown)
    assert await client.stored() == []
    assert broker.store.log_end == before


async def test_repeated_commit_is_answered_alike_and_puts_nothing_again(client: Client) -> None:
    await client.do("BEGIN", LOCAL)
    await client.put(b"one", key=LOCAL)
    await client.put(b"two", key=LOCAL)
    assert await client.do("COMMIT_ONE_PHASE", LOCAL) == OK
    assert await client.do("COMMIT_ONE_PHASE", LOCAL) == OK
    assert await client.stored() == [b"one", b"two"]
    assert (await client.do("ROLLBACK", LOCAL)).startswith(b"result 500 ")


async def test_local_transaction_belongs_to_its_connection(client: Client, broker: Broker) -> None:
    await client.do("BEGIN", LOCAL)
    await client.put(b"one", key=LOCAL)
    async with metaq_peer(broker.metaq_port) as peer:
        other = Client(peer)
        answer = await other.do("COMMIT_ONE_PHASE", LOCAL)
        assert answer == result(500, f"Local transaction '{LOCAL}' has not been started.")
    assert await client.do("COMMIT_ONE_PHASE", LOCAL) == OK
    assert await client.stored() == [b"one"]


async def test_prepare_is_for_xa_alone(client: Client) -> None:
    await client.do("BEGIN", LOCAL)
    await client.put(b"one", key=LOCAL)
    answer = await client.do("PREPARE", LOCAL)
    assert answer == xa_error(-3, "Prepare not implemented on Local Transactions.")
    answer = await client.do("FORGET", LOCAL)
    assert answer == xa_error(-4, f"{LOCAL} is not a valid xid")


async def gone(broker: Broker, count: int) -> None:
    """Wait until so many transactions are known."""
    await until(lambda: broker.core.metaq_transactions.open.count == count)


@pytest.mark.parametrize("key", [LOCAL, XA])
async def test_what_is_open_goes_with_its_connection(
    client: Client, broker: Broker, key: str
) -> None:
    async with metaq_peer(broker.metaq_port) as peer:
        other = Client(peer)
        await other.do("BEGIN", key)
        await other.put(b"x" * 1000, key=key)
        assert broker.core.metaq_transactions.open.total_bytes > 1000
    await gone(broker, 0)
    assert broker.core.metaq_transactions.open.total_bytes == 0
    assert (await client.do("COMMIT_ONE_PHASE", key)).startswith(b"result 500 ")
    assert await client.stored() == []


async def test_xa_transaction_stays_while_one_of_its_connections_does(
    client: Client, broker: Broker
) -> None:
    async with metaq_peer(broker.metaq_port) as peer:
        other = Client(peer)
        assert await other.do("BEGIN") == OK
        await other.put(b"one")
        assert (await client.put(b"two")).startswith(b"result 200 ")
    [transaction] = broker.core.metaq_transactions.open
    await until(lambda: len(transaction.sessions) == 1)
    assert await client.do("COMMIT_ONE_PHASE") == OK
    assert await client.stored() == [b"one", b"two"]


async def test_time_is_over_for_what_is_open_and_not_for_what_is_prepared(
    client: Client, broker: Broker
) -> None:
    prepared = "XID:1:aa:bb:uq"
    await client.do("BEGIN", prepared, 1)
    await client.put(b"prepared", key=prepared)
    assert await client.do("PREPARE", prepared) == result(200, "0")
    for key in (LOCAL, XA):
        await client.do("BEGIN", key, 1)
        await client.put(b"one", key=key)
    await gone(broker, 1)
    unknown = f"XA transaction '{XA}' has not been started."
    assert await client.do("PREPARE") == xa_error(-4, unknown)
    assert await client.put(b"two") == result(500, unknown)
    assert broker.core.metaq_transactions.counts.expired == 2
    assert await client.do("COMMIT_TWO_PHASE", prepared) == OK
    assert await client.stored() == [b"prepared"]


async def test_xa_in_two_phases(client: Client) -> None:
    assert await client.do("BEGIN", XA, 30, "uq") == OK
    assert await client.do("BEGIN", XA, 30, "uq") == OK
    puts = [await client.put(b"one"), await client.put(b"two", partition=3)]
    protocol = "Cannot do 2 phase commit if the transaction has not been prepared."
    assert await client.do("COMMIT_TWO_PHASE") == xa_error(-6, protocol)
    assert await client.do("RECOVER", "null") == OK
    assert await client.do("PREPARE", XA, "uq") == result(200, "0")
    assert await client.do("PREPARE", XA, "uq") == xa_error(-6, "Cannot call prepare now.")
    assert await client.do("RECOVER", "null", "uq") == result(200, XA)
    assert await client.do("RECOVER", "null", "other") == OK
    assert (await client.put(b"late")).startswith(b"result 500 ")
    assert await client.stored() == []
    assert await client.do("COMMIT_TWO_PHASE") == OK
    assert await client.do("COMMIT_TWO_PHASE") == OK
    assert await client.do("RECOVER", "null") == OK
    assert await client.found() == [(put_place(puts[0])[0], b"one")]
    assert await client.found(partition=3) == [(put_place(puts[1])[0], b"two")]


async def test_xa_rolled_back_after_prepare(client: Client) -> None:
    await client.do("BEGIN")
    await client.put(b"one")
    await client.do("PREPARE")
    assert await client.do("ROLLBACK") == OK
    assert await client.do("ROLLBACK") == OK
    assert (await client.do("COMMIT_TWO_PHASE")) == xa_error(
        -4, f"XA transaction '{XA}' has not been started."
    )
    assert await client.stored() == []


async def test_prepare_of_nothing_is_read_only_and_the_end(client: Client) -> None:
    await client.do("BEGIN")
    assert await client.do("PREPARE") == result(200, "3")
    assert (await client.do("COMMIT_TWO_PHASE")).startswith(b"result 500 ")
    assert await client.do("BEGIN") == OK
    assert await client.do("COMMIT_ONE_PHASE") == OK


async def test_pipelined_commands_are_worked_on_in_order(client: Client) -> None:
    """What is asked while a prepare or a commit is being written waits for it."""
    await client.do("BEGIN")
    await client.put(b"one")
    for kind in ("PREPARE", "COMMIT_TWO_PHASE", "COMMIT_TWO_PHASE", "ROLLBACK"):
        client.peer.writer.write(f"transaction {XA} s {kind} 9\r\n".encode())
    unknown = xa_error(-4, f"XA transaction '{XA}' has not been started.")
    assert await client.peer.frames(4) == [result(200, "0"), OK, OK, unknown]
    assert await client.stored() == [b"one"]


async def test_end_has_no_answer_and_begin_needs_a_key(client: Client) -> None:
    await client.do("BEGIN")
    client.peer.writer.write(f"transaction {XA} s END 5\r\n".encode())
    assert (await client.do("BEGIN", "null")).startswith(b"result 500 ")


@pytest.mark.parametrize(
    ("topic", "partition", "text"),
    [
        ("test", -1, "Invalid partition for transaction command:-1"),
        ("nobodys", 0, "The server do not accept topic nobodys"),
        ("plain", 0, "The server do not accept topic plain"),
        ("test", 4, "wrong partition 4"),
    ],
)
async def test_put_in_a_transaction_is_checked(
    client: Client, topic: str, partition: int, text: str
) -> None:
    await client.do("BEGIN")
    assert await client.put(b"x", topic=topic, partition=partition) == result(500, text)


async def test_checksum_and_closed_partitions_do_not_matter_inside(
    client: Client, broker: Broker
) -> None:
    broker.topics.handles.close_partitions("test", 0, 3)
    await client.do("BEGIN")
    answer = await client.peer.ask(f"put test 0 5 0 7 {XA} 9\r\nhello".encode())
    assert answer.startswith(b"result 200 ")
    assert await client.do("COMMIT_ONE_PHASE") == OK
    broker.topics.handles.open_partitions("test")
    assert await client.stored() == [b"hello"]


async def test_prepared_transaction_survives_a_restart(tmp_path: Path) -> None:
    topics = ("topics.test.queues=4",)
    other = "XID:1:aa:bb:uq"
    async with (
        running_broker(tmp_path, *topics) as broker,
        metaq_peer(broker.metaq_port) as peer,
    ):
        client, places = Client(peer), []
        for key in (XA, other):
            await client.do("BEGIN", key)
            places = [await client.put(each, key=key) for each in (b"one", b"two")]
            assert await client.do("PREPARE", key) == result(200, "0")
        await client.do("BEGIN", "XID:2:aa:bb:uq")
        await client.put(b"open", key="XID:2:aa:bb:uq")
    async with (
        running_broker(tmp_path, *topics) as broker,
        metaq_peer(broker.metaq_port) as peer,
    ):
        client = Client(peer)
        assert await client.do("RECOVER", "null", "uq") == result(200, f"{XA}\r\n{other}")
        assert (await client.peer.put("test", 0, b"before")).startswith(b"result 200 ")
        assert await client.do("COMMIT_TWO_PHASE", other) == OK
        assert await client.do("ROLLBACK") == OK
        found = await client.found()
        assert [body for _, body in found] == [b"before", b"one", b"two"]
        assert [each for each, _ in found[1:]] == [put_place(each)[0] for each in places]
        assert await client.do("RECOVER", "null") == OK
    async with (
        running_broker(tmp_path, *topics) as broker,
        metaq_peer(broker.metaq_port) as peer,
    ):
        client = Client(peer)
        assert await client.do("COMMIT_TWO_PHASE", other) == OK  # again
        assert await client.stored() == [b"before", b"one", b"two"]


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("transactions_max=1", "transactions_max"),
        ("transactions_per_name_max=1", "transactions_per_name_max"),
        ("transactions_per_user_max=1", "transactions_per_user_max"),
    ],
)
async def test_too_many_transactions_are_refused(tmp_path: Path, setting: str, name: str) -> None:
    async with (
        running_broker(tmp_path, "topics.test.queues=1", f"metaq.{setting}") as broker,
        metaq_peer(broker.metaq_port) as peer,
    ):
        client = Client(peer)
        for key, another in ((LOCAL, "TX:host-1-1:2"), (XA, "XID:100:676c:00:uq")):
            assert await client.do("BEGIN", key) == OK
            assert await client.do("BEGIN", key) == OK
            answer = await client.do("BEGIN", another)
            assert answer.startswith(b"result 500 ")
            assert f"metaq.{name}".encode() in answer
            assert answer.count(b"XAException:code=-3,") == (key is XA)
            assert await client.do("ROLLBACK", key) == OK
            assert await client.do("BEGIN", another) == OK
            assert await client.do("ROLLBACK", another) == OK


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("transaction_messages_max=2", "transaction_messages_max"),
        ("transaction_bytes_max=1024", "transaction_bytes_max"),
        ("transactions_bytes_max=1024", "transactions_bytes_max"),
        ("transactions_bytes_per_user_max=1024", "transactions_bytes_per_user_max"),
    ],
)
async def test_too_much_in_a_transaction_is_refused_and_the_rest_is_committed(
    tmp_path: Path, setting: str, name: str
) -> None:
    async with (
        running_broker(tmp_path, "topics.test.queues=1", f"metaq.{setting}") as broker,
        metaq_peer(broker.metaq_port) as peer,
    ):
        client = Client(peer)
        await client.do("BEGIN")
        bodies = [b"a" * 100, b"b" * 100, b"c" * 600]
        for body in bodies[:2]:
            assert (await client.put(body)).startswith(b"result 200 ")
        answer = await client.put(bodies[2])
        assert answer.startswith(b"result 500 ")
        assert f"metaq.{name}".encode() in answer
        assert await client.do("COMMIT_ONE_PHASE") == OK
        assert await client.stored() == bodies[:2]
        assert broker.core.metaq_transactions.open.total_bytes == 0


async def test_name_that_is_too_long_is_refused(client: Client) -> None:
    answer = await client.do("BEGIN", "XID:1:aa:bb:" + "q" * 1100)
    assert answer.startswith(b"result 500 ")
    assert b"at most 1024" in answer


async def test_transactions_are_counted(client: Client, broker: Broker) -> None:
    await client.do("BEGIN", LOCAL)
    await client.do("BEGIN")
    await client.put(b"x")
    await client.do("COMMIT_ONE_PHASE")
    await client.do("ROLLBACK", LOCAL)
    stats = await client.peer.ask(b"stats  9\r\n")
    for line in (b"tx_begin 2", b"tx_xa_begin 1", b"tx_commit 1", b"tx_rollback 1", b"cmd_put 1"):
        assert b"\r\n" + line + b"\r\n" in stats
    counts = broker.core.metaq_transactions.counts
    assert (counts.begun, counts.committed, counts.rolled_back) == (2, 1, 1)


async def test_topic_that_is_gone_at_the_commit_rolls_back(client: Client, broker: Broker) -> None:
    await client.do("BEGIN")
    await client.put(b"one")
    broker.topics.delete("test")
    answer = await client.do("COMMIT_ONE_PHASE")
    assert b"XAException:code=104,msg=STORE COMMIT FAILED: Transaction rolled back." in answer
    assert broker.core.metaq_transactions.open.count == 0
