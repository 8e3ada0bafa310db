"""MetaQ's messages over HTTP, as the plugin `jettyBroker` of its brokers serves them.

The second character of the path says what is asked: `/put…`, `/get…`, `/offset…`; the rest of the
path counts nothing. What is asked becomes a command of the text protocol, and its answer an answer
of HTTP: there is one meaning of each. It is off unless `metaq.http` is set: like the text protocol
it asks for no password, and where access control is on, it has the rights of who names nobody.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from aiohttp import web

from imago_broker.admin.access import is_loopback, is_own_name, own_address
from imago_broker.admin.errors import AdminError
from imago_wire.errors import WrongError
from imago_wire.hot import scan_text
from imago_wire.records.record import host_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_broker.admin.services import AdminServices
    from imago_broker.processors.metaq.peer import Peer
    from imago_log.results import FileSlice
    from imago_wire.remoting.scanning.granting import UserGrants

SECONDS_MAX: Final = 30.0
"""How long an answer may take: a put that waits for replicas has a shorter time-out of its own."""
INVALID: Final = "Invalid request"

_WORD = re.compile(r"[^\s\x00-\x1f\x7f]{1,255}")
_INTEGER = re.compile(r"-?\d{1,19}")


async def serve(services: AdminServices, request: web.Request) -> web.Response:
    """Any method on /put…, /get…, /offset…."""
    if not services.config.metaq.http:
        raise AdminError(
            404, "http", "MetaQ's messages are not served over HTTP.", "Set metaq.http = true."
        )
    if is_loopback(request.remote) and not is_own_name(
        request.headers.get("Host", ""), own_address(request), services.config.broker.host
    ):
        raise AdminError(
            403, "foreign_host", "The Host is no name of this machine.", "Call it by localhost."
        )
    if services.metaq.run is None:
        return _text(404, INVALID)
    try:
        frame = await _FRAMES[request.path[1]](services, request)
    except ValueError as error:
        return _text(500 if request.path[1] == "p" else 400, str(error))
    answer = await _answered(services, request, frame)
    head, _, body = answer.partition(b"\r\n")
    words = head.split(b" ")
    if words[0] == b"value":
        return web.Response(body=body, content_type="application/octet-stream")
    return web.Response(status=int(words[1]), body=body, content_type="text/plain", charset="utf-8")


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text)


def _word(query: Mapping[str, str], name: str) -> str:
    value = query.get(name, "")
    if not _WORD.fullmatch(value):
        raise WrongError(f"{name}: {value!r:.60}, must be a word")
    return value


def _integer(query: Mapping[str, str], name: str, default: str | None = None) -> int:
    value = query.get(name, default)
    if value is None or not _INTEGER.fullmatch(value):
        raise WrongError(f"{name}: {value!r:.60}, must be a whole number")
    return int(value)


async def _put(services: AdminServices, request: web.Request) -> bytes:
    query = request.query
    topic, partition = _word(query, "topic"), _integer(query, "partition")
    flag, length = _integer(query, "flag"), _integer(query, "length")
    checksum, size_max = _integer(query, "checksum", "-1"), services.config.metaq.message_bytes_max
    if not 0 <= length <= size_max:
        raise WrongError(f"length: {length}, must be 0 to {size_max}")
    try:
        body = await request.content.readexactly(length) if length else b""
    except asyncio.IncompleteReadError as error:
        raise WrongError(f"length: {length}, but the body has {len(error.partial)}") from error
    return f"put {topic} {partition} {length} {flag} {checksum} 1\r\n".encode() + body


async def _get(_: AdminServices, request: web.Request) -> bytes:
    query = request.query
    topic, group, partition = _place(query)
    offset, size = _integer(query, "offset"), _integer(query, "maxsize")
    return f"get {topic} {group} {partition} {offset} {size} 1\r\n".encode()


async def _offset(_: AdminServices, request: web.Request) -> bytes:
    topic, group, partition = _place(request.query)
    offset = _integer(request.query, "offset")
    return f"offset {topic} {group} {partition} {offset} 1\r\n".encode()


def _place(query: Mapping[str, str]) -> tuple[str, str, int]:
    return _word(query, "topic"), _word(query, "group"), _integer(query, "partition")


_FRAMES: Final = {"p": _put, "g": _get, "o": _offset}


async def _answered(services: AdminServices, request: web.Request, frame: bytes) -> bytes:
    """Have one command worked on as if it had come over the text protocol; return its answer."""
    run, config = services.metaq.run, services.config.metaq
    assert run is not None, "checked before"
    items, used = scan_text(frame, config.line_bytes_max, config.message_bytes_max)
    if used != len(frame) or len(items) != 1:
        return b"result 400 15 1\r\n" + INVALID.encode()
    peer = _Caller(request.remote or "", lambda: run(peer, items, 0))
    run(peer, items, 0)
    try:
        async with asyncio.timeout(SECONDS_MAX):
            answer = await peer.answer
        await asyncio.sleep(peer.pause_ms / 1000)
    except TimeoutError:
        return b"result 504 0 1\r\n"
    else:
        return answer
    finally:
        peer.lost()


class _Caller:
    """A connection of one request. `go_on` begins that again, which was only held back."""

    def __init__(self, address: str, again: Callable[[], object]) -> None:
        host = address.partition("%")[0] or "127.0.0.1"
        self.born_host = host_bytes(host, 0)
        self.address = address
        self.certificate_user = ""
        self.grants: UserGrants | None = None
        self.finishing = False
        self.puts = 0
        self.reads: dict[str, str] = {}
        self.answered_bytes = 0
        self.pause_ms = 0.0
        self._watchers: list[Callable[[], None]] = []
        self.held = False
        self._on_lost: Callable[[Peer], None] | None = None
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._again = again

    def when_lost(self, told: Callable[[Peer], None]) -> None:
        self._on_lost = told

    def lost(self) -> None:
        """The request has its answer: its connection is no more."""
        if self._on_lost is not None:
            self._on_lost(self)
        for watcher in self._watchers:
            watcher()

    def become(self, user: str) -> None:
        self.certificate_user = user

    def throttle(self, milliseconds: float) -> None:
        """It has one request alone: its answer comes later."""
        self.pause_ms = milliseconds

    def watch(self, watcher: Callable[[], None]) -> None:
        self._watchers.append(watcher)

    def _done(self, answer: bytes) -> None:
        if not self.answer.done():
            self.answered_bytes = len(answer)
            self.answer.set_result(answer)

    def stored(self, answers: bytes) -> None:
        self._done(answers)

    def reply(self, *parts: bytes) -> None:
        self._done(b"".join(parts))

    def reply_file(self, head: bytes, data: FileSlice) -> None:
        self._done(head + data.read())

    def hold_back(self) -> None:
        self.held = True

    def go_on(self) -> None:
        self.held = False
        self._again()

    def is_full(self) -> bool:
        return False

    def flush(self) -> None:
        """Nothing is gathered."""

    def finish(self) -> None:
        self.finishing = True
        self._done(b"result 400 15 1\r\n" + INVALID.encode())
