"""A generator that speaks as RocketMQ 5's SDKs do: calls over gRPC on a few connections.

What it costs itself is not measured: the servers are, by the processor time of all their threads.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque
from typing import TYPE_CHECKING

from hpack import Encoder

from bench.hot_driver import BODY
from imago_wire.grpc import frames
from imago_wire.grpc.frames import ACK, END_HEADERS, END_STREAM, PREFACE, Http2Frame
from imago_wire.grpc.messages import SERVICE, duration, encoded, make, parse, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BATCH = 32
TOPIC, GROUP = "bench", "bench-readers"
BORN_MS = 1_795_258_220_883
ROOM_BYTES = 1 << 20
SILENT_SECONDS = 30.0
OK_STATUS = b"\x08\xa0\x9c\x01"


def cpu_seconds(pid: int) -> float:
    """Return the processor time of all threads of a process, those that have ended too."""
    clock = ~pid << 3 | 2  # Linux's number for that clock of another process
    return time.clock_gettime(clock)


def requests() -> Iterator[bytes]:
    """Yield SendMessage requests of 1 KiB, each with an id, a tag, a key and a property."""
    number = 0
    while True:
        message = make("Message", topic=make("Resource", name=TOPIC), body=BODY)
        message.user_properties["colour"] = "blue"
        told = message.system_properties
        told.tag, told.message_id, told.message_type = "tag", f"01{number:032X}", 1
        told.keys.append(f"key-{number}")
        told.body_encoding, told.born_host = 1, "bench-host"
        told.born_timestamp.CopyFrom(timestamp(BORN_MS))
        yield encoded(make("SendMessageRequest", messages=[message]))
        number += 1


def receive_request(batch: int = BATCH) -> bytes:
    """Return a ReceiveMessage of a simple consumer."""
    queue = make("MessageQueue", topic=make("Resource", name=TOPIC))
    return encoded(
        make(
            "ReceiveMessageRequest",
            group=make("Resource", name=GROUP),
            message_queue=queue,
            filter_expression=make("FilterExpression", type=1, expression="*"),
            batch_size=batch,
            invisible_duration=duration(60_000),
            long_polling_timeout=duration(5_000),
        )
    )


class SdkConnection:
    """One connection, and the answers that come over it."""

    def __init__(self, port: int, number: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SILENT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream, self._number, self._used = -1, number, 0
        self._encoder = Encoder()
        self._blocks: dict[str, bytes] = {}
        self._known: set[str] = set()
        self._got = bytearray()
        self.answers: dict[int, bytearray] = {}
        settings = frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: frames.WINDOW_MAX})
        room = frames.window_update(0, frames.WINDOW_MAX - (1 << 16))
        self._socket.sendall(PREFACE + settings + room)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def _block(self, method: str) -> bytes:
        """Return a call's headers: after the first one shortened by the table, as clients do it."""
        if method not in self._blocks:
            told = [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", SERVICE + method),
                (":authority", "127.0.0.1:8081"),
                ("content-type", "application/grpc"),
                ("user-agent", "grpc-go/1.72.0"),
                ("te", "trailers"),
                ("x-mq-client-id", f"bench@{self._number}@0@a"),
                ("x-mq-language", "GO"),
                ("x-mq-protocol", "v2"),
                ("x-mq-client-version", "5.1.4"),
                ("x-mq-date-time", "20261130T000000Z"),
            ]
            if method != "Telemetry":
                told.append(("grpc-timeout", "30S"))
            if method not in self._known:
                self._known.add(method)
                self._blocks.clear()  # what the table learns now moves all that it knew
                first: bytes = self._encoder.encode(told)
                return first
            self._blocks[method] = self._encoder.encode(told)
        return self._blocks[method]

    def begin(self, method: str, message: bytes, *, last: bool = True) -> bytes:
        """Return a call's frames."""
        self._stream += 2
        name = b"x-mq-request-id"
        request = f"{self._stream:08x}-1234-5678-9abc-{self._number:012x}".encode()
        block = self._block(method)
        block += b"\0" + bytes([len(name)]) + name + bytes([len(request)]) + request
        head = frames.frame(Http2Frame.HEADERS, END_HEADERS, self._stream, block)
        whole = b"\0" + len(message).to_bytes(4, "big") + message
        self.answers[self._stream] = bytearray()
        return head + frames.frame(Http2Frame.DATA, END_STREAM if last else 0, self._stream, whole)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> list[bytearray]:
        """Read once; return the data of the calls that have ended."""
        data = self._socket.recv(1 << 20)
        if not data:
            raise EOFError("the server has closed the connection")
        got, at, ended = self._got, 0, list[bytearray]()
        got += data
        while len(got) - at >= frames.HEAD_BYTES:
            size, kind, flags, number = frames.read_head(got, at)
            end = at + frames.HEAD_BYTES + size
            if end > len(got):
                break
            self._take(kind, flags, number, got[at + frames.HEAD_BYTES : end])
            at = end
            if flags & END_STREAM and kind in (Http2Frame.DATA, Http2Frame.HEADERS):
                ended.append(self.answers.pop(number))
        del got[:at]
        if self._used > ROOM_BYTES:
            self.send(frames.window_update(0, self._used))
            self._used = 0
        return ended

    def _take(self, kind: int, flags: int, number: int, payload: bytearray) -> None:
        if kind == Http2Frame.DATA:
            self.answers[number] += payload
            self._used += len(payload)
        elif kind == Http2Frame.PING and not flags & ACK:
            self.send(frames.frame(Http2Frame.PING, ACK, 0, bytes(payload)))
        elif kind == Http2Frame.SETTINGS and not flags & ACK:
            self.send(frames.frame(Http2Frame.SETTINGS, ACK, 0))
        elif kind in (Http2Frame.GOAWAY, Http2Frame.RST_STREAM):
            raise EOFError(f"frame {kind}: {bytes(payload)!r}")


class SdkLoad:
    """A few connections, which keep so many calls in flight."""

    def __init__(self, port: int, connections: int) -> None:
        self.connections = [SdkConnection(port, number) for number in range(connections)]
        self._selector = selectors.DefaultSelector()
        for each in self.connections:
            self._selector.register(each, selectors.EVENT_READ, each)
            self._introduce(each)
        self._sends = requests()
        self._ready: deque[bytes] = deque()

    def _introduce(self, connection: SdkConnection) -> None:
        """Open the telemetry stream: the client says what it is."""
        command = make("TelemetryCommand")
        command.settings.client_type = 3
        command.settings.subscription.group.name = GROUP
        entry = command.settings.subscription.subscriptions.add()
        entry.topic.name, entry.expression.expression = TOPIC, "*"
        connection.send(connection.begin("Telemetry", encoded(command), last=False))
        while not connection.answers[1]:
            connection.receive()

    def close(self) -> None:
        for each in self.connections:
            each.close()

    def run(
        self,
        method: str,
        in_flight: int,
        wanted: Callable[[int], bytes | None],
        came: Callable[[bytearray], None],
    ) -> None:
        """Make calls: `wanted` gets how many are under way, and returns one more or None."""
        running = 0
        free = deque(each for each in self.connections for _ in range(in_flight))
        while True:
            out: dict[SdkConnection, bytearray] = {}
            while free and (message := wanted(running)) is not None:
                connection = free.popleft()
                out.setdefault(connection, bytearray()).extend(connection.begin(method, message))
                running += 1
            for connection, data in out.items():
                connection.send(bytes(data))
            if not running:
                return
            ready = self._selector.select(SILENT_SECONDS)
            if not ready:
                raise EOFError(f"{method}: nothing came for {SILENT_SECONDS} s")
            for key, _ in ready:
                for answer in key.data.receive():
                    came(answer)
                    free.append(key.data)
                    running -= 1

    def prepare(self, count: int) -> None:
        """Make the requests of the next sends."""
        self._ready = deque(next(self._sends) for _ in range(count))

    def send(self, in_flight: int) -> None:
        """Send what is prepared, and see that all are stored."""
        ready = self._ready

        def came(answer: bytearray) -> None:
            assert OK_STATUS in answer, parse("SendMessageResponse", bytes(answer[5:]))

        self.run("SendMessage", in_flight, lambda _: ready.popleft() if ready else None, came)

    def receive(self, count: int, in_flight: int) -> list[bytearray]:
        """Receive messages, 32 a call as long as there are; return the answers that have some."""
        left, got, asked = count, list[bytearray](), receive_request()

        def wanted(running: int) -> bytes | None:
            there = left - BATCH * running
            return asked if there >= BATCH or (left > 0 and not running) else None

        def came(answer: bytearray) -> None:
            nonlocal left
            found = sum(1 for _ in framed(answer)) - 2  # a status before them, a time behind
            left -= found
            if found:
                got.append(answer)

        self.run("ReceiveMessage", in_flight, wanted, came)
        return got

    def acknowledge(self, requests: Iterable[bytes], in_flight: int) -> None:
        """Acknowledge what was received, a call each, and see that all count."""
        left = deque(requests)

        def came(answer: bytearray) -> None:
            told = parse("AckMessageResponse", bytes(answer[5:]))
            assert told.status.code == 20000, told

        self.run("AckMessage", in_flight, lambda _: left.popleft() if left else None, came)


def framed(answer: bytearray) -> Iterator[bytes]:
    """Yield the messages of an answer."""
    at = 0
    while at < len(answer):
        size = int.from_bytes(answer[at + 1 : at + 5], "big")
        yield bytes(answer[at + 5 : at + 5 + size])
        at += 5 + size


def ack_request(answer: bytearray) -> bytes:
    """Return an AckMessage of all messages that came in an answer."""
    request = make(
        "AckMessageRequest",
        group=make("Resource", name=GROUP),
        topic=make("Resource", name=TOPIC),
    )
    for each in framed(answer):
        told = parse("ReceiveMessageResponse", each)
        if told.HasField("message"):
            system = told.message.system_properties
            request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
    return encoded(request)
