"""What a server does with a request code, as a table: one row a code, no branches elsewhere.

A row names the handler, the lane (how many such requests may be unfinished at a time), whether the
fast port serves the code, and the rule that refuses the whole kind at the moment. Everything that
RocketMQ's remoting layer answers by itself (unknown code, overload, a failed handler) is decided
here, so that a handler knows its own business only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from imago_broker.errors import RequestError as ServiceError
from imago_broker.processors.rocketmq.exchange import Exchange, Reply, RequestError
from imago_wire.errors import ProtocolError
from imago_wire.remoting.codes import ResponseCode

log = logging.getLogger(__name__)

Handler = Callable[[Exchange], Reply | None]
"""Answers a request, or returns None and answers later through `Exchange.answer`."""

RejectRule = Callable[[], bool]
"""Whether every request of this kind has to be refused at the moment."""

REJECTED = "[REJECTREQUEST]system busy, start flow control for a while"
REMARK_SIZE_MAX = 512
OVERLOADED = "[OVERLOAD]system busy, start flow control for a while"


class Lane:
    """A class of requests with its own limit, so that slow ones cannot crowd out others.

    `running` counts the requests whose answer is outstanding. RocketMQ gives each class a thread
    pool with a bounded queue; one event loop needs the bound only.
    """

    __slots__ = ("name", "running", "running_max")

    def __init__(self, name: str, running_max: int) -> None:
        self.name = name
        self.running = 0
        self.running_max = running_max

    @property
    def full(self) -> bool:
        return self.running >= self.running_max


@dataclass(frozen=True, slots=True)
class Row:
    """How one request code is served."""

    code: int
    handle: Handler
    lane: Lane
    fast: bool = True
    """Whether the fast port (RocketMQ's port - 2) serves it too."""
    reject: RejectRule | None = None


class Hook(Protocol):
    """Sees every request before its handler and every answer after it (access control, audit)."""

    def before(self, exchange: Exchange) -> None:
        """Raise `RequestError` to refuse the request."""

    def after(self, exchange: Exchange, reply: Reply) -> None:
        """Look at the answer; it is already decided."""


@dataclass(slots=True)
class Table:
    """All rows of one server. Built once; a code that appears twice is a mistake of ours."""

    rows: Mapping[int, Row]
    hooks: Sequence[Hook] = ()
    lanes: Mapping[str, Lane] = field(default_factory=dict)

    def dispatch(self, exchange: Exchange) -> None:
        """Serve one request: answer it now, or leave it to its handler to answer later."""
        row = self.rows.get(exchange.command.code)
        if row is None:
            exchange.answer(not_supported(exchange.command.code))
            return
        if row.reject is not None and row.reject():
            exchange.answer(Reply(ResponseCode.SYSTEM_BUSY, REJECTED))
            return
        if row.lane.full:
            exchange.answer(Reply(ResponseCode.SYSTEM_BUSY, OVERLOADED))
            return
        exchange.enter(row.lane, self.hooks)
        reply = self._reply_of(row, exchange)
        if reply is not None:
            exchange.answer(reply)

    def _reply_of(self, row: Row, exchange: Exchange) -> Reply | None:
        try:
            for hook in self.hooks:
                hook.before(exchange)
            return row.handle(exchange)
        except RequestError as refusal:
            return refusal.reply
        except (ProtocolError, ServiceError, ValueError) as mistake:
            # What the client sent does not add up: RocketMQ answers the exception's text.
            return Reply(ResponseCode.SYSTEM_ERROR, str(mistake)[:REMARK_SIZE_MAX])
        except Exception:
            # A mistake of ours must cost one request, not the connection that others share.
            log.exception("request_failed code=%d peer=%s", row.code, exchange.channel.peer)
            return Reply(ResponseCode.SYSTEM_ERROR, "internal error, see the broker's log")

    def for_fast_port(self) -> Table:
        """Return the same table without the rows that the fast port does not serve."""
        rows = {code: row for code, row in self.rows.items() if row.fast}
        return Table(rows=rows, hooks=self.hooks, lanes=self.lanes)


def build_table(rows: Iterable[Row], hooks: Sequence[Hook] = ()) -> Table:
    """Check the rows and make the table."""
    by_code: dict[int, Row] = {}
    for row in rows:
        assert row.code not in by_code, f"request code {row.code} has two rows"
        by_code[int(row.code)] = row
    lanes = {row.lane.name: row.lane for row in by_code.values()}
    return Table(rows=by_code, hooks=tuple(hooks), lanes=lanes)


def not_supported(code: int) -> Reply:
    """Return the answer to a code that no row serves."""
    return Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")
