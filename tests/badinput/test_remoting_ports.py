"""What RocketMQ's ports and the name service make of input that no client sends."""

from __future__ import annotations

import json
import random
import zlib
from struct import pack
from typing import TYPE_CHECKING

import lz4.frame
import pytest
import zstandard

from imago_testing.peers.remoting import pull_ext, send_ext
from imago_testing.peers.wild import WildPeer, says_nothing_of_itself
from imago_testing.peers.witness import TOPIC
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import RemotingCommand, SerializeType
from imago_wire.remoting.frame import FrameDecoder, encode_frame
from imago_wire.remoting.messages import BatchEntry, encode_batch

if TYPE_CHECKING:
    from imago_testing.processes.broker import BrokerProcess

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("harmless")]
PORTS = ["rocketmq", "fast", "namesrv"]
SOCKET_BYTES_MAX = 16 << 20
"""What may be under way in the kernel's buffers when the other side closes."""
COMPRESSED = 1
ZLIB, LZ4, ZSTD = 0x300, 0x100, 0x200
CONSUMERS_CODE_MAX = 400


def raw(header: bytes, *, size: int | None = None, kind: int = 0, body: bytes = b"") -> bytes:
    """A frame of any header; `size` in place of the true one."""
    total = 4 + len(header) + len(body) if size is None else size
    return pack(">iI", total, kind << 24 | len(header)) + header + body


def frame(
    code: int,
    ext: dict[str, object] | None = None,
    body: bytes = b"",
    *,
    flag: int = 0,
    serialize: SerializeType = SerializeType.JSON,
) -> bytes:
    texts = {name: str(value) for name, value in (ext or {}).items()}
    command = RemotingCommand(
        code=code, flag=flag, opaque=1, ext=texts, body=body, serialize=serialize
    )
    return encode_frame(command)


PROBE = frame(31_337)
"""A request code that nobody knows: answered with "not supported"."""
DEEP = b'{"code":105,"extFields":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}"

BROKEN_FRAMES = {
    "negative size": pack(">iI", -1, 0),
    "size of nothing": pack(">iI", 0, 0),
    "size of less than a header word": pack(">iI", 3, 0),
    "size of 2 GiB": pack(">iI", 2**31 - 1, 0),
    "header longer than the frame": pack(">iI", 64, 1000) + bytes(64),
    "header that is no JSON": raw(b"hello, broker"),
    "header that is a list": raw(b"[1,2,3]"),
    "header that is cut": raw(b'{"code":105,"flag"'),
    "header of broken text": raw(b'{"code":105,"remark":"\xff\xfe"}'),
    "header as deep as it is long": raw(DEEP),
    "code that is a text": raw(b'{"code":"x","flag":0,"opaque":1}'),
    "code above 32 bits": raw(b'{"code":4294967296000,"flag":0,"opaque":1}'),
    "no header at all": raw(b""),
    "unknown kind of header": raw(b'{"code":105}', kind=7),
    "binary header that is cut": raw(b"\x00\x69\x00", kind=1),
    "binary header with a lying count": raw(
        pack(">hbhiii", 105, 0, 0, 1, 0, 0) + pack(">i", 2**31 - 1), kind=1
    ),
    "binary header with a negative size": raw(
        pack(">hbhiii", 105, 0, 0, 1, 0, 0) + pack(">i", -5), kind=1
    ),
    "another protocol: HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "another protocol: MetaQ": b"put wild 0 5 0 1\r\nhello" * 3,
    "another protocol: TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600),
}


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("data", BROKEN_FRAMES.values(), ids=BROKEN_FRAMES)
def test_broken_frame_is_refused(broker: BrokerProcess, port: str, data: bytes) -> None:
    with WildPeer(getattr(broker, port)) as peer:
        peer.send(data)
        peer.half_close()
        answers = peer.read_to_end()
    says_nothing_of_itself(answers)
    assert all(answer.code != ResponseCode.SUCCESS for answer in decoded(answers))


def decoded(data: bytes) -> list[RemotingCommand]:
    decoder = FrameDecoder()
    decoder.feed(data)
    found = []
    while (command := decoder.next_frame()) is not None:
        found.append(command)
    return found


def refused(broker: BrokerProcess, port: str, data: bytes) -> RemotingCommand | None:
    """Send it and a probe; return the answer to it, None when the connection was closed."""
    with WildPeer(getattr(broker, port)) as peer:
        peer.send(data + PROBE)
        reaction = peer.read_until(b"31337")
    says_nothing_of_itself(reaction.data)
    if reaction.closed:
        return None
    first, *_ = decoded(reaction.data)
    return first


def send(
    code: int = RequestCode.SEND_MESSAGE_V2, body: bytes = b"hello", **fields: object
) -> bytes:
    properties = str(fields.pop("properties", ""))
    return frame(code, {**send_ext(TOPIC, 0, properties), **fields}, body)


def without(field: str) -> bytes:
    ext = send_ext(TOPIC, 0)
    del ext[field]
    return frame(RequestCode.SEND_MESSAGE_V2, ext, b"hello")


def pull(**fields: object) -> bytes:
    return frame(RequestCode.PULL_MESSAGE, {**pull_ext(TOPIC, 0), **fields})


def offsets(code: int, **fields: object) -> bytes:
    ext = {"consumerGroup": "g", "topic": TOPIC, "queueId": 0}
    return frame(code, {**ext, **fields})


REFUSED = {
    "send to a queue that does not exist": send(e=1_000_000_000),
    "send to a negative queue": send(e=-7),
    "send without a topic": without("b"),
    "send without a queue": without("e"),
    "send with a queue that is no number": send(e="first"),
    "send with a birth that is no number": send(g="yesterday"),
    "send with a number above 64 bits": send(g=2**70),
    "send with a sys flag above 32 bits": send(f=2**40),
    "send to a path": send(b="../../../tmp/x"),
    "send to an absolute path": send(b="/etc/passwd"),
    "send to a topic with a zero byte": send(b="wi\x00ld"),
    "send to a topic of 4 KiB": send(b="t" * 4096),
    "send to a topic beyond ASCII": send(b="töpic"),
    "send to an empty topic": send(b=""),
    "send to the broker's own topic": send(b="IMAGO_META"),
    "send with properties above their limit": send(properties="a\x01" + "v" * 40_000 + "\x02"),
    "send with a delay that is no number": send(properties="DELAY\x01soon\x02"),
    "send that is said to be compressed and is not": send(f=COMPRESSED | ZLIB),
    "send of an unknown compression": send(f=COMPRESSED | 0x700, body=zlib.compress(b"x")),
    "batch that is cut": send(320, encode_batch([BatchEntry(b"abc")])[:-2], m="true"),
    "batch with a lying size": send(320, pack(">iiiii", 2**31 - 1, 0, 0, 0, 5) + b"x", m="true"),
    "batch with a negative size": send(320, pack(">iiiii", -20, 0, 0, 0, -5), m="true"),
    "batch of nothing": send(320, b"", m="true"),
    "pull of a queue that does not exist": pull(queueId=1_000_000_000),
    "pull of a negative queue": pull(queueId=-1),
    "pull of an unknown topic": pull(topic="nowhere"),
    "pull of a path": pull(topic="../../etc/passwd", consumerGroup="../g"),
    "pull for a group of 4 KiB": pull(consumerGroup="g" * 4096),
    "pull with an offset that is no number": pull(queueOffset="start"),
    "pull with a broken expression": pull(subscription="a IS NOT (", expressionType="SQL92"),
    "commit to a queue that does not exist": offsets(15, queueId=10**9, commitOffset=1),
    "commit below zero": offsets(15, commitOffset=-5),
    "commit to an unknown topic": offsets(15, topic="nowhere", commitOffset=1),
    "heart beat that is no JSON": frame(34, {}, b"{{{{"),
    "heart beat that is a list": frame(34, {}, b"[]"),
    "heart beat of nothing": frame(34),
    "lock of no JSON": frame(41, {}, b"lock"),
    "message of an offset that is none": frame(33, {"offset": 2**62}),
    "message of a negative offset": frame(33, {"offset": -1}),
    "message inside another": frame(33, {"offset": 3}),
    "send back of nothing": frame(36, {"offset": 2**62, "group": "g", "delayLevel": 0}),
    "topic with a negative number of queues": frame(
        17,
        {"topic": "t1", "defaultTopic": "TBW102", "readQueueNums": -1, "writeQueueNums": -1,
         "perm": 6, "topicFilterType": "SINGLE_TAG", "order": "false"},
    ),
    "topic with a thousand million queues": frame(
        17,
        {"topic": "t2", "defaultTopic": "TBW102", "readQueueNums": 10**9, "writeQueueNums": 10**9,
         "perm": 6, "topicFilterType": "SINGLE_TAG", "order": "false"},
    ),
    "topic at a path": frame(
        17,
        {"topic": "../t", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1,
         "perm": 6, "topicFilterType": "SINGLE_TAG", "order": "false"},
    ),
    "settings that name where settings lie": frame(25, {}, b"brokerConfigPath=/tmp/x\n"),
}  # fmt: skip


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_poisonous_request_is_refused_and_the_connection_goes_on(
    broker: BrokerProcess, data: bytes
) -> None:
    answer = refused(broker, "rocketmq", data)
    assert answer is None or answer.code != ResponseCode.SUCCESS, answer


ANSWERED = {
    # Kept and shown, without effect: nothing here ever opens a path or runs a command of settings.
    "settings that name a path": frame(25, {}, b"storePathRootDir=/tmp/x\n"),
    "settings that name a command": frame(25, {}, b"filterServerNums=1\nrocketmqHome=-c $@|sh\n"),
    "pull before the start": pull(queueOffset=-1),
    "pull at the smallest offset": pull(queueOffset=-(2**63)),
    "pull at the largest offset": pull(queueOffset=2**63 - 1),
    "pull of no messages": pull(maxMsgNums=0),
    "pull of fewer than no messages": pull(maxMsgNums=-5),
    "pull of all there are and more": pull(maxMsgNums=2**31 - 1),
    "pull with all flags": pull(sysFlag=2**31 - 1),
    "pull held for ever": pull(sysFlag=4, suspendTimeoutMillis=2**62),
    "search in the year ten million": offsets(29, timestamp=2**62),
    "search before all time": offsets(29, timestamp=-(2**62)),
    "end of a queue that does not exist": offsets(30, queueId=10**9),
    "start of a queue that does not exist": offsets(31, queueId=-1),
    "query of a thousand million messages": frame(
        12,
        {"topic": TOPIC, "key": "k", "maxNum": 10**9, "beginTimestamp": 0, "endTimestamp": 2**62},
    ),
    "query of a time that ends before it begins": frame(
        12, {"topic": TOPIC, "key": "k", "maxNum": 32, "beginTimestamp": 9, "endTimestamp": -9}
    ),
    "consumers of nobody": frame(38, {"consumerGroup": "../../x"}),
    "unregister of nobody": frame(35, {"clientID": "\x00", "consumerGroup": "g"}),
    "every property that the broker keeps for itself": send(
        properties="__METAQ_POS\x0112345\x02__METAQ_ID\x015\x02__CRC32#\x010\x02REAL_TOPIC\x01x\x02"
    ),
    "properties that are no pairs": send(properties="\x02\x02\x01\x01\x02novalue"),
    "headers of both kinds": frame(105, {"topic": TOPIC}, serialize=SerializeType.ROCKETMQ),
    "a response that nobody asked for": frame(0, flag=1),
}


@pytest.mark.parametrize("data", ANSWERED.values(), ids=ANSWERED)
def test_poisonous_number_is_answered_and_the_connection_goes_on(
    broker: BrokerProcess, data: bytes
) -> None:
    answer = refused(broker, "rocketmq", data)
    assert answer is not None


NAME_SERVICE = {
    "route of nothing": frame(105),
    "route of a path": frame(105, {"topic": "../../etc/passwd"}),
    "route of a topic of 64 KiB": frame(105, {"topic": "t" * 65_000}),
    "registration without a header": frame(103, {}, b"{}"),
    "registration with a broken body": frame(
        103,
        {"brokerName": "x", "brokerAddr": "1.2.3.4:5", "clusterName": "c", "brokerId": 0,
         "haServerAddr": "1.2.3.4:6", "compressed": "true", "bodyCrc32": 0},
        b"\x78\x9cgarbage",
    ),
    "registration with a negative id": frame(
        103, {"brokerName": "x", "brokerAddr": "nowhere", "clusterName": "c", "brokerId": -9}
    ),
    "value of nothing": frame(101),
    "settings of the name server": frame(318, {}, b"configStorePath=/tmp/x\n"),
    "a send": send(),
    "a pull": pull(),
}  # fmt: skip


@pytest.mark.parametrize("data", NAME_SERVICE.values(), ids=NAME_SERVICE)
def test_name_service_refuses_it_and_goes_on(broker: BrokerProcess, data: bytes) -> None:
    answer = refused(broker, "namesrv", data)
    assert answer is None or answer.code != ResponseCode.SUCCESS, answer


def test_every_request_code_is_answered_or_refused(broker: BrokerProcess) -> None:
    for port in PORTS:
        with WildPeer(getattr(broker, port)) as peer:
            codes = [*range(CONSUMERS_CODE_MAX), *range(900, 910), 200_050, 200_051, 2**31 - 1, -1]
            # POP and the like may wait for a message; everything else has an answer at once.
            for code in codes:
                peer.send(frame(code) + PROBE)
                reaction = peer.read_until(b"31337")
                says_nothing_of_itself(reaction.data)
                assert not reaction.closed, f"{port}: code {code} closes the connection"


def zlib_of_nothing(mebibytes: int) -> bytes:
    """As zlib.compress(bytes(mebibytes << 20), 9): one MiB is compressed, and said again."""
    packer = zlib.compressobj(9)
    block = bytes(1 << 20)
    first = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    last = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS).flush()
    # Adler-32 of zeros: the first sum stays 1, the second counts the bytes.
    checksum = ((mebibytes << 20) % 65521) << 16 | 1
    return first + again * (mebibytes - 1) + last + pack(">I", checksum)


def test_a_bomb_is_what_zlib_makes() -> None:
    assert zlib.decompress(zlib_of_nothing(3)) == bytes(3 << 20)


def bomb(kind: int) -> bytes:
    """Hundreds of MiB of nothing, in a body that is small enough to be sent."""
    match kind:
        case 0x300:
            return zlib_of_nothing(512)
        case 0x100:
            compressed: bytes = lz4.frame.compress(bytes(200 << 20))
            return compressed
        case _:
            return zstandard.compress(bytes(512 << 20))


@pytest.mark.parametrize("kind", [ZLIB, LZ4, ZSTD], ids=["zlib", "lz4", "zstd"])
def test_decompression_bomb_is_refused(broker: BrokerProcess, kind: int) -> None:
    body = bomb(kind)
    assert len(body) < 4 << 20
    before = broker.resident_bytes()
    answer = refused(broker, "rocketmq", send(body=body, f=COMPRESSED | kind))
    assert answer is None or answer.code == ResponseCode.MESSAGE_ILLEGAL, answer
    assert broker.resident_bytes() - before <= 16 << 20


@pytest.mark.parametrize("port", PORTS)
def test_frame_over_the_limit_is_refused_before_it_comes(broker: BrokerProcess, port: str) -> None:
    with WildPeer(getattr(broker, port)) as peer:
        peer.send(pack(">iI", 1 << 30, 100))
        taken = peer.send_until_refused(bytes(65536) for _ in range((1 << 30) // 65536))
        assert peer.read_to_end() == b""
    assert taken < SOCKET_BYTES_MAX


@pytest.fixture(scope="module")
def long_header() -> bytes:
    """A frame whose header has half a million fields."""
    ext = json.dumps({f"key-{index}": "v" for index in range(500_000)}).encode()
    return raw(b'{"code":105,"flag":0,"opaque":1,"extFields":' + ext + b"}")


@pytest.mark.parametrize("port", PORTS)
def test_header_over_the_limit_is_refused(
    broker: BrokerProcess, long_header: bytes, port: str
) -> None:
    before = broker.resident_bytes()
    with WildPeer(getattr(broker, port)) as peer:
        peer.send(long_header)
        peer.half_close()
        answers = decoded(peer.read_to_end())
    assert all(answer.code != ResponseCode.SUCCESS for answer in answers)
    assert broker.resident_bytes() - before <= 16 << 20


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 8))]
)
@pytest.mark.parametrize("port", PORTS)
def test_mutated_frames_never_stop_the_broker(broker: BrokerProcess, port: str, seed: int) -> None:
    rng = random.Random(seed)
    heartbeat = json.dumps({
        "clientID": "c",
        "consumerDataSet": [],
        "producerDataSet": [{"groupName": "g"}],
    }).encode()  # fmt: skip
    good = [
        send(),
        pull(),
        send(320, encode_batch([BatchEntry(b"a"), BatchEntry(b"b", b"K\x01V\x02")]), m="true"),
        offsets(14),
        frame(34, {}, heartbeat),
        frame(105, {"topic": TOPIC}, serialize=SerializeType.ROCKETMQ),
        frame(RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC), b"x", serialize=SerializeType.ROCKETMQ),
    ]
    for _ in range(50):
        data = bytearray(b"".join(rng.choices(good, k=3)))
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with WildPeer(getattr(broker, port)) as peer:
            peer.send(bytes(data))
            peer.half_close()
            says_nothing_of_itself(peer.read_to_end())
