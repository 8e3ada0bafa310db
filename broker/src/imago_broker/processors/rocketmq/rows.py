"""What a server does with a request code, as a table: one row a code, no branches elsewhere.

A row names the handler, the lane (how many such requests may be unfinished at a time), what the
request asks of the member of the shard that gets it, whether its answer waits for the other
members, whether the fast port serves the code, and the rule that refuses the whole kind at the
moment. Everything that
RocketMQ's remoting layer answers by itself (unknown code, overload, a failed handler) is decided
here, so that a handler knows its own business only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from imago_broker.errors import RequestError as ServiceError
from imago_broker.processors.rocketmq.access.access_hook import AccessHook
from imago_broker.processors.rocketmq.exchange import Exchange, Hook, Lane, Reply, RequestError
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.service.serving_rules import Asks, ServingRules
from imago_log.errors import DiskFullError, NotLeadingError, StoreClosedError
from imago_log.reading.remote import RemoteAwayError, RemoteMissError
from imago_wire.errors import ProtocolError, in_our_words
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from imago_broker.processors.rocketmq.access.refused_requests import RefusedRequest
    from imago_broker.service.access.grants import AccessGrants

log = logging.getLogger(__name__)

Handler = Callable[[Exchange], Reply | None]
"""Answers a request, or returns None and answers later through `Exchange.answer`."""

RejectRule = Callable[[], bool]
"""Whether every request of this kind has to be refused at the moment."""

Confirm = Callable[[Callable[[Any, PutStatus, Sequence[Any]], None], object], None]
"""`MessageService.when_replicated`."""

_UNCONFIRMED = {
    PutStatus.SLAVE_TIMEOUT: "the other members of the shard did not confirm it in time",
    PutStatus.SLAVE_UNAVAILABLE: "too few members of the shard are in sync to confirm it",
    PutStatus.STOPPING: "this broker stops",
}
REJECTED = "[REJECTREQUEST]system busy, start flow control for a while"
REMARK_SIZE_MAX = 512
OVERLOADED = "[OVERLOAD]system busy, start flow control for a while"


@dataclass(frozen=True, slots=True)
class Row:
    """How one request code is served."""

    code: int
    handle: Handler
    lane: Lane
    asks: Asks = Asks.MEMBER
    """Which members of the shard serve it."""
    replicated: bool = False
    """Whether the answer waits until every in-sync member has what it tells: changes of metadata
    and a failover must not take back what clients know of them."""
    settle: Callable[[Exchange, Reply], None] | None = None
    """Who answers in the end once these have it; else: it is answered then."""
    elsewhere: Handler | None = None
    """Who answers where this member does not serve it; else: it is not available."""
    fast: bool = True
    """Whether the fast port (RocketMQ's port - 2) serves it too."""
    filtered: bool = False
    """Whether it selects messages by filters, which may have to wait until they are compiled."""
    reject: RejectRule | None = None


@dataclass(slots=True)
class Table:
    """All rows of one server. Built once; a code that appears twice is a mistake of ours."""

    rows: Mapping[int, Row]
    hooks: Sequence[Hook] = ()
    lanes: Mapping[str, Lane] = field(default_factory=dict)
    serving_rules: ServingRules | None = None
    """What this member of its shard serves; None: of a server that belongs to none."""
    confirm: Confirm | None = None

    @property
    def watched(self) -> bool:
        """Whether a hook has to see every request; the fast paths ask `grants` and no other."""
        return bool(self.hooks) and len(self.hooks) > (self.grants is not None)

    @property
    def grants(self) -> AccessGrants | None:
        """What the fast paths ask in place of access control; None: there is none."""
        return next((hook.grants for hook in self.hooks if isinstance(hook, AccessHook)), None)

    def refused_by_header(self, exchange: Exchange) -> RefusedRequest | None:
        """Return what refuses a request whose body still comes; None: read it whole."""
        hook = next((hook for hook in self.hooks if isinstance(hook, AccessHook)), None)
        if hook is None or exchange.command.code not in self.rows:
            return None
        return hook.refused_by_header(exchange)

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
        if reply is None:
            return
        promised = row.replicated and reply.code == ResponseCode.SUCCESS
        if promised and self.confirm is not None and not exchange.command.is_oneway:
            self.confirm(_confirmed, (exchange, reply, row.settle))
        else:
            exchange.answer(reply)

    def _reply_of(self, row: Row, exchange: Exchange) -> Reply | None:
        return reply_of(partial(self._handled, row), exchange)

    def _handled(self, row: Row, exchange: Exchange) -> Reply | None:
        for hook in self.hooks:
            hook.before(exchange)
        if row.asks is not Asks.MEMBER and self.serving_rules is not None:
            refusal = self.serving_rules.refusal(row.asks)
            if refusal is not None:
                return not_here(refusal) if row.elsewhere is None else row.elsewhere(exchange)
        return row.handle(exchange)

    def for_fast_port(self) -> Table:
        """Return the same table without the rows that the fast port does not serve."""
        rows = {code: row for code, row in self.rows.items() if row.fast}
        return replace(self, rows=rows)


def build_table(
    rows: Iterable[Row],
    hooks: Sequence[Hook] = (),
    *,
    serving_rules: ServingRules | None = None,
    confirm: Confirm | None = None,
) -> Table:
    """Check the rows and make the table."""
    by_code: dict[int, Row] = {}
    for row in rows:
        assert row.code not in by_code, f"request code {row.code} has two rows"
        by_code[int(row.code)] = row
    lanes = {row.lane.name: row.lane for row in by_code.values()}
    return Table(
        rows=by_code, hooks=tuple(hooks), lanes=lanes, serving_rules=serving_rules, confirm=confirm
    )


def reply_of(handle: Handler, exchange: Exchange) -> Reply | None:
    """Return what a handler answers, and in place of what it raises the answer for that."""
    try:
        return handle(exchange)
    except RequestError as refusal:
        return refusal.reply
    except (ProtocolError, ServiceError) as mistake:
        # What the client sent does not add up: RocketMQ answers the exception's text.
        return Reply(ResponseCode.SYSTEM_ERROR, str(mistake)[:REMARK_SIZE_MAX])
    except ValueError as mistake:
        return Reply(ResponseCode.SYSTEM_ERROR, in_our_words(mistake)[:REMARK_SIZE_MAX])
    except (NotLeadingError, StoreClosedError) as lost:
        return not_here(str(lost))  # this member has ceased to be the master meanwhile
    except (RemoteMissError, RemoteAwayError) as elsewhere:
        return Reply(ResponseCode.SYSTEM_BUSY, str(elsewhere)[:REMARK_SIZE_MAX])
    except DiskFullError as full:  # of a topic, group or offset; messages say it themselves
        return not_here(f"the broker's disk is full: {full}")
    except Exception:
        # A mistake of ours must cost one request, not the connection that others share.
        code, peer = exchange.command.code, exchange.channel.peer
        log.exception("request_failed code=%d peer=%s", code, peer)
        return Reply(ResponseCode.SYSTEM_ERROR, "internal error, see the broker's log")


def not_here(reason: str) -> Reply:
    """Return the answer to a request that another member of the shard serves.

    Producers of 4.9 and 5.x try another broker on this code; whoever reads routes again on it
    finds the master.
    """
    return Reply(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {reason}")


def _confirmed(
    token: tuple[Exchange, Reply, Callable[[Exchange, Reply], None] | None],
    status: PutStatus,
    _: Sequence[Any],
) -> None:
    exchange, reply, settle = token
    if status is not PutStatus.OK:
        reply = not_here(_UNCONFIRMED.get(status, "this broker is the master of the shard no more"))
    elif settle is not None:
        settle(exchange, reply)
        return
    exchange.answer(reply)


def not_supported(code: int) -> Reply:
    """Return the answer to a code that no row serves."""
    return Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")
