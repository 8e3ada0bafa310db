"""What the MetaQ port makes of input that no client sends."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from imago_testing.peers.wild import WildPeer, says_nothing_of_itself
from imago_testing.peers.witness import TOPIC
from imago_wire.text.commands import Put
from imago_wire.text.encoder import encode

if TYPE_CHECKING:
    from imago_testing.processes.broker import BrokerProcess

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("harmless")]
PROBE = b"version 424242\r\n"
LINE_BYTES_MAX = 4096
SOCKET_BYTES_MAX = 16 << 20
"""What may be under way in the kernel's buffers when the other side closes."""

BROKEN_LINES = {
    "nothing but an end of line": b"\r\n",
    "unknown word": b"hello world\r\n",
    "upper case": b"PUT wild 0 0 0 1\r\n",
    "only the first letter right": b"pux wild 0 5 0 1\r\nhello",
    "two spaces": b"put  wild 0 5 0 1\r\nhello",
    "too few words": b"put wild 0 5\r\nhello",
    "too many words": b"put wild 0 5 0 1 2 3 4 5\r\nhello",
    "negative body size": b"put wild 0 -5 0 1\r\n",
    "body size that is no number": b"put wild 0 five 0 1\r\n",
    "body size above 32 bits": b"put wild 0 99999999999 0 1\r\n",
    "body size of 2 GiB": b"put wild 0 2147483647 0 1\r\n",
    "body size over the limit": b"put wild 0 67108864 0 1\r\n",
    "number with a sign in the middle": b"get wild g 0 1-2 100 1\r\n",
    "offset above 64 bits": b"get wild g 0 9223372036854775808 100 1\r\n",
    "zero byte in a word": b"get wi\x00ld g 0 0 100\x00 1\r\n",
    "digits of another script": "get wild g 0 ٣ 100 1\r\n".encode(),
    "line of other bytes": bytes(range(14, 256)) + b"\r\n",
    "transaction of no kind": b"transaction TX:s1:9 s1 FOO 58\r\n",
    "transaction key of no form": b"transaction XID:1:2 s1 BEGIN 58\r\n",
    "another protocol: HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "another protocol: TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n",
    "another protocol: RocketMQ": b'\x00\x00\x00\x20\x00\x00\x00\x1c{"code":105,"flag":0}\r\n',
}


@pytest.mark.parametrize("data", BROKEN_LINES.values(), ids=BROKEN_LINES)
def test_broken_command_closes_the_connection_without_an_answer(
    broker: BrokerProcess, data: bytes
) -> None:
    with WildPeer(broker.metaq) as peer:
        peer.send(data)
        assert peer.read_to_end() == b""


def test_commands_before_a_broken_one_are_answered(broker: BrokerProcess) -> None:
    with WildPeer(broker.metaq) as peer:
        peer.send(PROBE + b"hello world\r\n" + PROBE)
        answers = peer.read_to_end()
    assert answers.count(b"424242") == 1


POISONOUS = {
    "partition that does not exist": b"put wild 1000000000 5 0 1\r\nhello",
    "partition below zero": b"put wild -2 5 0 1\r\nhello",
    "smallest partition": b"put wild -2147483648 5 0 1\r\nhello",
    "checksum of another body": b"put wild 0 5 0 12345 1\r\nhello",
    "unknown topic": b"put nowhere 0 5 0 1\r\nhello",
    "path for a topic": b"put ../../../tmp/x 0 5 0 1\r\nhello",
    "absolute path for a topic": b"put /etc/passwd 0 5 0 1\r\nhello",
    "encoded path for a topic": b"put %2e%2e%2fx 0 5 0 1\r\nhello",
    "topic of 3000 letters": b"put " + b"t" * 3000 + b" 0 5 0 1\r\nhello",
    "topic beyond ASCII": "put töpic 0 5 0 1\r\nhello".encode(),
    "a system topic": b"put IMAGO_META 0 5 0 1\r\nhello",
    "attribute longer than the body": b"put wild 0 5 1 1\r\n\x7f\xff\xff\xffx",
    "attribute of negative size": b"put wild 0 5 1 1\r\n\xff\xff\xff\xffx",
    "attribute with a separator of properties": b"put wild 0 9 1 1\r\n\x00\x00\x00\x03a\x01b..",
    "attribute that is no text": b"put wild 0 7 1 1\r\n\x00\x00\x00\x03\xff\xfe\xfd",
    "get at the smallest offset": b"get wild g 0 -9223372036854775808 100 1\r\n",
    "get before the start": b"get wild g 0 -1 100 1\r\n",
    "get at the largest offset": b"get wild g 0 9223372036854775807 100 1\r\n",
    "get inside a message": b"get wild g 0 7 100 1\r\n",
    "get of no bytes": b"get wild g 0 0 0 1\r\n",
    "get of fewer than no bytes": b"get wild g 0 0 -5 1\r\n",
    "get of 2 GiB": b"get wild g 0 0 2147483647 1\r\n",
    "get of a partition that does not exist": b"get wild g 99999 0 100 1\r\n",
    "get of a path": b"get ../x ../../g 0 0 100 1\r\n",
    "offset of nothing": b"offset nowhere g 0 0 1\r\n",
    "offset at the largest": b"offset wild g 0 9223372036854775807 1\r\n",
    "offset below zero": b"offset wild g 0 -5 1\r\n",
    "statistics of a path": b"stats ../../etc 1\r\n",
    "largest number of the request": b"version 2147483647\r\n",
    "smallest number of the request": b"version -2147483648\r\n",
    "a slave's command": b"sync wild 0 5 0 1 2 3\r\nhello",
    "transaction that was never begun": b"transaction TX:s1:9 s1 COMMIT_ONE_PHASE 58\r\n",
}


@pytest.mark.parametrize("data", POISONOUS.values(), ids=POISONOUS)
def test_poisonous_value_gets_an_answer_and_the_connection_goes_on(
    broker: BrokerProcess, data: bytes
) -> None:
    with WildPeer(broker.metaq) as peer:
        peer.send(data + PROBE)
        reaction = peer.read_until(b" 424242\r\n")
    says_nothing_of_itself(reaction.data)
    if not reaction.closed:
        first = reaction.data.split(b" ", 1)[0]
        assert first in {b"result", b"value"}


def test_no_input_made_a_file_outside_the_data_folder(broker: BrokerProcess) -> None:
    names = {path.name for path in broker.data.parent.rglob("*")}
    assert not {name for name in names if "passwd" in name or name.startswith(("..", "%2e"))}
    assert {path.name for path in broker.data.parent.iterdir()} == {
        "data",
        "broker.toml",
        "broker.log",
    }


def test_line_without_an_end_is_refused_at_its_limit(broker: BrokerProcess) -> None:
    before = broker.resident_bytes()
    with WildPeer(broker.metaq) as peer:
        taken = peer.send_until_refused(b"x" * 65536 for _ in range((1 << 30) // 65536))
        assert peer.read_to_end() == b""
    assert taken < LINE_BYTES_MAX + SOCKET_BYTES_MAX
    assert broker.resident_bytes() - before <= 4 << 20


def test_body_over_the_limit_is_refused_before_it_comes(broker: BrokerProcess) -> None:
    with WildPeer(broker.metaq) as peer:
        peer.send(b"put wild 0 1073741824 0 1\r\n")
        taken = peer.send_until_refused(bytes(65536) for _ in range((1 << 30) // 65536))
        assert peer.read_to_end() == b""
    assert taken < SOCKET_BYTES_MAX


def test_a_thousand_broken_connections_leave_nothing_behind(broker: BrokerProcess) -> None:
    before = broker.resident_bytes()
    for index in range(1000):
        with WildPeer(broker.metaq) as peer:
            peer.send([b"put wild 0 1000 0 1\r\nxyz", b"get wild g", b"bad\r\n"][index % 3])
    assert broker.resident_bytes() - before <= 8 << 20


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 8))]
)
def test_mutated_commands_never_stop_the_broker(broker: BrokerProcess, seed: int) -> None:
    rng = random.Random(seed)
    good = [
        encode(Put(TOPIC, 0, 0, b"hello", 5)),
        b"get wild g 0 0 1000 6\r\n",
        b"offset wild g 0 0 7\r\n",
        b"stats  8\r\n",
        PROBE,
    ]
    for _ in range(60):
        data = bytearray(b"".join(rng.choices(good, k=3)))
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with WildPeer(broker.metaq) as peer:
            peer.send(bytes(data))
            peer.half_close()
            says_nothing_of_itself(peer.read_to_end())
