"""Sends that wait on their connection for longer than they may, where that was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.server.connection_states import WaitReason
from imago_broker.server.remoting.remoting_session import RemotingSession
from imago_testing.peers.remoting import send_ext
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.texts.properties_text import decode_properties_text

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_testing.peers.remoting import RemotingPeer

LONG_MS = 600_000


async def tell(peer: RemotingPeer, text: bytes) -> None:
    answer = await peer.call(Code.UPDATE_BROKER_CONFIG, {}, text)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def sent_while_it_waits(
    broker: Broker, peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[int], set[str]]:
    """Have sends read while their connection waits; return the codes and remarks of the answers."""
    (session,) = broker.ports.rocketmq.sessions
    assert isinstance(session, RemotingSession)
    ext, frames = send_ext("T"), bytearray()
    with monkeypatch.context() as gathered:
        gathered.setattr(peer, "write", frames.extend)
        single = [peer.send(Code.SEND_MESSAGE_V2, ext, b"x") for _ in range(2)]
        peer.send(Code.SEND_MESSAGE_V2, ext, b"unanswered", oneway=True)
        other = peer.send(Code.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})
    session.handover.wait(WaitReason.OWN_REQUEST)
    session.data_received(bytes(frames))
    session.handover.wait_no_more(WaitReason.OWN_REQUEST)
    answers = [await peer.answer(number) for number in [*single, other]]
    return [each.code for each in answers], {each.remark or "" for each in answers[:-1]}


@pytest.mark.parametrize(
    ("told", "fails"),
    [
        (b"brokerFastFailureEnable=false\n", False),
        (b"waitTimeMillsInSendQueue=0\n", False),
        (b"brokerFastFailureEnable=true\nwaitTimeMillsInSendQueue=0\n", True),
        (b"brokerFastFailureEnable=true\nwaitTimeMillsInSendQueue=%d\n" % LONG_MS, False),
    ],
)
async def test_sends_fail_that_waited_too_long(
    broker: Broker,
    peer: RemotingPeer,
    monkeypatch: pytest.MonkeyPatch,
    told: bytes,
    fails: bool,
) -> None:
    await peer.put("T", b"first", queue_id=0)
    await tell(peer, told)
    shown = decode_properties_text((await peer.call(Code.GET_BROKER_CONFIG)).body)
    assert decode_properties_text(told).items() <= shown.items()
    stored = broker.store.queue_range("T", 0)[1]
    codes, remarks = await sent_while_it_waits(broker, peer, monkeypatch)
    assert codes[-1] == ResponseCode.SUCCESS, "what is no send is answered all the same"
    if not fails:
        assert codes == [ResponseCode.SUCCESS] * 3
        return
    assert codes[:2] == [ResponseCode.SYSTEM_BUSY] * 2
    (remark,) = remarks
    assert remark.startswith(
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
    )
    assert remark.endswith("ms, size of queue: 3")
    assert broker.store.queue_range("T", 0)[1] == stored
    again = await peer.put("T", b"later", queue_id=0)
    assert again.code == ResponseCode.SUCCESS, "it did not wait"
