"""Many peers that never end a command: together they hold no more than the broker allows them."""

from __future__ import annotations

import contextlib
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from imago_broker.core.budget import TURN_BYTES
from imago_testing.peers.remoting import send_ext
from imago_testing.peers.sdk_peer import SdkFrames
from imago_testing.peers.wild import WildPeer
from imago_testing.processes.broker import BrokerProcess, broker_process
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import wait_until
from imago_wire.grpc import frames
from imago_wire.grpc.frames import Http2Frame
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.frame import encode_frame

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.processes
TOTAL_BYTES_MAX = 32 << 20
FRAME_BYTES = 16 << 20
LINE = b"put wild 0 %d 0 7\r\n"
MESSAGE_BYTES = 4 << 20
PEERS = 40
ROUNDS = 4
SLACK_BYTES = 48 << 20
"""Memory that the allocator keeps, and one command while it is cut out of its buffer."""
HEADER = b'{"code":10,"opaque":1}'
FRAME = b"%b%b%b" % (
    (FRAME_BYTES - 4).to_bytes(4, "big"),
    len(HEADER).to_bytes(4, "big"),
    HEADER + bytes(FRAME_BYTES - 8 - len(HEADER)),
)
UNFINISHED = {
    "rocketmq": FRAME[:-1],
    "fast": FRAME[:-1],
    "namesrv": FRAME[:-1],
    "metaq": LINE % MESSAGE_BYTES + bytes(MESSAGE_BYTES - 1),
    "admin": b"PUT /admin/v1/topics/wild HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Length: 1000000\r\n\r\n" + b" " * 999_999,
}


@contextlib.contextmanager
def budgeted(folder: Path, **limits: int) -> Iterator[BrokerProcess]:
    """Run a broker with little memory for what its peers send."""
    settings = {
        "limits": {"input_bytes_total_max": TOTAL_BYTES_MAX, **limits},
        "metaq": {"auto_create_topic": True, "message_bytes_max": MESSAGE_BYTES},
    }
    with broker_process(folder, settings) as broker:
        yield broker
        assert broker.alive, broker.server.log_tail()
    assert "Traceback" not in broker.log_text()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One that has served already: what the first large command loads is no peer's."""
    with budgeted(tmp_path_factory.mktemp("broker")) as broker:
        assert sent(broker.metaq, put(MESSAGE_BYTES), b"result 200")
        assert sent(broker.rocketmq, whole_send(MESSAGE_BYTES - 1000), b'"queueOffset"')
        yield broker


class Highest:
    """The most memory that the process held while the block ran, looked at all the time."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.before = self.bytes = broker.resident_bytes()

    def __enter__(self) -> Highest:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    @property
    def growth(self) -> int:
        return self.bytes - self.before

    def _look(self) -> None:
        while not self._end.wait(0.005):
            self.bytes = max(self.bytes, self._broker.resident_bytes())


def send_all(peers: list[WildPeer], data: bytes) -> list[threading.Thread]:
    """Have every peer send the data at its own pace: it may be read slowly, or never."""
    threads = [threading.Thread(target=_send, args=(peer, data)) for peer in peers]
    for thread in threads:
        thread.start()
    return threads


def _send(peer: WildPeer, data: bytes) -> None:
    with contextlib.suppress(TimeoutError):  # not read any more, which is allowed too
        peer.send(data)


def whole_send(size: int) -> bytes:
    ext = {name: str(value) for name, value in send_ext("wild").items()}
    command = RemotingCommand(code=RequestCode.SEND_MESSAGE_V2, opaque=1, ext=ext, body=bytes(size))
    return encode_frame(command)


@pytest.mark.parametrize("port", list(UNFINISHED))
def test_memory_of_unfinished_commands_is_bounded_over_all_connections(
    broker: BrokerProcess, port: str
) -> None:
    with ExitStack() as stack, Highest(broker) as highest:
        peers = [stack.enter_context(WildPeer(getattr(broker, port))) for _ in range(PEERS)]
        threads = send_all(peers, UNFINISHED[port])
        # Meanwhile those who do end their commands get through, the large ones too.
        wait_until(
            lambda: sent(broker.rocketmq, whole_send(MESSAGE_BYTES - 1000), b'"queueOffset"'),
            seconds_max=60,
            what="a large RocketMQ message is taken",
        )
        wait_until(
            lambda: sent(broker.metaq, put(MESSAGE_BYTES), b"result 200"),
            seconds_max=60,
            what="a large MetaQ message is taken",
        )
        # All have said what they had to say, or were cut off while they waited to say it.
        for thread in threads:
            thread.join()
    # Not much above the budget connections are ended; without a limit these were 640 MiB.
    assert highest.growth <= TOTAL_BYTES_MAX + TURN_BYTES + SLACK_BYTES


@pytest.mark.parametrize("port", list(UNFINISHED))
def test_memory_of_unfinished_commands_is_free_once_their_connections_are_gone(
    broker: BrokerProcess, port: str
) -> None:
    left = []
    for _ in range(ROUNDS):
        with ExitStack() as stack:
            peers = [stack.enter_context(WildPeer(getattr(broker, port))) for _ in range(PEERS)]
            for thread in send_all(peers, UNFINISHED[port]):
                thread.join()
        left.append(broker.resident_bytes())
    # Each round before it was so held up to 100 MiB more. The last connections may still close.
    wait_until(
        lambda: broker.resident_bytes() - left[0] <= TOTAL_BYTES_MAX + FRAME_BYTES,
        what=f"memory is free again: {[each >> 20 for each in left]} MiB",
    )


@pytest.mark.full
def test_many_large_commands_at_once_all_get_through(tmp_path: Path) -> None:
    data = whole_send(MESSAGE_BYTES - 1000)
    with ExitStack() as stack:
        # Where the machine is busy a peer may need longer than commands are waited for.
        broker = stack.enter_context(budgeted(tmp_path, input_stall_seconds=600))
        peers = [stack.enter_context(WildPeer(broker.rocketmq)) for _ in range(PEERS)]
        threads = send_all(peers, data)
        for peer in peers:
            assert not peer.read_until(b'"queueOffset"').closed
        for thread in threads:
            thread.join()


def sent(port: int, data: bytes, wanted: bytes) -> bool:
    with WildPeer(port) as peer:
        return peer.send(data) and not peer.read_until(wanted).closed


def put(size: int) -> bytes:
    return LINE % size + bytes(size)


def message_begun() -> Iterator[bytes]:
    """Return a part of a message of 4 MiB, as it stands in the frames of a call."""
    yield b"\0" + MESSAGE_BYTES.to_bytes(4, "big")
    for _ in range(60):
        yield bytes(frames.FRAME_BYTES_MAX)


def test_what_unfinished_calls_took_is_given_back(tmp_path: Path) -> None:
    """Many grow at once in small steps, between other things: their memory is no one piece."""
    port, calls = free_port_block(1), SdkFrames()
    begun = [calls.greeting()]
    for _ in range(4):
        number, head = calls.begin("SendMessage")
        begun.append(head)
        begun += [frames.frame(Http2Frame.DATA, 0, number, each) for each in message_begun()]
    settings = {
        "rocketmq": {"grpc_enabled": True, "grpc_port": port},
        "limits": {"input_bytes_total_max": 64 << 20},
    }
    with broker_process(tmp_path, settings) as broker:
        highest = Highest(broker)
        with highest, ExitStack() as stack:

            def begin() -> None:
                for _ in range(25):
                    stack.enter_context(WildPeer(port)).send(b"".join(begun))

            threads = [threading.Thread(target=begin) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert highest.bytes - highest.before > SLACK_BYTES, "else there is nothing to give back"
        wait_until(
            lambda: broker.resident_bytes() - highest.before < SLACK_BYTES // 2,
            seconds_max=60,
            what="the memory is free again",
        )
