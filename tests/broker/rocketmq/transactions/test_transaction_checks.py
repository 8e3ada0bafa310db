"""Producers are asked what became of their transactions, again and again, until it is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.model import names
from imago_broker.service.puts import copies
from imago_broker.service.transactions import checks as transaction_checks
from imago_broker.service.transactions.transaction_log import NoHalf
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_brokers import until
from imago_testing.peers.remoting import RemotingPeer
from imago_testing.peers.transactions import (
    COMMIT,
    be_producer,
    end,
    half,
    next_message,
)
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker

QUICK = (
    "rocketmq.transaction_timeout_ms=0",
    "rocketmq.transaction_check_interval_ms=20",
)


@pytest.fixture
async def quick(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker that asks at once."""
    async with running_broker(tmp_path, *QUICK) as broker:
        yield broker


@pytest.fixture
async def quick_peer(quick: Broker) -> AsyncIterator[RemotingPeer]:
    peer = await RemotingPeer.connect(quick.rocketmq_port)
    yield peer
    await peer.close()


async def test_producer_is_asked_and_its_answer_counts(
    quick: Broker, quick_peer: RemotingPeer
) -> None:
    one = await half(quick_peer, b"ask me", queue_id=2)
    await be_producer(quick_peer)
    asked = await quick_peer.request(RequestCode.CHECK_TRANSACTION_STATE)
    assert asked.is_oneway
    assert int(asked.ext["tranStateTableOffset"]) == one.queue_offset
    assert int(asked.ext["commitLogOffset"]) == one.log_offset
    assert asked.ext["msgId"] == asked.ext["transactionId"] == "u"
    assert asked.ext["offsetMsgId"] == one.answer.ext["msgId"]
    assert (asked.ext["topic"], asked.ext["bname"]) == ("T", "shard-0")
    (message,) = decode_messages(asked.body)
    assert (message.topic, message.queue_id, message.body) == ("T", 2, b"ask me")
    assert message.properties["PGROUP"] == "P"
    answer = await end(quick_peer, one, COMMIT, fromTransactionCheck="true")
    assert answer.code == ResponseCode.SUCCESS
    assert [each.body for each in await quick_peer.messages("T", queueId=2)] == [b"ask me"]
    assert quick.rocketmq.transactions.service.counts.checks >= 1


async def test_message_asked_about_too_often_is_given_up_and_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "COPIES_AT_ONCE", 2)
    async with running_broker(tmp_path, *QUICK, "rocketmq.transaction_checks_max=2") as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        await be_producer(peer)
        await half(peer, b"nobody knows")
        await peer.request(RequestCode.CHECK_TRANSACTION_STATE)
        await peer.request(RequestCode.CHECK_TRANSACTION_STATE)
        given_up = await next_message(peer, names.GIVEN_UP_TOPIC)
        assert given_up.body == b"nobody knows"
        assert given_up.properties["REAL_TOPIC"] == "T"
        assert broker.rocketmq.transactions.service.counts.given_up == 1
        assert len(broker.rocketmq.transactions.service.halves) == 0

        resume = {"topic": names.GIVEN_UP_TOPIC, "msgId": given_up.offset_message_id}
        answer = await peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        asked = await peer.request(RequestCode.CHECK_TRANSACTION_STATE)
        header = {
            **{key: asked.ext[key] for key in ("tranStateTableOffset", "commitLogOffset", "msgId")},
            "producerGroup": "P",
            "commitOrRollback": COMMIT,
            "fromTransactionCheck": "true",
        }
        assert (await peer.call(RequestCode.END_TRANSACTION, header)).code == ResponseCode.SUCCESS
        assert [each.body for each in await peer.messages("T")] == [b"nobody knows"]

        for _ in range(2):  # asked for again, here and where only the log tells
            answer = await peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume)
            assert (answer.code, "was committed" in (answer.remark or "")) == (1, True)
            for forget in broker.rocketmq.transactions.service.on_stop:
                forget()
        assert len(broker.rocketmq.transactions.service.halves) == 0

        # A producer that repeats itself does not hide what was committed.
        for looked, said in ((1024, "was committed"), (2, "too many half messages have the id u")):
            monkeypatch.setattr(copies, "COPIES_LOOKED_MAX", looked)
            for _ in range(40):
                await half(peer, b"repeated")
            for forget in broker.rocketmq.transactions.service.on_stop:
                forget()
            answer = await peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume)
            assert (answer.code, said in (answer.remark or "")) == (1, True)
        await peer.close()


async def test_resume_of_what_is_no_transaction_is_refused(peer: RemotingPeer) -> None:
    sent = await peer.put("T", b"plain")
    resume = {"topic": "T", "msgId": sent.ext["msgId"]}
    answer = await peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "no message of a transaction has the id" in (answer.remark or "")


async def test_own_immunity_keeps_questions_away_and_ends_the_producer_s_say(
    quick: Broker, quick_peer: RemotingPeer
) -> None:
    immune = await half(
        quick_peer, b"i", unique="1", more="CHECK_IMMUNITY_TIME_IN_SECONDS\x01600\x02"
    )
    await be_producer(quick_peer)
    other = await half(quick_peer, b"o", unique="2")
    asked = await quick_peer.request(RequestCode.CHECK_TRANSACTION_STATE)
    assert int(asked.ext["tranStateTableOffset"]) == other.queue_offset
    known = quick.rocketmq.transactions.service.halves.get(immune.queue_offset)
    assert known is not None
    assert known.checks == 0
    known.immune_until_ms = 0
    late = await end(quick_peer, immune, COMMIT)
    assert late.code == ResponseCode.ILLEGAL_OPERATION
    answer = await end(quick_peer, immune, COMMIT, fromTransactionCheck="true")
    assert answer.code == ResponseCode.SUCCESS
    assert [each.body for each in await quick_peer.messages("T")] == [b"i"]


async def test_half_message_whose_record_is_gone_is_open_no_longer_whatever_its_immunity(
    quick: Broker, quick_peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await half(quick_peer, b"old", more="CHECK_IMMUNITY_TIME_IN_SECONDS\x01600\x02")
    monkeypatch.setattr(quick.store, "queue_range", lambda *_: (1, 1))
    monkeypatch.setattr(transaction_checks, "read_half", lambda *_: NoHalf.LOST)
    await until(lambda: quick.rocketmq.transactions.service.counts.lost == 1)
    assert len(quick.rocketmq.transactions.service.halves) == 0


async def test_counts_of_checks_survive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path, *QUICK, "rocketmq.transaction_checks_max=9") as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        await be_producer(peer)
        await half(peer, b"x")
        for _ in range(3):
            await peer.request(RequestCode.CHECK_TRANSACTION_STATE)
        await peer.close()
    async with running_broker(tmp_path) as broker:
        known = broker.rocketmq.transactions.service.halves.get(0)
        assert known is not None
        assert known.checks >= 3
