"""Which clients want which lite topics of this shard.

A lite topic is a light queue below a topic of the type LITE. Clients say which they want, and again
every half minute: who has not for three minutes wants none. Nothing of it is stored: after a change
of masters clients say it to the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from imago_broker.processors.grpc.settings import LITE_QUOTA, quota_of
from imago_broker.processors.rocketmq.exchange import RequestError
from imago_wire.record_format.references import LIGHT_QUEUE_ID, lite_queue
from imago_wire.remoting.bodies.lite import LiteAction, OffsetOptionType
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from imago_broker.ports import Clock
    from imago_broker.service.groups.groups import GroupService
    from imago_broker.service.groups.offsets import ConsumerOffsets
    from imago_log.store import MessageStore
    from imago_wire.remoting.bodies.lite import LiteSubscription, OffsetOption

WANTED_MAX = 100_000
"""Lite topics that all clients want together; RocketMQ's maxLiteSubscriptionCount."""
SILENT_MS_MAX = 180_000
"""After which a client that has not said what it wants wants nothing."""
MODEL_ATTRIBUTE: Final = "lite.sub.model"
BIND_ATTRIBUTE: Final = "lite.bind.topic"
RESET_ATTRIBUTE: Final = "lite.sub.reset.offset.exclusive"
_FROM_FIRST, _FROM_END = 1, 2

LiteClient = tuple[str, str]
"""A group, and the id of one of its clients."""


@dataclass(slots=True)
class LiteWants:
    """What one client wants."""

    topic: str
    queues: dict[str, None] = field(default_factory=dict)
    seen_ms: int = 0


class LiteSubscriptions:
    """Of all clients of this shard. All methods belong to the event loop's thread."""

    def __init__(
        self,
        groups: GroupService,
        offsets: ConsumerOffsets,
        store: MessageStore,
        clock: Clock,
        tell_out: Callable[[LiteClient, str], None],
    ) -> None:
        """`tell_out`: tells a client that another one has a light queue from now on."""
        self._groups, self._offsets, self._store, self._clock = groups, offsets, store, clock
        self._tell_out = tell_out
        self._wanted: dict[LiteClient, LiteWants] = {}
        self._clients: dict[str, dict[LiteClient, None]] = {}
        self.count = 0

    def of(self, client: LiteClient) -> Collection[str]:
        """Return the light queues that a client wants, what it was given last at the end."""
        wanted = self._wanted.get(client)
        return () if wanted is None else wanted.queues

    def places(self, queue: bytes) -> Iterable[bytes]:
        """Return under which names clients wait for a light queue."""
        clients = self._clients.get(queue.decode("utf-8", "replace"), ())
        return [place_of(client).encode() for client in clients]

    def given(self, client: LiteClient, queues: Iterable[str]) -> None:
        """Have a client given of other light queues first, next time."""
        wanted = self._wanted.get(client)
        for queue in queues:
            if wanted is not None and queue in wanted.queues:
                del wanted.queues[queue]
                wanted.queues[queue] = None

    def sync(self, told: LiteSubscription) -> None:
        """Take what a client says; RequestError: it wants too much."""
        self._forget_silent()
        client = (told.group, told.client_id)
        if told.action is LiteAction.COMPLETE_REMOVE:
            self.forget(client)
            return
        queues = [lite_queue(told.topic, lite) for lite in sorted(told.lite_topic_set)]
        wanted = self._wanted.get(client)
        if wanted is not None and wanted.topic != told.topic:
            self.forget(client)
            wanted = None
        has = () if wanted is None else wanted.queues
        new, gone = set(queues).difference(has), set(has).difference(queues)
        if told.action is LiteAction.PARTIAL_REMOVE:
            new, gone = set(), set(has).intersection(queues)
        elif told.action is LiteAction.PARTIAL_ADD:
            gone = set()
        more = len(new) - len(gone)
        self._require_room(told.group, len(has) + more, more)
        for queue in sorted(gone):
            self._remove(client, queue)
        wanted = self._wanted.setdefault(client, LiteWants(told.topic))
        for queue in sorted(new):
            self._add(client, wanted, queue, told.offset_option)
        wanted.seen_ms = self._clock.epoch_ms()

    def forget(self, client: LiteClient) -> None:
        """A client is gone."""
        for queue in list(self.of(client)):
            self._remove(client, queue)
        self._wanted.pop(client, None)

    def clear(self) -> None:
        """Another member decides now, or nobody."""
        self._wanted.clear()
        self._clients.clear()
        self.count = 0

    def _require_room(self, group: str, count: int, more: int) -> None:
        quota = quota_of(self._attribute(group, LITE_QUOTA))
        text = ""
        if more > 0 and self.count + more > WANTED_MAX:
            text = f"lite subscription quota exceeded {WANTED_MAX}"
        elif 0 <= quota < count:
            text = f"a client of this group has {quota} lite topics at most, not {count}"
        if text:
            raise RequestError(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, text)

    def _add(
        self, client: LiteClient, wanted: LiteWants, queue: str, option: OffsetOption | None
    ) -> None:
        group, clients = client[0], self._clients.setdefault(queue, {})
        if self._attribute(group, MODEL_ATTRIBUTE) == "Exclusive":
            for other in [each for each in clients if each[0] == group]:
                self._remove(other, queue)
                self._tell_out(other, queue)
                if self._attribute(group, RESET_ATTRIBUTE) == "true":
                    self._offsets.reset(group, queue, {LIGHT_QUEUE_ID: 0})
            clients = self._clients.setdefault(queue, {})
        if option is not None:
            self._go_on_at(group, queue, option)
        wanted.queues[queue] = None
        clients[client] = None
        self.count += 1

    def _go_on_at(self, group: str, queue: str, option: OffsetOption) -> None:
        """Have a group go on where a client says; RocketMQ leaves times aside, too."""
        now = self._offsets.query(group, queue, LIGHT_QUEUE_ID)
        offset = None
        match option.type, option.value:
            case OffsetOptionType.POLICY, value if value == _FROM_FIRST:
                offset = 0
            case OffsetOptionType.POLICY, value if value == _FROM_END:
                known = queue in self._store.topics()
                offset = self._store.queue_range(queue, LIGHT_QUEUE_ID)[1] if known else 0
            case OffsetOptionType.OFFSET, value:
                offset = max(0, value)
            case OffsetOptionType.TAIL_N, value if now is not None:
                offset = max(0, now - value)
            case _:
                pass
        if offset is not None and offset != now:
            self._offsets.reset(group, queue, {LIGHT_QUEUE_ID: offset})

    def _remove(self, client: LiteClient, queue: str) -> None:
        wanted = self._wanted.get(client)
        if wanted is None or queue not in wanted.queues:
            return
        del wanted.queues[queue]
        self.count -= 1
        clients = self._clients[queue]
        del clients[client]
        if not clients:
            del self._clients[queue]

    def _forget_silent(self) -> None:
        """Forget who has said nothing for long."""
        now_ms = self._clock.epoch_ms()
        for client, wanted in list(self._wanted.items()):
            if now_ms - wanted.seen_ms > SILENT_MS_MAX:
                self.forget(client)

    def _attribute(self, group: str, name: str) -> str:
        known = self._groups.get(group)
        return "" if known is None else known.attributes.get(name, "")


def place_of(client: LiteClient) -> str:
    """Return the name under which a client waits for its lite topics."""
    return "\x00".join(client)
