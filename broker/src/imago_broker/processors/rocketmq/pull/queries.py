"""Messages looked for by their id, by a key, or by the unique id that their client gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq.exchange import Exchange, Reply, RequestError
from imago_broker.service.puts.copies import is_metadata
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.pull import QueryMessageRequestHeader, ViewMessageRequestHeader

if TYPE_CHECKING:
    from imago_broker.ports import Clock
    from imago_log.store import MessageStore

COUNT_MAX = 32
"""RocketMQ's defaultQueryMaxNum."""
COUNT_LIMIT = 256
QUERY_BYTES_MAX = 4 << 20
"""Of one answer, unless one message alone is larger: as of the largest pull."""
UNIQUE_KEY_FIELD = "_UNIQUE_KEY_QUERY"


@dataclass(slots=True, eq=False, kw_only=True)
class QueryProcessor:
    """VIEW_MESSAGE_BY_ID and QUERY_MESSAGE."""

    store: MessageStore
    clock: Clock

    def view(self, exchange: Exchange) -> Reply:
        """Return the one message that is stored at a log offset."""
        header = ViewMessageRequestHeader.from_ext(exchange.ext)
        record = None
        if header.offset >= 0:
            record = self.store.record_at(header.offset)
        if record is None or is_metadata(record):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}"
            )
        return Reply(body=record)

    def query(self, exchange: Exchange) -> Reply:
        """Return the messages of a key or a unique id within a span of store times."""
        header = QueryMessageRequestHeader.from_ext(exchange.ext)
        unique = exchange.ext.get(UNIQUE_KEY_FIELD, "").lower() == "true"
        count_max = COUNT_MAX if unique else max(1, min(header.max_num, COUNT_LIMIT))
        store = self.store
        records = store.find_key(
            header.topic,
            header.key,
            header.begin_timestamp,
            header.end_timestamp,
            count_max,
            bytes_max=QUERY_BYTES_MAX,
        )
        ext = {
            "indexLastUpdateTimestamp": str(self.clock.epoch_ms()),
            "indexLastUpdatePhyoffset": str(store.log_end),
        }
        if not records:
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                ext=ext,
            )
        return Reply(ext=ext, body=records)
