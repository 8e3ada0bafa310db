"""The operations of a transactional sink: stage batches, publish a micro-batch, or forget it.

One shard decides: it publishes first, and what it says then counts for all others, also for who
comes back after a crash with other attempts. It is the first shard by name, of all that the name
service knows, whether or not somebody leads it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from imago_client.core.effects import Operation, Pause, Request, ask
from imago_client.core.failover import through_failover
from imago_client.core.lookup import cluster_info, find_publish_route
from imago_client.core.sending.packed import Packed, pack, with_unique_keys
from imago_client.errors import (
    BrokerError,
    ClientError,
    NoMasterError,
    ProducerFencedError,
    TryAgainError,
)
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.imago import PublishStagedRequestHeader, StageBatchRequestHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_client.config import ProducerConfig
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue
    from imago_client.messages import Message
    from imago_wire.remoting.command import RemotingCommand
    from imago_wire.remoting.fields import Header

Parts = dict[str, dict[str, int]]
"""By attempt and shard, how many batches it has staged."""

_NOT_SAFE_YET: Final = (
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_BUSY,
)
_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One micro-batch of a sink."""

    sink: str
    number: int


def stage(
    state: ClientState,
    config: ProducerConfig,
    batch: MicroBatch,
    attempt: str,
    part: int,
    queue: MessageQueue,
    messages: Sequence[Message] | Packed,
) -> Operation[int]:
    """Stage messages for a queue; return how many bytes, 0: the micro-batch was published before.

    ProducerFencedError: a later one was.
    """
    packed = messages if isinstance(messages, Packed) else pack(messages)
    now_ms = state.clock_ms()
    _, body = with_unique_keys(state, config, packed, now_ms)
    header = StageBatchRequestHeader(
        producer_group=config.group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        sys_flag=0,
        born_timestamp=now_ms,
        flag=0,
        batch=True,
        imago_sink=batch.sink,
        imago_batch=batch.number,
        imago_attempt=attempt,
        imago_part=part,
    )

    def attempt_once() -> Operation[RemotingCommand]:
        route = yield from find_publish_route(state, queue.topic, config.queues_by_default)
        address = route.master(queue.shard)
        return (yield from _ask(config, address, RequestCode.IMAGO_STAGE_BATCH, header, body))

    answer = yield from _patiently(state, config, queue.topic, attempt_once)
    return 0 if "imagoDecided" in answer.ext else len(body)


def publish(
    state: ClientState,
    config: ProducerConfig,
    batch: MicroBatch,
    topic: str,
    parts: Parts,
    only: str | None = None,
) -> Operation[Parts]:
    """Have readers see a micro-batch on all shards; return the attempts that count.

    They are others than those asked for where it was published before. It may be said again after
    an error, until it succeeds: the micro-batch may have been decided. ProducerFencedError: a later
    one was published. `only`: the shard that alone ever has anything of this sink decides.
    """
    first = only or (yield from _deciding_shard(state, config, topic, parts))
    counted = yield from _publish_on(state, config, batch, topic, first, parts)
    for shard in sorted({shard for shards in counted.values() for shard in shards} - {first}):
        yield from _publish_on(state, config, batch, topic, shard, counted)
    return counted


def _deciding_shard(
    state: ClientState, config: ProducerConfig, topic: str, parts: Parts
) -> Operation[str]:
    """Return the first shard by name, of all that anybody knows: it must always be the same."""
    info = yield from cluster_info(state)
    route = yield from find_publish_route(state, topic, config.queues_by_default)
    return min(
        (
            *info.broker_addr_table,
            *(one.broker_name for one in info.imago_missing or ()),
            *(queue.shard for queue in route.write_queues),
            *(shard for shards in parts.values() for shard in shards),
        )
    )


def roll_back(
    state: ClientState,
    config: ProducerConfig,
    batch: MicroBatch,
    topic: str,
    only: str | None = None,
) -> Operation[None]:
    """Forget on all shards what is staged of a micro-batch that nobody has tried to publish.

    `only`: it is on this one.
    """
    header = PublishStagedRequestHeader(
        topic=topic, imago_sink=batch.sink, imago_batch=batch.number, imago_commit=False
    )
    info = yield from cluster_info(state)
    for shard in sorted(info.broker_addr_table) if only is None else (only,):
        yield from _ask_shard(state, config, topic, shard, header, b"")


def _publish_on(
    state: ClientState,
    config: ProducerConfig,
    batch: MicroBatch,
    topic: str,
    shard: str,
    parts: Parts,
) -> Operation[Parts]:
    here = {attempt: shards[shard] for attempt, shards in parts.items() if shards.get(shard)}
    said = json.dumps(parts, sort_keys=True, separators=(",", ":")) if parts else ""
    header = PublishStagedRequestHeader(
        topic=topic, imago_sink=batch.sink, imago_batch=batch.number
    )
    body = json.dumps({"parts": here, "said": said}).encode()
    answer = yield from _ask_shard(state, config, topic, shard, header, body)
    if "imagoDecided" not in answer.ext:
        return parts
    found: Parts = json.loads(answer.body)
    return found


def _ask_shard(
    state: ClientState,
    config: ProducerConfig,
    topic: str,
    shard: str,
    header: PublishStagedRequestHeader,
    body: bytes,
) -> Operation[RemotingCommand]:
    def attempt_once() -> Operation[RemotingCommand]:
        table = (yield from cluster_info(state)).broker_addr_table
        address = table[shard].broker_addrs.get(0) if shard in table else None
        if address is None:
            raise NoMasterError(topic, shard)
        return (yield from _ask(config, address, RequestCode.IMAGO_PUBLISH_STAGED, header, body))

    return (yield from _patiently(state, config, topic, attempt_once))


def _ask(
    config: ProducerConfig, address: str, code: RequestCode, header: Header, body: bytes
) -> Operation[RemotingCommand]:
    answer = yield from ask(Request(address, code, header, body, timeout_s=config.send_timeout_s))
    if answer.code == ResponseCode.IMAGO_PRODUCER_FENCED:
        raise ProducerFencedError(address, answer.code, answer.remark or "")
    if answer.code != 0:
        raise BrokerError(address, answer.code, answer.remark or "")
    return answer


def _patiently(
    state: ClientState,
    config: ProducerConfig,
    topic: str,
    attempt_once: Callable[[], Operation[RemotingCommand]],
) -> Operation[RemotingCommand]:
    """Return the answer, asked for anew within `delivery_timeout_s`: each may be asked twice."""
    deadline = state.clock_s() + config.delivery_timeout_s
    while True:
        try:
            return (yield from through_failover(state, topic, attempt_once))
        except ProducerFencedError:
            raise
        except ClientError as error:
            again = isinstance(error, TryAgainError) or (
                isinstance(error, BrokerError) and error.code in _NOT_SAFE_YET
            )
            if not again or state.clock_s() >= deadline:
                raise
        yield Pause(_PAUSE_S)
