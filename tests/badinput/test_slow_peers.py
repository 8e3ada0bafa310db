"""Peers that send by drops, that never read, that come in crowds: the others do not notice."""

from __future__ import annotations

import json
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import psutil
import pytest

from imago_testing.peers.remoting import pull_ext, send_ext
from imago_testing.peers.wild import WildPeer
from imago_testing.peers.witness import TOPIC
from imago_testing.processes.servers import wait_until
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.frame import encode_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_testing.peers.witness import Witness
    from imago_testing.processes.broker import BrokerProcess

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("harmless")]
GROWTH_BYTES_MAX = 1 << 20
"""By how much one connection may make the broker grow."""
CROWD = 150
DROP_SECONDS = 0.2
SMALL_BUFFER = 4096
HALF_DONE = {
    "metaq": b"put wild 0 1000 0 1\r\n" + bytes(900),
    "rocketmq": b"\x00\x00\x10\x00\x00\x00\x0f\x00" + bytes(4000),
    "fast": b"\x00\x00\x10\x00\x00\x00\x0f\x00" + bytes(4000),
    "namesrv": b"\x00\x00\x10\x00\x00\x00\x0f\x00" + bytes(4000),
    "admin": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 900,
}


@pytest.mark.parametrize("port", ["metaq", "rocketmq", "namesrv"])
def test_crowd_that_sends_by_drops_is_dropped(
    broker: BrokerProcess, witness: Witness, port: str
) -> None:
    before = broker.resident_bytes()
    data = HALF_DONE[port]
    with ExitStack() as stack:
        peers = [stack.enter_context(WildPeer(getattr(broker, port))) for _ in range(CROWD)]
        crowd = dict.fromkeys(peers, 0)
        end = time.monotonic() + 200
        while crowd:
            assert time.monotonic() < end, f"{len(crowd)} of {CROWD} are still connected"
            for peer, position in list(crowd.items()):
                if not peer.send(data[position : position + 1]) or peer.is_closed():
                    del crowd[peer]
                else:
                    crowd[peer] = position + 1
            witness.unharmed()
            time.sleep(DROP_SECONDS)  # the drops are what is tested
        assert broker.resident_bytes() - before <= CROWD * GROWTH_BYTES_MAX


@pytest.mark.parametrize("port", list(HALF_DONE))
def test_unfinished_command_is_not_waited_for_for_ever(broker: BrokerProcess, port: str) -> None:
    with WildPeer(getattr(broker, port)) as peer:
        peer.send(HALF_DONE[port])
        answer = peer.read_to_end()
    assert b"200 OK" not in answer


@pytest.fixture(scope="module")
def big_topic(broker: BrokerProcess) -> str:
    """A topic with 8 MiB in its queue 0."""
    ext = {name: str(value) for name, value in send_ext("wild-big").items()}
    frame = RemotingCommand(
        code=RequestCode.SEND_MESSAGE_V2, opaque=1, ext=ext, body=bytes(1 << 20)
    )
    with WildPeer(broker.rocketmq) as peer:
        for _ in range(8):
            peer.send(encode_frame(frame))
            assert not peer.read_until(b'"queueOffset"').closed
    return "wild-big"


def test_crowd_that_never_reads_is_dropped(
    broker: BrokerProcess, witness: Witness, big_topic: str
) -> None:
    before = broker.resident_bytes()
    ext = {name: str(value) for name, value in pull_ext(big_topic, 0, maxMsgNums=8).items()}
    pull = encode_frame(RemotingCommand(code=RequestCode.PULL_MESSAGE, opaque=1, ext=ext))
    get = f"get {big_topic} g 0 0 1048576 1\r\n".encode()
    with ExitStack() as stack:
        greedy = []
        for port, request in [(broker.metaq, get), (broker.rocketmq, pull)] * 10:
            peer = stack.enter_context(WildPeer(port, receive_buffer=SMALL_BUFFER))
            peer.send(request * 40)
            greedy.append(peer)
        witness.unharmed()
        growth = broker.resident_bytes() - before
        # Each asked for 40 MiB. A started answer may be as large as the largest message.
        assert growth <= len(greedy) * (GROWTH_BYTES_MAX + (1 << 20))
        # Seen from the broker: the peer, which reads nothing, does not even see the end.
        held = {peer.ports for peer in greedy}
        _dropped(broker, held)


def test_crowd_that_never_reads_what_it_asks_of_the_admin_port_is_dropped(
    broker: BrokerProcess, witness: Witness
) -> None:
    before = broker.resident_bytes()
    request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with ExitStack() as stack:
        greedy = [
            stack.enter_context(WildPeer(broker.admin, receive_buffer=SMALL_BUFFER))
            for _ in range(4)
        ]
        for peer in greedy:
            # Some megabytes of answers: more than the sockets' own memory.
            peer.send(request * 1000)
        witness.unharmed()
        assert broker.resident_bytes() - before <= len(greedy) * (GROWTH_BYTES_MAX + (1 << 20))
        held = {peer.ports for peer in greedy}
        _dropped(broker, held)


def test_thousands_of_short_connections_leave_nothing_behind(broker: BrokerProcess) -> None:
    process = psutil.Process(broker.pid)
    before, files = broker.resident_bytes(), process.num_fds()
    for index in range(3000):
        port = (broker.metaq, broker.rocketmq, broker.namesrv)[index % 3]
        WildPeer(port).close()
    with WildPeer(broker.metaq) as peer:
        # The one listener accepts in order: when this is answered all others are done with.
        peer.send(b"version 1\r\n")
        assert not peer.read_until(b"\r\n").closed
    assert broker.resident_bytes() - before <= 8 << 20
    assert process.num_fds() <= files + 20


@pytest.mark.full
def test_listeners_survive_the_last_file_descriptor(
    broker: BrokerProcess, witness: Witness
) -> None:
    until_files_are_made(broker, witness)
    with few_files(broker.pid, spare=20), ExitStack() as stack:
        for port in (broker.metaq, broker.rocketmq, broker.namesrv, broker.admin):
            for _ in range(30):
                # The kernel takes the connection whether or not the broker can.
                stack.enter_context(WildPeer(port))
        witness.unharmed()
    witness.unharmed()
    for port in (broker.metaq, broker.rocketmq, broker.namesrv):
        with WildPeer(port) as peer:
            probe = b"version 77777\r\n"
            if port != broker.metaq:
                probe = encode_frame(RemotingCommand(code=77_777, opaque=1))
            peer.send(probe)
            assert not peer.read_until(b"77777").closed


def _dropped(broker: BrokerProcess, connections: set[tuple[int, int]]) -> None:
    try:
        wait_until(
            lambda: not connections & broker.connections(),
            seconds_max=200,
            what="those who never read go",
        )
    except TimeoutError:
        left = connections & broker.connections()
        pytest.fail(f"still connected: {left}\n{broker.server.log_tail()}")


def until_files_are_made(broker: BrokerProcess, witness: Witness) -> None:
    """Return when the store needs no further files for the witness's messages.

    A broker that cannot make a file of its store ends.
    """
    views = [broker.data / "consumequeue_v" / TOPIC / str(queue) for queue in range(2)]
    wait_until(
        lambda: all(view.is_dir() and any(view.iterdir()) for view in views),
        seconds_max=60,
        what="the files of the witness's queues are there",
    )
    # The worker that makes them is done with them when it has synced what comes after them.
    witness.unharmed()
    wait_until(
        lambda: is_synced(broker), seconds_max=60, what="everything of the witness is synced"
    )


def is_synced(broker: BrokerProcess) -> bool:
    url = f"http://127.0.0.1:{broker.admin}/admin/v1/status"
    with urllib.request.urlopen(url, timeout=60) as answer:
        status = json.load(answer)
    return bool(status["durable"] == status["logEnd"])


@contextmanager
def few_files(pid: int, *, spare: int) -> Iterator[None]:
    """Let the process open no more than `spare` files."""
    process = psutil.Process(pid)
    limits = process.rlimit(psutil.RLIMIT_NOFILE)
    highest = max((file.fd for file in process.open_files()), default=0)
    sockets = max((each.fd for each in process.net_connections()), default=0)
    assert limits is not None
    process.rlimit(psutil.RLIMIT_NOFILE, (max(highest, sockets) + spare, limits[1]))
    try:
        yield
    finally:
        process.rlimit(psutil.RLIMIT_NOFILE, limits)
