"""Producers and consumers that run in threads of their own while something is done to a cluster.

A body says whose it is and its number among his: `<stream>/<number>/…`. So what is found later
can be told apart, counted and put in order without anything else.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

from imago_client import ClientError, Message
from imago_testing.interop.metaq import Put
from imago_testing.interop.rocketmq import Outgoing, Received
from imago_testing.java.driver import DriverError
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_client.blocking.rocketmq import producer as ours
    from imago_testing.interop.metaq import Got, MetaqConsumer, MetaqProducer
    from imago_testing.interop.rocketmq import Producer, PushConsumer

PAUSE_SECONDS = 0.015
_TAKE_SECONDS = 0.5
ACKS_SECONDS_MAX = 90.0
"""How long an acknowledgement may take: brokers come back meanwhile, on a busy machine."""
_CONSUMED_SECONDS_MAX = 60.0
_HANGS_SECONDS = 30.0
"""After so long without what is wanted, a consumer is asked whether it hangs."""
_BODY_SIZE = 200
OWN_TIMEOUT = "等待响应超时"
"""What the MetaQ client answers itself when its connection closes under a request."""
NO_CONNECTION = "无可用连接"
"""What the MetaQ client answers itself between closing a connection and opening the next."""

Taken = tuple[bytes, str]
"""The body of a message that a consumer was given, and where that message stands."""

Outcomes = list[str | None]
"""Per message what was wrong; None: acknowledged."""


def body_of(stream: str, number: int) -> bytes:
    """Return the body of one message, which can be told from its front."""
    front = b"%b/%d/" % (stream.encode(), number)
    return front + bytes(i * number & 0xFF for i in range(_BODY_SIZE - len(front)))


def origin(body: bytes) -> tuple[str, int]:
    """Return the stream and the number that a body says it has; ValueError when it says none."""
    stream, number, _ = body.split(b"/", 2)
    return stream.decode(), int(number)


class Stream:
    """One producer: sends messages one group after the other until it is told to stop."""

    def __init__(
        self,
        name: str,
        send: Callable[[Sequence[bytes]], Outcomes],
        *,
        depth: int = 1,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        """`depth`: how many messages are given to one call of `send`."""
        self.name = name
        self.acknowledged: list[bytes] = []
        self.errors: dict[bytes, str] = {}
        """Those of which nobody knows whether they are stored."""
        self.gap_seconds = 0.0
        """Longest time between two acknowledgements."""
        self._send, self._depth, self._pause = send, depth, pause_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Send no more, and wait for what was sent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def sent(self) -> set[bytes]:
        """All that was tried."""
        return {*self.acknowledged, *self.errors}

    def _run(self) -> None:
        number, last = 0, time.monotonic()
        while not self._stop.is_set():
            bodies = [body_of(self.name, number + more) for more in range(self._depth)]
            number += self._depth
            for body, error in zip(bodies, self._outcomes(bodies), strict=True):
                if error is not None:
                    self.errors[body] = error
                    continue
                self.acknowledged.append(body)
                now = time.monotonic()
                self.gap_seconds, last = max(self.gap_seconds, now - last), now
            time.sleep(self._pause)

    def _outcomes(self, bodies: Sequence[bytes]) -> Outcomes:
        try:
            return self._send(bodies)
        except (DriverError, ClientError) as error:
            return [str(error)] * len(bodies)


class Reader:
    """One consumer: keeps what it is given until it is told to stop."""

    def __init__(
        self,
        name: str,
        take: Callable[[], Sequence[Taken]],
        restarted: Callable[[], bool] = lambda: False,
    ) -> None:
        """`restarted` starts the consumer again if its own client may hang; False: it did not."""
        self.name = name
        self._restarted = restarted
        self.got: list[bytes] = []
        self._places: list[str] = []
        self._take = take
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def until_got(self, wanted: set[bytes]) -> None:
        """Wait until all of these have come; start a consumer again that hangs meanwhile."""
        try:
            self._wait(wanted, _HANGS_SECONDS)
        except TimeoutError:
            if self._restarted():
                print(f"{self.name} hung and was started again", flush=True)
        try:
            self._wait(wanted, _CONSUMED_SECONDS_MAX)
        except TimeoutError as error:
            missing = sorted(map(origin, wanted - set(self.got)))
            raise TimeoutError(f"{error}; {len(missing)} are missing: {missing[:5]}") from None

    def _wait(self, wanted: set[bytes], seconds_max: float) -> None:
        wait_until(
            lambda: wanted <= set(self.got),
            seconds_max=seconds_max,
            what=f"{self.name} has everything",
            poll=0.2,
        )

    def more_than_once(self) -> list[str]:
        """Return what came several times, and from where: one place, or stored several times."""
        places: dict[bytes, list[str]] = {}
        for body, place in zip(self.got, self._places, strict=False):
            places.setdefault(body, []).append(place)
        return [
            f"{origin(body)}: {' and '.join(found)}"
            for body, found in places.items()
            if len(found) > 1
        ]

    def _run(self) -> None:
        while not self._stop.is_set():
            taken = self._take()
            self._places += [place for _, place in taken]
            self.got += [body for body, _ in taken]


def until_acknowledged(streams: Sequence[Stream], count: int) -> None:
    """Wait until every producer has got so many acknowledgements more."""
    goals = [(stream, len(stream.acknowledged) + count) for stream in streams]

    def behind() -> list[str]:
        return [stream.name for stream, goal in goals if len(stream.acknowledged) < goal]

    try:
        wait_until(
            lambda: not behind(),
            seconds_max=ACKS_SECONDS_MAX,
            what=f"{count} further acknowledgements of each producer",
        )
    except TimeoutError as error:
        last = {each.name: list(each.errors.values())[-2:] for each in streams}
        raise TimeoutError(f"{error}; not of {behind()}; last errors: {last}") from None


# How each kind of producer sends -----------------------------------------------------------------


def metaq_puts(producer: MetaqProducer, topic: str) -> Callable[[Sequence[bytes]], Outcomes]:
    """One put after the other."""
    return lambda bodies: [
        None if result.success else str(result.error)
        for result in producer.send(topic, [Put(body) for body in bodies])
    ]


def metaq_callbacks(producer: MetaqProducer, topic: str) -> Callable[[Sequence[bytes]], Outcomes]:
    """All at once, each with a call-back."""
    return lambda bodies: [
        None if result.success else str(result.error)
        for result in producer.send_callback(topic, [Put(body) for body in bodies])
    ]


def rocketmq_sends(producer: Producer, topic: str) -> Callable[[Sequence[bytes]], Outcomes]:
    """One after the other; the client tries again by itself, as it was told to."""
    return lambda bodies: [
        _unless_ok(sent.status)
        for sent in producer.send(topic, [Outgoing(body=body) for body in bodies])
    ]


def rocketmq_async(producer: Producer, topic: str) -> Callable[[Sequence[bytes]], Outcomes]:
    """All at once."""
    return lambda bodies: [
        sent if isinstance(sent, str) else _unless_ok(sent.status)
        for sent in producer.try_async(topic, [Outgoing(body=body) for body in bodies])
    ]


def our_sends(producer: ours.Producer, topic: str) -> Callable[[Sequence[bytes]], Outcomes]:
    """One after the other, by the client of this repository."""
    return lambda bodies: [
        _unless_ok(producer.send(Message(topic, body)).status.name) for body in bodies
    ]


def _unless_ok(status: str) -> str | None:
    return None if status.endswith("OK") else status


def taking(consumer: MetaqConsumer | PushConsumer) -> Callable[[], Sequence[Taken]]:
    """What a consumer was given since the last call; waits a little where there is nothing."""
    return lambda: [taken_from(each) for each in consumer.take(1, seconds_max=_TAKE_SECONDS)]


def taken_from(message: Got | Received) -> Taken:
    """Return a message's body, and where it stands."""
    if isinstance(message, Received):
        born_s, stored_s = message.born_ms / 1000, message.stored_ms / 1000
        times = f"born {born_s:.3f}, stored {stored_s:.3f}"
        return message.body, f"{message.queue} offset {message.offset} id {message.id} {times}"
    return message.body, f"partition {message.partition} id {message.id}"


def until_routed(queues: Callable[[str], Sequence[object]], topic: str, count: int = 1) -> None:
    """Wait until a RocketMQ client sees so many queues of a topic."""

    def there() -> bool:
        try:
            return len(queues(topic)) >= count
        except DriverError:
            return False

    wait_until(there, what=f"the route of {topic}")


def errors_by_kind(streams: Sequence[Stream]) -> Mapping[str, Mapping[str, int]]:
    """Count each producer's errors by the front of their texts."""
    told: dict[str, dict[str, int]] = {}
    for stream in streams:
        kinds = told.setdefault(stream.name, {})
        for error in stream.errors.values():
            kinds[error[:70]] = kinds.get(error[:70], 0) + 1
    return told
