"""Topics, groups and rebalances as resources, on two shards of real broker processes."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from imago_client import ConsumerConfig, Message, NoRouteError, StartFrom
from imago_client.blocking import Client
from imago_operator.brokers.admin import AdminClient
from imago_operator.brokers.contents import Contents
from imago_operator.brokers.http import BrokerHttp, StaleOperatorError
from imago_operator.brokers.pipelines import Pipelines
from imago_operator.contents.values import SeenShard
from imago_operator.errors import BlockedError, InvalidError
from imago_operator.reconcile import ObjectKey, Reached
from imago_operator.reconcilers.group import GroupReconciler
from imago_operator.reconcilers.rebalance import RebalanceReconciler
from imago_operator.reconcilers.topic import TopicReconciler
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.kubernetes.fake_kube_port import FakeKubePort, Stage
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import wait_until
from imago_testing.processes.up import Up, up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from imago_operator.brokers.http import BrokerCalls
    from imago_operator.model.state import RemainingContent
    from imago_operator.reconcile import Reconciler

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

LOOKS_MAX = 300
LOOK_S = 0.2


@pytest.fixture(name="running", scope="module")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("cluster") / "data"
    base = ("--port-base", str(free_port_block(60)))
    with up(folder, *base, "--shards", "2", "--set", "broker.seal_linger_ms=300") as found:
        yield found


@dataclass
class Real:
    """An operator with a Kubernetes in memory and brokers that are processes."""

    stage: Stage
    calls: BrokerCalls
    addresses: tuple[str, ...]
    namesrv: str

    @property
    def kube(self) -> FakeKubePort:
        return self.stage.kube

    @property
    def contents(self) -> Contents:
        return Contents(self.calls)

    @property
    def admin(self) -> AdminClient:
        return AdminClient(self.calls)

    def context(self) -> Any:
        epoch: list[int] = []

        async def raised() -> int:
            if not epoch:
                epoch.append(await self.admin.raise_epoch(self.addresses))
            return epoch[0]

        async def brokers(*_: str) -> Reached:
            return Reached(
                admin=self.admin,
                contents=self.contents,
                pipelines=Pipelines(self.calls),
                brokers=self.addresses,
                epoch=raised,
            )

        return self.stage.context(brokers=brokers)

    def apply(self, kind: str, name: str, **spec: Any) -> None:
        said = {f"spec.{key}": value for key, value in spec.items()}
        self.kube.put(manifest(kind, said, name=name))

    async def until(
        self, reconciler: Reconciler, name: str, holds: Callable[[dict[str, Any]], object]
    ) -> dict[str, Any]:
        """Look until this holds of the status; return it."""
        status: dict[str, Any] = {}
        for _ in range(LOOKS_MAX):
            await reconciler.reconcile(ObjectKey(reconciler.kind, "mq", name))
            status = self.kube.status(reconciler.kind, name)
            if holds(status):
                return status
            self.stage.pass_time(5)
            await asyncio.sleep(LOOK_S)
        raise TimeoutError(f"{name} is {status}")

    async def closed(self, shard: int) -> RemainingContent:
        """Wait until a shard's queues, which are sealed, take no late messages any more."""
        left: RemainingContent | None = None
        for _ in range(LOOKS_MAX):
            left = await self.admin.remaining(self.addresses, shard)
            if left is not None and left.writable_queues == 0:
                return left
            await asyncio.sleep(LOOK_S)
        raise TimeoutError(f"shard {shard} has {left}")

    async def rests(self, reconciler: Reconciler, name: str) -> None:
        """A look much later writes nothing and asks nobody to do anything."""
        self.stage.pass_time(600)
        writes = self.kube.status_writes
        await reconciler.reconcile(ObjectKey(reconciler.kind, "mq", name))
        assert self.kube.status_writes == writes


@pytest.fixture(name="real")
async def _real(running: Up) -> AsyncIterator[Real]:
    addresses = tuple(broker["admin"] for broker in running.ready["brokers"])
    async with BrokerHttp(lambda: uuid.uuid4().hex) as http:
        calls = http.with_token(None)
        stage = Stage(Contents(calls))
        stage.kube.put(manifest("ImagoCluster"))
        yield Real(stage, calls, addresses, running.ready["namesrv"])


def reason(status: dict[str, Any], type_: str = "Ready") -> str | None:
    found = (c["reason"] for c in status.get("conditions", ()) if c["type"] == type_)
    return next(found, None)


def total(status: dict[str, Any]) -> int:
    found: int = status.get("partitions", {}).get("total", 0)
    return found


async def test_a_topic_as_a_resource(real: Real) -> None:
    topics = TopicReconciler(real.context())
    said = {
        "acknowledgement": "leader-fsync",
        "retention": {"time": "1h"},
        "config": {"message.type": "FIFO"},
    }
    real.apply("ImagoTopic", "orders", topicName="orders", partitions=3, deletionPolicy="Delete",
               **said)  # fmt: skip
    status = await real.until(topics, "orders", lambda s: total(s) == 6)
    assert (reason(status), status["shards"]) == ("InSync", [0, 1])
    await real.rests(topics, "orders")
    seen = (await real.contents.topics(real.addresses))["orders"]
    assert seen.attributes == {
        "acknowledgement": "leader-fsync",
        "retention.ms": "3600000",
        "message.type": "FIFO",
    }
    real.kube.edit("ImagoTopic", "orders", {"partitions": 5, "ordered": True})
    await real.until(topics, "orders", lambda s: total(s) == 10)
    await real.rests(topics, "orders")
    real.kube.edit("ImagoTopic", "orders", {"partitions": 4})
    status = await real.until(topics, "orders", lambda s: reason(s) == "PartitionsCannotShrink")
    assert total(status) == 10
    real.apply("ImagoTopic", "wrong", topicName="wrong", acknowledgement="leader",
               config={"materialised": "perhaps"})  # fmt: skip
    await real.until(topics, "wrong", lambda s: reason(s) == "BrokerRejected")
    assert "wrong" not in await real.contents.topics(real.addresses)
    real.kube.remove("ImagoTopic", "orders")
    for _ in range(LOOKS_MAX):
        await topics.reconcile(ObjectKey("ImagoTopic", "mq", "orders"))
        if ("ImagoTopic", "mq", "orders") not in real.kube.objects:
            break
        real.stage.pass_time(5)
        await asyncio.sleep(LOOK_S)
    assert "orders" not in await real.contents.topics(real.addresses)


async def test_a_group_goes_on_from_elsewhere_when_nobody_consumes(real: Real) -> None:
    groups = GroupReconciler(real.context())
    epoch = await real.admin.raise_epoch(real.addresses)
    await real.contents.put_topic(real.addresses, "bills", {"queues": 2}, operator_epoch=epoch)
    await asyncio.to_thread(self_made_traffic, real.namesrv)
    real.apply("ImagoConsumerGroup", "billing", groupName="billing", maxRetries=3)
    status = await real.until(groups, "billing", lambda s: s.get("lag") == "0")
    assert (status["state"], reason(status)) == ("Empty", "InSync")
    assert {t["topic"]: t["lag"] for t in status["topics"]}["bills"] == "0"
    await real.rests(groups, "billing")
    joined, leave = asyncio.Event(), asyncio.Event()
    staying = asyncio.create_task(consuming(real.namesrv, joined, leave))
    await joined.wait()
    await real.until(groups, "billing", lambda s: s["members"] == 1)
    real.kube.edit(
        "ImagoConsumerGroup", "billing", {"reset": {"requestId": "r-1", "to": "Earliest"}}
    )
    await real.until(groups, "billing", lambda s: reason(s, "ResetPending") == "GroupActive")
    with pytest.raises(BlockedError, match="members here"):
        await real.contents.reset_group(
            real.addresses, "billing", "bills", "earliest", operator_epoch=epoch + 1
        )
    leave.set()
    await staying
    status = await real.until(groups, "billing", lambda s: "lastReset" in s
                              and s["lastReset"]["result"] != "Started")  # fmt: skip
    assert status["lastReset"]["result"] == "Reset 1 topic to Earliest."
    again = await asyncio.to_thread(consumed, real.namesrv)
    assert sorted(again) == list(range(8))


CONSUMER = ConsumerConfig(group="billing", start_from=StartFrom.EARLIEST)


def self_made_traffic(namesrv: str) -> None:
    with Client(namesrv) as client:
        # Until the name service knows the topic its route is that of topics in general.
        wait_until(lambda: queues(client, "bills") == 4, seconds_max=60, what="the route of bills")
        producer = client.producer()
        for n in range(8):
            producer.send(Message("bills", b"%d" % n))
    assert sorted(consumed(namesrv)) == list(range(8))


def queues(client: Client, topic: str) -> int:
    """How many queues of a topic the name service knows."""
    try:
        return len(client.pull_consumer("looks").queues(topic))
    except NoRouteError:
        return 0


def consumed(namesrv: str) -> list[int]:
    """Read all there is for the group, commit, and leave."""
    found: list[int] = []
    with Client(namesrv) as client, client.group_consumer(CONSUMER, ["bills"]) as consumer:
        for _ in range(120):
            found += [int(message.body) for message in consumer.poll(0.5)]
            consumer.commit()
            if len(found) >= 8:
                break
    return found


async def consuming(namesrv: str, joined: asyncio.Event, leave: asyncio.Event) -> None:
    """Be a member of the group until told to leave."""
    client = await asyncio.to_thread(Client, namesrv)
    consumer = await asyncio.to_thread(client.group_consumer, CONSUMER, ["bills"])
    await asyncio.to_thread(consumer.poll, 0.5)
    joined.set()
    await leave.wait()
    await asyncio.to_thread(consumer.close)
    await asyncio.to_thread(client.close)


async def test_a_shard_is_emptied_and_taken_back(real: Real) -> None:
    moves, topics = RebalanceReconciler(real.context()), TopicReconciler(real.context())
    real.apply("ImagoTopic", "moving", topicName="moving", partitions=2, placement={"count": 1})
    await real.until(topics, "moving", lambda s: total(s) == 2)
    real.apply("ImagoRebalance", "out", mode="Drain", shards=[1])
    status = await real.until(moves, "out", lambda s: s.get("phase") == "Succeeded")
    assert status["progress"]["remaining"] == 0
    seen = await real.contents.topics(real.addresses)
    assert all(1 not in topic.open_on for topic in seen.values())
    assert seen["moving"].open_on == {0}
    await real.rests(moves, "out")
    await real.rests(topics, "moving")
    epoch = await real.admin.raise_epoch(real.addresses)
    left = await real.closed(1)
    if left.nothing:
        await real.admin.mark_drained(real.addresses, 1, operator_epoch=epoch)
    with pytest.raises(BlockedError, match="takes new topics"):
        await real.admin.mark_drained(real.addresses, 0, operator_epoch=epoch)
    await real.admin.uncordon(real.addresses, 1, operator_epoch=epoch)
    shards = await real.contents.shards(real.addresses)
    assert shards[1] == SeenShard(id=1)
    fills = RebalanceReconciler(real.context())
    real.apply("ImagoRebalance", "in", mode="Fill", shards=[1])
    await real.until(fills, "in", lambda s: s.get("phase") == "Succeeded")
    seen = await real.contents.topics(real.addresses)
    assert seen["moving"].open_on == {0}, "its resource says on how many shards it is"
    assert all(1 in t.open_on for t in seen.values() if t.name != "moving" and not t.derived)


async def test_single_topics_are_moved_by_name(real: Real) -> None:
    moves = RebalanceReconciler(real.context())
    epoch = await real.admin.raise_epoch(real.addresses)
    for name in ("one", "two"):
        body = {"queues": 2, "shards": [0]}
        await real.contents.put_topic(real.addresses, name, body, operator_epoch=epoch)
    real.apply("ImagoRebalance", "one-out", mode="Drain", shards=[0],
               topics={"include": ["on*"]}, concurrentTopics=1)  # fmt: skip
    await real.until(moves, "one-out", lambda s: s.get("phase") == "Succeeded")
    seen = await real.contents.topics(real.addresses)
    assert [set(seen[name].open_on) for name in ("one", "two")] == [{1}, {0}]


async def test_an_operator_that_was_followed_by_another_changes_nothing(real: Real) -> None:
    old = await real.admin.raise_epoch(real.addresses)
    assert await real.admin.raise_epoch(real.addresses) == old + 1
    for change in (
        real.contents.put_topic(real.addresses, "late", {"queues": 1}, operator_epoch=old),
        real.contents.delete_topic(real.addresses, "bills", operator_epoch=old),
        real.contents.drain(real.addresses, 1, request_id="r", move=True, operator_epoch=old),
        real.admin.cordon(real.addresses, 1, operator_epoch=old),
    ):
        with pytest.raises(StaleOperatorError):
            await change
    assert "late" not in await real.contents.topics(real.addresses)
    with pytest.raises(InvalidError, match="shards"):
        await real.contents.put_topic(
            real.addresses, "late", {"queues": 1, "shards": 9}, operator_epoch=old + 1
        )
