"""Which clients want which lite topics of this shard, and in which of these something may be."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from imago_broker.processors.grpc.checks import is_lite_name
from imago_broker.processors.grpc.settings import LITE_QUOTA, quota_of
from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import RequestError
from imago_wire.record_format.references import LIGHT_QUEUE_ID, lite_parent, lite_queue
from imago_wire.remoting.bodies.lite import LiteAction, OffsetOptionType
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from imago_broker.ports import Clock
    from imago_broker.service.groups.groups import GroupService
    from imago_broker.service.groups.offsets import ConsumerOffsets
    from imago_log.store import MessageStore
    from imago_wire.remoting.bodies.lite import LiteSubscription, OffsetOption

WANTED_MAX = 100_000
"""Lite topics that all clients want together; RocketMQ's maxLiteSubscriptionCount."""
_SHARE: Final = 4
"""The clients of one user, and those of one group, may want one of so many parts of these."""
SHARING_MAX = 1024
"""Clients of one group that want the same lite topic: each message wakes them all."""
ALL_MAX = 128
"""Clients that want all lite topics there are: each remembers in which something has happened.
Those of one user may be half as many."""
CLIENT_ID_SIZE_MAX = 1024
SILENT_MS_MAX = 180_000
"""After which a client that has not said what it wants wants nothing."""
MODEL_ATTRIBUTE: Final = "lite.sub.model"
BIND_ATTRIBUTE: Final = "lite.bind.topic"
RESET_ATTRIBUTE: Final = "lite.sub.reset.offset.exclusive"
RESET_GONE_ATTRIBUTE: Final = "lite.sub.reset.offset.unsubscribe"
ALL_ATTRIBUTE: Final = "lite.sub.wildcard"
"""Of a group whose clients want whatever lite topics there are, if it has any value."""
LOOKS_ATTRIBUTE: Final = "lite.sub.client.max.event.cnt"
LOOKS, LOOKS_LOW, LOOKS_HIGH = 400, 10, 10_000
"""Lite topics that one look of a client goes over, unless its group says another number."""
_ALL: Final = "*"
"""In place of a name: all lite topics of a topic."""
_FROM_FIRST, _FROM_END = 1, 2

LiteClient = tuple[str, str]
"""A group, and the id of one of its clients."""


@dataclass(slots=True)
class LiteWants:
    """What one client wants: one lite topic or more."""

    topic: str
    user: str
    place: bytes
    """The name under which the client waits."""
    queues: dict[str, None] = field(default_factory=dict)
    ready: dict[str, None] = field(default_factory=dict)
    """In which of them something has happened since they were looked at last, first what has been
    so for longest."""
    out: dict[str, int] = field(default_factory=dict)
    """In which of them messages are out, and when to look again."""
    seen_ms: int = 0


class LiteQueues(Protocol):
    """The light queues into which anything was ever put."""

    def __contains__(self, name: str, /) -> bool: ...

    def below(self, topic: str) -> list[str]:
        """Return those that are lite topics of a topic."""
        ...


class LiteSubscriptions:
    """Of all clients of this shard. All methods belong to the event loop's thread."""

    def __init__(
        self,
        groups: GroupService,
        offsets: ConsumerOffsets,
        store: MessageStore,
        clock: Clock,
        *,
        there: LiteQueues,
        tell_out: Callable[[Mapping[LiteClient, Sequence[str]]], None],
    ) -> None:
        """`tell_out`: tells clients which light queues others have from now on."""
        self._groups, self._offsets, self._store, self._clock = groups, offsets, store, clock
        self.there, self._tell_out = there, tell_out
        self._wanted = OrderedDict[LiteClient, LiteWants]()
        """First who has been silent for longest."""
        self._clients: dict[str, dict[str, dict[LiteClient, LiteWants]]] = {}
        """By queue and group."""
        self._of_user, self._of_group = Counter[str](), Counter[str]()
        self._told_out: dict[LiteClient, list[str]] = {}
        self._of_all = Counter[str]()
        """By user: clients that want all lite topics."""
        self.count = 0

    def __len__(self) -> int:
        return len(self._wanted)

    def of(self, client: LiteClient) -> LiteWants | None:
        """Return what a client wants; None: nothing."""
        return self._wanted.get(client)

    def moved(self, queues: Iterable[str]) -> list[bytes]:
        """Note that something has happened in light queues; return where their clients wait."""
        places: dict[bytes, None] = {}
        for queue in queues:
            for wanted in self._wanting(queue):
                wanted.ready[queue] = None
                places[wanted.place] = None
        return list(places)

    def out_until(self, queue: str, due_ms: int) -> list[bytes]:
        """Note when messages of a light queue come back; return where its clients wait."""
        places = []
        for wanted in self._wanting(queue):
            wanted.out[queue] = min(due_ms, wanted.out.get(queue, due_ms))
            places.append(wanted.place)
        return places

    def _wanting(self, queue: str) -> Iterator[LiteWants]:
        for name in (queue, lite_queue(lite_parent(queue), _ALL)):
            for clients in self._clients.get(name, {}).values():
                yield from clients.values()

    def looks_max(self, group: str) -> int:
        """Return how many lite topics one look of a client goes over."""
        said = self._attribute(group, LOOKS_ATTRIBUTE)
        number = int(said[:9]) if said.isdecimal() and said.isascii() else LOOKS
        return max(LOOKS_LOW, min(number, LOOKS_HIGH))

    def sync(self, told: LiteSubscription, user: str = "") -> bytes:
        """Take what a client says, and return where it waits; RequestError: it wants too much."""
        self._forget_silent()
        client = (told.group, told.client_id)
        place = place_of(client)
        known = self._wanted.get(client)
        other = known is not None and (known.topic, known.user) != (told.topic, user)
        if told.action is LiteAction.COMPLETE_REMOVE or other:
            self.forget(client)
            known = None
        has = () if known is None else known.queues
        wants_all = self._wants_all(told.group)
        if wants_all and told.action is LiteAction.PARTIAL_ADD:
            raise RequestError(
                ResponseCode.ILLEGAL_OPERATION,
                f"the group {told.group} wants all lite topics: it takes none up one by one",
            )
        new, gone = _changes(told, has, wants_all=wants_all)
        self._require_room(told.group, user, len(has), len(new) - len(gone), new)
        if new and wants_all:
            self._require_room_for_all(user)
        for queue in gone:
            self._remove(client, queue)
        if told.action is LiteAction.PARTIAL_REMOVE:
            self._begin_again(told.group, gone)
        wanted = self._wanted.get(client)
        if wanted is None and new:
            wanted = self._wanted[client] = LiteWants(told.topic, user, place)
        if wanted is not None:
            self._add(client, wanted, sorted(new), told.offset_option)
            wanted.seen_ms = self._clock.epoch_ms()
            wanted.ready = dict.fromkeys([*wanted.ready, *self._there_of(wanted)])
            self._wanted.move_to_end(client)
        return place

    def _begin_again(self, group: str, gone: Iterable[str]) -> None:
        """Have a group whose settings say so begin again in what a client has given up."""
        if self._attribute(group, RESET_GONE_ATTRIBUTE) == "true":
            there = [queue for queue in gone if queue in self.there]
            if there:
                self._offsets.reset_each(group, LIGHT_QUEUE_ID, dict.fromkeys(there, 0))

    def _there_of(self, wanted: LiteWants) -> Iterable[str]:
        """Return what a client may find something in."""
        every = lite_queue(wanted.topic, _ALL)
        return self.there.below(wanted.topic) if every in wanted.queues else wanted.queues

    def tell_out(self) -> None:
        """Tell clients what others have from now on, by what was said since it was called last."""
        told, self._told_out = self._told_out, {}
        if told:
            self._tell_out(told)

    def forget(self, client: LiteClient) -> None:
        """A client is gone."""
        wanted = self._wanted.get(client)
        if wanted is not None:
            for queue in list(wanted.queues):
                self._remove(client, queue)

    def clear(self) -> None:
        """Another member decides now, or nobody."""
        self._wanted.clear()
        self._clients.clear()
        self._of_user.clear()
        self._of_group.clear()
        self._of_all.clear()
        self.count = 0

    def _require_room(self, group: str, user: str, had: int, more: int, new: Iterable[str]) -> None:
        """Refuse `more` than now: by group and client, user, and of all together."""
        quota = quota_of(self._attribute(group, LITE_QUOTA))
        share = WANTED_MAX // _SHARE
        text = ""
        if more > 0 and self.count + more > WANTED_MAX:
            text = f"lite subscription quota exceeded {WANTED_MAX}"
        elif more > 0 and user and self._of_user[user] + more > share:
            text = f"lite subscription quota exceeded {share} of one user"
        elif more > 0 and self._of_group[group] + more > share:
            text = f"lite subscription quota exceeded {share} of one group"
        elif 0 <= quota < had + more:
            text = f"a client of this group has {quota} lite topics at most, not {had + more}"
        elif not self._is_exclusive(group):
            full = [each for each in new if len(self._sharing(each, group)) >= SHARING_MAX]
            if full:
                text = f"{SHARING_MAX} clients of this group want {full[0]} already"
        if text:
            raise RequestError(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, text)

    def _require_room_for_all(self, user: str) -> None:
        """Refuse one more client that wants all lite topics."""
        text = ""
        if self._of_all.total() >= ALL_MAX:
            text = f"{ALL_MAX} clients want all lite topics already"
        elif user and self._of_all[user] >= ALL_MAX // 2:
            text = f"{ALL_MAX // 2} clients of one user want all lite topics already"
        if text:
            raise RequestError(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, text)

    def names_of(self, told: LiteSubscription) -> int:
        """Return how many lite topics a client speaks of, or has: each is looked at again.

        Of a client that wants all: about what they cost.
        """
        if self._wants_all(told.group):
            return LOOKS
        known = self._wanted.get((told.group, told.client_id))
        return max(len(told.lite_topic_set), len(known.queues) if known is not None else 0)

    def _sharing(self, queue: str, group: str) -> dict[LiteClient, LiteWants]:
        return self._clients.get(queue, {}).get(group, {})

    def _add(
        self,
        client: LiteClient,
        wanted: LiteWants,
        queues: Iterable[str],
        option: OffsetOption | None,
    ) -> None:
        group = client[0]
        exclusive = self._is_exclusive(group)
        again = exclusive and self._attribute(group, RESET_ATTRIBUTE) == "true"
        places: dict[str, int] = {}
        for queue in queues:
            others = list(self._sharing(queue, group)) if exclusive else []
            for other in others:
                self._remove(other, queue)
                self._told_out.setdefault(other, []).append(queue)
            if queue in self.there:
                now = self._offsets.query(group, queue, LIGHT_QUEUE_ID)
                offset = 0 if again and others else None
                if option is not None:
                    said = self._goes_on_at(queue, option, now if offset is None else offset)
                    offset = offset if said is None else said
                if offset is not None and offset != now:
                    places[queue] = offset
            wanted.queues[queue] = None
            self._clients.setdefault(queue, {}).setdefault(group, {})[client] = wanted
            self._count(client, wanted, queue, 1)
        if places:
            self._offsets.reset_each(group, LIGHT_QUEUE_ID, places)

    def _goes_on_at(self, queue: str, option: OffsetOption, now: int | None) -> int | None:
        """Return where a client says that its group is to go on in a light queue that is there.

        Times RocketMQ leaves aside, too.
        """
        end = self._store.queue_range(queue, LIGHT_QUEUE_ID)[1]
        match option.type, option.value:
            case OffsetOptionType.POLICY, value if value == _FROM_FIRST:
                return 0
            case OffsetOptionType.POLICY, value if value == _FROM_END:
                return end
            case OffsetOptionType.OFFSET, value:
                return max(0, min(value, end))
            case OffsetOptionType.TAIL_N, value if now is not None:
                return max(0, min(now - value, end))
        return None

    def _remove(self, client: LiteClient, queue: str) -> None:
        """Want one less; who wants nothing is forgotten."""
        wanted = self._wanted[client]
        del wanted.queues[queue]
        wanted.ready.pop(queue, None)
        wanted.out.pop(queue, None)
        groups = self._clients[queue]
        del groups[client[0]][client]
        if not groups[client[0]]:
            del groups[client[0]]
        if not groups:
            del self._clients[queue]
        self._count(client, wanted, queue, -1)
        if not wanted.queues:
            del self._wanted[client]

    def _count(self, client: LiteClient, wanted: LiteWants, queue: str, more: int) -> None:
        self.count += more
        told = [(self._of_user, wanted.user), (self._of_group, client[0])]
        if queue == lite_queue(wanted.topic, _ALL):
            told.append((self._of_all, wanted.user))
        for counts, name in told:
            counts[name] += more
            if not counts[name]:
                del counts[name]

    def _forget_silent(self) -> None:
        """Forget who has said nothing for long."""
        until_ms = self._clock.epoch_ms() - SILENT_MS_MAX
        while self._wanted:
            client, wanted = next(iter(self._wanted.items()))
            if wanted.seen_ms >= until_ms:
                return
            self.forget(client)

    def _is_exclusive(self, group: str) -> bool:
        return self._attribute(group, MODEL_ATTRIBUTE) == "Exclusive" and not self._wants_all(group)

    def _wants_all(self, group: str) -> bool:
        return self._attribute(group, ALL_ATTRIBUTE) != ""

    def _attribute(self, group: str, name: str) -> str:
        known = self._groups.get(group)
        return "" if known is None else known.attributes.get(name, "")


def _changes(
    told: LiteSubscription, has: Collection[str], *, wants_all: bool
) -> tuple[set[str], set[str]]:
    """Return what a client wants more and less than it `has`; RequestError: a name is none."""
    for name in told.lite_topic_set:
        if not is_lite_name(name):
            raise rules.invalid(f"{name[:64]!r} is no name of a lite topic")
    names = (_ALL,) if wants_all else told.lite_topic_set
    queues = {lite_queue(told.topic, name) for name in names}
    match told.action:
        case LiteAction.PARTIAL_ADD:
            return queues.difference(has), set()
        case LiteAction.PARTIAL_REMOVE:
            return set(), queues.intersection(has)
        case LiteAction.COMPLETE_ADD:
            return queues.difference(has), set(has).difference(queues)
        case LiteAction.COMPLETE_REMOVE:
            return set(), set(has)


def place_of(client: LiteClient) -> bytes:
    """Return the name under which a client waits; RequestError: no client has such an id."""
    if not 0 < len(client[1]) <= CLIENT_ID_SIZE_MAX:
        raise rules.invalid(f"the client's id has {len(client[1])} characters")
    return "\x00".join(client).encode("utf-8", "replace")
