"""Copies one queue, for as long as it is asked to."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, Final

from imago_client import Client, ProducerConfig
from imago_client.core.sending.forwarding import Forwarded
from imago_client.errors import BrokerError, ClientError
from imago_client.message_queue import MessageQueue
from imago_client.messages import PullStatus, SendStatus
from imago_mirror.core.copying import Copies, Numbering, Returned, Tail, steps, tails
from imago_mirror.core.notes import TOPIC_PREFIX
from imago_mirror.core.positions import CopyPosition, resume
from imago_mirror.troubles import SOURCE, TARGET, MirrorTroubles
from imago_wire.errors import ProtocolError
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from imago_client.messages import QueueEnd, ShardBounds
    from imago_client.received import Pulled
    from imago_client.rocketmq.pull_consumer import PullConsumer
    from imago_mirror.core.notes import CopiedQueue
    from imago_mirror.core.offsets import OffsetMap
    from imago_mirror.core.origins import SourceQueue
    from imago_mirror.knowledge import Knowledge
    from imago_mirror.settings import MirrorSettings

POLL_S: Final = 15.0
PULLED_MESSAGES_MAX: Final = 1000
PULLED_BYTES_MAX: Final = 1 << 20
"""Of one queue, where few are copied."""
PULLED_IN_ALL_BYTES_MAX: Final = 128 << 20
_PULLED_BYTES_LEAST: Final = 32 << 10
WENT_BACK_S: Final = 30.0
"""A source that ends before what was copied for so long has lost messages; a shard's new master
may say so for a moment."""
_PAUSES_S: Final = (0.1, 0.3, 1.0, 3.0)
_ANEW: Final = frozenset(
    {ResponseCode.IMAGO_OUT_OF_ORDER_SEQUENCE, ResponseCode.IMAGO_PRODUCER_FENCED}
)


def need_of(queue: SourceQueue) -> str:
    """Return what a queue is called in maps: another name for each life of its topic."""
    return f"{queue.place}@{queue.incarnation}"


def life_of(told: ShardBounds | QueueEnd) -> int:
    """Return which topic of its name it is; 0: its broker does not say."""
    return told.topic_id or told.incarnation or 0


class _RefusedError(Exception):
    """Copies had numbers that the target does not take."""


class _OverError(Exception):
    """The source has another topic of the name by now."""


class Ends:
    """Both sides, as all queues use them."""

    def __init__(self, settings: MirrorSettings) -> None:
        self.settings, self.troubles = settings, MirrorTroubles()
        self.source_client, self.target_client = Client(settings.source), Client(settings.target)
        group = TOPIC_PREFIX + settings.name
        self.source = self.source_client.pull_consumer(group)
        self.target = self.target_client.pull_consumer(group)
        self.forwarder = self.target_client.forwarder(
            ProducerConfig(group=group, send_timeout_s=10.0)
        )
        self.source_user, self.target_user = settings.source.user, settings.target.user
        self.target_cluster = ""
        self.queues = 1
        """How many are copied at once."""

    @property
    def pulled_bytes(self) -> int:
        share = PULLED_IN_ALL_BYTES_MAX // max(1, self.queues)
        return max(_PULLED_BYTES_LEAST, min(PULLED_BYTES_MAX, share))


class QueueCopier:
    """Copies one source queue into one target queue."""

    def __init__(self, ends: Ends, knowledge: Knowledge, queue: SourceQueue) -> None:
        self._ends, self._knowledge, self.queue = ends, knowledge, queue
        self._from = MessageQueue(queue.topic, queue.shard, queue.queue_id)
        self._subject = f"{queue.topic} {queue.place}"
        self._went_back_s: float | None = None
        self._stopping = asyncio.Event()

    @property
    def _lane(self) -> CopiedQueue:
        return self._knowledge.note.lanes[self.queue]

    @property
    def _to(self) -> MessageQueue:
        return MessageQueue(self.queue.topic, *self._lane.target)

    @property
    def _map(self) -> OffsetMap:
        return self._knowledge.map_of(self.queue.topic, self._lane.target)

    def stop(self) -> None:
        """Have it end behind what it is sending."""
        self._stopping.set()

    async def run(self) -> None:
        """Copy until it is stopped; wait through whatever goes wrong."""
        troubles, failed, refused = self._ends.troubles, 0, False
        while not self._stopping.is_set():
            try:
                await self._resume(refused=refused)
                refused = False
                troubles.end(self._subject, but="MessagesExpired")
                await self._copy()
            except _RefusedError:
                refused = True
            except _OverError:
                return  # who looks at the topics begins anew
            except (ClientError, ProtocolError):  # noted where it was met
                failed += 1
                pause_s = _PAUSES_S[min(failed, len(_PAUSES_S)) - 1]
                await self._stopped_within(pause_s)
            else:
                failed = 0

    async def _stopped_within(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    async def _resume(self, *, refused: bool) -> None:
        """Find out how far the copies at the target reach."""
        lane = self._lane
        with self._ends.troubles.at(TARGET, self._subject):
            bounds = await self._bounds(self._ends.target, self._to)
            first, end = bounds.queues[self._to.queue_id]
            noted: CopyPosition | None = lane.position
            lost = False
            if lane.position.floor < 0:
                noted = None  # nothing is known of it
            elif lane.target_incarnation != life_of(bounds):
                noted = lane.position.unfounded()  # its copies went with the topic
            elif not lane.position.stands(await self._copy_at(lane.position.at, first, end), first):
                noted, lost = lane.position.unfounded(), True
                self._map.cut(first)
            lane.target_incarnation = life_of(bounds)
            self._knowledge.note_target(self._to.topic, self._to.shard, life_of(bounds))
            known = noted is not None and noted.floor <= end
            self._map.cut(end)
            tail = await self._scan(max(first, noted.floor) if noted and known else first, end)
            if lost and tail is None and first == 0:
                noted = None  # all of them
        with self._ends.troubles.at(SOURCE, self._subject):
            source = await self._bounds(self._ends.source, self._from)
        self._check_life(source)
        source_first, source_end = source.queues[self._from.queue_id]
        position = resume(noted, tail, source_first, end)
        if refused and noted is not None and _same(position, noted):
            position = position.anew()
        self._moved(position)
        self._knowledge.ends[self.queue] = source_end

    async def _bounds(self, consumer: PullConsumer, queue: MessageQueue) -> ShardBounds:
        bounds = await consumer.shard_bounds(queue.topic, queue.shard, queue.queue_id + 1)
        if bounds is None or len(bounds.queues) <= queue.queue_id:
            raise ClientError(
                f"{queue}: its broker does not say where it ends; is it Imago's, 0.2 or later?"
            )
        return bounds

    async def _copy_at(self, at: int, first: int, end: int) -> Tail | None:
        """Return what the target has at an offset, if that is a copy of this queue's."""
        if not first <= at < end:
            return None
        pulled = await self._pull(self._ends.target, self._to, at, poll_s=0.0)
        for tail in tails(itertools.islice(pulled.cut(), 1), self._ends.target_user):
            if (tail.offset, tail.origin.queue) == (at, self.queue):
                return tail
        return None

    async def _scan(self, at: int, end: int) -> Tail | None:
        """Look at the target's messages from an offset on; return the last copy among them."""
        found, map_ = None, self._map
        while at < end:
            pulled = await self._pull(self._ends.target, self._to, at, poll_s=0.0)
            for tail in tails(pulled.cut(), self._ends.target_user):
                if tail.origin.queue == self.queue:
                    map_.note(need_of(self.queue), tail.origin.offset, tail.offset)
                    found = tail
            if pulled.next_offset <= at:
                break
            at = pulled.next_offset
        return found

    async def _pull(
        self, consumer: PullConsumer, queue: MessageQueue, at: int, *, poll_s: float
    ) -> Pulled:
        return await consumer.pull(
            queue,
            at,
            messages_max=PULLED_MESSAGES_MAX,
            bulk_bytes=self._ends.pulled_bytes,
            poll_s=poll_s,
        )

    async def _copy(self) -> None:
        """Copy until stopped. The next pull is under way while the target stores the last one."""
        at, pulling = self._lane.position.next, self._begin_pull(self._lane.position.next)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            while not self._stopping.is_set():
                await asyncio.wait((pulling, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not pulling.done():
                    return
                with self._ends.troubles.at(SOURCE, self._subject):
                    pulled = pulling.result()
                self._knowledge.ends[self.queue] = pulled.max_offset
                if pulled.status is not PullStatus.FOUND:
                    await self._nothing_found(pulled, at)
                    at = self._lane.position.next
                    pulling = self._begin_pull(at)
                    continue
                self._went_back_s = None
                at = pulled.next_offset
                pulling = self._begin_pull(at)
                await self._carry_out(pulled)
        finally:
            stopping.cancel()
            pulling.cancel()
            await asyncio.gather(pulling, stopping, return_exceptions=True)

    def _begin_pull(self, at: int) -> asyncio.Task[Pulled]:
        return asyncio.create_task(self._pull_source(at))

    async def _pull_source(self, at: int) -> Pulled:
        pulled = await self._pull(self._ends.source, self._from, at, poll_s=POLL_S)
        if pulled.status is not PullStatus.NO_NEW_MESSAGE:
            # Asked afterwards: a topic of the name that was made since then has other messages at
            # these offsets.
            self._check_life(await self._ends.source.end(self._from))
        return pulled

    def _check_life(self, told: ShardBounds | QueueEnd) -> None:
        if life_of(told) != self.queue.incarnation:
            raise _OverError

    async def _carry_out(self, pulled: Pulled) -> None:
        position, knowledge = self._lane.position, self._knowledge
        numbering = Numbering(self.queue, position.epoch, position.number, position.copied)
        with self._ends.troubles.at(SOURCE, self._subject):
            ends = self._ends
            found = steps(pulled.cut(), numbering, ends.target_cluster, ends.source_user)
        store_ms = 0
        for step in found:
            store_ms = step.store_ms
            if isinstance(step, Returned):
                self._note_returned(step)
            else:
                await self._send(step)
        knowledge.caught_up(self.queue, pulled.next_offset >= pulled.max_offset)
        self._moved(self._lane.position.passed(pulled.next_offset, store_ms))

    def _note_returned(self, step: Returned) -> None:
        """A message that came from the target: a group that consumed it here has it there."""
        there = step.there
        topic, place = there.queue.topic, self._knowledge.place_of(there.queue)
        if topic == self.queue.topic and place is not None and step.is_proven:
            map_ = self._knowledge.map_of(topic, place)
            map_.note(need_of(self.queue), step.offset, there.offset)
        self._knowledge.returned += 1

    async def _send(self, copies: Copies) -> None:
        count = len(copies.entries)
        with self._ends.troubles.at(TARGET, self._subject):
            try:
                result = await self._ends.forwarder.send(
                    Forwarded(copies.entries, copies.born_ms, copies.sys_flag), self._to
                )
            except BrokerError as error:
                if error.code in _ANEW:
                    raise _RefusedError from error
                raise
            if result.status is not SendStatus.OK:
                raise BrokerError(
                    str(self._to), ResponseCode.FLUSH_SLAVE_TIMEOUT, result.status.value
                )
        if result.offset < self._lane.position.floor:
            raise _RefusedError  # a repeat of what was not seen there, or nobody knows where it is
        run = 0
        for index in range(1, count + 1):
            if index == count or copies.offsets[index] != copies.offsets[index - 1] + 1:
                first = copies.offsets[run]
                self._map.note(need_of(self.queue), first, result.offset + run, index - run)
                run = index
        self._moved(self._lane.position.acknowledged(copies, result.offset))
        self._knowledge.copied(self.queue.topic, count)

    def _moved(self, position: CopyPosition) -> None:
        if position.lost > self._lane.position.lost:
            text = (
                f"{position.lost - self._lane.position.lost} messages before offset"
                f" {position.next} were deleted at the source before they were copied"
            )
            self._ends.troubles.note("MessagesExpired", self._subject, text)
        self._lane.position = position

    async def _nothing_found(self, pulled: Pulled, asked: int) -> None:
        position = self._lane.position
        self._knowledge.caught_up(self.queue, position.next >= pulled.max_offset)
        if pulled.next_offset > asked:
            self._moved(position.expired(pulled.next_offset))
        elif pulled.max_offset < asked:
            now_s = time.monotonic()
            self._went_back_s = self._went_back_s or now_s
            if now_s - self._went_back_s > WENT_BACK_S:
                text = f"the source ends at {pulled.max_offset}, {asked} was copied"
                self._ends.troubles.note("SourceWentBack", self._subject, text)
                end = pulled.max_offset
                self._moved(position._replace(next=end, copied=end).anew())
            else:
                await self._stopped_within(1.0)
        elif pulled.status is not PullStatus.NO_NEW_MESSAGE:
            await self._stopped_within(0.2)


def _same(one: CopyPosition, other: CopyPosition) -> bool:
    return (one.copied, one.epoch, one.number) == (other.copied, other.epoch, other.number)
