"""``stats``: the broker, its topics and its counters as lines of text.

Of thousands of topics they are made in pieces: other connections are served between two of them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import zlib
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from imago_broker.processors.metaq import realtime
from imago_wire.text.commands import OPAQUE_DEFAULT
from imago_wire.text.encoder import result
from imago_wire.text.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.processors.metaq.identity import MetaqFace
    from imago_broker.processors.metaq.peer import Peer
    from imago_broker.service.topics.topics import TopicService
    from imago_log.store import MessageStore
    from imago_wire.text.commands import Stats

logger = logging.getLogger(__name__)

PIECE: Final = 100
"""Topics and lines that one turn of the loop may take."""

REALTIME_COMMANDS = (
    realtime.PUT,
    realtime.GET,
    realtime.OFFSET,
    realtime.GET_MISS,
    realtime.PUT_FAILED,
    realtime.MESSAGE_SIZE,
)

HELP = (
    "*EMPTY* Returns broker info.",
    "help Returns help menu.",
    "topics Returns topics statistics detail info.",
    "offsets Returns partitions detail info.",
    "realtime Returns realtime statistics detail info.",
    "config Returns broker's config file content.",
)


@dataclass(frozen=True, slots=True)
class _Partition:
    """One partition that has data: its number, messages, and positions."""

    number: int
    messages: int
    min_position: int
    max_position: int

    @property
    def size(self) -> int:
        return self.max_position - self.min_position


class StatsProcessor:
    """Serves ``stats``."""

    def __init__(
        self,
        *,
        face: MetaqFace,
        store: MessageStore,
        topics: TopicService,
        connections: Callable[[], int],
        config_file: Callable[[], bytes],
    ) -> None:
        self._identity, self._settings = face.identity, face.settings
        self._serving_rules, self._clock = face.serving_rules, face.clock
        self._counters, self._realtime = face.counters, face.realtime
        self._store, self._topics = store, topics
        self._connections = connections
        self._config_file = config_file
        self._started_ms = face.clock.monotonic_ms()
        self._later: set[asyncio.Task[None]] = set()
        self._items: dict[str, Callable[[], Iterator[str | None]]] = {
            "": self._broker,
            "help": lambda: iter(HELP),
            "topics": self._all_topics,
            "offsets": self._offsets,
            "realtime": self._realtime_lines,
            "reset": self._reset,
        }

    def stats(self, peer: Peer, command: Stats) -> None:
        """Answer one ``stats``; the connection's next requests wait for it."""
        opaque = OPAQUE_DEFAULT if command.opaque is None else command.opaque
        if command.item == "config":
            peer.reply(result(Status.SUCCESS, self._config_file(), opaque))
            return
        text = _Text(self._lines(command.item))
        if text.grow():
            peer.reply(result(Status.SUCCESS, text.whole(), opaque))
            return
        peer.hold_back()
        peer.puts += 1
        task = asyncio.get_running_loop().create_task(self._answer(peer, text, opaque))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _answer(self, peer: Peer, text: _Text, opaque: int) -> None:
        try:
            answer = result(Status.SUCCESS, await text.grown(), opaque)
        except Exception as error:
            logger.exception("stats_failed")
            answer = result(Status.INTERNAL_SERVER_ERROR, str(error), opaque)
        peer.puts -= 1
        peer.reply(answer)
        peer.flush()
        peer.go_on()

    async def text(self, item: str) -> bytes:
        """Return what is answered to an item; "": the broker's own numbers."""
        return self._config_file() if item == "config" else await _Text(self._lines(item)).grown()

    def _lines(self, item: str) -> Iterator[str | None]:
        """Yield the lines of an item; None: a topic without a line, which took time too."""
        lines = self._items.get(item)
        return lines() if lines is not None else self._one_topic(item)

    def _broker(self) -> Iterator[str | None]:
        counters = self._counters
        topics = self._dual_topics()
        uptime = (self._clock.monotonic_ms() - self._started_ms) // 1000
        yield f"pid {os.getpid()}"
        yield f"broker_id {self._identity.broker_id}"
        yield f"port {self._identity.port}"
        yield f"uptime {uptime}"
        yield f"version {self._settings.current.version}"
        yield f"slave {_text(not self._serving_rules.leads)}"
        yield f"curr_connections {self._connections()}"
        yield f"threads {threading.active_count()}"
        yield f"cmd_put {counters.cmd_put}"
        yield f"cmd_get {counters.cmd_get}"
        yield f"cmd_offset {counters.cmd_offset}"
        yield f"tx_begin {counters.tx_begin}"
        yield f"tx_xa_begin {counters.tx_xa_begin}"
        yield f"tx_commit {counters.tx_commit}"
        yield f"tx_rollback {counters.tx_rollback}"
        yield f"get_miss {counters.get_miss}"
        yield f"put_failed {counters.put_failed}"
        total = 0
        for topic in topics:
            total += sum(part.messages for part in self._partitions(topic))
            yield None
        yield f"total_messages {total}"
        yield f"topics {len(topics)}"
        yield f"config_checksum {zlib.crc32(self._config_file())}"

    def _all_topics(self) -> Iterator[str | None]:
        empty: list[str] = []
        for topic in self._dual_topics():
            parts = self._partitions(topic)
            if not parts:
                empty.append(topic.name)
                yield None
                continue
            yield (
                f"{topic.name} partitions {len(parts)}"
                f" message_count {sum(part.messages for part in parts)}"
                f" message_bytes {sum(part.size for part in parts)}"
                f" accept_publish {_text(topic.metaq_publish)}"
                f" accept_subscribe {_text(topic.metaq_subscribe)}"
            )
        yield from (f"{name} *Empty*" for name in empty)

    def _offsets(self) -> Iterator[str | None]:
        for topic in self._dual_topics():
            yield None
            for part in self._partitions(topic):
                yield (
                    f"{topic.name} part {part.number}"
                    f" min_offset {part.min_position} max_offset {part.max_position}"
                )

    def _realtime_lines(self) -> Iterator[str]:
        now_ms = self._clock.monotonic_ms()
        for command in REALTIME_COMMANDS:
            yield f"realtime_{command} {self._realtime.of_command(command, now_ms)}"

    def _reset(self) -> Iterator[str]:
        self._realtime.reset(self._clock.monotonic_ms())
        yield "reset ok"

    def _one_topic(self, name: str) -> Iterator[str]:
        config = self._topics.get(name)
        known = config is not None and config.dual
        parts = self._partitions(config) if config is not None and known else []
        now_ms = self._clock.monotonic_ms()
        yield name
        yield f"resultCode {0 if parts else 2 if known else 1}"
        yield f"partitions {len(parts)}"
        yield f"message_count {sum(part.messages for part in parts)}"
        yield f"bytes {sum(part.size for part in parts)}"
        for command in REALTIME_COMMANDS:
            text = self._realtime.of_topic(command, name, now_ms)
            yield f"topic_realtime_{command} {text}"

    def _dual_topics(self) -> list[TopicConfig]:
        return [config for config in self._topics.all() if config.dual]

    def _partitions(self, topic: TopicConfig) -> list[_Partition]:
        """Return the partitions that were ever written; the others count as not there."""
        store = self._store
        found = []
        for number in range(topic.queues):
            low, high = store.position_range(topic.name, number)
            if high > 0:
                first, end = store.queue_range(topic.name, number)
                found.append(_Partition(number, end - first, low, high))
        return found


class _Text:
    """The lines of one answer, a piece at a time."""

    def __init__(self, lines: Iterator[str | None]) -> None:
        self._left, self._lines = lines, ["STATS"]

    def grow(self) -> bool:
        """Add the next piece; true: nothing is left."""
        piece = list(islice(self._left, PIECE))
        self._lines += [line for line in piece if line is not None]
        return len(piece) < PIECE

    async def grown(self) -> bytes:
        """Add all that is left; others have the loop after each piece."""
        while not self.grow():  # noqa: ASYNC110  nothing is waited for
            await asyncio.sleep(0)
        return self.whole()

    def whole(self) -> bytes:
        return "".join(f"{line}\r\n" for line in (*self._lines, "END")).encode()


def _text(value: bool) -> str:
    return "true" if value else "false"
