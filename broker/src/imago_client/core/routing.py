"""A topic's route: which queues it has, and which addresses serve them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from imago_client.errors import NoMasterError, NoQueuesError, NoRouteError
from imago_client.message_queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_wire.remoting.bodies.route import QueueData, TopicRouteData

MASTER_ID: Final = 0
_PERM_READ: Final = 4
_PERM_WRITE: Final = 2


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """Read queues and write queues sorted by shard and number, and the brokers of each shard.

    Write queues are those placed, whether or not their shard has a master at the moment.
    """

    topic: str
    read_queues: tuple[MessageQueue, ...]
    write_queues: tuple[MessageQueue, ...]
    addresses: Mapping[str, Mapping[int, str]]
    """Shard -> broker id (0 is the master) -> `host:port`."""

    lost_queues: tuple[MessageQueue, ...] = ()
    """Queues that hold messages to read, of shards that have no live broker at the moment."""

    led_queues: tuple[MessageQueue, ...] = field(init=False, compare=False, repr=False)
    """The write queues whose shard has a master now."""

    def __post_init__(self) -> None:
        led = (one for one in self.write_queues if MASTER_ID in self.addresses.get(one.shard, {}))
        object.__setattr__(self, "led_queues", tuple(led))

    def master(self, shard: str) -> str:
        """Return the address of a shard's master."""
        address = self.addresses.get(shard, {}).get(MASTER_ID)
        if address is None:
            raise self._no_master(shard)
        return address

    def _no_master(self, shard: str) -> NoMasterError:
        placed = sorted({queue.shard for queue in (*self.read_queues, *self.write_queues)})
        if shard in placed or not placed:
            return NoMasterError(self.topic, shard)
        return NoQueuesError(self.topic, shard, placed)

    def reader(self, shard: str, preferred: int = MASTER_ID) -> str:
        """Return the address of the preferred broker of a shard, else of any that lives."""
        brokers = self.addresses.get(shard, {})
        if not brokers:
            raise NoRouteError(self.topic, f"shard {shard} has no live broker")
        return brokers.get(preferred) or brokers[min(brokers)]

    def queue_counts(self, *, readable: bool) -> dict[str, int]:
        """Return how many queues each shard has, those that can be read or those written to."""
        queues = self.read_queues if readable else self.write_queues
        return dict(Counter(queue.shard for queue in queues))

    def masters(self) -> list[str]:
        """Return the address of every live master, in the order of the shards' names."""
        return [
            brokers[MASTER_ID]
            for _, brokers in sorted(self.addresses.items())
            if MASTER_ID in brokers
        ]


def topic_route(topic: str, data: TopicRouteData) -> TopicRoute:
    """Return the route that a name service's answer describes."""
    addresses = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
    return TopicRoute(
        topic,
        _queues(topic, data, lambda shard: shard.read_queue_nums, _PERM_READ, addresses),
        _queues(topic, data, lambda shard: shard.write_queue_nums, _PERM_WRITE, addresses),
        addresses,
        tuple(
            queue
            for queue in _placed(topic, data, lambda shard: shard.read_queue_nums, _PERM_READ)
            if not addresses.get(queue.shard)
        ),
    )


def _queues(
    topic: str,
    data: TopicRouteData,
    count: Callable[[QueueData], int],
    permission: int,
    addresses: Mapping[str, Mapping[int, str]],
) -> tuple[MessageQueue, ...]:
    """Reading needs a live broker. A queue to write to stays one while its shard elects."""
    placed = _placed(topic, data, count, permission)
    if permission == _PERM_WRITE:
        return placed
    return tuple(queue for queue in placed if addresses.get(queue.shard))


def _placed(
    topic: str, data: TopicRouteData, count: Callable[[QueueData], int], permission: int
) -> tuple[MessageQueue, ...]:
    queues = [
        MessageQueue(topic, shard.broker_name, queue_id)
        for shard in data.queue_datas
        if shard.perm & permission
        for queue_id in range(count(shard))
    ]
    return tuple(sorted(queues))
