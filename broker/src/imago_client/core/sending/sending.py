"""The send operations: choose a queue, send, and try another shard as the original clients do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from imago_client.checks import check_queue, check_text
from imago_client.core.effects import Oneway, Operation, Pause, Request, ask
from imago_client.core.failover import is_failover
from imago_client.core.lookup import TEMPLATE_TOPIC, find_publish_route
from imago_client.core.sending.selection import RoundRobin, queue_for_key
from imago_client.errors import (
    AnswerError,
    BrokerError,
    NoMasterError,
    NoRouteError,
    SendFailedError,
    TryAgainError,
)
from imago_client.message_queue import MessageQueue
from imago_client.messages import SendResult, SendStatus
from imago_wire.errors import ProtocolError
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader

if TYPE_CHECKING:
    from imago_client.config import ProducerConfig
    from imago_client.core.routing import TopicRoute
    from imago_client.core.sending.outgoing import Outgoing
    from imago_client.core.state import ClientState
    from imago_wire.remoting.command import RemotingCommand

ELSEWHERE_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Answers after which another shard is tried: the retry list of the Java producer 5.x."""

_STATUS: Final = {
    int(ResponseCode.SUCCESS): SendStatus.OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
}
PAUSES: Final = (0.1, 0.2, 0.3)
"""Seconds before a further try that has nowhere else to go; the last one from then on."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What was done of a send before: the queue that it got, and a try that failed."""

    queue: MessageQueue
    began_s: float = 0.0
    """When that try began, of whose time the others are."""
    address: str = ""
    error: TryAgainError | BrokerError | None = None


class Rotations:
    """One rotation over queues for each topic of a producer."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._by_topic: dict[str, RoundRobin] = {}

    def of(self, topic: str) -> RoundRobin:
        found = self._by_topic.get(topic)
        if found is None:
            found = self._by_topic[topic] = RoundRobin(self._start)
        return found


def send(
    state: ClientState,
    config: ProducerConfig,
    rotations: Rotations,
    outgoing: Outgoing,
    queue: MessageQueue | None = None,
    begun: Begun | None = None,
) -> Operation[SendResult]:
    """Send until a broker acknowledges, within the time-out and the number of tries.

    A message with a queue or an ordering key is tried again on its own queue only. The route is
    read again after every failure. Tries that have no other shard to go to are not counted: while
    masters are sought, only the time-out bounds them, or `failover_timeout_s` where that is longer.
    """
    pinned = queue is not None or outgoing.ordering_key is not None
    limits = _Limits(state, config, begun, pinned=pinned)
    causes, failed_shard, failed_address = _failed_before(begun)
    first = None if causes or begun is None else begun.queue
    result: SendResult | None = None
    while limits.allow_a_try():
        again = False
        try:
            wanted, first = first or queue, None
            target, address = yield from choose(
                state, config, rotations, outgoing, wanted, failed_shard
            )
            again = target.shard == failed_shard
            if again and address == failed_address:
                yield _pause(causes)
            failed_shard, failed_address = target.shard, address
            if (left_s := limits.left_s()) <= 0:
                break
            result = yield from send_to(state, config, outgoing, target, address, left_s)
            if result.status is SendStatus.OK or not config.retry_when_not_stored_ok:
                return result
            causes.append(BrokerError(address, 0, result.status.value))
            limits.count()
        except (TryAgainError, BrokerError) as error:
            give_up_or_note(state, outgoing.topic, error, causes)
            limits.note(error, again=again)
            if isinstance(error, NoRouteError):
                yield _pause(causes)
    if result is not None:
        return result
    raise SendFailedError(outgoing.topic, causes)


def _failed_before(begun: Begun | None) -> tuple[list[Exception], str | None, str]:
    """Return the errors so far, and the shard and the address that the last of them is of."""
    if begun is None or begun.error is None:
        return [], None, ""
    return [begun.error], begun.queue.shard, begun.address


class _Limits:
    """How often one message is tried, and for how long."""

    def __init__(
        self, state: ClientState, config: ProducerConfig, begun: Begun | None, *, pinned: bool
    ) -> None:
        self._state, self._config, self._pinned = state, config, pinned
        failed = begun is not None and begun.error is not None
        self._began_s = begun.began_s if begun and failed else state.clock_s()
        self._deadline_s = self._began_s + config.send_timeout_s
        self._counted = 0
        if begun and begun.error:
            self.note(begun.error, again=False)

    def allow_a_try(self) -> bool:
        in_time = self._state.clock_s() < self._deadline_s
        return in_time and self._counted <= self._config.retries_max

    def left_s(self) -> float:
        """Return how long the next try may take."""
        return min(self._deadline_s - self._state.clock_s(), self._config.send_timeout_s)

    def count(self) -> None:
        self._counted += 1

    def note(self, error: TryAgainError | BrokerError, *, again: bool) -> None:
        """Count a failed try, unless it had to wait for a master and nowhere else to go."""
        no_shard_is_led = isinstance(error, NoMasterError)
        if not is_failover(error) or not (again or self._pinned or no_shard_is_led):
            self._counted += 1
            return
        waited_s = self._began_s + self._state.config.failover_timeout_s
        self._deadline_s = max(self._deadline_s, waited_s)


def send_oneway(
    state: ClientState,
    config: ProducerConfig,
    rotations: Rotations,
    outgoing: Outgoing,
    queue: MessageQueue | None = None,
) -> Operation[MessageQueue]:
    """Send once and ask for no answer; return the queue it was addressed to."""
    target, address = yield from choose(state, config, rotations, outgoing, queue, None)
    yield Oneway(address, outgoing.code, _header(config, outgoing, target), outgoing.body)
    return target


def write_queues(
    state: ClientState, config: ProducerConfig, topic: str
) -> Operation[tuple[MessageQueue, ...]]:
    """Return where a topic can be sent to; of an unknown one, where its first send makes it.

    Queues whose shard elects a master now are among them.
    """
    check_text("topic", topic)
    route = yield from find_publish_route(state, topic, config.queues_by_default)
    return _writable(route, route.write_queues)


def choose(
    state: ClientState,
    config: ProducerConfig,
    rotations: Rotations,
    outgoing: Outgoing,
    queue: MessageQueue | None,
    failed_shard: str | None,
) -> Operation[tuple[MessageQueue, str]]:
    """Return where to send: the queue, and its master's address."""
    if queue is None:
        queue, route = yield from choose_queue(state, config, rotations, outgoing, failed_shard)
    else:
        check_queue(queue, outgoing.topic)
        route = yield from find_publish_route(state, queue.topic, config.queues_by_default)
    return queue, route.master(queue.shard)


def choose_queue(
    state: ClientState,
    config: ProducerConfig,
    rotations: Rotations,
    outgoing: Outgoing,
    failed_shard: str | None,
) -> Operation[tuple[MessageQueue, TopicRoute]]:
    """Return the queue of a message that names none, and the route: a key's may lack a master."""
    topic = outgoing.topic
    route = yield from find_publish_route(state, topic, config.queues_by_default)
    if outgoing.ordering_key is not None:
        placed = _writable(route, route.write_queues)
        return queue_for_key(outgoing.ordering_key, placed), route
    led = _writable(route, route.led_queues)
    return rotations.of(topic).pick(led, avoid=failed_shard), route


def _writable(route: TopicRoute, queues: tuple[MessageQueue, ...]) -> tuple[MessageQueue, ...]:
    if queues:
        return queues
    if route.write_queues:
        raise NoMasterError(route.topic, *sorted({queue.shard for queue in route.write_queues}))
    raise NoRouteError(route.topic, "no queue of it takes messages now")


def send_to(
    state: ClientState,
    config: ProducerConfig,
    outgoing: Outgoing,
    target: MessageQueue,
    address: str,
    left_s: float,
) -> Operation[SendResult]:
    """Send once; return what the broker acknowledges. BrokerError: it stored nothing."""
    request = Request(
        address,
        outgoing.code,
        _header(config, outgoing, target),
        outgoing.body,
        timeout_s=left_s,
    )
    try:
        answer = yield from ask(request)
        result = _result(outgoing, target, address, answer)
    except (TryAgainError, BrokerError):
        state.watch.counters.send_tries_failed += 1
        raise
    state.watch.sent(outgoing.messages, len(outgoing.body))
    return result


def _header(
    config: ProducerConfig, outgoing: Outgoing, target: MessageQueue
) -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2(
        producer_group=config.group,
        topic=outgoing.topic,
        default_topic=TEMPLATE_TOPIC,
        default_topic_queue_nums=config.queues_by_default,
        queue_id=target.queue_id,
        sys_flag=outgoing.sys_flag,
        born_timestamp=outgoing.born_ms,
        flag=outgoing.flag,
        properties=outgoing.properties,
        reconsume_times=0,
        unit_mode=False,
        max_reconsume_times=None,
        batch=outgoing.is_batch,
        broker_name=None,
    )


def _result(
    outgoing: Outgoing, target: MessageQueue, address: str, answer: RemotingCommand
) -> SendResult:
    status = _STATUS.get(answer.code)
    if status is None:
        raise BrokerError(address, answer.code, answer.remark or "")
    try:
        header = SendMessageResponseHeader.from_ext(answer.ext)
    except ProtocolError as error:
        raise AnswerError(address, str(error)) from None
    queue = MessageQueue(outgoing.topic, target.shard, header.queue_id)
    return SendResult(
        status=status,
        queue=queue,
        offset=header.queue_offset,
        message_id=outgoing.message_id,
        stored_id=header.msg_id,
        recall_handle=header.recall_handle,
        trace_region=header.msg_region if header.trace_on else None,
    )


def _pause(causes: list[Exception]) -> Pause:
    return Pause(PAUSES[min(len(causes), len(PAUSES)) - 1])


def give_up_or_note(
    state: ClientState, topic: str, error: TryAgainError | BrokerError, causes: list[Exception]
) -> None:
    """Note an error that another try may not meet; raise any other one."""
    if isinstance(error, BrokerError) and error.code not in ELSEWHERE_CODES:
        raise error
    is_unknown = isinstance(error, NoRouteError) and not isinstance(error, NoMasterError)
    if is_unknown and not causes and state.stale_route(topic) is None:
        raise error  # never seen this topic: trying again at once would only hide it
    state.drop_route(topic)
    causes.append(error)
