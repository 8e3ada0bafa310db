"""Messages for people: by place, by id, by key, by time."""

from __future__ import annotations

import asyncio
from functools import partial
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from imago_broker.admin import views
from imago_broker.admin.access import require
from imago_broker.admin.calls.guard import json_response
from imago_broker.admin.charges import charged
from imago_broker.admin.errors import AdminError, bad_request
from imago_broker.admin.message_ids import by_id, by_unique_id
from imago_broker.admin.paging import number
from imago_broker.admin.resources.everywhere import ask_others
from imago_broker.admin.resources.topics import known as known_topic
from imago_broker.admin.shards.shards import asked_of_master, is_forwarded
from imago_broker.model.registry.cluster import SHARD_MAX, shard_name
from imago_broker.processors.rocketmq.needs import needs_to_read
from imago_broker.service.access.throttling import Direction
from imago_broker.service.puts.copies import read_copy
from imago_log.reading.remote import RemoteAwayError, RemoteMissError
from imago_log.results import ReadStatus
from imago_wire.errors import ProtocolError
from imago_wire.records.record import decode_record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from imago_broker.admin.services import AdminServices
    from imago_log.results import ReadResult
    from imago_log.store import MessageStore

LIMIT, LIMIT_MAX = 20, 200
NEWEST = "newest"
READ_BYTES_MAX = 4 << 20
"""Of all messages that one call reads, of whatever queues, unless one alone is larger."""
TIME_MAX = 1 << 53
FETCH_LOOK_S, FETCH_LOOKS = 0.05, 100
"""How often, and how many times, a call looks for a message that is being fetched."""
INFLATED_BYTES_MAX = 4 << 20
"""Of one body that is shown: its first characters are, and how large it is."""


async def find(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/messages?id= | topic=&key= | topic=&queue=&offset= | topic=&from=&to=
    | topic=&newest=true.

    By id, of whatever kind, by key and for the newest the other shards are asked, too. A queue is
    this shard's unless `shard` names another one. `body=base64`: each whole body, too.
    """
    query = request.query
    limit = number(query, "limit", LIMIT, low=1, high=LIMIT_MAX)
    whole = _wants_whole(query, limit)
    if "shard" in query and not is_forwarded(request):
        asked = number(query, "shard", 0, low=0, high=SHARD_MAX)
        if (answer := await asked_of_master(services, request, asked)) is not None:
            return answer
    topic = query.get("topic", "")
    records = by_id(services, query["id"]) if "id" in query else []
    if records:  # what it means may be seen only since its right was asked
        topic = read_copy(records[0]).topic
        require(services, request, needs_to_read(topic))
    named = topic if records or "id" not in query else ""
    async with charged(services, request, named, Direction.CONSUMER) as taken:
        if "id" not in query:
            records = await _of_topic(services, topic, query, limit)
        elif not records:
            may_read = partial(_may_read, services, request)
            records = await by_unique_id(services, query["id"], may_read, bytes_max=READ_BYTES_MAX)
        items = []
        for record in records:
            # A light queue's messages are of other topics; what has an id is of its own.
            taken.took(topic if "id" not in query else read_copy(record).topic, len(record))
            shown = _shown(record, whole=whole)
            items.append(shown | {"shard": shard_name(services.config.broker.shard)})
            await asyncio.sleep(0)  # each may be inflated
    everywhere = "key" in query or "id" in query or NEWEST in query
    if is_forwarded(request) or "shard" in query or not everywhere:
        return json_response({"items": items, "next": None})
    others = await ask_others(services, request, nothing=(403, 404))
    order = itemgetter("storeTime", "shard", "logOffset")
    items = sorted(items + others.items, key=order)
    return json_response({"items": items[-limit:], "next": None, "missing": others.missing})


def _wants_whole(query: Mapping[str, str], limit: int) -> bool:
    """Whether a body is wanted whole: of one message, for inflated they may be 4 MiB each."""
    whole = query.get("body") == "base64"
    if whole and limit > 1:
        raise bad_request("body=base64 shows one message.", "Send limit=1 with it.")
    return whole


def _may_read(services: AdminServices, request: web.Request, topic: str) -> bool:
    try:
        require(services, request, needs_to_read(topic))
    except AdminError as error:
        if error.status != 403:
            raise
        return False
    return True


async def _of_topic(
    services: AdminServices, topic: str, query: Mapping[str, str], limit: int
) -> list[bytes]:
    if not topic:
        raise bad_request("No topic is named.", "Send ?topic=NAME, or ?id=MESSAGE_ID.")
    placed = services.coordinator.view().topics
    asks_all = "key" in query or NEWEST in query
    if asks_all and services.topics.get(topic) is None and topic in placed:
        return []  # other shards have it
    known_topic(services, topic)
    if "key" in query:
        return by_key(services, topic, query, limit)
    if NEWEST in query:
        return await newest(services, topic, query, limit)
    return await by_place(services, topic, query, limit)


def _shown(record: bytes, *, whole: bool) -> dict[str, Any]:
    """A message with its body inflated; with the reason where that is too large or cannot be."""
    try:
        return views.message(
            decode_record(record, inflate=True, inflate_bytes_max=INFLATED_BYTES_MAX), whole=whole
        )
    except ProtocolError as error:
        stored = views.message(decode_record(record, verify=False), whole=whole)
        return stored | {"text": None, "error": f"the body is not shown: {error}"}


def by_key(
    services: AdminServices, topic: str, query: Mapping[str, str], limit: int
) -> list[bytes]:
    begin = number(query, "from", 0, low=0, high=TIME_MAX)
    end = number(query, "to", TIME_MAX, low=0, high=TIME_MAX)
    return services.store.find_key(topic, query["key"], begin, end, limit, bytes_max=READ_BYTES_MAX)


async def read_one(store: MessageStore, topic: str, queue: int, at: int) -> ReadResult:
    """Read one message, and wait a little for one that is in the bucket.

    RemoteMissError, RemoteAwayError: it does not come.
    """
    for _ in range(FETCH_LOOKS):
        taken = store.read(topic, queue, at, messages_max=1, bytes_max=1)
        if taken.status is ReadStatus.REMOTE_AWAY:
            raise RemoteAwayError("the bucket does not answer")
        if taken.status is not ReadStatus.ON_ITS_WAY:
            return taken
        await asyncio.sleep(FETCH_LOOK_S)
    raise RemoteMissError(lambda _: None)


async def by_place(
    services: AdminServices, topic: str, query: Mapping[str, str], limit: int
) -> list[bytes]:
    """From an offset or a time on, in one queue, or in all as they were stored.

    A message is read when it is the next one to be shown, and others have a turn after each.
    """
    config, store = known_topic(services, topic), services.store
    queue = number(query, "queue", -1, low=-1, high=max(0, config.queues - 1))
    end_ms = number(query, "to", TIME_MAX, low=0, high=TIME_MAX)
    nexts: list[tuple[int, int, int]] = []
    for which in range(config.queues) if queue < 0 else [queue]:
        start = place(services, topic, which, query)
        if start < store.queue_range(topic, which)[1]:
            nexts.append(
                (store.components.reader.glanced_time(topic, which, start) or 0, which, start)
            )
            await asyncio.sleep(0)
    heapify(nexts)
    found: list[bytes] = []
    left = READ_BYTES_MAX
    while nexts and len(found) < limit:
        stored_ms, which, at = heappop(nexts)
        size = sum(each[2] for each in store.placed(topic, which, at, 1))
        if stored_ms > end_ms or (found and size > left):
            break
        taken = await read_one(store, topic, which, at)
        if taken.body:
            left -= len(taken.body)
            found.append(taken.body)
        if at < taken.next_offset < taken.max_offset:
            next_ms = store.components.reader.glanced_time(topic, which, taken.next_offset) or 0
            heappush(nexts, (next_ms, which, taken.next_offset))
        await asyncio.sleep(0)
    kept = [record for record in found if store_time(record) <= end_ms]
    return sorted(kept, key=stored_in_order) if queue < 0 else kept


async def newest(
    services: AdminServices, topic: str, query: Mapping[str, str], limit: int
) -> list[bytes]:
    """The newest up to a time, of one queue or of all; of each as far as it is whole."""
    config, store = known_topic(services, topic), services.store
    queue = number(query, "queue", -1, low=-1, high=max(0, config.queues - 1))
    end_ms = number(query, "to", TIME_MAX, low=0, high=TIME_MAX)
    reader = store.components.reader
    nexts: list[tuple[int, int, int]] = []
    for which in range(config.queues) if queue < 0 else [queue]:
        first, end = store.queue_range(topic, which)
        if "to" in query:
            end = min(end, store.offset_by_time(topic, which, end_ms + 1))
        if first < end:
            nexts.append((-(reader.glanced_time(topic, which, end - 1) or 0), which, end - 1))
        await asyncio.sleep(0)
    heapify(nexts)
    found: list[bytes] = []
    left = READ_BYTES_MAX
    while nexts and len(found) < limit:
        _, which, at = heappop(nexts)
        if found and sum(each[2] for each in store.placed(topic, which, at, 1)) > left:
            break
        taken = await read_one(store, topic, which, at)
        if not taken.body or taken.next_offset != at + 1:
            continue  # damaged: what is read in its place was found before
        left -= len(taken.body)
        found.append(taken.body)
        if at > store.queue_range(topic, which)[0]:
            heappush(nexts, (-(reader.glanced_time(topic, which, at - 1) or 0), which, at - 1))
        await asyncio.sleep(0)
    return sorted(found, key=stored_in_order)


def stored_in_order(record: bytes) -> tuple[int, int]:
    """When a record was stored; of those of one millisecond its place in the log."""
    stored = decode_record(record)
    return stored.store_ms, stored.physical_offset


def place(services: AdminServices, topic: str, queue: int, query: Mapping[str, str]) -> int:
    """The queue offset to start at: `offset`, else the first at or after `from`."""
    first, _ = services.store.queue_range(topic, queue)
    if "offset" in query:
        return max(first, number(query, "offset", 0, low=0, high=1 << 62))
    if "from" in query:
        from_ms = number(query, "from", 0, low=0, high=TIME_MAX)
        return services.store.offset_by_time(topic, queue, from_ms)
    return first


def store_time(record: bytes) -> int:
    """Epoch milliseconds; its place depends on the width of the born host."""
    return decode_record(record).store_ms
