"""A client that is reached over its telemetry stream, as services see a connection.

What the broker asks of clients of the remoting protocol becomes a command of the stream, where
there is one that means the same; a client asks for nothing else by itself.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from imago_broker.processors.grpc.asking import CallChannel
from imago_broker.processors.grpc.message_forms import told_message
from imago_broker.processors.grpc.transactions import transaction_id
from imago_wire.grpc.answers import framed
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import encoded, make
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import FLAG_RESPONSE, RemotingCommand

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from imago_broker.processors.grpc.calls import CallStream
    from imago_broker.service.groups.channel import Reply

    Done = Callable[[RemotingCommand | None], None]

TRACE_MS_MAX: Final = 3000
"""How long a client has to say what its threads do: who asks waits for five seconds."""
CALLS_MAX = 1024
"""Questions to one client that wait for its answer."""
_RESULTS: Final[Mapping[int, str]] = {
    SdkCode.OK: "CR_SUCCESS",
    SdkCode.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}


class ClientChannel(CallChannel):
    """One client. Unlike calls, two of one connection are two."""

    def __init__(self, stream: CallStream, user: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(stream, user, lambda _: None)
        self._loop = loop
        self._expected: dict[int, Callable[[Reply], None]] = {}
        self._asked: dict[str, tuple[Done, asyncio.TimerHandle]] = {}
        self._nonce = 0
        self._running: dict[str, Any] = {"properties": {}}

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def expect(self, opaque: int, done: Callable[[Reply], None]) -> None:
        """Have an answer handed over."""
        self._expected[opaque] = done

    def reply(self, request: RemotingCommand, reply: Reply) -> None:
        """Hand the answer over to who expects it."""
        done = self._expected.pop(request.opaque, None)
        if done is not None:
            done(reply)

    def describe(self, running: Mapping[str, Any]) -> None:
        """Note what RocketMQ's tools are told of its consumer."""
        self._running = dict(running)

    @property
    def stream(self) -> CallStream:
        """Its telemetry stream."""
        return self._stream

    def tell_reconnect(self) -> None:
        """Have it ask for routes again."""
        self._nonce += 1
        told = make("ReconnectEndpointsCommand", nonce=f"{id(self):x}-{self._nonce}")
        self.tell(reconnect_endpoints_command=told)

    def tell(self, **fields: Any) -> None:
        """Send a command of the telemetry stream."""
        if self.is_open:
            message = encoded(make("TelemetryCommand", **fields))
            self._stream.send(framed([message]), last=False)

    def notify(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
        """Tell of transactions and lite topics; these clients know of nothing else."""
        if code == RequestCode.CHECK_TRANSACTION_STATE:
            command = make(
                "RecoverOrphanedTransactionCommand",
                message=told_message(body, half=True),
                transaction_id=transaction_id(
                    ext.get("transactionId", ""), int(ext["commitLogOffset"])
                ),
            )
            self.tell(recover_orphaned_transaction_command=command)
        elif code == RequestCode.NOTIFY_UNSUBSCRIBE_LITE:
            gone = make("NotifyUnsubscribeLiteCommand", lite_topic=ext["liteTopic"])
            self.tell(notify_unsubscribe_lite_command=gone)

    def call(
        self,
        code: int,
        ext: Mapping[str, str],
        body: bytes,
        timeout_ms: int,
        done: Done,
    ) -> None:
        """Ask the client; `done` gets None where it cannot be asked, or does not answer."""
        if not self.is_open or len(self._asked) >= CALLS_MAX:
            done(None)
            return
        self._nonce += 1
        nonce = f"{id(self):x}-{self._nonce}"
        if code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            told = make("VerifyMessageCommand", nonce=nonce, message=told_message(body))
            self.tell(verify_message_command=told)
        elif code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            if ext.get("jstackEnable") != "true":
                done(_answer(self._running))
                return
            # Not every SDK answers; what is known without it is told all the same.
            timeout_ms = min(timeout_ms, TRACE_MS_MAX)
            told = make("PrintThreadStackTraceCommand", nonce=nonce)
            self.tell(print_thread_stack_trace_command=told)
        else:
            done(None)
            return
        timer = self._loop.call_later(timeout_ms / 1000, self._give_up, nonce, code)
        self._asked[nonce] = (done, timer)

    def verified(self, nonce: str, code: int) -> None:
        """Take what became of a message that the client was to consume."""
        result = _RESULTS.get(code, "CR_LATER")
        told = {"order": False, "autoCommit": True, "consumeResult": result}
        self._answered(nonce, told)

    def traced(self, nonce: str, text: str) -> None:
        """Take what the client's threads do."""
        self._answered(nonce, self._running | {"jstack": text})

    def gone(self) -> None:
        """Nobody answers any more."""
        asked, self._asked = self._asked, {}
        for done, timer in asked.values():
            timer.cancel()
            done(None)

    def _answered(self, nonce: str, told: Mapping[str, Any]) -> None:
        waiting = self._asked.pop(nonce, None)
        if waiting is not None:
            done, timer = waiting
            timer.cancel()
            done(_answer(told))

    def _give_up(self, nonce: str, code: int) -> None:
        done, _ = self._asked.pop(nonce)
        traced = code == RequestCode.GET_CONSUMER_RUNNING_INFO
        done(_answer(self._running) if traced else None)


def _answer(told: Mapping[str, Any]) -> RemotingCommand:
    body = json.dumps(told).encode()
    return RemotingCommand(code=ResponseCode.SUCCESS, flag=FLAG_RESPONSE, body=body)
