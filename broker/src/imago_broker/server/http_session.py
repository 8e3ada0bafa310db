"""One HTTP connection of the admin port, with the limits that the HTTP library does not have."""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import orjson

from imago_broker.core.http_framing import HttpFraming, HttpRefusedError
from imago_broker.server.session import Session
from imago_broker.server.unfinished import Unfinished
from imago_broker.server.write_backlog import WriteBacklog

if TYPE_CHECKING:
    from aiohttp import web

    from imago_broker.core.budget import InputBudget, OutputBudget

log = logging.getLogger(__name__)

FORGET_S: Final = 1.0
"""How long whoever reads a body has to hear that its connection is lost."""


class _Turn(Enum):
    """What may come next of a connection's requests: one is served after the other."""

    HEAD = "the head of the next request"
    BEGINNING = "nothing, until it is known that the caller may have the request served"
    BODY = "the body"
    ANSWER = "nothing, until the request is answered"
    REFUSED = "nothing more"


class HttpSession(Session):
    """Passes requests on to the library's own protocol; knows how long an answer is owed.

    The library gets a request's head when it is whole, its body once its caller may have it served,
    and the next request when it is answered: it joins, refuses and keeps no bytes without a limit.

    A peer that sends the head or the body of a request by drops holds a connection for ever as
    far as the library is concerned. Here a request that has no answer after `stall_ms`, counted
    from its first byte, loses its connection; so does one that would have to wait since
    the connections of all ports hold too much: who administers may ask again. And so does one that
    has taken nothing of its answer for `output_stall_ms`.
    """

    def __init__(
        self,
        inner: web.RequestHandler,
        *,
        stall_ms: int,
        output_stall_ms: int,
        budget: OutputBudget,
        input_budget: InputBudget,
    ) -> None:
        self._inner = inner
        self._stall_ms = stall_ms
        self._output_stall_ms = output_stall_ms
        self._write_backlog = WriteBacklog(budget)
        self._framing = HttpFraming()
        self._turn = _Turn.HEAD
        self._is_answered = False
        """Whether the request whose body comes is answered already."""
        self._owing = False
        self._owing_since_ms: int | None = None
        self._taken = 0
        """Bytes since the last answer: the library keeps them, or some of them."""
        self.unfinished = Unfinished(input_budget, self)
        self._ending: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._turn is _Turn.REFUSED:
            return
        self._owing = True
        self._framing.add(data)
        if self._is_answered:  # what the library still reads of the body, it throws away
            self._taken = self._framing.held
        else:
            self._taken += len(data)
        self.unfinished.note(self._taken)
        self._go_on()

    def _go_on(self) -> None:
        """Pass on what may be now, of what has come."""
        try:
            while self._pass_on_one():
                pass
        except HttpRefusedError as refusal:
            self._refuse(refusal)
            return
        if self._turn in (_Turn.BEGINNING, _Turn.ANSWER) and self._framing.held:
            self.transport.pause_reading()

    def _pass_on_one(self) -> bool:
        """Pass on a head or a piece of a body; False: there is none, or it is not its turn."""
        framing = self._framing
        if self._turn is _Turn.HEAD:
            head = framing.head()
            if head:
                self._turn, self._is_answered = _Turn.BEGINNING, False
                self._inner.data_received(head)
            return bool(head)
        if self._turn is not _Turn.BODY:
            return False
        piece = framing.body()
        if piece:
            self._inner.data_received(piece)
        if not framing.in_body:
            self._turn = _Turn.HEAD if self._is_answered else _Turn.ANSWER
            return True
        return bool(piece)

    def allowed(self) -> None:
        """The request is one that its caller may have served: the body may come."""
        if self._turn is _Turn.BEGINNING:
            self._turn = _Turn.BODY if self._framing.in_body else _Turn.ANSWER
            self._read_on()

    def _read_on(self) -> None:
        if self.transport.is_closing():
            return
        self.transport.resume_reading()
        self._go_on()

    def _refuse(self, refusal: HttpRefusedError) -> None:
        """Answer what is no request, or no body of one, and read nothing more."""
        log.info("http_bad_request peer=%s reason=%s", self.address, refusal.message)
        if self._turn is _Turn.HEAD or not self._is_answered:
            self.transport.write(_answer(refusal))
        self._turn = _Turn.REFUSED
        self._framing.clear()
        self.transport.close()

    def eof_received(self) -> None:
        self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.unfinished.end()
        self._framing.clear()
        self._turn = _Turn.REFUSED
        self._write_backlog.count(0)
        loop, error = asyncio.get_running_loop(), exc or ConnectionResetError("Connection lost")
        # Its task may have been made just now; it would trip over a connection that has ended.
        loop.call_soon(self._inner.connection_lost, error)
        loop.call_later(FORGET_S, _forget, error)
        super().connection_lost(exc)

    def answered(self) -> None:
        """An answer is about to be sent."""
        self._owing_since_ms = None
        self._taken = self._framing.held
        self._owing = self._taken > 0
        self.unfinished.left(self._taken)
        self._is_answered = True
        if self._turn in (_Turn.BEGINNING, _Turn.ANSWER):
            self._turn = _Turn.BODY if self._framing.in_body else _Turn.HEAD
            asyncio.get_running_loop().call_soon(self._read_on)

    def sweep(self, now_ms: int) -> None:
        """Drop a peer whose request has been under way for too long, or that reads nothing."""
        waiting = self.transport.get_write_buffer_size()
        self._write_backlog.count(waiting)
        if self._write_backlog.stalled_ms(waiting, now_ms) > self._output_stall_ms:
            log.info("connection_aborted peer=%s reason=reads_nothing", self.address)
            self.transport.abort()
        if not self._owing:
            return
        if self._owing_since_ms is None:
            self._owing_since_ms = now_ms
        elif now_ms - self._owing_since_ms > self._stall_ms:
            self.transport.abort()

    def steer_reading(self) -> None:
        """End the connection if it would have to wait."""
        if self.unfinished.waits:
            self.unfinished.drop()

    def drain(self) -> None:
        """Answer the request that is being served, then close; at once where there is none."""
        self._inner.close()
        # That alone leaves a connection open that waits for its next request.
        self._ending = asyncio.get_running_loop().create_task(self._inner.shutdown(None))


def _forget(error: Exception) -> None:
    """Break the circle of a lost request: its body keeps the error, whose frames keep the body."""
    error.__traceback__ = None


def _answer(refusal: HttpRefusedError) -> bytes:
    """Return the one form of errors, for a request that never came to be one."""
    cure = "Send an HTTP/1.1 request: see docs/admin.md for the paths and methods."
    body = orjson.dumps({"error": "http", "message": refusal.message, "cure": cure})
    phrase = HTTPStatus(refusal.status).phrase
    head = (
        f"HTTP/1.1 {refusal.status} {phrase}\r\nContent-Type: application/json; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _session_of(request: web.BaseRequest) -> HttpSession | None:
    transport = request.transport
    session = transport.get_protocol() if transport is not None else None
    return session if isinstance(session, HttpSession) else None


def note_allowed(request: web.BaseRequest) -> None:
    """Tell the request's session that it may be served."""
    if (session := _session_of(request)) is not None:
        session.allowed()


async def note_answer(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Tell the request's session: for the library's signal before each answer."""
    del response
    if (session := _session_of(request)) is not None:
        session.answered()


class PeersMistakes(logging.Filter):
    """Bytes that are no HTTP, and a body that breaks off, are the peer's: one line, no trace."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        wrong = type(error).__module__ == "aiohttp.http_exceptions"
        # What the library raises where it waits for the rest of a body that nobody wants.
        gone = isinstance(error, RuntimeError) and str(error) == "Connection closed."
        if error is not None and (wrong or gone or isinstance(error, ConnectionError)):
            peer = record.args[0] if isinstance(record.args, tuple) and record.args else ""
            record.msg = "http_bad_request peer=%s reason=%s"
            record.args = (peer, type(error).__name__)
            record.exc_info = None
            record.levelno, record.levelname = logging.INFO, "INFO"
            # Its frames hold what was sent, and through the library's queue the error itself.
            error.__traceback__ = None
        return True
