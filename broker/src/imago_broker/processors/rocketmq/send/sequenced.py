"""Sends of idempotent producers: their numbers read and checked, their refusals in words.

Properties whose names begin with ``__IMAGO_`` are the broker's business. Whatever a message brings
of them is taken off; only all three of a producer together are a claim, anything else is the echo
of a message that somebody consumed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.puts.sequencing import Numbers, Verdict
from imago_broker.processors.rocketmq.exchange import Reply, RequestError
from imago_broker.service.puts.copies import joined
from imago_wire.errors import ProtocolError
from imago_wire.record_format import sequences
from imago_wire.record_format.sequences import NUMBER_MAX, sent_id, user_tag
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.service.puts.sequencing import SequenceRefusal
    from imago_wire.remoting.messages import BatchEntry


def take_numbers(
    parts: Sequence[BatchEntry], sender: str
) -> tuple[Sequence[BatchEntry], Numbers | None]:
    """Return the messages with the property that is stored, and what their producer claims.

    `sender` is the user whose producer it is; empty: nobody's. RequestError: their numbers cannot
    be read, or are not those of one request.
    """
    if not any(sequences.PREFIX in part.properties for part in parts):
        return parts, None
    try:
        found = [sequences.read_wire(part.properties) for part in parts]
    except ProtocolError as error:
        raise _illegal(str(error)) from None
    bare = [part._replace(properties=sequences.without(part.properties)) for part in parts]
    claims = [claim for claim in found if claim is not None]
    if not claims:
        return bare, None
    first = claims[0]
    expected = [first._replace(number=first.number + index) for index in range(len(parts))]
    if claims != expected or expected[-1].number >= NUMBER_MAX:
        raise _illegal(
            "the messages of a batch must be numbered one by one, by one producer in one epoch"
        )
    producer = first.producer + (user_tag(sender) if sender else "")
    marked = [
        _marked(part, claim._replace(producer=producer))
        for part, claim in zip(bare, claims, strict=True)
    ]
    return marked, Numbers(producer, first.epoch, first.number, len(parts))


def _marked(part: BatchEntry, claim: sequences.Sequence) -> BatchEntry:
    stored = sequences.stored_property(claim)
    return part._replace(properties=joined(part.properties, stored))


def require_direct(topic: str, *, waits: bool) -> None:
    """Refuse numbered messages that would not go to the queue in which they are numbered."""
    if waits or topic.startswith("%"):
        raise _illegal(
            "an idempotent producer's message can be neither delayed, nor begin a transaction, nor "
            "be sent to a retry topic: "
            "send it with a producer that is not idempotent"
        )


def refusal_reply(refusal: SequenceRefusal, claimed: Numbers, queue: str) -> Reply:
    """Return the answer to messages that were not taken, with cause and cure."""
    epoch, expected = refusal.state
    who = f"producer {sent_id(claimed.producer)}, queue {queue}"
    if refusal.verdict is Verdict.FENCED:
        return Reply(
            ResponseCode.IMAGO_PRODUCER_FENCED,
            f"ProducerFenced: {who}: epoch {claimed.epoch} is over, epoch {epoch} has begun: "
            "another instance with this producer id took over; stop this one",
        )
    if epoch == claimed.epoch:
        cause = f"message {claimed.first} came where {expected} is expected"
    elif epoch < 0:
        cause = f"message {claimed.first} came of a producer that this shard does not know"
    else:
        cause = f"message {claimed.first} came where epoch {claimed.epoch} has to begin with 0"
    return Reply(
        ResponseCode.IMAGO_OUT_OF_ORDER_SEQUENCE,
        f"OutOfOrderSequence: {who}, epoch {claimed.epoch}: {cause}: a message before it was not "
        "stored, or the producer was silent for 7 days; send the missing ones again in their "
        "order, or go on with a higher epoch from 0",
    )


def _illegal(remark: str) -> RequestError:
    return RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)
