"""Operations of one member of a consumer group: heart beat, balance, locks, offsets, retries."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from imago_client.config import ConsumerConfig, StartFrom
from imago_client.core.consuming.allocation import allocate_averagely
from imago_client.core.consuming.pulling import (
    commit,
    committed_offset,
    incarnation,
    max_offset,
    min_offset,
    offset_at,
)
from imago_client.core.consuming.subscriptions import TAG
from imago_client.core.effects import Oneway, Operation, Request, ask_ok
from imago_client.core.failover import through_failover
from imago_client.core.lookup import find_named_route, find_route
from imago_client.errors import BrokerError, ClientError, NoRouteError, TryAgainError
from imago_client.message_queue import MessageQueue
from imago_client.naming import RETRY_PREFIX
from imago_wire.remoting.bodies.client import (
    CheckClientRequestBody,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    SubscriptionData,
)
from imago_wire.remoting.bodies.client import MessageQueue as WireQueue
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.headers.client import (
    GetConsumerListByGroupRequestHeader,
    UnregisterClientRequestHeader,
)
from imago_wire.remoting.headers.pull import ConsumerSendMsgBackRequestHeader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_client.core.consuming.subscriptions import Subscription
    from imago_client.core.routing import TopicRoute
    from imago_client.core.state import ClientState
    from imago_client.received import ReceivedMessage
    from imago_wire.remoting.command import RemotingCommand

log = logging.getLogger(__name__)

SEND_BACK_TIMEOUT_S: Final = 5.0
RECONSUME_TIMES_MAX: Final = 16
"""Retries where the consumer's settings say nothing."""


@dataclass(frozen=True, slots=True)
class Beat:
    """How a heart beat went."""

    told: int
    """How many brokers have taken it: the others hear of the member with a later one."""
    errors: list[ClientError]
    """Why brokers could not be told, or not be found."""

    def check(self) -> None:
        """Raise where nobody knows of the member."""
        if self.errors and not self.told:
            raise self.errors[0]


def heartbeat(
    state: ClientState, config: ConsumerConfig, subscriptions: Iterable[Subscription]
) -> Operation[Beat]:
    """Tell every broker of the subscribed topics that this member lives."""
    wanted = list(subscriptions)
    body = _heartbeat_body(state, config, wanted)
    errors: list[ClientError] = []
    told = 0
    for address in (yield from _brokers(state, wanted, errors)):
        try:
            yield from ask_ok(
                Request(
                    address,
                    RequestCode.HEART_BEAT,
                    body=body,
                    timeout_s=state.config.request_timeout_s,
                )
            )
        except ClientError as error:
            errors.append(error)
        else:
            told += 1
    return Beat(told, errors)


def check_filters(
    state: ClientState, group: str, subscriptions: Iterable[Subscription]
) -> Operation[None]:
    """Have a broker of each topic say whether it can filter so. BrokerError: it cannot, and why.

    TryAgainError: no broker of a topic says.
    """
    for subscription in subscriptions:
        if subscription.kind == TAG:
            continue
        route: TopicRoute = yield from find_named_route(state, subscription.topic)
        body = CheckClientRequestBody(
            client_id=state.client_id,
            group=group,
            subscription_data=_subscription_data(subscription),
        ).encode(standard=True)
        code, timeout_s = RequestCode.CHECK_CLIENT_CONFIG, state.config.request_timeout_s
        yield from _ask_any(
            Request(route.reader(shard), code, body=body, timeout_s=timeout_s)
            for shard in sorted(route.addresses)
        )


def _ask_any(requests: Iterable[Request]) -> Operation[RemotingCommand | None]:
    """Return the first answer of brokers that each could give it: one may just have died.

    None: there are none to ask. BrokerError: one refuses. TryAgainError: no one answers.
    """
    last: TryAgainError | None = None
    for request in requests:
        try:
            return (yield from ask_ok(request))
        except TryAgainError as error:
            last = error
    if last is not None:
        raise last
    return None


def unregister(
    state: ClientState, config: ConsumerConfig, subscriptions: Iterable[Subscription]
) -> Operation[None]:
    """Leave the group at once, so that the others take over without waiting."""
    header = UnregisterClientRequestHeader(client_id=state.client_id, consumer_group=config.group)
    timeout_s = state.config.request_timeout_s
    for address in (yield from _brokers(state, list(subscriptions), [])):
        try:
            request = Request(address, RequestCode.UNREGISTER_CLIENT, header, timeout_s=timeout_s)
            yield from ask_ok(request)
        except ClientError:
            continue  # a broker that does not hear it forgets the member by itself


def assignment(state: ClientState, group: str, topic: str) -> Operation[list[MessageQueue] | None]:
    """Return the queues of `topic` that this member has to read; None: keep what it reads.

    None while the brokers do not list this member, as after a reconnect. Any shard can be asked:
    all know the members.
    """
    try:
        route = yield from find_route(state, topic)
    except NoRouteError:
        return []
    asked = GetConsumerListByGroupRequestHeader(consumer_group=group)
    code, timeout_s = RequestCode.GET_CONSUMER_LIST_BY_GROUP, state.config.request_timeout_s
    shards = sorted(route.addresses)
    state.rng.shuffle(shards)
    try:
        answer = yield from _ask_any(
            Request(route.reader(shard), code, asked, timeout_s=timeout_s) for shard in shards
        )
    except BrokerError:
        return None
    if answer is None:
        return None
    members = GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list
    if state.client_id not in members:
        return None
    return allocate_averagely(state.client_id, members, route.read_queues)


def start_offset(
    state: ClientState, config: ConsumerConfig, queue: MessageQueue, *, is_new: bool = False
) -> Operation[int]:
    """Return where to begin: the committed offset, else what the configuration says.

    `is_new`: the queue was not there when this member began, so nothing in it was before that.
    A beginning that moves with time is committed at once: whoever reads the queue next, after a
    crash before the first commit, would begin later.
    """
    committed = yield from committed_offset(state, config.group, queue)
    if committed is not None and committed >= 0:
        return committed
    begins = config.begins
    if queue.topic.startswith(RETRY_PREFIX) or begins is StartFrom.EARLIEST:
        return (yield from min_offset(state, queue))
    if begins is StartFrom.TIMESTAMP:
        offset = yield from offset_at(state, queue, config.start_timestamp_ms)
    elif is_new:
        offset = yield from min_offset(state, queue)
    else:
        offset = yield from max_offset(state, queue)
    yield from commit(state, config.group, queue, offset)
    return offset


class KnownQueues:
    """Which queues each topic had when a member first balanced it."""

    def __init__(self) -> None:
        self._by_topic: dict[str, frozenset[MessageQueue]] = {}
        self._incarnations: dict[tuple[str, str], int] = {}
        """By topic and shard."""

    def note(self, state: ClientState, topic: str) -> None:
        """Keep the topic's queues, as the route read last tells them, if this is the first time."""
        if topic not in self._by_topic:
            route = state.stale_route(topic)
            queues = () if route is None else (*route.read_queues, *route.write_queues)
            self._by_topic[topic] = frozenset(queues)

    def appeared(self, topic: str) -> None:
        """Take all queues of a topic for new: it came later than the member."""
        self._by_topic[topic] = frozenset()

    def made_anew(
        self, state: ClientState, queues: Iterable[MessageQueue]
    ) -> Operation[set[MessageQueue]]:
        """Look again at queues of a topic; return those whose topic was deleted and made again.

        A position in the topic that is gone says nothing of this one.
        """
        by_shard: dict[str, set[MessageQueue]] = {}
        for queue in queues:
            if not queue.topic.startswith(RETRY_PREFIX):
                by_shard.setdefault(queue.shard, set()).add(queue)
        found: set[MessageQueue] = set()
        for shard, there in by_shard.items():
            first = min(there)
            now = yield from incarnation(state, first)
            if now is None:
                continue
            if self._incarnations.setdefault((first.topic, shard), now) != now:
                self._incarnations[first.topic, shard] = now
                self.appeared(first.topic)  # also to those who begin to read it only now
                found |= there
        return found

    def is_new(self, queue: MessageQueue) -> bool:
        known = self._by_topic.get(queue.topic)
        return known is not None and queue not in known


def lock(
    state: ClientState, group: str, queues: Iterable[MessageQueue]
) -> Operation[set[MessageQueue]]:
    """Lock queues for this member, or renew its locks; return those that it holds now."""
    held: set[MessageQueue] = set()
    errors: list[ClientError] = []
    for address, of_shard in (yield from _by_master(state, queues, errors)).items():
        body = _lock_body(state, group, of_shard)
        try:
            answer = yield from ask_ok(
                Request(
                    address,
                    RequestCode.LOCK_BATCH_MQ,
                    body=body,
                    timeout_s=state.config.request_timeout_s,
                )
            )
        except ClientError as error:
            errors.append(error)
            state.drop_route(of_shard[0].topic)
            continue  # not held: nothing of it is handled until the next try
        locked = LockBatchResponseBody.decode(answer.body).lock_ok_mq_set
        held |= {MessageQueue(one.topic, one.broker_name, one.queue_id) for one in locked}
    for one in errors:
        if times := state.warnings.due("lock", group, str(one)):
            log.warning("lock_failed group=%s times=%d error=%s", group, times, one)
    return held


def unlock(state: ClientState, group: str, queues: Iterable[MessageQueue]) -> Operation[None]:
    """Give locks back; without it they would end by themselves after a minute."""
    for address, of_shard in (yield from _by_master(state, queues, [])).items():
        body = _lock_body(state, group, of_shard)
        try:
            yield Oneway(address, RequestCode.UNLOCK_BATCH_MQ, body=body)
        except ClientError:
            continue


def send_back(
    state: ClientState, config: ConsumerConfig, message: ReceivedMessage, delay_level: int
) -> Operation[None]:
    """Have the broker deliver a message again, later (a level below 0: to the dead letters)."""
    times_max = config.reconsume_times_max
    header = ConsumerSendMsgBackRequestHeader(
        offset=message.stored.physical_offset,
        group=config.group,
        delay_level=delay_level,
        origin_msg_id=message.message_id,
        origin_topic=message.topic,
        max_reconsume_times=RECONSUME_TIMES_MAX if times_max is None else times_max,
    )

    def attempt() -> Operation[RemotingCommand]:
        route = yield from find_route(state, message.queue.topic)
        address = route.master(message.queue.shard)
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        return (yield from ask_ok(Request(address, code, header, timeout_s=SEND_BACK_TIMEOUT_S)))

    yield from through_failover(state, message.queue.topic, attempt)
    state.watch.counters.handed_back += 1


def _heartbeat_body(
    state: ClientState, config: ConsumerConfig, subscriptions: Iterable[Subscription]
) -> bytes:
    return HeartbeatData(
        client_id=state.client_id,
        consumer_data_set=(
            ConsumerData(
                consume_from_where=ConsumeFromWhere(config.begins.value),
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                group_name=config.group,
                subscription_data_set=tuple(_subscription_data(one) for one in subscriptions),
            ),
        ),
    ).encode(standard=True)


def _subscription_data(subscription: Subscription) -> SubscriptionData:
    return SubscriptionData(
        topic=subscription.topic,
        sub_string=subscription.expression,
        expression_type=subscription.kind,
        code_set=frozenset(subscription.codes),
        tags_set=subscription.tags,
        sub_version=subscription.version,
    )


def _brokers(
    state: ClientState, subscriptions: Iterable[Subscription], errors: list[ClientError]
) -> Operation[list[str]]:
    """Return the addresses of all brokers, slaves too, that serve the topics."""
    found: set[str] = set()
    for subscription in subscriptions:
        named = not subscription.topic.startswith(RETRY_PREFIX)
        find = find_named_route if named else find_route
        try:
            route: TopicRoute = yield from find(state, subscription.topic)
        except ClientError as error:
            if named:
                errors.append(error)
            continue
        for brokers in route.addresses.values():
            found.update(brokers.values())
    return sorted(found)


def _by_master(
    state: ClientState, queues: Iterable[MessageQueue], errors: list[ClientError]
) -> Operation[Mapping[str, list[MessageQueue]]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        try:
            route = yield from find_route(state, queue.topic)
            found.setdefault(route.master(queue.shard), []).append(queue)
        except ClientError as error:
            errors.append(error)  # no master, no lock
    return found


def _lock_body(state: ClientState, group: str, queues: Iterable[MessageQueue]) -> bytes:
    return LockBatchRequestBody(
        client_id=state.client_id,
        consumer_group=group,
        mq_set=tuple(WireQueue(queue.topic, queue.shard, queue.queue_id) for queue in queues),
    ).encode(standard=True)
