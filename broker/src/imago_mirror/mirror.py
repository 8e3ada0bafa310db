"""One mirror: what runs when, and what it tells of itself."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from imago_client.errors import ClientError, NoRouteError
from imago_client.message_queue import MessageQueue
from imago_mirror.copier import Ends, QueueCopier
from imago_mirror.core.notes import COPYING, FAILED_OVER, MirrorNote
from imago_mirror.following import TopicFollowing
from imago_mirror.knowledge import Knowledge
from imago_mirror.note_keeper import NoteKeeper, take
from imago_mirror.translating import Translating
from imago_mirror.troubles import SOURCE, TARGET
from imago_wire.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from imago_mirror.core.origins import SourceQueue
    from imago_mirror.settings import MirrorSettings

log = logging.getLogger(__name__)

LOOK_S: Final = 5.0
"""Between looks at the topics; a hundredth of a second for each topic where that is longer."""
LOOK_S_A_TOPIC: Final = 0.01
NOTE_S: Final = 2.0
TRANSLATE_S: Final = 3.0
ORDER_S: Final = 1.0
STOP_S: Final = 10.0
"""How long what is being sent may take when the copying stops."""
_KEPT_MS: Final = 3_600_000
"""A note is written again after so long, for the target not to delete the last one."""


class RunningMirror:
    """Copies as long as `run` runs."""

    def __init__(self, settings: MirrorSettings) -> None:
        self.settings = settings
        self.knowledge, ends = Knowledge(), Ends(settings)
        self._ends, self.troubles = ends, ends.troubles
        self._keeper = NoteKeeper(ends.target_client, settings.name)
        self._following = TopicFollowing(ends, self.knowledge, self._halt, self._keeper.newest)
        self._translating = Translating(ends, self.knowledge)
        self._copiers: dict[SourceQueue, tuple[QueueCopier, asyncio.Task[None]]] = {}
        self._kept: Any = None
        self._committed: dict[SourceQueue, int] = {}
        self.begun = False
        """Whether the target was asked what there is already."""
        self.changed = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Copy, or wait as the state says, until `stop`."""
        loops = [
            asyncio.create_task(each)
            for each in (
                self._every(LOOK_S, self._look),
                self._every(NOTE_S, self._keep),
                self._every(TRANSLATE_S, self._translate),
                self._every(ORDER_S, self._take_orders),
            )
        ]
        try:
            if not await self._until(stop, self._begin):
                return
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait((stopping, *loops), return_when=asyncio.FIRST_COMPLETED)
            for each in loops:
                if each.done():
                    each.result()  # a fault of ours: said, and the process ends
        finally:
            for each in loops:
                each.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await self._stop_copying()
            if self.begun:
                with suppress(ClientError, ProtocolError, TimeoutError):
                    async with asyncio.timeout(STOP_S):
                        await self._keep()
            ends = self._ends
            await asyncio.gather(ends.source_client.close(), ends.target_client.close())

    async def _until(self, stop: asyncio.Event, work: Callable[[], Awaitable[None]]) -> bool:
        """Try until it works; False: it shall stop before."""
        while not stop.is_set():
            try:
                await work()
            except (ClientError, ProtocolError):
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), 1.0)
            else:
                return True
        return False

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            if self.begun:
                with suppress(ClientError, ProtocolError):  # noted where it was met
                    await work()
            topics = len({queue.topic for queue in self.knowledge.note.lanes})
            slower_s = topics * LOOK_S_A_TOPIC if work == self._look else 0.0
            await asyncio.sleep(max(seconds, slower_s) if self.begun else 0.2)

    async def _begin(self) -> None:
        """Find out what the target is, and what is known already."""
        with self.troubles.at(TARGET, "notes"):
            self._ends.target_cluster, queue = await self._keeper.ensure()
        with self.troubles.at(SOURCE, "cluster"):
            source = await self._cluster_of_source(queue)
        if source == self._ends.target_cluster:
            text = f"source and target are one cluster, {source}"
            self.troubles.note("SameCluster", "cluster", text)
            raise ClientError(text)
        self.troubles.end("cluster")
        with self.troubles.at(TARGET, "notes"):
            note = await self._keeper.read()
        self.troubles.end("notes")
        self.knowledge.note = note or MirrorNote()
        if self.settings.state is not None:
            self.knowledge.note.state = self.settings.state
        self.begun = True
        log.info("mirror_begun name=%s state=%s", self.settings.name, self.knowledge.note.state)
        if self.knowledge.note.state == FAILED_OVER and not self.knowledge.note.report:
            await self._fail_over()
        self.changed.set()

    async def _cluster_of_source(self, queue: MessageQueue) -> str | None:
        """Return the source's cluster, as far as it has the mirror's topic; None: it has not.

        One cluster on both sides has it, since it was made at the target. A source that is away
        hinders nothing but copying.
        """
        try:
            return (await self._ends.source.end(queue)).cluster_id
        except NoRouteError:
            return None
        except ClientError as error:
            if self.settings.state == FAILED_OVER:
                log.warning("mirror_source_away %s", error)
                return None
            raise

    async def _look(self) -> None:
        if self.state != COPYING:
            await self._stop_copying()
            return
        wanted = await self._following.look()
        if self._following.changed:
            await self._keep()
            self._following.changed = False
        await self._halt(set(self._copiers) - set(wanted))
        self._ends.queues = len(wanted)
        for queue in wanted:
            if queue in self._copiers and (task := self._copiers[queue][1]).done():
                task.result()  # a fault of ours; else the source had another topic for a while
                del self._copiers[queue]
            if queue in self._copiers:
                continue
            if queue in self.knowledge.note.lanes and self.state == COPYING:
                copier = QueueCopier(self._ends, self.knowledge, queue)
                self._copiers[queue] = copier, asyncio.create_task(copier.run())

    @property
    def state(self) -> str:
        return self.knowledge.note.state

    async def _stop_copying(self) -> None:
        await self._halt(set(self._copiers))

    async def _halt(self, queues: Iterable[SourceQueue]) -> None:
        """Have queues copied no more, behind what is being sent."""
        copiers = [self._copiers.pop(queue) for queue in queues if queue in self._copiers]
        for copier, _ in copiers:
            copier.stop()
        tasks = [task for _, task in copiers]
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_S)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self) -> None:
        """Write a note, where anything is other than in the last one."""
        note = self.knowledge.note
        known = (
            note.state,
            note.order,
            sum(lane.position.next + lane.position.floor for lane in note.lanes.values()),
            len(note.lanes),
            self.knowledge.returned,
        )
        fresh = time.time_ns() // 1_000_000 - note.at_ms < _KEPT_MS
        if known == self._kept and fresh:
            await self._commit()  # what could not be committed when it was new
            return
        with self.troubles.at(TARGET, "notes"):
            await self._keeper.write(note)
        self.troubles.end("notes")
        self._kept = known
        await self._commit()

    async def _commit(self) -> None:
        """Commit at the source what was copied: its tools show the lag, its drains wait for it."""
        for queue, lane in list(self.knowledge.note.lanes.items()):
            at = max(lane.position.next, lane.position.copied)
            if lane.position.floor >= 0 and self._committed.get(queue) != at:
                with suppress(ClientError, ProtocolError):
                    await self._ends.source.commit(_place_at_source(queue), at)
                    self._committed[queue] = at

    async def _translate(self) -> None:
        if self.state == COPYING:
            await self._translating.ask()
            await self._translating.translate()

    async def _take_orders(self) -> None:
        orders = await self._keeper.orders()
        if self.settings.state is not None or not take(self.knowledge.note, orders):
            return
        log.info("mirror_ordered state=%s", self.state)
        if self.state == FAILED_OVER:
            await self._fail_over()
        else:
            await self._keep()
        self.changed.set()

    async def _fail_over(self) -> None:
        """Stop copying, move groups a last time, and note what the target lacks."""
        await self._stop_copying()
        source_answers = True
        try:
            async with asyncio.timeout(STOP_S):
                await self._ends_of_source()
                await self._translating.ask()
        except (ClientError, ProtocolError, TimeoutError) as error:
            source_answers = False
            log.warning("mirror_source_away %s", error)
        with suppress(ClientError, ProtocolError):
            await self._translating.translate()
        note = self.knowledge.note
        lacks: dict[str, int] = {}
        for queue in note.lanes:
            lacks[queue.topic] = lacks.get(queue.topic, 0) + self.knowledge.lag(queue)[0]
        note.report = {
            "atMs": time.time_ns() // 1_000_000,
            "sourceAnswered": source_answers,
            "lacks": lacks,
            "groups": {name: dict(found) for name, found in self.knowledge.groups.items()},
        }
        await self._keep()

    async def _ends_of_source(self) -> None:
        for queue in self.knowledge.note.lanes:
            place = _place_at_source(queue)
            self.knowledge.ends[queue] = await self._ends.source.max_offset(place)

    @property
    def clusters(self) -> tuple[str, str]:
        """Ids of source and target; empty: not known yet."""
        return self._following.source_cluster, self._ends.target_cluster


def _place_at_source(queue: SourceQueue) -> MessageQueue:
    return MessageQueue(queue.topic, queue.shard, queue.queue_id)
