"""Messages for people: by place, by id, by key, by time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_broker.admin import views
from imago_broker.admin.errors import bad_request
from imago_broker.admin.guard import json_response
from imago_broker.admin.paging import number
from imago_broker.admin.topics import known as known_topic
from imago_broker.service.copies import is_metadata
from imago_wire.errors import ProtocolError
from imago_wire.record import decode_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aiohttp import web

    from imago_broker.admin.services import AdminServices

LIMIT, LIMIT_MAX = 20, 200
READ_BYTES_MAX = 4 << 20
TIME_MAX = 1 << 53
INFLATED_BYTES_MAX = 4 << 20
"""Of one body that is shown: its first characters are, and how large it is."""


async def find(services: AdminServices, request: web.Request) -> web.Response:
    """GET /admin/v1/messages?id= | topic=&key= | topic=&queue=&offset= | topic=&from=&to=."""
    query = request.query
    limit = number(query, "limit", LIMIT, low=1, high=LIMIT_MAX)
    if "id" in query:
        records = by_id(services, query["id"])
    else:
        topic = query.get("topic", "")
        if not topic:
            raise bad_request("No topic is named.", "Send ?topic=NAME, or ?id=MESSAGE_ID.")
        known_topic(services, topic)
        records = (by_key if "key" in query else by_place)(services, topic, query, limit)
    shown = [_shown(record) for record in records[:limit]]
    return json_response({"items": shown, "next": None})


def _shown(record: bytes) -> dict[str, Any]:
    """A message with its body inflated; with the reason where that is too large or cannot be."""
    try:
        return views.message(
            decode_record(record, inflate=True, inflate_bytes_max=INFLATED_BYTES_MAX)
        )
    except ProtocolError as error:
        stored = views.message(decode_record(record, verify=False))
        return stored | {"text": None, "error": f"the body is not shown: {error}"}


def by_id(services: AdminServices, text: str) -> list[bytes]:
    """RocketMQ's offset message id: address, port and log offset in hex."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) not in {16, 28}:
        raise bad_request(f"{text!r:.80} is not a message id.", "Send 32 (or 56) hex digits.")
    record = services.store.record_at(int.from_bytes(raw[-8:], "big"))
    return [record] if record and not is_metadata(record) else []


def by_key(
    services: AdminServices, topic: str, query: Mapping[str, str], limit: int
) -> list[bytes]:
    begin = number(query, "from", 0, low=0, high=TIME_MAX)
    end = number(query, "to", TIME_MAX, low=0, high=TIME_MAX)
    return services.store.find_key(topic, query["key"], begin, end, limit)


def by_place(
    services: AdminServices, topic: str, query: Mapping[str, str], limit: int
) -> list[bytes]:
    """From an offset or a time on, in one queue or, a little of each, in all."""
    config = known_topic(services, topic)
    queue = number(query, "queue", -1, low=-1, high=max(0, config.queues - 1))
    end_ms = number(query, "to", TIME_MAX, low=0, high=TIME_MAX)
    found: list[bytes] = []
    for which in range(config.queues) if queue < 0 else [queue]:
        start = place(services, topic, which, query)
        taken = services.store.read(
            topic, which, start, messages_max=limit, bytes_max=READ_BYTES_MAX
        )
        found.extend(whole(taken.body))
    kept = [record for record in found if store_time(record) <= end_ms]
    return sorted(kept, key=store_time)[:limit] if queue < 0 else kept


def place(services: AdminServices, topic: str, queue: int, query: Mapping[str, str]) -> int:
    """The queue offset to start at: `offset`, else the first at or after `from`."""
    first, _ = services.store.queue_range(topic, queue)
    if "offset" in query:
        return max(first, number(query, "offset", 0, low=0, high=1 << 62))
    if "from" in query:
        from_ms = number(query, "from", 0, low=0, high=TIME_MAX)
        return services.store.offset_by_time(topic, queue, from_ms)
    return first


def whole(records: bytes) -> Iterator[bytes]:
    """Cut joined records apart by their leading size."""
    at = 0
    while at < len(records):
        size = int.from_bytes(records[at : at + 4], "big")
        yield records[at : at + size]
        at += size


def store_time(record: bytes) -> int:
    """Epoch milliseconds; its place depends on the width of the born host."""
    return decode_record(record).store_ms
