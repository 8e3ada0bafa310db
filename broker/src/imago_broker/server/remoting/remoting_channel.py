"""One connection of the remoting protocol as processors see it: answers, and requests to its peer.

Answers of one turn leave in one write. The answers to plain sends, nearly all that is ever
written, come ready for the socket; those of all other requests are encoded here.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq.exchange import Exchange
from imago_broker.server.connection_states import WaitReason
from imago_broker.server.peer_channel import PeerChannel
from imago_broker.server.remoting.remoting_calls import ClientCalls
from imago_wire.errors import ProtocolError
from imago_wire.remoting.command import FLAG_RESPONSE, RemotingCommand
from imago_wire.remoting.header import decode_raw_header, encode_header

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_broker.processors.rocketmq.exchange import Reply
    from imago_broker.server.relay.relay_handover import ConnectionHandover
    from imago_broker.server.remoting.remoting_port import RemotingPort
    from imago_broker.server.write_backlog import WriteBacklog
    from imago_wire.remoting.scanning.granting import Grants
    from imago_wire.remoting.scanning.items import SendItem

log = logging.getLogger(__name__)

_PREFIX = struct.Struct(">II")
_JOIN_BYTES_MAX = 8 << 10
"""Answers of one turn up to this size are joined; larger ones are handed over in pieces."""
_PEER = WaitReason.PEER.value


class RemotingChannel(PeerChannel):
    """What goes to one peer. Nothing is written any more once the connection is closed."""

    def __init__(
        self, port: RemotingPort, handover: ConnectionHandover, write_backlog: WriteBacklog
    ) -> None:
        super().__init__(handover)
        self.peer = ""
        self.transaction_owner = ""
        self.grants: Grants | None = None
        """What the peer's users may do; None: all."""
        self.born_host = b""
        """The peer's address as records hold it: 4 or 16 bytes, then the port in 4."""
        self.calls = ClientCalls(port.loop, calls_max=port.limits.calls_max)
        self.waiting_bytes = 0
        """Of answers that `flush` has not written yet, those to puts aside."""
        self._port = port
        self._unsent = port.unsent
        self._write_backlog = write_backlog
        self._out: list[bytes] = []

    @property
    def is_open(self) -> bool:
        """Whether answers still reach the peer."""
        return not self._state.closed

    def push(self, data: bytes) -> None:
        """Add an answer that `RemotingPort.flush` will write: only for the end of a put."""
        out = self._out
        if not out:
            self._unsent.append(self)
        out.append(data)

    def stored(self, answers: bytes) -> None:
        """Write the answers to the sends of one read, behind what was added before."""
        if self._out:
            self._out.append(answers)
        elif not self._state.closed:
            self.transport.write(answers)

    def serve_send(self, item: SendItem) -> None:
        """Serve a send as any other request: it needs more than the fast path does."""
        self.serve(decode_raw_header(item.raw_header, item.body))

    def serve(self, command: RemotingCommand) -> None:
        """Have a request of the peer served."""
        self._port.table.dispatch(Exchange(self, command))

    def write(self, data: bytes) -> None:
        """Add bytes that are written at the end of this turn."""
        if self._state.closed:
            return
        self.push(data)
        self._port.flush_soon()
        self.waiting_bytes += len(data)

    def add(self, head: bytes, body: bytes) -> bool:
        """Add the frame of an answer, ready for the socket; False: no more may follow for now."""
        if self._state.closed:
            return False
        self.push(head)
        self._out.append(body)
        self._port.flush_soon()
        self.waiting_bytes += len(head) + len(body)
        if self.waiting_bytes > self._port.limits.output_bytes_pause:
            # What the socket does not take has to count before others get answers as large.
            self.flush()
        return self._state.serves

    def reply(self, request: RemotingCommand, reply: Reply) -> None:
        """Write the answer to a request, its header in the request's own form."""
        pieces = [reply.body] if isinstance(reply.body, bytes) else reply.body
        response = RemotingCommand(
            code=int(reply.code),
            flag=FLAG_RESPONSE,
            opaque=request.opaque,
            remark=reply.remark,
            ext=dict(reply.ext) if reply.ext else {},
            serialize=request.serialize,
        )
        self._write_command(response, [piece for piece in pieces if piece])

    def notify(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
        """Send a one-way request to the client."""
        self._write_command(self.calls.oneway(code, ext), [body] if body else [])

    def call(
        self,
        code: int,
        ext: Mapping[str, str],
        body: bytes,
        timeout_ms: int,
        done: Callable[[RemotingCommand | None], None],
    ) -> None:
        """Send a request to the client; `done` gets its answer, or None when none comes."""
        command = None if self._state.closed else self.calls.start(code, ext, timeout_ms, done)
        if command is None:
            done(None)
            return
        self._write_command(command, [body] if body else [])

    def flush(self) -> None:
        """Hand the gathered answers to the transport."""
        out = self._out
        if self._state.closed or not out:
            return
        if len(out) == 1 and not self.waiting_bytes:
            # The answer to one send: small, and most of what is ever written.
            self.transport.write(out.pop())
        else:
            self._flush_many()

    def close(self) -> None:
        """Close after what is written; nothing more is read."""
        self.flush()
        self._handover.close()
        self.transport.close()

    def lost(self) -> None:
        """The connection is gone: drop what waits."""
        self._out.clear()
        self.calls.fail_all()

    def _flush_many(self) -> None:
        out, size = self._out, self.waiting_bytes
        self._out, self.waiting_bytes = [], 0
        if size <= _JOIN_BYTES_MAX:
            self.transport.write(b"".join(out))
        else:
            self.transport.writelines(out)
        if self._state.waits & _PEER:
            waiting = self.transport.get_write_buffer_size()
            self._write_backlog.count(waiting)
            if waiting > self._port.limits.output_bytes_max:
                log.info("connection_aborted peer=%s reason=reads_nothing", self.peer)
                self._handover.close()
                self.transport.abort()

    def _write_command(self, command: RemotingCommand, pieces: Sequence[bytes]) -> None:
        try:
            header = encode_header(command)
        except ProtocolError as error:
            # A header this large is made of what a client asked for: it cannot be answered.
            log.warning("answer_dropped peer=%s code=%d error=%s", self.peer, command.code, error)
            return
        size = 4 + len(header) + sum(map(len, pieces))
        self.write(_PREFIX.pack(size, command.serialize << 24 | len(header)) + header)
        for piece in pieces:
            self.write(piece)
