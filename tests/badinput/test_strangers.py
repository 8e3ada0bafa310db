"""Memory of a broker with access control and TLS, while somebody whom it does not know attacks."""

from __future__ import annotations

import contextlib
import ssl
import threading
from typing import TYPE_CHECKING, Final

import pytest
from hpack import Encoder

from imago_testing.peers.remoting import send_ext
from imago_testing.peers.sdk_peer import HEADERS, SdkFrames, request_headers
from imago_testing.peers.wild import WildPeer
from imago_testing.processes.broker import BrokerProcess, broker_process
from imago_testing.processes.certificates import Authority
from imago_testing.processes.servers import wait_until
from imago_testing.searching import seldom
from imago_wire.grpc import frames
from imago_wire.grpc.frames import END_HEADERS, H2Error, Http2Frame, Setting
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.frame import encode_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

pytestmark = pytest.mark.processes

GROWTH_BYTES_MAX: Final = 32 << 20
"""By how much the process may grow in one attack."""
ABOVE_IDLE_BYTES_MAX: Final = 64 << 20
"""By how much all attacks together may make it larger than it was before the first; as promised."""
LEFT_BYTES_MAX: Final = 16 << 20
"""What may be left of an attack afterwards: an allocator keeps some of it."""
LEFT_SECONDS_MAX: Final = 10
"""How soon after its end no more is left; as promised."""
SENT_BYTES: Final = 96 << 20
PEERS: Final = 4
PIECE: Final = b"a" * (64 << 10)
HEALTH: Final = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
LOGIN: Final = b"POST /login HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED: Final = LOGIN + b"Transfer-Encoding: chunked\r\n\r\n"
UPGRADE: Final = b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
ENDLESS: Final = {
    "method": (b"G", PIECE),
    "URL": (b"GET /", PIECE),
    "name of a header": (HEALTH, PIECE),
    "value of a header": (HEALTH + b"X: ", PIECE),
    "headers": (HEALTH, b"X: y\r\n" * 10_000),
    "trailer": (CHUNKED + b"0\r\nX: ", PIECE),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n" * 10_000),
    "size of a chunk": (CHUNKED, b"0" * (64 << 10)),
    "extension of a chunk": (CHUNKED + b"1;", PIECE),
    "tiny chunks": (CHUNKED, b"1\r\na\r\n" * 10_000),
    "body of a login": (LOGIN + b"Content-Length: 1000000000\r\n\r\n", PIECE),
    "body that is waited for": (
        LOGIN + b"Content-Length: 1000000000\r\nExpect: 100-continue\r\n\r\n",
        PIECE,
    ),
    "body of a call": (
        b"PUT /admin/v1/topics/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n",
        PIECE,
    ),
    "protocol that is changed to": (HEALTH + UPGRADE, PIECE),
    "tunnel": (b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", PIECE),
}


LOOPS: Final = 24
"""Requests one after the other: after each of them every connection was read once more."""
IDLE: Final[dict[int, int]] = {}
"""What brokers held before the first attack, by their port."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    pair = Authority(folder / "authority").issue("server")
    token = folder / "token"
    token.write_text("a-token-that-is-long-enough-for-an-administrator")
    settings: dict[str, dict[str, object]] = {
        "acl": {"enabled": True},
        "admin": {"token_file": str(token)},
        "tls": {"certificate_file": str(pair.certificate), "key_file": str(pair.key)},
    }
    with broker_process(folder, settings) as broker:
        IDLE[broker.admin] = broker.resident_bytes()
        yield broker
        assert broker.alive, broker.server.log_tail()
    assert "Traceback" not in broker.log_text()


class Watched:
    """The most memory that the process held while the block ran."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker, self._end = broker, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._idle = IDLE[broker.admin]
        self.before = self.most = broker.resident_bytes()

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def is_well(self, growth_max: int = GROWTH_BYTES_MAX) -> None:
        """Check that the process grew little, and that it is about as small as before soon."""
        assert self.most - self.before <= growth_max, f"{self.most - self.before >> 20} MiB"
        assert self.most - self._idle <= ABOVE_IDLE_BYTES_MAX, f"{self.most - self._idle >> 20} MiB"
        wait_until(
            lambda: self._broker.resident_bytes() - self.before <= LEFT_BYTES_MAX,
            seconds_max=LEFT_SECONDS_MAX,
            what="memory is free again",
        )

    def _look(self) -> None:
        while not self._end.wait(0.005):
            self.most = max(self.most, self._broker.resident_bytes())


def read_up(broker: BrokerProcess) -> None:
    """Wait until the broker has read what it wants to read of what was sent."""
    for _ in range(LOOPS):
        with WildPeer(broker.admin) as peer:
            peer.send(HEALTH + b"\r\n")
            assert b"200 OK" in peer.read()


def by_all(peers: int, attack: Callable[[], None]) -> None:
    """Run the attack of one peer, by several at once."""

    def run() -> None:
        with contextlib.suppress(OSError):  # cut off, or not read any more
            attack()

    threads = [threading.Thread(target=run) for _ in range(peers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def pour(port: int, beginning: bytes, piece: bytes, *, tls: bool) -> None:
    """Send without an end."""
    with WildPeer(port) as peer:
        if tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            peer.secure(context)
        peer.send(beginning)
        peer.send_until_refused(piece for _ in range(SENT_BYTES // PEERS // len(piece)))


@pytest.mark.parametrize("tls", seldom([False, True]), ids=lambda tls: "TLS" if tls else "plain")
@pytest.mark.parametrize("what", ENDLESS)
def test_an_endless_part_of_a_request_is_not_kept(
    broker: BrokerProcess, what: str, tls: bool
) -> None:
    beginning, piece = ENDLESS[what]
    with Watched(broker) as watched:
        by_all(PEERS, lambda: pour(broker.admin, beginning, piece, tls=tls))
    watched.is_well()


REFUSED: Final = {
    "bad header": b"GET / HTTP/1.1\r\nHost: l\r\nX\x01: " + b"a" * 15_000 + b"\r\n\r\n",
    "line too long": b"GET /" + b"a" * 15_000 + b" HTTP/1.1\r\nHost: l\r\n\r\n",
    "large login": LOGIN + b"Content-Length: 900000\r\n\r\n" + b" " * 900_000,
    "large login with a key": LOGIN
    + b"Idempotency-Key: k\r\nContent-Length: 900000\r\n\r\n"
    + b'{"user":"nobody","password":"%b"}' % (b"x" * (900_000 - 32)),
    "no login with a key": LOGIN
    + b"Idempotency-Key: k\r\nContent-Length: 7000\r\n\r\n"
    + b'{"token":"%b"}' % (b"x" * (7000 - 12)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_requests_are_forgotten(broker: BrokerProcess, what: str) -> None:
    data = REFUSED[what]

    def refused() -> None:
        for _ in range(300):
            with WildPeer(broker.admin) as peer:
                peer.send(data)
                assert peer.read()[:10] in (b"HTTP/1.1 4", b"HTTP/1.0 4")

    with Watched(broker) as watched:
        by_all(PEERS, refused)
    watched.is_well()


UNFINISHED: Final = {
    "head": HEALTH + b"X: " + b"a" * 12_000,
    "login": LOGIN + b"Content-Length: 8000\r\n\r\n" + b" " * 7_900,
    "call": b"PUT /admin/v1/topics/x HTTP/1.1\r\nHost: l\r\nContent-Length: 1000000\r\n\r\n"
    + b" " * 999_000,
}


@pytest.mark.parametrize("what", UNFINISHED)
def test_requests_that_many_have_begun_are_bounded(broker: BrokerProcess, what: str) -> None:
    with contextlib.ExitStack() as stack, Watched(broker) as watched:

        def begin() -> None:
            for _ in range(300):
                stack.enter_context(WildPeer(broker.admin)).send(UNFINISHED[what])

        by_all(PEERS, begin)
        read_up(broker)
    watched.is_well()


HEADER: Final = (
    b'{"code":310,"language":"JAVA","version":479,"opaque":1,"flag":0,"extFields":{"a":"'
)


def frame_begun(header_bytes: int, sent_bytes: int, body_bytes: int = 32 << 10) -> bytes:
    """Return the beginning of a send: its header is not whole, or has no user who may send."""
    whole = body_bytes + header_bytes
    head = whole.to_bytes(4, "big") + header_bytes.to_bytes(4, "big")
    if header_bytes > sent_bytes:
        return head + HEADER + b"x" * (sent_bytes - len(HEADER))
    end = b'","b":"T","e":"0","f":"0","g":"0","h":"0","i":"","j":"0"}}'
    padding = b"x" * (header_bytes - len(HEADER) - len(end))
    return head + HEADER + padding + end + b"x" * (sent_bytes - header_bytes)


COMMANDS: Final = {
    "header of a frame": ("rocketmq", frame_begun(1 << 20, 500 << 10)),
    "body of a frame": ("rocketmq", frame_begun(1000, 30 << 10)),
    "header to the name service": ("namesrv", frame_begun(1 << 20, 500 << 10)),
    "body of a MetaQ put": ("metaq", b"put T 0 60000 0 1\r\n" + bytes(59_000)),
}


@pytest.mark.parametrize("what", COMMANDS)
def test_commands_that_many_have_begun_are_bounded(broker: BrokerProcess, what: str) -> None:
    port, data = COMMANDS[what]
    with contextlib.ExitStack() as stack, Watched(broker) as watched:

        def begin() -> None:
            for _ in range(400):
                stack.enter_context(WildPeer(getattr(broker, port))).send(data)

        by_all(PEERS, begin)
        read_up(broker)
    watched.is_well()


GREETING: Final = SdkFrames().greeting()
LONG: Final = {**HEADERS, "x-mq-client-id": "c" * 3_500}


def http2(kind: Http2Frame, flags: int, stream: int, payload: bytes) -> bytes:
    return frames.frame(kind, flags, stream, payload)


def begun(first: int, count: int, headers: Mapping[str, str] = HEADERS) -> bytes:
    """Return calls whose requests do not come; a table shortens what they say."""
    encoder = Encoder()
    return b"".join(
        http2(Http2Frame.HEADERS, END_HEADERS, number, block)
        for number in range(first, first + 2 * count, 2)
        for block in (encoder.encode(request_headers("SendMessage", headers)),)
    )


def taken_back(count: int) -> bytes:
    """Return calls that are taken back at once."""
    encoder, parts = Encoder(), []
    for number in range(1, 2 * count, 2):
        block = encoder.encode(request_headers("QueryRoute"))
        parts.append(http2(Http2Frame.HEADERS, END_HEADERS, number, block))
        parts.append(frames.reset(number, H2Error.CANCEL))
    return b"".join(parts)


def bomb() -> bytes:
    """Return headers of which each byte stands for four thousand."""
    encoder = Encoder()
    first = encoder.encode([("x", "a" * 4000)])
    again = encoder.encode([("x", "a" * 4000)])
    assert len(again) == 1
    return http2(Http2Frame.HEADERS, END_HEADERS, 1, first) + http2(
        Http2Frame.HEADERS, END_HEADERS, 3, again * 16_000
    )


ON_HTTP2: Final = {
    "calls that are taken back": (b"", taken_back(5000)),
    "headers that a table makes long": (b"", bomb()),
    "headers without an end": (
        http2(Http2Frame.HEADERS, 0, 1, b"\x00"),
        http2(Http2Frame.CONTINUATION, 0, 1, b"") * 10_000,
    ),
    "large headers": (b"", http2(Http2Frame.HEADERS, 0, 1, b"\x00\x7f" + b"a" * 16_000) * 4),
    "settings": (b"", frames.settings({Setting.INITIAL_WINDOW_SIZE: 1}) * 5000),
    "settings that are many": (
        b"",
        http2(Http2Frame.SETTINGS, 0, 0, b"\0\4\0\0\0\1" * 2700) * 4,
    ),
    "pings": (b"", http2(Http2Frame.PING, 0, 0, bytes(8)) * 5000),
    "windows": (begun(1, 1), frames.window_update(1, 1) * 5000),
    "nothing": (begun(1, 1), http2(Http2Frame.DATA, 0, 1, b"") * 5000),
    "a message without an end": (
        begun(1, 1) + http2(Http2Frame.DATA, 0, 1, b"\0\0\xff\xff\xff"),
        http2(Http2Frame.DATA, 0, 1, bytes(16_000)) * 4,
    ),
    "what is no HTTP/2": (b"\0", PIECE),
}


@pytest.mark.parametrize("what", ON_HTTP2)
def test_floods_of_frames_are_not_kept(broker: BrokerProcess, what: str) -> None:
    beginning, piece = ON_HTTP2[what]
    pieces = SENT_BYTES // PEERS // len(piece)

    def flood() -> None:
        with WildPeer(broker.grpc) as peer:
            peer.send(GREETING + beginning)
            peer.send_until_refused(piece for _ in range(pieces))

    with Watched(broker) as watched:
        by_all(PEERS, flood)
    watched.is_well()


@pytest.mark.parametrize("headers", [HEADERS, LONG], ids=["short", "long"])
def test_calls_that_many_have_begun_are_bounded(
    broker: BrokerProcess, headers: Mapping[str, str]
) -> None:
    """Five thousand, on five connections."""
    calls = GREETING + begun(1, 1000, headers)
    with contextlib.ExitStack() as stack, Watched(broker) as watched:

        def begin() -> None:
            stack.enter_context(WildPeer(broker.grpc)).send(calls)

        by_all(5, begin)
        read_up(broker)
    watched.is_well()


LARGE_BYTES: Final = 1 << 20
EVERY_PORT: Final = {
    "rocketmq": frame_begun(1000, 900 << 10, LARGE_BYTES),
    "fast": frame_begun(1000, 900 << 10, LARGE_BYTES),
    "namesrv": frame_begun(1 << 20, 900 << 10),
    "metaq": b"put T 0 1000000 0 1\r\n" + bytes(999_000),
    "admin": UNFINISHED["call"],
    "grpc": GREETING
    + begun(1, 1)
    + http2(Http2Frame.DATA, 0, 1, b"\0" + LARGE_BYTES.to_bytes(4, "big"))
    + http2(Http2Frame.DATA, 0, 1, bytes(frames.FRAME_BYTES_MAX)) * 55,
}
"""The beginning of a large command, or of many small ones."""


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One that takes messages of everybody."""
    with broker_process(tmp_path_factory.mktemp("trusting"), {"acl": {"enabled": False}}) as broker:
        IDLE[broker.admin] = broker.resident_bytes()
        yield broker
        assert broker.alive, broker.server.log_tail()
    assert "Traceback" not in broker.log_text()


@pytest.mark.parametrize("whom", ["broker", "trusting"])
@pytest.mark.parametrize("port", EVERY_PORT)
def test_large_commands_that_a_hundred_have_begun_stay_below_what_is_promised(
    request: pytest.FixtureRequest, port: str, whom: str
) -> None:
    """With rights and without: what nobody may send is refused, all else held in a budget."""
    broker: BrokerProcess = request.getfixturevalue(whom)
    with contextlib.ExitStack() as stack, Watched(broker) as watched:

        def begin() -> None:
            for _ in range(25):
                with contextlib.suppress(TimeoutError):  # not read any more
                    stack.enter_context(WildPeer(getattr(broker, port))).send(EVERY_PORT[port])

        by_all(PEERS, begin)
        read_up(broker)
    watched.is_well(ABOVE_IDLE_BYTES_MAX)


def test_eight_large_messages_at_once_wait_for_nothing(trusting: BrokerProcess) -> None:
    size, full = (4 << 20) - 1000, trusting.log_text().count("input_full")
    ext = {name: str(value) for name, value in send_ext("large").items()}
    data = encode_frame(RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext=ext, body=bytes(size)))
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(WildPeer(trusting.rocketmq)) for _ in range(8)]
        for peer in peers:
            assert peer.send(data[:-1])
        read_up(trusting)
        for peer in peers:
            assert peer.send(data[-1:])
            assert not peer.read_until(b'"queueOffset"').closed
    assert trusting.log_text().count("input_full") == full
