"""Micro-batches of sinks as clients ask for them: staged, published, told again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.app import Broker
from imago_broker.cluster.memory import memory_coordinator
from imago_broker.cluster.settings import CoordinatorConfig
from imago_client import Message
from imago_client.blocking import Client
from imago_client.core.sending import staging
from imago_client.core.sending.staging import MicroBatch
from imago_client.errors import BrokerError, ProducerFencedError
from imago_client.message_queue import MessageQueue
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_pair import make, running_pair
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.headers.imago import StageBatchRequestHeader
from imago_wire.remoting.messages import encode_batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imago_testing.peers.remoting import RemotingPeer

SHARD = "shard-0"


def queues(topic: str, shard: str = SHARD) -> list[MessageQueue]:
    return [MessageQueue(topic, shard, number) for number in range(2)]


def bodies(client: Client, topic: str, shard: str = SHARD) -> list[bytes]:
    """Return what a reader gets of a topic, in each queue's order."""
    consumer, found = client.pull_consumer("readers"), list[bytes]()
    for queue in queues(topic, shard):
        at = 0
        while messages := list(consumer.pull(queue, at).messages()):
            found += [one.body for one in messages]
            at = messages[-1].offset + 1
    return found


def staged(client: Client, batch: MicroBatch, attempt: str, *messages: Message) -> dict[str, int]:
    """Stage messages, one a queue in turn; return how many parts there are by shard."""
    producer = client.producer()
    for part, message in enumerate(messages):
        queue = queues(message.topic)[part % 2]
        assert producer.stage(batch, attempt, part, queue, [message])
    return {SHARD: len(messages)}


async def on_brokers(folder: Path, *works: Callable[[Client], None]) -> None:
    """Let each work on a life of the same broker."""
    for work in works:
        async with running_broker(folder) as broker:

            def run(bootstrap: str, do: Callable[[Client], None]) -> None:
                with Client(bootstrap) as client:
                    do(client)

            await asyncio.to_thread(run, f"127.0.0.1:{broker.ports.namesrv_port}", work)


async def test_a_micro_batch_is_published_once_over_restarts(tmp_path: Path) -> None:
    batch, parts = MicroBatch("sink", 7), {}

    def stages(client: Client) -> None:
        client.admin.create_topic("orders", queues=2)
        client.producer().send(Message("orders", b"others"), queue=queues("orders")[0])
        for attempt in ("one", "two"):
            rows = [Message("orders", f"{attempt} {row}".encode()) for row in range(3)]
            parts[attempt] = staged(client, batch, attempt, *rows)
        assert bodies(client, "orders") == [b"others"]

    def publishes(client: Client) -> None:
        counted = client.producer().publish_staged(batch, "orders", {"two": parts["two"]})
        assert counted == {"two": parts["two"]}

    def asks_again(client: Client) -> None:
        assert bodies(client, "orders") == [b"others", b"two 0", b"two 2", b"two 1"]
        producer = client.producer()
        again = producer.publish_staged(batch, "orders", {"three": {SHARD: 9}})
        assert again == {"two": parts["two"]}, "it was decided"
        late = Message("orders", b"late")
        assert not producer.stage(batch, "three", 0, queues("orders")[0], [late])
        earlier = MicroBatch("sink", 6)
        with pytest.raises(ProducerFencedError, match="7 of this sink was published before"):
            producer.stage(earlier, "a", 0, queues("orders")[0], [late])
        with pytest.raises(ProducerFencedError, match="7 of this sink was published before"):
            producer.publish_staged(earlier, "orders", {"a": {SHARD: 1}})
        with pytest.raises(BrokerError, match="0 of 2 parts are staged"):
            producer.publish_staged(MicroBatch("sink", 8), "orders", {"gone": {SHARD: 2}})
        assert len(bodies(client, "orders")) == 4

    await on_brokers(tmp_path, stages, publishes, asks_again)


def staged_on_two(client: Client, batch: MicroBatch, attempt: str) -> dict[str, int]:
    """Return the parts that were taken."""
    taken = {
        shard: client.producer().stage(
            batch, attempt, 0, MessageQueue("T", shard, 0), [Message("T", attempt.encode())]
        )
        for shard in ("shard-0", "shard-1")
    }
    return {shard: 1 for shard, size in taken.items() if size}


def seen_on_two(client: Client) -> list[list[bytes]]:
    return [bodies(client, "T", shard) for shard in ("shard-0", "shard-1")]


async def test_a_micro_batch_on_two_shards_outlives_its_driver_and_the_deciding_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = MicroBatch("sink", 7)
    publish_on = staging._publish_on

    def dies(state: Any, config: Any, of: Any, topic: str, shard: str, parts: Any) -> Any:
        if shard == "shard-1":
            raise RuntimeError("planted: the driver ends between the two")
        return publish_on(state, config, of, topic, shard, parts)

    def first(bootstrap: str) -> None:
        with Client(bootstrap) as client, monkeypatch.context() as planted:
            one, two = staged_on_two(client, batch, "one"), staged_on_two(client, batch, "two")
            assert one == two == {"shard-0": 1, "shard-1": 1}
            planted.setattr(staging, "_publish_on", dies)
            with pytest.raises(RuntimeError, match="planted"):
                client.producer().publish_staged(batch, "T", {"two": two})
            assert seen_on_two(client) == [[b"two"], []]

    def again(bootstrap: str) -> None:
        with Client(bootstrap) as client:
            three = staged_on_two(client, batch, "three")
            assert three == {"shard-1": 1}, "the first has decided"
            for _ in range(2):
                counted = client.producer().publish_staged(batch, "T", {"three": three})
                assert counted == {"two": {"shard-0": 1, "shard-1": 1}}
                assert seen_on_two(client) == [[b"two"], [b"two"]]

    async with running_pair(tmp_path) as pair:
        for admin in (pair.one, pair.two):
            make(admin, "T")
        bootstrap = f"127.0.0.1:{pair.two.broker.ports.namesrv_port}"
        await asyncio.to_thread(first, bootstrap)
        await pair.one.broker.stop()
        registry = CoordinatorConfig(session_timeout_ms=60_000)
        restarted = Broker(
            pair.one.broker.config, coordinator=memory_coordinator(registry, pair.ensemble)
        )
        await restarted.start()
        await asyncio.to_thread(again, bootstrap)
        await restarted.stop()


async def test_what_is_forgotten_is_never_read(tmp_path: Path) -> None:
    def work(client: Client) -> None:
        client.admin.create_topic("orders", queues=2)
        batch, producer = MicroBatch("sink", 0), client.producer()
        parts = staged(client, batch, "one", Message("orders", b"1"), Message("orders", b"2"))
        producer.forget_staged(batch, "orders")
        with pytest.raises(BrokerError, match="0 of 2 parts are staged"):
            producer.publish_staged(batch, "orders", {"one": parts})
        assert bodies(client, "orders") == []

    await on_brokers(tmp_path, work)


async def test_staged_messages_have_all_that_messages_have(tmp_path: Path) -> None:
    def work(client: Client) -> None:
        client.admin.create_topic("orders", queues=2)
        batch, queue = MicroBatch("sink", 0), queues("orders")[0]
        message = Message(
            "orders", b"body", tags="paid", keys=("k1", "k2"), flag=5, properties={"own": "ü"}
        )
        now = client.producer()
        later = Message("orders", b"later", delay_ms=60_000, keys=("later",))
        soon = Message("orders", b"soon", delay_ms=1)
        parts = staged(client, batch, "one", message, later, soon)
        now.publish_staged(batch, "orders", {"one": parts})
        (found,) = [one for one in client.pull_consumer("g").pull(queue, 0).messages() if one.tags]
        assert (found.body, found.tags, found.keys) == (b"body", "paid", ("k1", "k2"))
        assert found.properties["own"] == "ü"
        assert b"later" not in bodies(client, "orders"), "it waits for its time"

    await on_brokers(tmp_path, work)


@pytest.mark.parametrize(
    ("change", "properties", "wanted"),
    [
        ({"imago_attempt": "a b"}, "UNIQ_KEY\x011\x02", "the name of an attempt"),
        ({"imago_batch": -1}, "UNIQ_KEY\x011\x02", "numbers of 0 or more"),
        ({"imago_sink": ""}, "UNIQ_KEY\x011\x02", "1 to 255 characters"),
        ({"imago_sink": "s" * 256}, "UNIQ_KEY\x011\x02", "1 to 255 characters"),
        ({"queue_id": -1}, "UNIQ_KEY\x011\x02", "needs a queue"),
        ({}, "", "needs its UNIQ_KEY"),
        ({}, "UNIQ_KEY\x011\x02TRAN_MSG\x01true\x02", "no transaction of its own"),
        ({}, "UNIQ_KEY\x011\x02DELAY\x01x\x02", "DELAY is no number"),
        ({}, "UNIQ_KEY\x011\x02TIMER_DELAY_MS\x0199999999999999\x02", "timer message illegal"),
        (
            {},
            f"UNIQ_KEY\x011\x02TIMER_DELAY_MS\x019000\x02own\x01{'x' * 32_700}\x02",
            "properties: ",
        ),
        ({"sys_flag": 1}, "UNIQ_KEY\x011\x02", "illegal"),
        ({"topic": "%RETRY%g"}, "UNIQ_KEY\x011\x02", ""),
    ],
)
async def test_what_cannot_be_staged_is_refused(
    peer: RemotingPeer, change: dict[str, object], properties: str, wanted: str
) -> None:
    fields = {
        "producer_group": "g",
        "topic": "TopicTest",
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1,
        "flag": 0,
        "batch": True,
        "imago_sink": "sink",
        "imago_batch": 1,
        "imago_attempt": "a",
        "imago_part": 0,
    }
    header = StageBatchRequestHeader(**(fields | change))  # type: ignore[arg-type]
    body = encode_batch([(b"body", properties.encode(), 0)])
    answer = await peer.call(RequestCode.IMAGO_STAGE_BATCH, header.to_ext(), body)
    assert answer.code != 0
    assert wanted in (answer.remark or "")
    topics = await peer.call(RequestCode.GET_ALL_TOPIC_CONFIG, {})
    assert b"%RETRY%g" not in topics.body, "nothing is made of what is refused"
