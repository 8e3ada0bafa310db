"""Thousands of handshakes that begin and never go on: served connections do not notice."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest

from imago_testing.peers.tls_hellos import client
from imago_testing.peers.witness import TOPIC, Witness
from imago_testing.processes.servers import wait_until
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.frame import encode_frame

if TYPE_CHECKING:
    from imago_testing.processes.broker import BrokerProcess

pytestmark = pytest.mark.processes
HANDSHAKES = 5000
ADDRESSES = 50
PER_ADDRESS = HANDSHAKES // ADDRESSES
"""So many one address may have: none is refused, and none more could be."""
GROWTH_BYTES_MAX = 1 << 18
"""By how much one connection may make the broker grow; some 40 KiB were seen."""
LOOK_SECONDS = 0.2
LOG_LINES_MAX = 200
PROBE = encode_frame(RemotingCommand(code=77_777, opaque=1))


def begun(port: int, words: bytes, address: str) -> socket.socket:
    """Return a connection from an address of this machine whose handshake has begun."""
    found = socket.socket()
    found.bind((address, 0))
    found.connect(("127.0.0.1", port))
    found.sendall(words)
    return found


def is_cut(peer: socket.socket) -> bool:
    """Whether the broker has closed it; what it said before is passed over."""
    peer.setblocking(False)
    try:
        while peer.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def answers(peer: socket.socket) -> bool:
    """Whether the probe is answered."""
    peer.settimeout(60)
    return b"77777" in peer.recv(1 << 16)


@pytest.mark.full
def test_five_thousand_slow_handshakes_harm_nobody(secured_broker: BrokerProcess) -> None:
    broker, hello = secured_broker, client()[2].read()
    with closing(Witness.of(broker)) as witness, ExitStack() as stack:
        wait_until(witness.has_route, seconds_max=60, what=f"{TOPIC} has a route")
        witness.unharmed()
        before, held = broker.resident_bytes(), len(broker.connections())
        waiting: list[socket.socket] = []
        for number in range(HANDSHAKES):
            words = hello if number % 2 else hello[: 1 + number % len(hello)]
            address = f"127.0.1.{1 + number % ADDRESSES}"
            waiting.append(stack.enter_context(begun(broker.rocketmq, words, address)))
            if number % 250 == 0:
                witness.unharmed()
        peak = 0
        end = time.monotonic() + 120
        while waiting:
            assert time.monotonic() < end, f"{len(waiting)} of {HANDSHAKES} are still connected"
            witness.unharmed()
            peak = max(peak, broker.resident_bytes() - before)
            waiting = [peer for peer in waiting if not is_cut(peer)]
            time.sleep(LOOK_SECONDS)  # to let the broker have the processor
        assert peak <= HANDSHAKES * GROWTH_BYTES_MAX
        wait_until(
            lambda: len(broker.connections()) <= held, seconds_max=60, what="all places are free"
        )
        again = [
            stack.enter_context(begun(broker.rocketmq, PROBE, "127.0.1.1"))
            for _ in range(PER_ADDRESS)
        ]
        assert all(map(answers, again))
        witness.unharmed()
    told = [line for line in broker.log_text().splitlines() if "tls_handshake_failed" in line]
    assert 1 <= len(told) <= LOG_LINES_MAX
