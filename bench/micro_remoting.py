"""What the hot functions of the remoting protocol cost, in both twins.

    python -m bench.micro_remoting

Nanoseconds a call, a message of 1 KiB each; the least of many short loops, so that other work on
the machine disturbs little. `x16`: sixteen frames in one buffer, a frame.
"""

from __future__ import annotations

import importlib
import struct
import timeit
from typing import TYPE_CHECKING, Any

import orjson

from imago_wire.remoting.command import RemotingCommand, SerializeType
from imago_wire.remoting.frame import FRAME_BYTES_MAX, encode_frame
from imago_wire.remoting.messages import BatchEntry, encode_batch

if TYPE_CHECKING:
    from collections.abc import Callable

LOOPS = 20
UNIQUE_KEY = "7F000001000118B4AAC212CC9AB20000"
PROPERTIES = f"KEYS\x01k1\x02UNIQ_KEY\x01{UNIQUE_KEY}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
SEND = {
    "a": "producer", "b": "TopicTest", "c": "TBW102", "d": "4", "e": "2", "f": "0",
    "g": "1700000000000", "h": "0", "i": PROPERTIES, "j": "0", "k": "false", "m": "false",
    "n": "broker-a",
}  # fmt: skip
PULL = {
    "queueId": "0", "maxMsgBytes": "262144", "maxMsgNums": "32", "sysFlag": "2",
    "suspendTimeoutMillis": "15000", "commitOffset": "0", "bname": "broker-a", "topic": "TopicTest",
    "queueOffset": "0", "expressionType": "TAG", "subVersion": "1795258222359",
    "consumerGroup": "wire_group",
}  # fmt: skip
BODY = b"x" * 1024
HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")


def frame(code: int, ext: dict[str, str], body: bytes, serialize: SerializeType) -> bytes:
    return encode_frame(RemotingCommand(code, opaque=7, ext=ext, body=body, serialize=serialize))


def cpp_frame() -> bytes:
    """Return a send as the C++ client writes it: numbers as numbers, a line feed at the end."""
    ext = {name: int(text) if name in "dehfl" else text for name, text in SEND.items()}
    fields = {"code": 310, "extFields": ext, "flag": 0, "language": "CPP", "opaque": 7}
    header = orjson.dumps({**fields, "remark": "", "version": 333}) + b"\n"
    return struct.pack(">II", 4 + len(header) + len(BODY), len(header)) + header + BODY


def cases(twin: Any) -> dict[str, tuple[Callable[[], object], int]]:
    """Return what is measured, and how many messages one call is."""
    as_json, as_binary = SerializeType.JSON, SerializeType.ROCKETMQ
    send, binary_send = frame(310, SEND, BODY, as_json), frame(310, SEND, BODY, as_binary)
    sends, cpp, pull = send * 16, cpp_frame(), frame(11, PULL, b"", as_json)
    batch = encode_batch([BatchEntry(BODY, PROPERTIES.encode())] * 16)
    unique, placed = UNIQUE_KEY.encode(), [(5, 1234, 1200, -1, -1)]
    answer = (7, b"7F00000100002A9F0000000000000000", 2, 0, unique)
    watched = (b"UNIQ_KEY", b"DELAY", b"TRAN_MSG")
    properties = PROPERTIES.encode()
    return {
        "scan send": (lambda: twin.scan_frames(send, FRAME_BYTES_MAX), 1),
        "scan send x16": (lambda: twin.scan_frames(sends, FRAME_BYTES_MAX), 16),
        "scan send, C++ client": (lambda: twin.scan_frames(cpp, FRAME_BYTES_MAX), 1),
        "scan send, binary header": (lambda: twin.scan_frames(binary_send, FRAME_BYTES_MAX), 1),
        "scan pull": (lambda: twin.scan_frames(pull, FRAME_BYTES_MAX), 1),
        "scan batch of 16, a message": (lambda: twin.scan_batch(batch, 1000), 16),
        "answer what was stored": (lambda: twin.answer_stored(7, HOST, placed, 2, unique), 1),
        "answer": (lambda: twin.encode_send_response(*answer), 1),
        "answer, binary header": (lambda: twin.encode_send_response(*answer, 0, 1), 1),
        "message id": (lambda: twin.join_message_ids(HOST, (1234,)), 1),
        "find 3 properties": (lambda: twin.find_each(properties, watched), 1),
    }


def nanoseconds(call: Callable[[], object], messages: int) -> float:
    """Return the least time of one message."""
    timer = timeit.Timer(call)
    count, took = timer.autorange()
    loops = max(1, int(count * 0.02 / took))
    return min(timer.repeat(LOOPS, loops)) / loops / messages * 1e9


def main() -> None:
    twins = [importlib.import_module(f"imago_wire._remoting_{name}") for name in ("py", "c")]
    print(f"{'ns':30}{'plain':>10}{'compiled':>10}")
    for name in cases(twins[0]):
        costs = [nanoseconds(*cases(twin)[name]) for twin in twins]
        print(f"{name:30}" + "".join(f"{cost:10.0f}" for cost in costs))


if __name__ == "__main__":
    main()
