"""One partition of an original master as it is copied: what is asked next, what an answer means.

Positions are the master's, so where the copy ends is where it goes on; nothing else is noted.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from imago_broker.core.metaq.metaq_copies import copied_entry
from imago_broker.service.puts.put_status import APPENDED, PutStatus
from imago_wire.hot import metaq_whole
from imago_wire.record_format.layout import METAQ_HEADER, METAQ_HEADER_SIZE
from imago_wire.text.commands import Get, Offset, Result
from imago_wire.text.status import Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from imago_broker.ports import Clock
    from imago_broker.service.puts.messages import MessageService
    from imago_wire.records.record import Entry, Placed, QueueTail
    from imago_wire.text.commands import Request, Response

    Ask = Callable[[Callable[[int], Request]], Awaitable[Response]]

FETCH_BYTES: Final = 1 << 20
"""What the original's slave asks for at once."""
FETCH_BYTES_MAX: Final = 16 << 20
"""Larger messages are not copied."""


class CopyError(Exception):
    """This partition cannot be copied on for now; the text says why, and what to do."""


@dataclass(slots=True, kw_only=True, eq=False)
class CopiedPartition:
    """Asks a master for what is new in one partition, and appends it at the same positions."""

    topic: str
    number: int
    group: str
    messages: MessageService
    clock: Clock
    born_host: bytes
    fetch_bytes: int = FETCH_BYTES
    copied: int = field(default=0, init=False)
    """Messages since the start."""
    problem: str = field(default="", init=False)
    """Why it does not go on; empty: it does."""
    _next_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self._next_bytes = self.fetch_bytes

    @property
    def tail(self) -> QueueTail:
        """The end of the copy; found again each time, for its topic may be made again."""
        return self.messages.store.tail(self.topic, self.number)

    @property
    def end(self) -> int:
        """The position behind the last message that is copied."""
        return self.tail.next_position

    async def begin(self, ask: Ask) -> None:
        """Let an empty partition begin where the master's does; make sure that others agree.

        CopyError: the master does not have what is here.
        """
        tail = self.tail
        if not tail.next_offset:
            await self._begin_empty(ask, tail)
            return
        store = self.messages.store
        at = store.position_of(self.topic, self.number, tail.next_offset - 1)
        size = tail.next_position - at
        response = await ask(
            lambda opaque: Get(self.topic, self.group, self.number, at, size, opaque)
        )
        if isinstance(response, Result):
            if response.code == Status.MOVED and _number(response) == tail.next_position:
                return  # it has deleted all that is here, and nothing else
            raise self._differs(at, f"answers {response.code} {response.text:.200}")
        found = store.read_positions(self.topic, self.number, at, size).data
        own = found if isinstance(found, bytes) else found.read()
        if _but_flag(response.body) != _but_flag(own):
            raise self._differs(at, "has another message there")

    async def _begin_empty(self, ask: Ask, tail: QueueTail) -> None:
        response = await ask(lambda opaque: Offset(self.topic, self.group, self.number, 0, opaque))
        if not isinstance(response, Result) or response.code not in (
            Status.SUCCESS,
            Status.NOT_FOUND,  # nothing was ever put there
        ):
            raise CopyError(f"the master does not say where it begins: {_shown(response)}")
        if response.code == Status.SUCCESS and not tail.next_offset:
            # Nothing has to remember it: the first message that comes has this position.
            tail.next_position = _number(response)

    async def fetch(self, ask: Ask) -> bool:
        """Append what is new, up to a block; false: there is nothing. CopyError: it cannot be."""
        tail = self.tail
        position, size = tail.next_position, self._next_bytes
        response = await ask(
            lambda opaque: Get(self.topic, self.group, self.number, position, size, opaque)
        )
        if isinstance(response, Result):
            self._next_bytes = self.fetch_bytes
            return self._nothing_new(response, position)
        data = response.body
        whole = metaq_whole(data)
        if not whole:
            self._ask_for_more(data, position)
            return True
        self._next_bytes = self.fetch_bytes
        await self._append(tail, data[:whole])
        return True

    def _nothing_new(self, response: Result, position: int) -> bool:
        if response.code == Status.NOT_FOUND:
            return False
        if response.code == Status.MOVED:
            raise self._differs(position, f"goes on at {_number(response)}")
        raise CopyError(f"the master answers {_shown(response)}")

    def _ask_for_more(self, data: bytes, position: int) -> None:
        """The first message is cut: next time it comes whole. CopyError: it is damaged."""
        size = METAQ_HEADER_SIZE
        if len(data) >= size:
            length = METAQ_HEADER.unpack_from(data)[0]
            size += length
            if length < 0 or size <= len(data):
                raise CopyError(
                    f"the master's message at {position} does not match its checksum: copy its "
                    "folder by hand, or delete the topic on both sides"
                )
        if size > FETCH_BYTES_MAX or self._next_bytes >= size > len(data) >= METAQ_HEADER_SIZE:
            raise CopyError(
                f"the master sends {len(data)} bytes of a message of {size} at {position}: "
                "raise its maxTransferSize"
            )
        self._next_bytes = max(size, self._next_bytes)

    async def _append(self, tail: QueueTail, data: bytes) -> None:
        entries = self._entries(tail, data)
        answered: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
        self.messages.put_copies(entries, None, _tell, answered)
        status = await answered
        if status not in APPENDED:
            raise CopyError(f"the copy takes nothing at the moment: {status.value}")
        self.copied += len(entries)

    def _entries(self, tail: QueueTail, data: bytes) -> list[Entry]:
        born_ms, at = self.clock.epoch_ms(), 0
        entries = []
        while at < len(data):
            length, checksum, message_id, flag = METAQ_HEADER.unpack_from(data, at)
            at += METAQ_HEADER_SIZE
            body = data[at : at + length]
            at += length
            entries.append(
                copied_entry(tail, body, flag, checksum, born_ms, self.born_host, message_id)
            )
        return entries

    def _differs(self, position: int, what: str) -> CopyError:
        return CopyError(
            f"the copy ends at {self.end}, and at {position} the master {what}: delete the topic "
            "here and it is copied again"
        )


def _but_flag(message: bytes) -> bytes:
    """Return a message without what `copied_entry` may change."""
    return message[: METAQ_HEADER_SIZE - 4] + message[METAQ_HEADER_SIZE:]


def _tell(answered: object, status: PutStatus, _placed: Sequence[Placed]) -> None:
    assert isinstance(answered, asyncio.Future)
    if not answered.done():
        answered.set_result(status)


def _number(response: Result) -> int:
    text = response.text
    if not (text.isascii() and text.isdecimal()):
        raise CopyError(f"the master answers no position: {_shown(response)}")
    return int(text)


def _shown(response: Response) -> str:
    if isinstance(response, Result):
        return f"{response.code} {response.text:.200}"
    return f"value of {len(response.body)} bytes"
