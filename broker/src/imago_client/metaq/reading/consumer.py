"""The asyncio MetaQ consumer: a fetch loop for every partition of its topics."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self

from imago_client.checks import check_fields, check_positive, metaq_topics
from imago_client.errors import ClientError, UsageError
from imago_client.handlers import check_handler
from imago_client.metaq.reading.cursor import DELAY_STEPS, FetchCursor
from imago_client.metaq.reading.delivery import SeenIds
from imago_client.metaq.reading.fetching import PartitionDelivery
from imago_client.supervision import Supervisor
from imago_wire.text.commands import OFFSET_END

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from imago_client.metaq.reading.offsets import OffsetStore
    from imago_client.metaq.values import Fetched, MetaqConfig, MetaqMessage, Partition

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaqConsumerConfig:
    """Settings of a consumer; the names of the original's are in brackets."""

    group: str
    fetch_bytes: int = 1 << 20
    """[maxSize] Grows by itself where a message is larger."""
    delay_s_max: float = 5.0
    """[maxDelayFetchTimeInMills] Between fetches that find nothing, reached in ten steps."""
    commit_s: float = 5.0
    """[commitOffsetPeriodInMills]"""
    retries_max: int = 5
    """[maxFetchRetries] Handler failures of one message before it goes to `on_reject`."""
    from_end: bool = False
    """[setConsumeFromMaxOffset] Where no position is stored: begin at the end."""
    partitions_s: float = 10.0
    """Between looks for partitions that came into use."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.group or " " in self.group:
            raise UsageError(f"group: {self.group!r} is empty or holds a space")
        check_positive(self, "fetch_bytes", "delay_s_max", "commit_s", "partitions_s")


class PartitionReader(Protocol):
    """What a consumer asks of its client."""

    @property
    def config(self) -> MetaqConfig: ...

    async def get(
        self, partition: Partition, offset: int, *, group: str, size_max: int
    ) -> Fetched: ...

    async def partitions_on(
        self, server: str, topic: str, *, group: str | None = None
    ) -> dict[Partition, tuple[int, int]]: ...


class MetaqConsumer:
    """Hands the messages of every partition to the handler, in order within the partition.

    Made by `MetaqClient.consumer`; use it as `async with`. A message whose handler raises is
    tried again after a growing delay, and holds up its partition: without `on_reject` for ever,
    with it until `retries_max` failures, after which it is handed there and passed over.
    Positions are saved every few seconds and when the consumer stops.
    """

    def __init__(
        self,
        client: PartitionReader,
        config: MetaqConsumerConfig,
        topics: Sequence[str],
        handler: Callable[[MetaqMessage], Awaitable[None]],
        offsets: OffsetStore,
    ) -> None:
        check_handler(handler)
        self._client, self._config, self._topics = client, config, metaq_topics(topics)
        self._handler, self._offsets = handler, offsets
        self._cursors: dict[Partition, FetchCursor] = {}
        self._saved: dict[Partition, int] = {}
        self._tasks = Supervisor(config.group, pause_s=config.delay_s_max / DELAY_STEPS)
        self._delivery = PartitionDelivery(config, self._tasks, SeenIds())
        self._started = False

    @property
    def on_reject(self) -> Callable[[MetaqMessage, Exception], Awaitable[None]] | None:
        """Who takes a message after `retries_max` failures; None: it is tried for ever."""
        return self._delivery.on_reject

    @on_reject.setter
    def on_reject(self, takes: Callable[[MetaqMessage, Exception], Awaitable[None]] | None) -> None:
        self._delivery.on_reject = takes

    @property
    def positions(self) -> dict[Partition, int]:
        """Up to where each partition is consumed."""
        return {partition: cursor.position for partition, cursor in self._cursors.items()}

    @property
    def stalled(self) -> int:
        """How often a task of this consumer ended though nobody asked it to, and was begun anew."""
        return self._tasks.stalled

    async def start(self) -> None:
        """Find the partitions and begin, also after a stop. ClientError: a broker is not there."""
        if self._tasks.is_running:
            raise UsageError(f"group {self._config.group!r}: this consumer runs already")
        self._cursors.clear()
        self._delivery.seen = SeenIds()
        self._started = False
        self._tasks.start()
        try:
            await self._find_partitions()
        except BaseException:
            await self._tasks.end()
            raise
        self._started = True
        look, save = self._find_partitions, self._save
        self._tasks.keep(lambda: self._every(self._config.partitions_s, look), "partitions")
        self._tasks.keep(lambda: self._every(self._config.commit_s, save), "commits")

    async def stop(self) -> None:
        """Stop fetching, let no handler finish half-way unnoticed, save the positions."""
        await self._tasks.end()
        await self._save()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    async def _every(self, period_s: float, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(period_s)
            try:
                await act()
            except (ClientError, OSError) as error:  # a store of positions may have no room
                log.warning("background_failed group=%s error=%s", self._config.group, error)

    async def _find_partitions(self) -> None:
        """Begin to read what came into use. ClientError: a broker is not there; of the others it
        is read all the same."""
        servers = self._client.config.servers
        asked = [(server, topic) for server in servers for topic in self._topics]
        answers = await asyncio.gather(
            *(self._client.partitions_on(*one, group=self._config.group) for one in asked),
            return_exceptions=True,
        )
        for answer in answers:
            if not isinstance(answer, BaseException):
                for partition in sorted(answer.keys() - self._cursors.keys()):
                    self._begin(partition)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    def _begin(self, partition: Partition) -> None:
        position = self._offsets.load(self._config.group, partition)
        if position is None:
            # A partition that came into use later is wanted from its first message.
            at_end = self._config.from_end and not self._started
            position = OFFSET_END if at_end else 0
        cursor = FetchCursor(position, self._config.fetch_bytes, self._config.delay_s_max)
        self._cursors[partition] = cursor
        fetch = partial(self._fetch, partition)
        self._tasks.keep(
            partial(self._delivery.fetch_loop, fetch, cursor, self._handler), f"fetch {partition}"
        )

    async def _fetch(self, partition: Partition, cursor: FetchCursor) -> Fetched:
        return await self._client.get(
            partition, cursor.position, group=self._config.group, size_max=cursor.fetch_bytes
        )

    async def _save(self) -> None:
        changed = {
            partition: position
            for partition, position in self.positions.items()
            if position != OFFSET_END and self._saved.get(partition) != position
        }
        if changed:
            self._offsets.save(self._config.group, changed)
            self._saved.update(changed)
