"""All calls of clients, as a table: which messages they have, and what serves them."""

from __future__ import annotations

import logging
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from imago_broker.processors.grpc.calls import Call, CallError
from imago_wire.errors import ProtocolError
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import SERVICE, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_broker.processors.grpc.authentication import CallUsers
    from imago_broker.processors.grpc.calls import CallStream
    from imago_broker.processors.grpc.clients import SdkClients
    from imago_broker.processors.grpc.consuming.acknowledging import AckCalls
    from imago_broker.processors.grpc.consuming.plain_acks import PlainAcks
    from imago_broker.processors.grpc.consuming.receiving import ReceiveCalls
    from imago_broker.processors.grpc.lite_topics import LiteCalls
    from imago_broker.processors.grpc.plain_sends import PlainSends
    from imago_broker.processors.grpc.recalling import RecallCalls
    from imago_broker.processors.grpc.routes import RouteCalls
    from imago_broker.processors.grpc.sending import SendCalls
    from imago_broker.processors.grpc.transactions import TransactionCalls

log = logging.getLogger(__name__)

TELEMETRY = "Telemetry"
RECEIVE = "ReceiveMessage"
GRPC_INTERNAL, GRPC_INVALID = 13, 3


class Method(NamedTuple):
    """One call: `Request` and `Response` behind its name are its messages."""

    name: str
    serve: Callable[[Call, Any], None]
    lasts: bool = False
    """Whether it is a stream of commands, which is over when the client says so."""
    plain: Callable[[Call, bytes], bool] | None = None
    """A fast path, which is tried first; it returns whether it was one."""

    @property
    def request(self) -> str:
        """The name of what asks for it."""
        return "TelemetryCommand" if self.name == TELEMETRY else f"{self.name}Request"

    @property
    def response(self) -> str:
        """The name of its answer."""
        return "TelemetryCommand" if self.name == TELEMETRY else f"{self.name}Response"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerCalls:
    """What producers call."""

    sends: SendCalls
    plain_sends: PlainSends
    recalls: RecallCalls
    transactions: TransactionCalls


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerCalls:
    """What consumers call."""

    receives: ReceiveCalls
    acks: AckCalls
    plain_acks: PlainAcks
    lite: LiteCalls


class GrpcService:
    """What a port serves."""

    def __init__(
        self,
        authentication: CallUsers,
        *,
        clients: SdkClients,
        routes: RouteCalls,
        producing: ProducerCalls,
        consuming: ConsumerCalls,
    ) -> None:
        self._authentication, self._clients = authentication, clients
        receives, acks = consuming.receives, consuming.acks
        self._receives = receives
        rows = (
            Method("Heartbeat", clients.heartbeat),
            Method("NotifyClientTermination", clients.terminate),
            Method("SendMessage", producing.sends.send, plain=producing.plain_sends.take),
            Method("RecallMessage", producing.recalls.recall),
            Method("EndTransaction", producing.transactions.end),
            Method(RECEIVE, receives.receive, plain=receives.take),
            Method("SyncLiteSubscription", consuming.lite.sync),
            Method("AckMessage", acks.acknowledge, plain=consuming.plain_acks.take),
            Method("ChangeInvisibleDuration", acks.change),
            Method("ForwardMessageToDeadLetterQueue", acks.forward),
            Method(TELEMETRY, clients.told, lasts=True),
        )
        self._methods = {SERVICE + row.name: row for row in rows}
        self.route_by(routes)

    def with_routes(self, routes: RouteCalls) -> GrpcService:
        """Return the same service, whose clients are told other addresses."""
        other = copy(self)
        other.route_by(routes)
        return other

    def route_by(self, routes: RouteCalls) -> None:
        """Have these say where things are."""
        rows = (Method("QueryRoute", routes.route), Method("QueryAssignment", routes.assignment))
        self._methods = self._methods | {SERVICE + row.name: row for row in rows}

    def method(self, path: str) -> Method | None:
        """Return what serves a path; None: nothing does."""
        return self._methods.get(path)

    def call(self, method: Method, stream: CallStream, headers: Mapping[str, str]) -> Call:
        """Return a call that has begun."""
        return Call(stream, headers, method.response)

    def begun(self, method: Method, call: Call) -> None:
        """Refuse a call of nobody's at once: nothing is kept of a request that will be refused."""
        self._take(method, call, None)

    def serve(self, method: Method, call: Call, data: bytes) -> None:
        """Serve one message of a call."""
        if not call.answered:  # it was refused, and its answer has not left
            self._take(method, call, data)

    def _take(self, method: Method, call: Call, data: bytes | None) -> None:
        try:
            if data is None:
                self._authentication.identify(call)
            else:
                self._serve(method, call, data)
        except CallError as error:
            self._refuse(method, call, error)
        except ProtocolError as error:
            call.stream.fail(GRPC_INVALID, str(error))
        except Exception:
            # A mistake of ours must cost one call, not the connection that others share.
            log.exception("call_failed method=%s peer=%s", method.name, call.stream.peer)
            call.stream.fail(GRPC_INTERNAL, "internal error, see the broker's log")

    def ended(self, method: Method, call: Call) -> None:
        """A telemetry stream is over."""
        if method.lasts:
            self._clients.ended(call)

    def _serve(self, method: Method, call: Call, data: bytes) -> None:
        if method.plain is not None and call.client_id and method.plain(call, data):
            return
        request = parse(method.request, data)
        self._authentication.check(call, method.name, request)
        if not call.client_id:
            raise CallError(SdkCode.CLIENT_ID_REQUIRED, "x-mq-client-id is missing")
        method.serve(call, request)

    def _refuse(self, method: Method, call: Call, error: CallError) -> None:
        if method.name == RECEIVE:
            self._receives.refused(call, error)
        elif method.name == TELEMETRY:
            call.send_status(error)
        else:
            call.refuse(error)
