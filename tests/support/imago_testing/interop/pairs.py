"""Original producers, each with a consumer of its own, of one topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_testing.interop import streams
from imago_testing.interop.metaq import MetaqClient
from imago_testing.interop.rocketmq import RocketmqClient
from imago_testing.interop.streams import Reader, Stream
from imago_testing.java.driver import DriverError
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from contextlib import ExitStack

    from imago_testing.interop.rocketmq import Admin
    from imago_testing.java.driver import JavaDriver

Pair = tuple[Stream, Reader]


def metaq_pair(
    stack: ExitStack, driver: JavaDriver, zookeeper: str, topic: str, group: str
) -> Pair:
    """Clients of a topic that is there."""
    factory = stack.enter_context(MetaqClient(driver, zookeeper, []).factory())
    producer = stack.enter_context(factory.producer([topic]))
    consumer = stack.enter_context(factory.consumer([topic], group))
    return (
        Stream("metaq", streams.metaq_puts(producer, topic)),
        Reader("metaq consumer", streams.taking(consumer)),
    )


def rocketmq_pair(
    stack: ExitStack,
    driver: JavaDriver,
    version: int,
    namesrv: str,
    topic: str,
    *,
    retries: int | None = None,
    make: bool = True,
) -> Pair:
    """Clients of a topic that is made on every shard; the group has its name.

    `retries`: how often the producer tries again; None: as it does by default. `make`: False: the
    topic is there, as where the tool that makes it would need credentials.
    """
    client = RocketmqClient(version, driver, namesrv)
    stack.callback(client.settle)
    if make:
        admin = stack.enter_context(client.admin())
        wait_until(lambda: has_masters(admin), what="a master has a route")
        admin.create_topic(topic)
    options: dict[str, Any] = {} if retries is None else {"retries": retries}
    producer = stack.enter_context(client.producer(**options))
    streams.until_routed(producer.queues, topic)
    consumer = stack.enter_context(client.push(topic, topic))
    return (
        Stream(f"rocketmq{version}", streams.rocketmq_sends(producer, topic)),
        Reader(f"rocketmq {version} consumer", streams.taking(consumer)),
    )


def has_masters(admin: Admin) -> bool:
    """Whether the name service answers, and knows a broker."""
    try:
        return bool(admin.masters())
    except DriverError:
        return False  # the way to the name service may open a moment later than itself
