"""What can go wrong for a client, classed by what the caller can do next.

Every message names the cause and, where there is one, the cure.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_client.message_queue import MessageQueue


def why(error: Exception) -> str:
    """Return the reason of a failed system call in the system's own words, or in those of TLS."""
    if type(error).__module__ == "ssl":  # its numbers are other ones
        if problem := getattr(error, "verify_message", ""):
            return f"its certificate is not trusted: {problem}"
        return getattr(error, "reason", None) or str(error)
    is_of_resolver = type(error).__module__ == "socket"  # and so are its numbers
    if isinstance(error, OSError) and error.errno and not is_of_resolver:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error)


class ClientError(Exception):
    """Base of everything that this package raises on purpose."""


class TryAgainError(ClientError):
    """Nothing is known to have happened: the same call may succeed later or elsewhere.

    A send that ends so may have been stored all the same: sending it again can store it twice.
    """


class ConnectionLostError(TryAgainError):
    """The server could not be reached, or the connection ended before the answer came."""

    def __init__(
        self,
        address: str,
        reason: str,
        *,
        wrong_protocol: bool = False,
        cure: str = "is the server running and reachable from here?",
    ) -> None:
        if wrong_protocol:
            text = f"broke the protocol: {reason}; is this the port of the right protocol?"
        else:
            text = f"{reason}; {cure}"
        super().__init__(f"{address}: {text}")
        self.address, self.reason = address, reason


class RequestTimeoutError(TryAgainError):
    """The server took the request but did not answer in time."""

    def __init__(self, address: str, timeout_s: float) -> None:
        super().__init__(
            f"{address}: no answer within {timeout_s:.3g} s; is it overloaded, or is this not the"
            " port of the right protocol?"
        )
        self.address, self.timeout_s = address, timeout_s


class NoRouteError(TryAgainError):
    """No live broker serves the topic (the name service knows none)."""

    def __init__(
        self,
        topic: str,
        reason: str = "no broker that is up has it",
        cure: str | None = None,
        *,
        near: str = "",
    ) -> None:
        """`near`: the topic that was probably meant."""
        made = (
            "`imago cluster explain` says whether its brokers are up; a new topic is made with"
            f" `imago topic create {topic}`"
        )
        meant = f"did you mean {near}? Else " if near else ""
        super().__init__(f"topic {topic!r}: {reason}; {meant}{cure or made}")
        self.topic = topic


class TopicAwayError(NoRouteError):
    """A topic that this client has used before is served by no live broker now."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            topic,
            "all brokers that had it are down, or it was deleted",
            "it comes back with its brokers; `imago cluster explain` says what they wait for",
        )


class NoMasterError(NoRouteError):
    """A shard of the topic has no master at the moment, or none that this client knows of."""

    def __init__(self, topic: str, shard: str, *others: str) -> None:
        shards = (
            f"shard {shard} has" if not others else f"shards {', '.join((shard, *others))} have"
        )
        super().__init__(
            topic,
            f"{shards} no live master",
            "where its members elect one it comes within seconds; `imago cluster explain` says",
        )
        self.shard = shard


class NoQueuesError(NoMasterError):
    """The topic has no queues on this shard, as far as the name service knows at the moment."""

    def __init__(self, topic: str, shard: str, placed: Sequence[str]) -> None:
        NoRouteError.__init__(
            self,
            topic,
            f"it has no queues on shard {shard}, only on {', '.join(placed)}",
            f"choose one of those, or have it opened there: `imago topic spread {topic}`",
        )
        self.shard = shard


class BrokerError(ClientError):
    """The server answered with an error code; its own words are in `remark`."""

    def __init__(self, address: str, code: int, remark: str) -> None:
        first_line = remark.splitlines()[0] if remark else "no further text"
        super().__init__(f"{address} answered code {code}: {first_line}")
        self.address, self.code, self.remark = address, code, remark


class TopicExistsError(BrokerError):
    """There is such a topic already, or one with other settings than were asked for."""

    def __str__(self) -> str:
        return f"{super().__str__()}; alter_topic changes it"


class NoTopicError(ClientError):
    """There is no such topic on any shard."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"there is no topic {topic}")
        self.topic = topic


class HalfDoneError(TryAgainError):
    """A change of a topic or a group may be on some shards only; the same call does the rest.

    `away`: the shards that have no master to be told, where that is all that is missing.
    """

    def __init__(
        self, subject: str, done: Sequence[str], error: ClientError, *, away: Sequence[str] = ()
    ) -> None:
        there = (
            f"done on {', '.join(done)}, and perhaps not on others" if done else "perhaps not done"
        )
        super().__init__(f"{subject}: {there} ({error}). Repeat the call: it does the rest")
        self.subject, self.done, self.away = subject, tuple(done), tuple(away)


class HidesMessagesError(ClientError):
    """Fewer queues would be read than hold messages; nothing was changed where this was said."""


class ProducerFencedError(BrokerError):
    """Another instance of this producer or pipeline, with a higher epoch, has taken over: stop."""


class OutOfOrderSequenceError(BrokerError):
    """An idempotent producer's message does not follow the last one stored; it was not stored.

    A message before it was given up, or brokers have forgotten the producer. Go on with a new
    producer: another id, or a higher epoch.
    """


class SendFailedError(TryAgainError):
    """No try of a send was acknowledged; `causes` holds the error of each try, oldest first."""

    def __init__(self, topic: str, causes: list[Exception]) -> None:
        last = causes[-1] if causes else "no try was made within the time-out"
        super().__init__(f"message to {topic!r} not acknowledged in {len(causes)} tries: {last}")
        self.topic, self.causes = topic, causes


class NoReplyError(TryAgainError):
    """Nobody replied to a request in time; its message may have been consumed all the same."""

    def __init__(self, topic: str, timeout_s: float) -> None:
        super().__init__(
            f"request to {topic!r}: no reply within {timeout_s:g} s; does a consumer of the topic"
            " reply?"
        )
        self.topic, self.timeout_s = topic, timeout_s


class AnswerError(ClientError):
    """The server answered with something that is not the protocol's: wrong port, or a defect."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}; is this the port of the right protocol?")
        self.address = address


class UsageError(ClientError, ValueError):
    """The call itself is wrong: nothing was sent."""


class KindError(UsageError, TypeError):
    """A value is of another kind than asked for, such as a number for a text."""


class ClientClosedError(ClientError):
    """The client was closed; open a new one."""

    def __init__(self) -> None:
        super().__init__("the client is closed; open a new one")


class BodyError(ClientError):
    """The body of one message cannot be given as it was sent.

    `is_too_large`: inflated it would take more than is allowed; trying again changes nothing.
    Else its bytes are not what its flags say, and it comes as it is stored.
    """

    def __init__(
        self, queue: MessageQueue, offset: int, message_id: str, reason: str, *, is_too_large: bool
    ) -> None:
        super().__init__(f"message {message_id} at offset {offset} of {queue}: {reason}")
        self.queue, self.offset, self.message_id = queue, offset, message_id
        self.is_too_large = is_too_large
