"""Drives client operations without any I/O: answers are functions of what was asked."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from imago_client.config import ClientConfig
from imago_client.core.effects import Effect, Oneway, Operation, Pause, Request, Wait
from imago_client.core.state import ClientState
from imago_wire.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import FLAG_RESPONSE, RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from imago_wire.remoting.fields import Header

T = TypeVar("T")
Answer = RemotingCommand | Exception


def response(
    code: int = 0, header: Header | None = None, *, body: bytes = b"", remark: str | None = None
) -> RemotingCommand:
    """Return an answer as a server makes it."""
    ext = header.to_ext() if header is not None else {}
    return RemotingCommand(code=code, flag=FLAG_RESPONSE, ext=ext, body=body, remark=remark)


def route_body(
    shards: Mapping[str, str],
    slaves: Mapping[str, Mapping[int, str]] | None = None,
    *,
    queues: int = 2,
    perm: int = 6,
    placed: Iterable[str] = (),
) -> bytes:
    """Return a route whose shards (name -> address of the master) have `queues` queues each.

    `slaves`: shard -> broker id -> address. `placed`: shards that have queues too, and no master.
    """
    others = slaves or {}
    addresses: dict[str, dict[int, str]] = {shard: {0: one} for shard, one in shards.items()}
    for shard, brokers in others.items():
        addresses.setdefault(shard, {}).update(brokers)
    return TopicRouteData(
        broker_datas=tuple(
            BrokerData(broker_name=shard, broker_addrs=brokers, cluster="test")
            for shard, brokers in addresses.items()
            if brokers and (shard in shards or shard in placed)
        ),
        queue_datas=tuple(
            QueueData(broker_name=shard, perm=perm, read_queue_nums=queues, write_queue_nums=queues)
            for shard in sorted({*shards, *placed})
        ),
    ).encode(standard=True)


@dataclass
class ScriptedServers:
    """A name service and brokers, as far as one test needs them."""

    shards: dict[str, str] = field(default_factory=lambda: {"a": "a:1", "b": "b:1"})
    slaves: dict[str, dict[int, str]] = field(default_factory=dict)
    placed: set[str] = field(default_factory=set)
    """Shards that have queues though no master may be in `shards`; Imago's name service tells."""
    topics: set[str] = field(default_factory=lambda: {"orders"})
    brokers: Callable[[Request], Answer] = lambda _: response()
    seen: list[Effect] = field(default_factory=list)
    now_s: float = 1000.0

    def __post_init__(self) -> None:
        self.state = ClientState(
            ClientConfig(bootstrap=("ns:1", "ns:2")),
            host="127.0.0.1",
            process_id=lambda: 7,
            rng=random.Random(1),
            clock_s=lambda: self.now_s,
            clock_ms=lambda: int(self.now_s * 1000),
        )

    def run(self, operation: Operation[T]) -> T:
        """Run an operation in this world."""
        try:
            effect = next(operation)
            while True:
                answer = self._perform(effect)
                if isinstance(answer, Exception):
                    effect = operation.throw(answer)
                else:
                    effect = operation.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value

    def asked(self, code: int) -> list[Request]:
        """Return the requests of one code, in order."""
        return [one for one in self.seen if isinstance(one, Request) and one.code == code]

    @property
    def pauses(self) -> list[float]:
        return [one.seconds for one in self.seen if isinstance(one, Pause)]

    def told(self) -> list[Oneway]:
        return [one for one in self.seen if isinstance(one, Oneway)]

    def _perform(self, effect: Effect) -> Answer | None:
        self.seen.append(effect)
        match effect:
            case Pause(seconds):
                self.now_s += seconds
                return None
            case Request(code=RequestCode.GET_ROUTEINFO_BY_TOPIC, header=header) if header:
                ext = header.to_ext()
                return self._route(ext["topic"], placed=ext.get("imagoPlaced") == "true")
            case Request():
                return self.brokers(effect)
            case Wait(gate):
                assert gate.is_open, "one operation at a time: nobody else would open it"
                return None
            case Oneway():
                return None

    def _route(self, topic: str, *, placed: bool) -> RemotingCommand:
        if topic not in self.topics:
            return response(ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info")
        also = {shard for shard in self.placed if placed or shard in self.slaves}
        return response(body=route_body(self.shards, self.slaves, placed=also))


def in_turn(answers: Sequence[Answer]) -> Callable[[Request], Answer]:
    """Return brokers that give these answers one after the other."""
    left = iter(answers)
    return lambda _: next(left)
