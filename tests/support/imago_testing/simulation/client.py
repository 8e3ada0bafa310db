"""Producers and consumers of the model. They remember what they were promised."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_testing.simulation.world import SimulatedRun


class Level(Enum):
    """What a put waits for."""

    LEADER = "leader"
    LEADER_FSYNC = "leader-fsync"
    REPLICATED = "replicated"
    REPLICATED_FSYNC = "replicated-fsync"

    @property
    def replicated(self) -> bool:
        return self in (Level.REPLICATED, Level.REPLICATED_FSYNC)

    @property
    def synced(self) -> bool:
        return self in (Level.LEADER_FSYNC, Level.REPLICATED_FSYNC)


META_PRODUCER = -1


class Put:
    """One request: the value that a producer wants stored, tried once."""

    __slots__ = (
        "connection",
        "deadline_ms",
        "ident",
        "level",
        "offset",
        "producer",
        "size",
        "value",
    )

    def __init__(self, ident: int, producer: int, value: int, level: Level, size: int) -> None:
        self.ident, self.producer, self.value = ident, producer, value
        self.level, self.size = level, size
        self.offset = 0
        """Not 0: the put commits this offset for the group of the producer."""
        self.connection = 0
        self.deadline_ms = 0


class Producer:
    """Sends one value after the other; repeats a value after an error."""

    __slots__ = (
        "again",
        "committed",
        "connection",
        "ident",
        "level",
        "number",
        "target",
        "value",
        "waiting",
    )

    def __init__(self, number: int, level: Level) -> None:
        self.number, self.level = number, level
        self.value = 0
        self.waiting = False
        self.target = -1
        self.connection = 0
        self.ident = 0
        """Of the put that is waited for; late answers to earlier ones are not heard any more."""
        self.again = False
        """Whether the last value was answered with an error: it is sent again."""
        self.committed = 0


class Clients:
    """All clients of a world."""

    def __init__(self, world: SimulatedRun, levels: list[Level]) -> None:
        self.world = world
        self.producers = [Producer(number, level) for number, level in enumerate(levels)]
        self.puts: dict[int, Put] = {}
        self.acks = 0

    def act(self) -> None:
        """One client does something."""
        rng = self.world.rng
        if rng.random() < 0.2:
            self.read()
        else:
            self.produce(rng.choice(self.producers))

    def produce(self, producer: Producer) -> None:
        world = self.world
        if producer.waiting:
            return
        target = world.believed_leader(producer.target)
        if target is None:
            return
        if target != producer.target:
            producer.target, producer.connection = target, producer.connection + 1
        if not producer.again:
            producer.value += 1
        ident = len(self.puts) + 1
        size = world.rng.choice((40, 100, 100, 300))
        put = Put(ident, producer.number, producer.value, producer.level, size)
        put.connection = producer.connection
        if producer.level is Level.REPLICATED and world.rng.random() < 0.2:
            put.offset = producer.value
        self.puts[ident] = put
        producer.waiting, producer.ident = True, ident
        process = world.processes[target]
        if process is None:
            self.refused(put)
            return
        world.at(world.now + world.delay(), world.deliver, process, process.put, put)
        world.at(world.now + 4000, self.give_up, put)

    def meta_ident(self) -> int:
        """A record that no producer asked for: a topic's creation."""
        ident = len(self.puts) + 1
        self.puts[ident] = Put(ident, META_PRODUCER, ident, Level.LEADER, 0)
        return ident

    def acked(self, put: Put) -> None:
        producer = self.producers[put.producer]
        self.acks += 1
        if producer.waiting and producer.ident == put.ident:
            producer.waiting = producer.again = False
            producer.committed = max(producer.committed, put.offset)

    def refused(self, put: Put) -> None:
        """Answered before anything was written: the same value is sent again."""
        self.failed(put)

    def failed(self, put: Put) -> None:
        """Answered with an error, or not at all: it may be there, and is sent again."""
        producer = self.producers[put.producer]
        if producer.waiting and producer.ident == put.ident:
            producer.waiting = False
            producer.again = True
            producer.target = -1

    def give_up(self, put: Put) -> None:
        producer = self.producers[put.producer]
        if producer.waiting and producer.ident == put.ident:
            self.failed(put)

    def read(self) -> None:
        """A consumer reads one record somewhere below the high watermark."""
        world = self.world
        target = world.believed_leader(-1)
        process = None if target is None else world.processes[target]
        if process is not None and not process.paused and process.serves():
            world.checker.read(process, world.rng.random())
