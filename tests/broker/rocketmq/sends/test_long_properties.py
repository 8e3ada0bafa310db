"""Messages whose properties leave hardly any room: what is taken arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.peers.remoting import pull_ext
from imago_testing.peers.transactions import COMMIT, Half, end, half_properties
from imago_wire.record_format.layout import CLIENT_PROPERTIES_BYTES_MAX
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from imago_testing.peers.remoting import RemotingPeer

BORDER = range(CLIENT_PROPERTIES_BYTES_MAX - 200, CLIENT_PROPERTIES_BYTES_MAX)
"""Sizes of a property that end in one that is refused, whatever is sent beside it."""


def longest(properties: str, size: int) -> str:
    return f"{properties}pad\x01{'x' * size}\x02"


async def arriving(peer: RemotingPeer, count: int) -> list[bytes]:
    """Wait for messages of the topic's first queue."""
    bodies: list[bytes] = []
    while len(bodies) < count:
        answer = await peer.call(11, pull_ext("T", len(bodies), sysFlag=6))
        assert answer.code == ResponseCode.SUCCESS, f"{len(bodies)} of {count} have come"
        bodies += [message.body for message in decode_messages(answer.body)]
    return bodies


@pytest.mark.parametrize("waits", ["DELAY\x011\x02", "TIMER_DELAY_MS\x01900\x02"])
async def test_whatever_was_taken_to_wait_arrives(peer: RemotingPeer, waits: str) -> None:
    await peer.put("T", b"first", queue_id=1)
    taken = []
    for size in BORDER:
        properties = longest(f"UNIQ_KEY\x01u{size}\x02{waits}", size)
        answer = await peer.put("T", b"%d" % size, properties=properties)
        if answer.code == ResponseCode.SUCCESS:
            taken.append(b"%d" % size)
    assert 0 < len(taken) < len(BORDER)
    assert sorted(await arriving(peer, len(taken))) == taken


@pytest.mark.parametrize("waits", ["", "DELAY\x011\x02", "TIMER_DELAY_MS\x01900\x02"])
async def test_whatever_half_message_was_taken_can_be_committed(
    peer: RemotingPeer, waits: str
) -> None:
    await peer.put("T", b"first", queue_id=1)
    taken = []
    for size in BORDER:
        properties = longest(half_properties("u", more=waits), size)
        answer = await peer.put("T", b"%d" % size, properties=properties, f=4, a="P")
        if answer.code == ResponseCode.SUCCESS:
            taken.append(b"%d" % size)
            committed = await end(peer, Half(answer, "u"), COMMIT)
            assert committed.code == ResponseCode.SUCCESS, (size, committed.remark)
    assert 0 < len(taken) < len(BORDER)
    assert sorted(await arriving(peer, len(taken))) == taken
