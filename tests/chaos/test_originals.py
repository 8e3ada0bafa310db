"""Original clients of both protocols, and ours, while brokers are killed or restarted in turn."""

from __future__ import annotations

import random
import signal
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from imago_client import ProducerConfig
from imago_client.blocking import Client
from imago_testing.chaos.originals import Copy, Promise, Queues, faults, missed, shown
from imago_testing.interop import streams
from imago_testing.interop.drivers import (
    METAQ,
    METAQ_CONSUMER,
    ROCKETMQ4,
    ROCKETMQ5,
    running_drivers,
)
from imago_testing.interop.hanging import HangingConsumer
from imago_testing.interop.members import Members
from imago_testing.interop.metaq import MetaqClient
from imago_testing.interop.rocketmq import Outgoing, RocketmqClient
from imago_testing.interop.streams import (
    ACKS_SECONDS_MAX,
    NO_CONNECTION,
    OWN_TIMEOUT,
    Reader,
    Stream,
    until_acknowledged,
)
from imago_testing.interop.targets import METAQ_TOPICS, imago_up
from imago_testing.java.driver import DriverError
from imago_testing.processes.servers import wait_until
from imago_testing.searching import seldom

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imago_testing.interop.rocketmq import Producer, Received, Sent
    from imago_testing.java.driver import JavaDriver

pytestmark = [pytest.mark.processes, pytest.mark.interop]

CLIENTS = (METAQ, METAQ_CONSUMER, ROCKETMQ4, ROCKETMQ5)
SEED = 20262
SHARDS, REPLICAS, QUORUM = 2, 3, 2
KILLS = (4, 12)
LINGER_MS = 10_000
"""How long a former master passes requests on; the clients read routes every second, or when a busy
machine lets them."""
PAUSE_SECONDS = 0.06
DEPTH = 4
"""Messages that asynchronous producers send at once."""
BETWEEN = 5
"""Acknowledgements of each producer between two kills."""
SETTINGS = {
    "acknowledgement.level": "replicated",
    "replication.handover_linger_ms": LINGER_MS,
    "rocketmq.transaction_timeout_ms": 1000,
    "rocketmq.transaction_check_interval_ms": 1000,
}
KILLED_SESSION_MS = 2000
"""Brokers that are killed are soon missed."""
RESTARTED_SESSION_MS = 20_000
"""Brokers that stop in order lose no session, however busy the machine is."""
LINES_MAX = 40
"""What a failure shows of each client's log."""
AHEAD_MS = 60_000
"""How far ahead timers are: both shards have new masters long before."""


class Cluster:
    """The brokers, the clients' processes, and the topics that tests take in turn."""

    def __init__(self, ready: Mapping[str, Any], drivers: Mapping[str, JavaDriver]) -> None:
        self.members = Members(ready)
        self.namesrv = str(ready["namesrv"])
        self.metaq, self.metaq_consumer = (
            MetaqClient(drivers[name], ready["zookeeper"], []) for name in (METAQ, METAQ_CONSUMER)
        )
        self.rocketmq = {
            version: RocketmqClient(version, drivers[name], self.namesrv)
            for version, name in ((4, ROCKETMQ4), (5, ROCKETMQ5))
        }
        self.topics = iter(METAQ_TOPICS)
        self._drivers = drivers

    def told(self) -> str:
        """Return what members and clients say, for whoever looks at a failed run."""
        clients = [
            f"{name}: {line}"
            for name, driver in self._drivers.items()
            for line in driver.told(LINES_MAX)
        ]
        return "\n".join((*self.members.told(), *clients))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory, KILLED_SESSION_MS) as cluster:
        yield cluster


@contextmanager
def running(tmp_path_factory: pytest.TempPathFactory, session_ms: int) -> Iterator[Cluster]:
    """Start brokers and original clients for as long as the block lasts."""
    settings = {**SETTINGS, "zookeeper.session_timeout_ms": session_ms}
    options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    folder = tmp_path_factory.mktemp("cluster")
    with (
        running_drivers(CLIENTS, tmp_path_factory.mktemp) as drivers,
        imago_up(folder, shards=SHARDS, replicas=REPLICAS, options=options) as ready,
    ):
        for driver in drivers.values():
            driver.wait_ready()
        cluster = Cluster(ready, drivers)
        cluster.members.settled(REPLICAS)
        yield cluster
        for client in cluster.rocketmq.values():
            client.settle()


class Load:
    """Producers and consumers of both protocols on one topic."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.topic = topic
        self.streams: list[Stream] = []
        self.readers: list[Reader] = []
        self._cluster = cluster

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send and consume for as long as the block lasts."""
        with ExitStack() as stack:
            self._metaq(stack)
            for version, client in self._cluster.rocketmq.items():
                self._rocketmq(stack, version, client)
            self._ours(stack)
            for reader in self.readers:
                stack.enter_context(reader)
            for stream in self.streams:
                stack.enter_context(stream)
            yield
            for stream in self.streams:
                stream.stop()
            self._until_read()

    def _until_read(self) -> None:
        """Wait until every reader has what was acknowledged; see what each lacks."""
        wanted = {body for each in self.streams for body in each.acknowledged}
        late = []
        for reader in self.readers:
            try:
                reader.until_got(wanted)
            except TimeoutError as error:
                late.append(str(error))
        if late:
            raise TimeoutError("\n".join((*late, self._cluster.told())))

    def _metaq(self, stack: ExitStack) -> None:
        # Each has connections of its own: those of one session factory hang more often.
        metaq, topic = self._cluster.metaq, self.topic
        putting, calling = (stack.enter_context(metaq.factory()) for _ in range(2))
        producer = stack.enter_context(putting.producer([topic]))
        self._stream("metaq", streams.metaq_puts(producer, topic))
        consumer = HangingConsumer(self._cluster.metaq_consumer, topic, f"metaq-{topic}")
        stack.enter_context(consumer)
        producer = stack.enter_context(calling.producer([topic]))
        self._stream("metaq-async", streams.metaq_callbacks(producer, topic), DEPTH)
        self.readers.append(Reader("metaq consumer", consumer.take, consumer.restarted))

    def _rocketmq(self, stack: ExitStack, version: int, client: RocketmqClient) -> None:
        topic = self.topic
        producer = stack.enter_context(client.producer(f"sync-{topic}"))
        streams.until_routed(producer.queues, topic, SHARDS)
        self._stream(f"rocketmq{version}", streams.rocketmq_sends(producer, topic))
        bold = stack.enter_context(client.producer(f"async-{topic}", retries=0))
        name = f"rocketmq{version}-async"
        self._stream(name, streams.rocketmq_async(bold, topic), DEPTH)
        consumer = stack.enter_context(client.push(topic, f"group-{version}-{topic}"))
        self.readers.append(Reader(f"rocketmq {version} consumer", streams.taking(consumer)))

    def _ours(self, stack: ExitStack) -> None:
        client = stack.enter_context(Client(self._cluster.namesrv))
        patient = ProducerConfig(idempotent=True, delivery_timeout_s=ACKS_SECONDS_MAX)
        producer = client.producer(patient)
        self._stream("imago", streams.our_sends(producer, self.topic))

    def _stream(self, name: str, send: Any, depth: int = 1) -> None:
        self.streams.append(Stream(name, send, depth=depth, pause_seconds=PAUSE_SECONDS))

    def promises(self) -> list[Promise]:
        """What every producer was told."""
        return [
            Promise(
                name=stream.name,
                acknowledged=frozenset(stream.acknowledged),
                tried=frozenset(stream.sent),
                # RocketMQ's client gives asynchronous sends to several threads.
                ordered=not stream.name.endswith("-async") or stream.name.startswith("metaq"),
                retries=stream.name in {"rocketmq4", "rocketmq5"},
            )
            for stream in self.streams
        ]

    def verdict(self) -> list[str]:
        """Read everything through both protocols; return the promises that were broken."""
        promises = self.promises()
        found = self._stored()
        broken = faults(promises, found, {name: self._in_metaq(name) for name in found})
        for reader in self.readers:
            broken += [f"{each} by {reader.name}" for each in missed(promises, reader.got)]
        return broken

    def _stored(self) -> Queues:
        found: Queues = {}
        with self._cluster.rocketmq[5].pull() as puller:
            for queue in puller.queues(self.topic):
                found[f"{queue.broker.removeprefix('shard-')}-{queue.queue}"] = []
            for each in puller.stored(self.topic):
                queue = each.queue
                name = f"{queue.broker.removeprefix('shard-')}-{queue.queue}"
                found[name].append(Copy(each.body, each.born_ms))
        return found

    def _in_metaq(self, partition: str) -> list[bytes]:
        bodies: list[bytes] = []
        with self._cluster.metaq.factory() as factory:
            at = 0
            while block := factory.get(self.topic, partition, at):
                bodies += [each.body for each in block.messages]
                at = block.next
        return bodies

    def report(self) -> str:
        """Return what happened, for whoever looks at a failed run."""
        kinds = streams.errors_by_kind(self.streams)
        return "\n".join(
            f"{each.name}: {len(each.acknowledged)} acknowledged, longest gap "
            f"{each.gap_seconds:.2f} s, errors {kinds[each.name]}"
            for each in self.streams
        )


@pytest.mark.parametrize("kills_min", seldom(KILLS))
def test_no_acknowledged_message_is_lost_however_often_brokers_are_killed(
    cluster: Cluster, kills_min: int
) -> None:
    rng, load, kills = random.Random(SEED), Load(cluster, next(cluster.topics)), 0
    with load.running():
        until_acknowledged(load.streams, BETWEEN)
        while kills < kills_min:
            kills += kill_some(cluster.members, rng)
            cluster.members.settled(QUORUM)
            until_acknowledged(load.streams, BETWEEN)
        cluster.members.settled(REPLICAS)
    print(f"{kills} kills\n{load.report()}")
    broken = load.verdict()
    assert broken == [], shown(broken)
    assert not next(each for each in load.streams if each.name == "imago").errors


def kill_some(members: Members, rng: random.Random) -> int:
    """Kill a master, a follower, or a master and the other shard's follower; return how many."""
    first, second = rng.sample(sorted(members.shards), 2)
    masters = {shard: members.master(shard) for shard in (first, second)}
    victims = [masters[first]]
    kind = rng.random()
    followers = {
        shard: [each for each in members.shards[shard] if each is not masters[shard] and each.pid]
        for shard in (first, second)
    }
    if kind > 0.6:
        victims.append(rng.choice(followers[second]))
    elif kind > 0.4:
        victims = [rng.choice(followers[first])]
    for victim in victims:
        assert victim is not None, f"{first} has a master"
        print(f"kill -9 of {victim.shard} replica {victim.replica}", flush=True)
        victim.signal(signal.SIGKILL)
    return len(victims)


@pytest.mark.full
def test_a_rolling_restart_is_not_noticed(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running(tmp_path_factory, RESTARTED_SESSION_MS) as cluster:
        restart_one_after_the_other(cluster)


def restart_one_after_the_other(cluster: Cluster) -> None:
    load, handovers = Load(cluster, next(cluster.topics)), 0
    with load.running():
        until_acknowledged(load.streams, BETWEEN)
        for shard, brokers in cluster.members.shards.items():
            for broker in reversed(brokers):
                cluster.members.settled(REPLICAS)
                handovers += cluster.members.master(shard) is broker
                before = broker.pid
                broker.signal(signal.SIGTERM)
                cluster.members.until_restarted(broker, before)
                until_acknowledged(load.streams, BETWEEN)
        cluster.members.settled(REPLICAS)
    print(f"{handovers} handovers\n{load.report()}")
    broken = load.verdict()
    assert broken == [], shown(broken)
    for stream in load.streams:
        # Its client closes its connection to the former master, whatever is on the way there, and
        # may have none to the next one yet.
        own_doing = (OWN_TIMEOUT, NO_CONNECTION) if stream.name.startswith(METAQ) else ()
        others = [text for text in stream.errors.values() if not text.endswith(own_doing)]
        assert others == [], stream.name


@pytest.mark.full
def test_what_waits_ends_as_its_producers_say_to_the_next_masters(cluster: Cluster) -> None:
    """Timers taken back by handles of the old masters; transactions that nobody had decided."""
    topic = next(cluster.topics)
    got: list[Received] = []
    with ExitStack() as stack:
        client = cluster.rocketmq[5]
        producer = stack.enter_context(client.producer(f"timers-{topic}"))
        streams.until_routed(producer.queues, topic, SHARDS)
        deliver_ms = int(time.time() * 1000) + AHEAD_MS
        timers = producer.send(
            topic, [Outgoing(body=b"timer %d" % n, deliver_ms=deliver_ms) for n in range(12)]
        )
        assert {each.queue.broker for each in timers} == set(cluster.members.shards)
        take_back(producer, topic, timers[:4])
        deciders = [
            stack.enter_context(each.transactions(f"transactions-{version}-{topic}"))
            for version, each in cluster.rocketmq.items()
        ]
        for index, decider in enumerate(deciders):
            halves = [(b"half %d-%d" % (index, n), f"{index}-{n}") for n in range(6)]
            decider.send(topic, [Outgoing(body=body, keys=key) for body, key in halves], "UNKNOW")
        consumer = stack.enter_context(client.push(topic, f"what-waits-{topic}"))
        kill_masters(cluster.members)
        for index, number in product(range(len(deciders)), range(6)):
            ends = "ROLLBACK_MESSAGE" if number % 2 else "COMMIT_MESSAGE"
            deciders[index].decide(f"{index}-{number}", ends)
        cluster.members.settled(QUORUM)
        take_back(producer, topic, timers[2:8])
        committed = {b"half %d-%d" % (index, n) for index in range(2) for n in (0, 2, 4)}
        wanted = committed | {b"timer %d" % n for n in range(8, 12)}

        def all_came() -> bool:
            got.extend(consumer.take(1, seconds_max=1))
            return wanted <= {each.body for each in got}

        wait_until(all_came, seconds_max=90, what="what was committed or not taken back")
    with client.pull() as puller:
        stored = [each.body for each in puller.stored(topic)]
    assert sorted(stored) == sorted(wanted)
    assert {each.body for each in got} == wanted


def kill_masters(members: Members) -> None:
    for shard in members.shards:
        master = members.master(shard)
        assert master is not None
        master.signal(signal.SIGKILL)


def take_back(producer: Producer, topic: str, timers: Sequence[Sent]) -> None:
    """Recall messages, each until a master takes that."""

    def taken_back(sent: Sent) -> bool:
        assert sent.recall_handle is not None
        try:
            return producer.recall(topic, sent.recall_handle) == sent.id
        except DriverError:
            return False  # its client has no connection to the new master yet

    for sent in timers:
        wait_until(partial(taken_back, sent), seconds_max=50, what="a recall", poll=0.2)
