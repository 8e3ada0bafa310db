"""Many peers that ask for much and read nothing: together they cost what the broker allows them."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from imago_testing.peers.remoting import pull_ext, send_ext
from imago_testing.peers.wild import WildPeer
from imago_testing.processes.broker import BrokerProcess, broker_process
from imago_testing.processes.servers import wait_until
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.frame import encode_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.processes
TOTAL_BYTES_MAX = 16 << 20
PEERS = 40
SLACK_BYTES = 24 << 20
"""Memory that the allocator keeps."""
SOCKET_BYTES = 64 << 10
"""What an answer past the limit may have at most."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"limits": {"output_stall_seconds": 3, "output_bytes_total_max": TOTAL_BYTES_MAX}}
    with broker_process(tmp_path_factory.mktemp("broker"), settings) as broker:
        yield broker
        assert broker.alive, broker.server.log_tail()
    assert "Traceback" not in broker.log_text()


@pytest.fixture(scope="module")
def topic(broker: BrokerProcess) -> str:
    """A topic with 4 MiB in pieces of 32 KiB in its queue 0."""
    ext = {name: str(value) for name, value in send_ext("big").items()}
    frame = RemotingCommand(
        code=RequestCode.SEND_MESSAGE_V2, opaque=1, ext=ext, body=bytes(32 << 10)
    )
    with WildPeer(broker.rocketmq) as peer:
        for _ in range(128):
            peer.send(encode_frame(frame))
            assert not peer.read_until(b'"queueOffset"').closed
    return "big"


@pytest.mark.full
def test_memory_of_unread_answers_is_bounded_over_all_connections(
    broker: BrokerProcess, topic: str
) -> None:
    before = broker.resident_bytes()
    wanted = pull_ext(topic, 0, maxMsgNums=10_000, maxMsgBytes=4 << 20, imagoBatch="true")
    ext = {name: str(value) for name, value in wanted.items()}
    pull = encode_frame(RemotingCommand(code=RequestCode.PULL_MESSAGE, opaque=1, ext=ext))
    with ExitStack() as stack:
        stalled = [
            stack.enter_context(WildPeer(broker.rocketmq, receive_buffer=4096))
            for _ in range(PEERS)
        ]
        for peer in stalled:
            peer.send(pull * 4)
        with WildPeer(broker.rocketmq) as reader:
            reader.send(encode_frame(RemotingCommand(code=77_777, opaque=1)))
            assert not reader.read_until(b"77777").closed
        # Each asked for 16 MiB: without a common limit these were 160 MiB and more.
        growth = broker.resident_bytes() - before
        assert growth <= 2 * TOTAL_BYTES_MAX + PEERS * SOCKET_BYTES + SLACK_BYTES
        # Those whose answers wait are cut off, and then everybody is served as before.
        wait_until(
            lambda: answer_size(broker.rocketmq, pull) > 2 << 20,
            seconds_max=60,
            what="a reader gets a large answer again",
        )


def answer_size(port: int, request: bytes) -> int:
    """Return what the answer's frame says of its size."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(request)
        return int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
