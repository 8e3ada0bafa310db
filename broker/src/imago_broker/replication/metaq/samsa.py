"""The samsa side of MetaQ's synchronous pair: each message goes to a gregor slave by `sync`.

What was appended in a turn is sent in its order, with the ids and partitions that it has here; a
put is answered when both sides have it. The original sends before it appends: here the slave has
nothing that this master lacks. A message that the slave does not take stays on the master, whose
producer receives an error, and the positions of the two differ from then on, as in MetaQ.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from imago_broker.core.repeated_lines import RepeatedLines
from imago_broker.model import names
from imago_broker.service.puts.acknowledgements import tell
from imago_broker.service.puts.put_status import APPENDED, PutStatus
from imago_wire.crc import crc31
from imago_wire.errors import ProtocolError
from imago_wire.hot import metaq_form
from imago_wire.record_format.entries import ENTRY_TAIL
from imago_wire.record_format.layout import METAQ_HEADER, METAQ_HEADER_SIZE
from imago_wire.text.commands import Quit, Result, Sync, Version
from imago_wire.text.decoder import Decoder
from imago_wire.text.encoder import encode
from imago_wire.text.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.metaq_section import MetaqSection
    from imago_broker.ports import Clock
    from imago_broker.service.puts.acknowledgements import Done
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.puts.put_jobs import PutJob
    from imago_wire.records.record import Entry, Placed

logger = logging.getLogger(__name__)

PROBED: Final = "_metaq_slave_status_test"
PROBE: Final = b"test"
LOOK_SECONDS: Final = 0.1
"""How often time-outs are looked for, and a slave that is away."""
HEARTBEAT_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 5.0
LINE_BYTES_MAX: Final = 4096
BODY_BYTES_MAX: Final = 1 << 16
"""Of an answer: a text."""
WAITING_BYTES_MAX: Final = 64 << 20
"""What was sent and is not answered; above it puts are asked to come again."""
_OPAQUE_MAX: Final = (1 << 31) - 2


class _Waiting:
    """A put that both sides have to confirm."""

    __slots__ = ("_done", "_local", "_remaining", "_slave_failed", "_token")

    def __init__(self, done: Done, token: object, count: int) -> None:
        self._done, self._token, self._remaining = done, token, count
        self._slave_failed = False
        self._local: tuple[PutStatus, Sequence[Placed]] | None = None

    def local(self, _: object, status: PutStatus, placed: Sequence[Placed]) -> None:
        """Take the answer of this side."""
        self._local = status, placed
        self._tell()

    def remote(self, stored: bool) -> None:
        """Take the slave's answer to one of its messages."""
        self._remaining -= 1
        self._slave_failed = self._slave_failed or not stored
        self._tell()

    def _tell(self) -> None:
        if self._local is None or self._remaining:
            return
        status, placed = self._local
        if status in APPENDED and self._slave_failed:
            status = PutStatus.SLAVE_TIMEOUT
        tell(self._done, self._token, status, placed)


class SamsaMaster:
    """Keeps the connection to one gregor slave; the `Pair` of a message service."""

    def __init__(
        self, settings: LiveSettings[MetaqSection], messages: MessageService, clock: Clock
    ) -> None:
        self._settings, self._messages, self._clock = settings, messages, clock
        self._lines = RepeatedLines(clock.monotonic_ms)
        self._host, _, port = settings.current.samsa_slave.rpartition(":")
        self._host, self._port = self._host.strip("[]"), int(port)
        self._link: _Link | None = None
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        """Messages one after the other that the slave did not take."""
        self._probing = False
        messages.pair = self

    @property
    def url(self) -> str:
        return f"meta://{self._settings.current.samsa_slave}"

    @property
    def refusal(self) -> PutStatus | None:
        if self._link is None or self._failures >= self._settings.current.samsa_failures_max:
            return PutStatus.PAIR_AWAY
        return PutStatus.BUSY if self._link.bytes_waiting > WAITING_BYTES_MAX else None

    def start(self) -> None:
        """Connect, and do so again whenever the slave was away."""
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """Let the slave go; what it has not confirmed has failed."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._drop()

    def forward(self, jobs: Sequence[PutJob], placed: Sequence[Placed]) -> list[PutJob]:
        """Send what was appended; see `Pair`."""
        at, waiting = 0, []
        for job in jobs:
            entries, level, done, token, kind = job
            places = placed[at : at + len(entries)]
            at += len(entries)
            sent = [
                (entry, place) for entry, place in zip(entries, places, strict=True)
                if place[3] >= 0 and not names.looks_own(entry[ENTRY_TAIL].topic.decode())
            ]  # fmt: skip
            if not sent:
                waiting.append(job)
                continue
            both = _Waiting(done, token, len(sent))
            for entry, place in sent:
                self._send(entry, place, both)
            waiting.append((entries, level, both.local, None, kind))
        return waiting

    def _send(self, entry: Entry, place: Placed, both: _Waiting) -> None:
        answered = partial(self._answered, both)
        link = self._link
        if link is None:  # it went while the turn was appended
            answered(False)
            return
        tail = entry[ENTRY_TAIL]
        record = self._messages.store.read_log(place[1], place[2])
        head, payload = metaq_form(record)
        _, checksum, message_id, flag = METAQ_HEADER.unpack_from(head)
        body = head[METAQ_HEADER_SIZE:] + payload
        topic = tail.topic.decode()
        link.send(
            lambda opaque: Sync(topic, tail.queue_id, flag, message_id, body, opaque, checksum),
            answered,
        )

    def _answered(self, both: _Waiting, stored: bool) -> None:
        self._failures = 0 if stored else self._failures + 1
        both.remote(stored)
        self._messages.acknowledgements.completed()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    _, link = await loop.create_connection(
                        partial(_Link, self._clock, self._lines), self._host, self._port
                    )
            except (OSError, TimeoutError) as error:
                if times := self._lines.due("away"):
                    said = "samsa_slave_away slave=%s times=%d reason=%s"
                    logger.warning(said, self.url, times, error)
                await asyncio.sleep(LOOK_SECONDS)
                continue
            if times := self._lines.due("connected"):
                logger.info("samsa_slave_connected slave=%s times=%d", self.url, times)
            self._link, self._failures = link, 0
            try:
                await self._watch(link)
            except Exception:
                logger.exception("samsa_failed slave=%s", self.url)
            finally:
                self._drop()

    async def _watch(self, link: _Link) -> None:
        """Return when the connection is gone."""
        while not link.lost:
            await asyncio.sleep(LOOK_SECONDS)
            link.time_out(self._settings.current.samsa_timeout_ms)
            link.beat()
            if self._failures >= self._settings.current.samsa_failures_max and not self._probing:
                self._probing = True
                link.send(partial(_probe, self._messages.store.take_metaq_id()), self._probed)

    def _probed(self, stored: bool) -> None:
        self._probing = False
        if stored:
            self._failures = 0

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


def _probe(message_id: int, opaque: int) -> Sync:
    return Sync(PROBED, 0, 0, message_id, PROBE, opaque, crc31(PROBE))


class _Link(asyncio.Protocol):
    """One connection to the slave: `sync` in order, answers by their numbers."""

    def __init__(self, clock: Clock, lines: RepeatedLines) -> None:
        self._clock, self._lines = clock, lines
        self._decoder = Decoder(line_bytes_max=LINE_BYTES_MAX, body_bytes_max=BODY_BYTES_MAX)
        self._waiting: dict[int, tuple[int, int, Callable[[bool], None]]] = {}
        """Number to when it was sent, its size, and whom to tell."""
        self._opaque = 0
        self._transport: asyncio.Transport | None = None
        self._used_ms = clock.monotonic_ms()
        self.bytes_waiting = 0
        self.lost = False

    def send(self, make: Callable[[int], Sync], answered: Callable[[bool], None]) -> None:
        """Send a message, and call `answered` with whether the slave has it."""
        if self.lost or self._transport is None:
            answered(False)
            return
        self._opaque = self._opaque % _OPAQUE_MAX + 1
        data = encode(make(self._opaque))
        self._used_ms = self._clock.monotonic_ms()
        self._waiting[self._opaque] = self._used_ms, len(data), answered
        self.bytes_waiting += len(data)
        self._transport.write(data)

    def time_out(self, ms: int) -> None:
        """Let fail what the slave has had for too long."""
        before = self._clock.monotonic_ms() - ms
        late = [opaque for opaque, (sent_ms, *_) in self._waiting.items() if sent_ms < before]
        for opaque in late:
            self._tell(opaque, stored=False)

    def beat(self) -> None:
        """Keep an idle connection alive."""
        if self._clock.monotonic_ms() - self._used_ms >= HEARTBEAT_SECONDS * 1000:
            self._used_ms = self._clock.monotonic_ms()
            if self._transport is not None:
                self._transport.write(encode(Version(0)))

    def close(self) -> None:
        if self._transport is not None and not self.lost:
            self._transport.write(encode(Quit()))
            self._transport.close()
        self._fail()

    def _tell(self, opaque: int, *, stored: bool) -> None:
        found = self._waiting.pop(opaque, None)
        if found is not None:
            self.bytes_waiting -= found[1]
            found[2](stored)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._decoder.feed(data)
        try:
            while command := self._decoder.next_command():
                if isinstance(command, Result):
                    self._tell(command.opaque, stored=command.code == Status.SUCCESS)
        except ProtocolError as error:
            if times := self._lines.due("otherwise"):
                logger.warning("samsa_slave_speaks_otherwise times=%d error=%s", times, error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and (times := self._lines.due("lost")):
            logger.warning("samsa_slave_lost times=%d reason=%s", times, exc)
        self._fail()

    def _fail(self) -> None:
        self.lost = True
        for opaque in list(self._waiting):
            self._tell(opaque, stored=False)
