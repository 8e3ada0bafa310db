"""Transactions over real sockets: half messages, their outcomes, checks, repeats, restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.core.transactions.transactions import Outcome
from imago_broker.metrics import registry
from imago_broker.model import names
from imago_broker.service.transactions.transaction_log import find_open
from imago_broker.shard_work.remaining import measure
from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.metaq import metaq_peer
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_testing.peers.transactions import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    Half,
    end,
    half,
    half_properties,
    next_message,
)
from imago_wire.record_format.layout import SYS_COMMIT
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from pathlib import Path

    from imago_broker.app import Broker

HALF = names.HALF_TOPIC
MARKS = names.TRANSACTION_MARK_TOPIC


async def test_half_message_is_seen_by_nobody_until_it_is_committed(peer: RemotingPeer) -> None:
    one = await half(peer, b"body", queue_id=1)
    assert one.answer.ext["queueId"] == "1"
    assert one.answer.ext["transactionId"] == "u"
    assert (await peer.pull("T", queueId=1)).code == ResponseCode.PULL_NOT_FOUND
    (stored,) = await peer.messages(HALF)
    assert stored.properties["REAL_TOPIC"] == "T"
    assert stored.properties["REAL_QID"] == "1"
    assert stored.properties["__transactionId__"] == "u"
    assert (stored.sys_flag, stored.queue_offset) == (0, one.queue_offset)

    assert (await end(peer, one, COMMIT)).code == ResponseCode.SUCCESS
    (message,) = await peer.messages("T", queueId=1)
    assert (message.body, message.topic, message.queue_id) == (b"body", "T", 1)
    assert message.sys_flag == SYS_COMMIT
    assert message.prepared_offset == one.log_offset
    assert message.keys == ["k"]
    assert message.unique_key == "u"
    assert message.properties["PGROUP"] == "P"
    assert not {"TRAN_MSG", "REAL_TOPIC", "REAL_QID"} & set(message.properties)
    (mark,) = await peer.messages(MARKS)
    assert (mark.body, mark.tags) == (b"%d," % one.queue_offset, "d")


async def test_rolled_back_message_is_never_delivered(peer: RemotingPeer, broker: Broker) -> None:
    one = await half(peer, b"no")
    assert (await end(peer, one, ROLLBACK)).code == ResponseCode.SUCCESS
    answer = await end(peer, one, COMMIT)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "was rolled back" in (answer.remark or "")
    assert (await peer.pull("T")).code == ResponseCode.PULL_NOT_FOUND
    assert len(broker.rocketmq.transactions.service.halves) == 0


async def test_repeated_commit_delivers_once(peer: RemotingPeer, broker: Broker) -> None:
    one = await half(peer, b"once")
    numbers = [peer.send(RequestCode.END_TRANSACTION, one.header(COMMIT)) for _ in range(5)]
    for number in numbers:
        assert (await peer.answer(number)).code == ResponseCode.SUCCESS
    assert (await end(peer, one, COMMIT)).code == ResponseCode.SUCCESS
    assert [message.body for message in await peer.messages("T")] == [b"once"]
    answer = await end(peer, one, ROLLBACK)
    assert (answer.code, "was committed" in (answer.remark or "")) == (1, True)
    assert broker.rocketmq.transactions.service.counts.repeated == 5


async def test_one_way_end_as_clients_send_it(peer: RemotingPeer) -> None:
    one = await half(peer, b"oneway")
    peer.send(RequestCode.END_TRANSACTION, one.header(COMMIT), oneway=True)
    assert (await next_message(peer, "T")).body == b"oneway"


async def test_who_does_not_know_leaves_it_open(peer: RemotingPeer, broker: Broker) -> None:
    one = await half(peer, b"later")
    assert (await end(peer, one, UNKNOWN)).code == ResponseCode.SUCCESS
    assert len(broker.rocketmq.transactions.service.halves) == 1
    assert (await peer.pull("T")).code == ResponseCode.PULL_NOT_FOUND
    assert (await end(peer, one, COMMIT)).code == ResponseCode.SUCCESS
    assert len(await peer.messages("T")) == 1


@pytest.mark.parametrize(
    ("more", "remark"),
    [
        ({"producerGroup": "Q"}, "The producer group wrong"),
        ({"msgId": "another"}, "The message id wrong, this is u"),
        ({"tranStateTableOffset": 7}, "The transaction state table offset wrong"),
        ({"commitLogOffset": 3}, "Find prepared transaction message failed"),
        ({"commitLogOffset": -1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 1 << 60}, "Find prepared transaction message failed"),
        ({"commitOrRollback": 4}, "commitOrRollback 4: must be 8 (commit), 12 (rollback) or 0"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_wrong_end_is_refused_as_by_rocketmq(
    peer: RemotingPeer, more: dict[str, object], remark: str
) -> None:
    one = await half(peer, b"x")
    answer = await end(peer, one, COMMIT, **more)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith(remark)
    assert (await peer.pull("T")).code == ResponseCode.PULL_NOT_FOUND
    assert (await end(peer, one, COMMIT)).code == ResponseCode.SUCCESS


async def test_end_of_what_is_no_half_message_is_refused(peer: RemotingPeer) -> None:
    sent = await peer.put("T", b"plain", properties="PGROUP\x01P\x02")
    plain = Half(sent, "u")
    answer = await end(peer, plain, COMMIT)
    assert (answer.code, answer.remark) == (1, "Find prepared transaction message failed")
    assert len(await peer.messages("T")) == 1


@pytest.mark.parametrize("flag", [8, 12])
async def test_send_that_claims_to_be_an_outcome_is_refused(peer: RemotingPeer, flag: int) -> None:
    answer = await peer.put("T", b"x", f=flag)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert (answer.remark or "").endswith("sending transaction message is forbidden")
    assert (await peer.pull("T")).code == ResponseCode.PULL_NOT_FOUND


async def test_topic_that_is_gone_leaves_the_transaction_open(
    peer: RemotingPeer, broker: Broker
) -> None:
    one = await half(peer, b"x")
    broker.topics.delete("T")
    answer = await end(peer, one, COMMIT)
    assert (answer.code, answer.remark) == (1, "topic[T] not exist, apply first please!")
    assert len(broker.rocketmq.transactions.service.halves) == 1
    await peer.put("T", b"made again", queue_id=1)
    assert (await end(peer, one, COMMIT)).code == ResponseCode.SUCCESS
    assert [message.body for message in await peer.messages("T")] == [b"x"]


async def test_committed_message_with_a_delay_waits(peer: RemotingPeer) -> None:
    one = await half(peer, b"later", more="DELAY\x011\x02")
    assert (await end(peer, one, COMMIT)).code == ResponseCode.SUCCESS
    assert (await peer.pull("T")).code == ResponseCode.PULL_NOT_FOUND
    (parked,) = await peer.messages(names.SCHEDULE_TOPIC)
    assert parked.prepared_offset == one.log_offset
    assert (await next_message(peer, "T")).body == b"later"


async def test_metaq_readers_get_committed_messages_and_no_half_ones(
    peer: RemotingPeer, broker: Broker
) -> None:
    first = await half(peer, b"yes", unique="1")
    second = await half(peer, b"no", unique="2")
    await end(peer, first, COMMIT)
    await end(peer, second, ROLLBACK)
    await half(peer, b"open", unique="3")
    await peer.put("T", b"plain")
    async with metaq_peer(broker.metaq_port) as metaq:
        data = await metaq.get("T", 0, 0)
        assert b"yes" in data
        assert b"plain" in data
        assert b"no" not in data
        assert b"open" not in data
        assert (await metaq.get(HALF, 0, 0)).startswith(b"result 404")


# Limits


async def test_too_many_open_transactions_are_refused_with_the_cure(tmp_path: Path) -> None:
    limits = ("rocketmq.transactions_max=3", "rocketmq.transactions_per_group_max=2")
    async with running_broker(tmp_path, *limits) as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        first = await half(peer, b"1", unique="1")
        await half(peer, b"2", unique="2")
        refused = await peer.put("T", b"3", properties=half_properties("3"), f=4)
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "2 transactions of producer group P are open" in (refused.remark or "")
        assert "rocketmq.transactions_per_group_max" in (refused.remark or "")
        other = await peer.put("T", b"3", properties=half_properties("3", "Q"), f=4)
        assert other.code == ResponseCode.SUCCESS
        refused = await peer.put("T", b"4", properties=half_properties("4", "R"), f=4)
        assert "3 transactions of this broker are open" in (refused.remark or "")
        await end(peer, first, ROLLBACK)
        await half(peer, b"5", unique="5")
        await peer.close()


# Restarts


async def test_what_is_open_is_known_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        kept = [await half(peer, b"%d" % n, unique=str(n)) for n in range(5)]
        await end(peer, kept[0], COMMIT)
        await end(peer, kept[1], ROLLBACK)
        await peer.close()
    for turn in (2, 3):
        async with running_broker(tmp_path) as broker:
            transactions = broker.rocketmq.transactions.service
            assert list(transactions.halves) == [each.queue_offset for each in kept[turn:]]
            peer = await RemotingPeer.connect(broker.rocketmq_port)
            assert (await end(peer, kept[0], COMMIT)).code == ResponseCode.SUCCESS
            assert (await end(peer, kept[1], COMMIT)).code == ResponseCode.SYSTEM_ERROR
            assert (await end(peer, kept[turn], COMMIT)).code == ResponseCode.SUCCESS
            bodies = [message.body for message in await peer.messages("T")]
            assert bodies == [b"0", *(b"%d" % n for n in range(2, turn + 1))]
            await peer.close()


async def test_note_tells_what_is_open_without_older_marks(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        halves = [await half(peer, b"%d" % n, unique=str(n)) for n in range(4)]
        await end(peer, halves[2], COMMIT)
        broker.rocketmq.transactions.service.note()
        found = find_open(broker.store)
        assert found.open == {0: 0, 1: 0, 3: 0}
        await end(peer, halves[0], ROLLBACK)
        broker.rocketmq.transactions.service.note()
        await half(peer, b"new", unique="n")
        found = find_open(broker.store)
        assert found.open == {1: 0, 3: 0, 4: 0}
        assert found.ended == [(2, Outcome.COMMITTED), (0, Outcome.ROLLED_BACK)]
        assert found.missing == []
        await peer.close()


async def test_open_transaction_keeps_a_shard_from_being_drained(
    peer: RemotingPeer, broker: Broker
) -> None:
    one = await half(peer, b"x")
    assert (await measure(broker.admin_services(), "")).delayed == 1
    await end(peer, one, ROLLBACK)
    assert (await measure(broker.admin_services(), "")).delayed == 0


async def test_metrics_count_transactions(peer: RemotingPeer, broker: Broker) -> None:
    for unique, outcome in (("1", COMMIT), ("2", ROLLBACK), ("3", UNKNOWN)):
        await end(peer, await half(peer, b"x", unique=unique), outcome)
    samples = registry(broker.collector)
    assert samples.get_sample_value("imago_transactions_open") == 1
    assert samples.get_sample_value("imago_transactions_begun_total") == 3
    assert samples.get_sample_value("imago_transactions_committed_total") == 1
    assert samples.get_sample_value("imago_transactions_rolled_back_total") == 1


async def test_half_message_is_seen_as_one_whatever_says_so(peer: RemotingPeer) -> None:
    by_flag = await peer.put("T", b"f", f=4, properties="UNIQ_KEY\x01f\x02")
    by_property = await peer.put("T", b"p", properties="UNIQ_KEY\x01p\x02TRAN_MSG\x01true\x02")
    assert (by_flag.code, by_property.code) == (0, 0)
    assert (await peer.pull("T")).code == ResponseCode.PULL_NOT_FOUND
    stored = await peer.messages(HALF)
    assert [each.properties["PGROUP"] for each in stored] == ["producers", "producers"]


async def test_half_message_in_a_batch_is_refused(peer: RemotingPeer) -> None:
    ext = send_ext("T", f=4, m="true")
    answer = await peer.call(320, ext, b"")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        (half_properties("u" * 256), "the unique id has 256 characters, at most 255"),
        (half_properties(group="g" * 256), "the producer group has 256 characters, at most 255"),
    ],
    ids=["unique id", "group"],
)
async def test_names_too_long_to_be_kept_of_each_transaction_are_refused(
    peer: RemotingPeer, properties: str, remark: str
) -> None:
    answer = await peer.put("T", b"x", properties=properties)
    assert (answer.code, answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, remark)
