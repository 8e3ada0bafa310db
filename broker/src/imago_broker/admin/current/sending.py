"""Routes that put messages for people: one of their own, or once more what a group gave up."""

from __future__ import annotations

import asyncio
import base64
import random
from typing import TYPE_CHECKING, Any, Final

from imago_broker.admin.calls.guard import json_body, json_response, text_of
from imago_broker.admin.charges import charged
from imago_broker.admin.errors import AdminError, bad_request, not_found, refuse_unknown
from imago_broker.admin.paging import LIMIT, number, whether
from imago_broker.admin.resources.cluster_lists import leads
from imago_broker.admin.resources.everywhere import ask_others
from imago_broker.admin.shards.shards import asked_of_master, is_forwarded, no_master
from imago_broker.model.bounds import as_json
from imago_broker.model.groups import GroupConfig
from imago_broker.model.names import dlq_topic, retry_topic
from imago_broker.model.registry.cluster import shard_name
from imago_broker.model.topics.topics import PERM_WRITE
from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import RequestError
from imago_broker.processors.rocketmq.needs import needs_to_read, needs_to_send
from imago_broker.processors.rocketmq.send.sending import SYS_KEPT, Sending, checked_topic
from imago_broker.service.access.throttling import Direction
from imago_broker.service.puts.copies import read_copy, with_default
from imago_broker.service.puts.put_status import PutStatus
from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.record_format import properties as props
from imago_wire.records.record import PLACED_QUEUE_OFFSET, host_bytes, make_entry
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

    from imago_broker.admin.charges import ChargedCall
    from imago_broker.admin.services import AdminServices
    from imago_broker.model.access.access import Need
    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.service.groups.locks import QueueKey
    from imago_wire.records.record import Entry

READER: Final = "IMAGO_DLQ"
"""The group whose offsets say which dead letters went back, as of `imago dlq replay`."""
LETTERS_MAX: Final = 1000
"""Of each shard in one call, which does not take longer than who waits for it."""
_rng = random.Random()  # noqa: S311  spreads messages over queues, no secret


def send_needs(_: AdminServices, request: web.Request) -> Iterable[Need]:
    """Need to send to the topic."""
    return needs_to_send(request.query.get("topic", ""))


def replay_needs(_: AdminServices, request: web.Request) -> Iterable[Need]:
    """Need to see what the group gave up, and to put into its retry topic what it reads."""
    group = request.match_info["group"]
    return (*needs_to_read(dlq_topic(group)), *needs_to_send(retry_topic(group)))


async def send(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/messages?topic= {"body" | "bodyBase64", "tags", "keys", "properties"}."""
    topic = request.query.get("topic", "")
    own = services.config.broker.shard
    here = leads(services) and services.topics.get(topic) is not None
    if not here and (answer := await _of_another(services, request, topic)) is not None:
        return answer
    body = await json_body(request)
    refuse_unknown(body, ("body", "bodyBase64", "tags", "keys", "properties"))
    unique = services.unique_keys.next()
    data, told = _body_of(services, body), _properties(body) | {props.UNIQ_KEY: unique}
    sending = Sending(
        producer_group="",
        topic=topic,
        default_topic="",
        default_queues=0,
        queue_id=-1,
        sys_flag=0,
        born_ms=services.clock.epoch_ms(),
        flag=0,
        properties=_encoded(told),
        reconsume_times=0,
        max_reconsume_times=None,
        batch=False,
        body=data,
    )
    try:
        config = checked_topic(services.topics, services.on_topic_made, sending, "")
        queue = _rng.randrange(min(config.write_queues, rules.taking_queues(config)))
    except RequestError as error:
        raise _refusal(error) from error
    if not config.perm & PERM_WRITE:  # producers learn of no queue of it
        raise _refusal(rules.forbidden(f"topic {topic} takes no messages (perm={config.perm})"))
    host = host_bytes("127.0.0.1", 0)
    tail = services.store.tail(topic, queue)
    try:
        entry = make_entry(tail, data, sending.properties, born_ms=sending.born_ms, born_host=host)
    except LimitExceededError as error:
        raise bad_request(f"{error}.", "Send less of keys, tags and properties.") from error
    async with charged(services, request, topic, Direction.PRODUCER) as taken:
        taken.took(topic, len(data))
        offset = await _put(services, entry)
    shown = {"shard": shard_name(own), "queue": queue, "offset": offset, "uniqueId": unique}
    return json_response({"topic": topic} | shown, status=201)


async def _of_another(
    services: AdminServices, request: web.Request, topic: str
) -> web.Response | None:
    """Return what the master of a shard that has the topic answers; None: we are it by now."""
    view = services.coordinator.view()
    if (placed := view.topics.get(topic)) is None:
        raise not_found("topic", topic, view.topics)
    led = [number for number in sorted(placed.shards) if view.master(number) is not None]
    if not led:
        raise no_master(min(placed.shards, default=services.config.broker.shard))
    return await asked_of_master(services, request, led[0])


async def replay(services: AdminServices, request: web.Request) -> web.Response:
    """POST /admin/v1/groups/{group}/replay: what the group gave up, to it alone once more.

    `?limit=` (100, at most 1000) of each shard; `?dry=true` counts, and sends nothing. `items`: on
    each shard how many were `sent` and are `left`. 409 while another replay of the group works.
    """
    group = request.match_info["group"]
    limit = number(request.query, "limit", LIMIT, low=1, high=LETTERS_MAX)
    dry = whether(request.query, "dry")
    own = shard_name(services.config.broker.shard)
    items = [{"shard": own} | await _replayed(services, request, group, 0 if dry else limit)]
    if is_forwarded(request):
        return json_response({"items": items, "missing": []})
    others = await ask_others(services, request)
    items = sorted(items + others.items, key=lambda item: str(item["shard"]))
    return json_response({"items": items, "missing": others.missing})


async def _replayed(
    services: AdminServices, request: web.Request, group: str, limit: int
) -> dict[str, int]:
    topic = dlq_topic(group)
    config = services.topics.get(topic)
    queues = list(range(config.queues)) if config else []
    left = sum(end - at for at, end in (_waiting(services, topic, queue) for queue in queues))
    if not left or not limit:
        return {"sent": 0, "left": left}
    retry = _retry_topic(services, group)
    keys = [(services.config.broker_name, topic, queue) for queue in queues]
    async with charged(services, request, retry.name, Direction.PRODUCER) as charge:
        with _Held(services, keys):
            sent = await _sent(services, topic, queues, retry, limit, charge)
    left = sum(end - at for at, end in (_waiting(services, topic, queue) for queue in queues))
    return {"sent": sent, "left": left}


async def _sent(
    services: AdminServices,
    topic: str,
    queues: list[int],
    retry: TopicConfig,
    limit: int,
    charge: ChargedCall,
) -> int:
    """Send dead letters that are held; return how many."""
    if services.groups.get(READER) is None:
        services.groups.update(GroupConfig(name=READER))
    sent = 0
    for queue in queues:
        at, end = _waiting(services, topic, queue)
        while at < end and sent < limit:
            taken = services.store.read(topic, queue, at, messages_max=1, bytes_max=1)
            if not taken.body or taken.next_offset <= at:
                break  # damaged: it may be readable again later
            charge.took(retry.name, len(taken.body))
            await _put(services, _once_more(services, bytes(taken.body), retry))
            at = taken.next_offset
            services.offsets.commit(READER, topic, queue, at)
            sent += 1
    return sent


def _waiting(services: AdminServices, topic: str, queue: int) -> tuple[int, int]:
    """Return the first dead letter of a queue that did not go back yet, and the end."""
    first, end = services.store.queue_range(topic, queue)
    return min(max(first, services.offsets.query(READER, topic, queue) or 0), end), end


def _retry_topic(services: AdminServices, group: str) -> TopicConfig:
    """Return the topic that the group's members take messages from once more."""
    name = retry_topic(group)
    config = services.topics.get(name)
    reads = group in services.subscribed().get(name, ()) or name in services.offsets.of_group(group)
    if config is None or not reads:
        raise AdminError(
            409,
            "nobody_takes_back",
            f"Nobody is seen to read what goes back to group {group!r:.200} alone.",
            "Start its consumers; by POP and gRPC they never do: `imago dlq replay --to-topics`.",
        )
    return config


class _Held:
    """Locks on the dead letters' queues, the same that `imago dlq replay` takes."""

    def __init__(self, services: AdminServices, keys: list[QueueKey]) -> None:
        self._services, self._keys = services, keys
        self._client = f"{services.uuid}-{services.unique_keys.next()}"

    def __enter__(self) -> None:
        services, now_ms = self._services, self._services.clock.monotonic_ms()
        held = services.locks.lock(READER, self._client, self._keys, now_ms=now_ms)
        if len(held) < len(self._keys):
            services.locks.unlock(READER, self._client, held)
            raise AdminError(
                409,
                "replayed_already",
                "Another replay of this group's dead letters works now.",
                "Let it end, or wait for a minute where it was killed.",
            )
        services.locks.save(services.store)

    def __exit__(self, *_: object) -> None:
        self._services.locks.unlock(READER, self._client, self._keys)
        self._services.locks.save(self._services.store)


def _once_more(services: AdminServices, record: bytes, retry: TopicConfig) -> Entry:
    """Return a dead letter as its group alone gets it: with the topic and the id that it had."""
    copy = read_copy(record)
    told = props.without(props.as_sent(copy.properties, tried=True), (b"DELAY",))
    origin = copy.text(props.DLQ_ORIGIN_TOPIC.encode()) or copy.topic
    told = with_default(told, props.RETRY_TOPIC, origin)
    told = with_default(told, props.ORIGIN_MESSAGE_ID, copy.offset_message_id)
    queue = _rng.randrange(rules.taking_queues(retry))
    return make_entry(
        services.store.tail(retry.name, queue),
        copy.body,
        told,
        flag=copy.flag,
        sys_flag=copy.sys_flag & SYS_KEPT,
        born_ms=copy.born_ms,
        born_host=copy.born_host,
    )


async def _put(services: AdminServices, entry: Entry) -> int:
    """Put one message and wait until it is as safe as its topic wants; return its offset."""
    stored = asyncio.get_running_loop().create_future()

    def done(_: object, status: PutStatus, placed: Any) -> None:
        if not stored.done():
            stored.set_result((status, placed))

    services.messages.put_one(entry, None, done, None)
    status, placed = await stored
    if status is not PutStatus.OK:
        text = f"The shard answers {status.value}: the message may be stored, or not."
        raise AdminError(503, "not_stored", text, "See the topic, then repeat the call.")
    return int(placed[0][PLACED_QUEUE_OFFSET])


def _body_of(services: AdminServices, body: dict[str, object]) -> bytes:
    if ("body" in body) == ("bodyBase64" in body):
        raise bad_request("A message has one body.", 'Send {"body": TEXT} or {"bodyBase64": …}.')
    try:
        data = base64.b64decode(text_of(body, "bodyBase64"), validate=True)
    except ValueError as error:
        raise bad_request(f"bodyBase64: {error}.", "Send base 64.") from error
    data = data or text_of(body, "body").encode()
    if len(data) > (most := services.config.rocketmq.message_bytes_max):
        raise bad_request(f"The body has {len(data)} bytes.", f"Send {most} at most.")
    return data


def _properties(body: dict[str, object]) -> dict[str, str]:
    given: Any = body.get("properties") or {}
    keys: Any = body.get("keys") or []
    if not isinstance(given, dict) or not isinstance(keys, list):
        raise bad_request("properties is no object, or keys no list.", "See docs/admin.md.")
    own, tags = {name: text_of(given, name) for name in given}, text_of(body, "tags")
    if not all(isinstance(key, str) and key and " " not in key for key in keys):
        raise bad_request(f"keys: {as_json(keys)}.", "Each is a text without blanks.")
    if wrong := [name for name in own if props.is_reserved(name)]:
        raise bad_request(f"{wrong[0]!r:.60} is the system's own.", "Name tags and keys apart.")
    named = {props.KEYS: " ".join(keys), props.TAGS: tags}
    return own | {name: text for name, text in named.items() if text}


def _encoded(told: dict[str, str]) -> bytes:
    try:
        return props.encode(told)
    except ProtocolError as error:
        raise bad_request(f"{error}.", "Send plain texts.") from error


def _refusal(error: RequestError) -> AdminError:
    is_forbidden = error.reply.code == ResponseCode.NO_PERMISSION
    text = f"{error.reply.remark}".splitlines()[0]
    return AdminError(409 if is_forbidden else 400, "refused", text, "See the topic's settings.")
