"""Sends that are taken from a read together: order, levels, limits, and who is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.model.topics.topics import TopicConfig
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_wire.errors import LimitExceededError
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.command import SerializeType
from imago_wire.remoting.messages import BatchEntry, encode_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from imago_broker.app import Broker
    from imago_wire.records.record import Entry, Placed


async def test_connection_keeps_its_order_whatever_way_its_sends_take(peer: RemotingPeer) -> None:
    await peer.put("T", b"0")
    batch = encode_batch([BatchEntry(b"2", b"UNIQ_KEY\x012\x02"), BatchEntry(b"3")])
    opaques = [
        peer.send(310, send_ext("T"), b"1"),
        peer.send(320, send_ext("T", m="true"), batch),
        peer.send(310, send_ext("T"), b"4"),
        peer.send(310, send_ext("T", j=1), b"5"),
        peer.send(310, send_ext("T"), b"6", oneway=True),
        peer.send(310, send_ext("T"), b"7", serialize=SerializeType.ROCKETMQ),
    ]
    del opaques[4]
    answers = [await peer.answer(opaque) for opaque in opaques]
    assert [answer.ext["queueOffset"] for answer in answers] == ["1", "2", "4", "5", "7"]
    assert peer.unread == []
    bodies = [m.body for m in await peer.messages("T")]
    assert bodies == [b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7"]


async def test_sends_of_one_read_go_to_topics_of_different_levels(
    peer: RemotingPeer, broker: Broker
) -> None:
    strict = {"acknowledgement": "leader-fsync"}
    topics = {"Loose": {}, "Strict": strict}
    for name, attributes in topics.items():
        config = TopicConfig(name=name, read_queues=1, write_queues=1)
        broker.topics.create_or_update(config.with_attributes(**attributes))
    for turn in range(3):
        opaques = [peer.send(310, send_ext(name), b"x") for name in ("Loose", "Strict") * 2]
        answers = [await peer.answer(opaque) for opaque in opaques]
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        offsets = [int(answer.ext["queueOffset"]) for answer in answers]
        assert offsets == [2 * turn, 2 * turn, 2 * turn + 1, 2 * turn + 1]
    assert broker.store.durable_end > 0


async def test_only_the_send_that_no_log_file_holds_is_refused(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await peer.put("T", b"0")
    append = broker.store.append

    def bounded(entries: Sequence[Entry], **options: bool) -> list[Placed]:
        if any(entry[1] == b"large" for entry in entries):
            raise LimitExceededError("record", size=2, size_max=1)
        return append(entries, **options)

    monkeypatch.setattr(broker.store, "append", bounded)
    opaques = [peer.send(310, send_ext("T"), body) for body in (b"1", b"large", b"2")]
    codes = [(await peer.answer(opaque)).code for opaque in opaques]
    assert codes == [ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SUCCESS]
    assert [m.body for m in await peer.messages("T")] == [b"0", b"1", b"2"]


async def test_sends_above_the_lane_s_limit_are_told_to_come_again(
    peer: RemotingPeer, broker: Broker
) -> None:
    await peer.put("T", b"0")
    lane = broker.ports.rocketmq.protocol_factory().server.table.lanes["send"]  # type: ignore[attr-defined]  # a remoting session
    lane.running_max = 3
    opaques = [peer.send(310, send_ext("T"), b"%d" % n) for n in range(5)]
    codes = [(await peer.answer(opaque)).code for opaque in opaques]
    assert codes == [ResponseCode.SUCCESS] * 3 + [ResponseCode.SYSTEM_BUSY] * 2
    assert lane.running == 0
