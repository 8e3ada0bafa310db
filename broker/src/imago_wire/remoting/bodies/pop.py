"""Bodies of POP consumption (5.x): acknowledgements in bulk, assignments, request modes."""

import base64
import binascii

from imago_wire.remoting.bodies.client import MessageModel, MessageQueue
from imago_wire.remoting.bodies.fields import Body, BodyError, body
from imago_wire.remoting.fields import wire


@body
class BatchAck(Body):
    """Acknowledges messages that one POP delivered from one queue.

    `bits` is a bit set in Base64, lowest bit of the first byte first: bit i stands for queue
    offset `start_offset` + i.
    """

    bits: str = wire("b")
    consumer_group: str = wire("c")
    invisible_time: int = wire("it")
    pop_time: int = wire("pt")
    queue_id: int = wire("q")
    retry: str = wire("r", default="0")
    revive_queue_id: int = wire("rq")
    start_offset: int = wire("so")
    topic: str = wire("t")

    @property
    def size(self) -> int:
        """How many bits there are."""
        return len(self.bits.rstrip("=")) * 6 // 8 * 8

    def offsets(self, *, count_max: int = 1 << 16) -> list[int]:
        """Return the queue offsets that are acknowledged."""
        try:
            data = base64.b64decode(self.bits, validate=True)
        except (binascii.Error, ValueError):
            raise BodyError(f"BatchAck.b is no Base64: {self.bits[:64]!r}") from None
        if len(data) * 8 > count_max:
            raise BodyError(f"BatchAck.b has {len(data) * 8} bits, the limit is {count_max}")
        return [
            self.start_offset + 8 * place + bit
            for place, byte in enumerate(data)
            for bit in range(8)
            if byte >> bit & 1
        ]


def ack_bits(start_offset: int, offsets: list[int]) -> str:
    """Return the bit set for these queue offsets, none of which is before the start."""
    bits = sum(1 << (offset - start_offset) for offset in set(offsets))
    return base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()


@body
class BatchAckMessageRequestBody(Body):
    acks: tuple[BatchAck, ...] = ()
    broker_name: str = ""


@body
class QueryAssignmentRequestBody(Body):
    client_id: str
    consumer_group: str
    message_model: MessageModel = MessageModel.CLUSTERING
    strategy_name: str = "AVG"
    topic: str


@body
class MessageQueueAssignment(Body):
    """A queue and how it is to be read: PULL or POP. Queue id -1 shares all queues of a broker."""

    message_queue: MessageQueue
    mode: str = "PULL"


@body
class QueryAssignmentResponseBody(Body):
    """None means: no opinion, the client keeps what it has."""

    message_queue_assignments: tuple[MessageQueueAssignment, ...] | None = None


@body
class SetMessageRequestModeRequestBody(Body):
    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: int = 0
    topic: str
