"""The messages that an id means: of a place in a log, or the one that its client gave it."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from imago_broker.admin.errors import bad_request
from imago_broker.model import names
from imago_broker.service.puts.copies import is_metadata, read_copy
from imago_wire.record_format.properties import UNIQ_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.admin.services import AdminServices

_IDS: Final = re.compile("(?:[0-9A-F]{32}|[0-9A-F]{34}|[0-9A-F]{56})")
"""A stored id has 32 or 56 digits, a client's own also 34: those of gRPC's clients."""
STORED_BYTES: Final = frozenset({16, 28})
COPIES_MAX: Final = 32
"""Of messages with one client's id in one topic: a repeated send has the id of the first."""


def checked(text: str) -> str:
    """Return an id in the form that brokers write; AdminError: it is none."""
    wanted = text.strip().upper()
    if not _IDS.fullmatch(wanted):
        raise bad_request(
            f"{text!r:.80} is not a message id.",
            "Send the 32, 34 or 56 hex digits that a send result or a consumer shows.",
        )
    return wanted


def by_id(services: AdminServices, text: str) -> list[bytes]:
    """Return the record that has this stored id (address, port and log offset in hex), if any.

    Any offset may be the beginning of a record of another shard, too: its address decides.
    """
    raw = bytes.fromhex(checked(text))
    if len(raw) not in STORED_BYTES:
        return []
    record = services.store.record_at(int.from_bytes(raw[-8:], "big"))
    if not record or is_metadata(record):
        return []
    return [record] if read_copy(record).offset_message_id.upper() == checked(text) else []


async def by_unique_id(
    services: AdminServices, text: str, may_read: Callable[[str], bool], *, bytes_max: int
) -> list[bytes]:
    """Return the records of all topics that may be read and whose client gave them this id."""
    wanted, found = checked(text), []
    for config in services.topics.all():
        if config.name in names.WITHHELD_TOPICS or not may_read(config.name):
            continue
        records = services.store.find_key(
            config.name, wanted, 0, 1 << 62, COPIES_MAX, bytes_max=bytes_max
        )
        found += [record for record in records if _unique_id(record) == wanted]
        await asyncio.sleep(0)  # there may be thousands of topics: other work comes in between
    return found


def _unique_id(record: bytes) -> str:
    return read_copy(record).text(UNIQ_KEY.encode()).upper()
