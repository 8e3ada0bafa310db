"""MetaQ's tree in ZooKeeper with original clients at work, and what their tools read of brokers."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from imago_broker.core.metaq.metaq_tree_check import TreeNode, check_tree
from imago_testing.interop.metaq import MetaqClient, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.interop, pytest.mark.shows("admin")]
RESULT = re.compile(
    r"Count=\d+,Value=\d+,Value/Count=(\d+(\.\d\d?)?|invalid),"
    r"Count/Duration=(\d+(\.\d\d?)?|invalid),Duration=\d+"
)
"""What the monitor's probe of real-time statistics takes apart."""


@contextmanager
def zookeeper(address: str) -> Iterator[KazooClient]:
    client = KazooClient(address)
    client.start(timeout=50)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def read(client: KazooClient, path: str) -> Iterator[tuple[str, TreeNode]]:
    try:
        data, stat = client.get(path)
    except NoNodeError:
        return
    yield path, TreeNode((data or b"").decode(), stat.ephemeralOwner != 0)
    if stat.numChildren:
        for name in client.get_children(path):
            yield from read(client, f"{path}/{name}")


def test_nothing_in_the_tree_misleads_clients(
    metaq: MetaqClient, metaq_topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("g")
    with (
        metaq.factory() as factory,
        factory.producer([metaq_topic]) as producer,
        factory.consumer([metaq_topic], group) as consumer,
    ):
        producer.send(metaq_topic, [Put(b"x")] * 8)
        consumer.take(8)
        with zookeeper(metaq.zookeeper) as client:
            nodes = dict(read(client, "/meta"))
    assert nodes[f"/meta/brokers/topics/{metaq_topic}/0-m"] == ("4", True)
    assert nodes[f"/meta/brokers/topics-sub/{metaq_topic}/0-m"].ephemeral
    members = [path for path in nodes if path.startswith(f"/meta/consumers/{group}/ids/")]
    assert len(members) == 1
    mine = (f"/meta/consumers/{group}/", "/meta/brokers/")
    wrong = [each for each in check_tree(nodes, "/meta") if each.path.startswith(mine)]
    assert wrong == []


def test_statistics_have_the_form_that_the_originals_tools_take_apart(
    metaq: MetaqClient, metaq_topic: str
) -> None:
    with metaq.factory() as factory, factory.producer([metaq_topic]) as producer:
        producer.send(metaq_topic, [Put(b"12345")] * 16)
        factory.browse(metaq_topic)
        whole, offsets = factory.stats(), factory.stats("offsets")
        topics, of_topic = factory.stats("topics"), factory.stats(metaq_topic)
        realtime, told = factory.stats("realtime"), factory.stats("help")
    for address, state in whole.items():
        assert {"STATS", "END", "pid", "uptime", "total_messages"} <= set(state)
        assert state["cmd_put"].isdecimal()
        # The monitor: seven words a line, of which the client's parser keeps the last one's.
        words = offsets[address][metaq_topic].split(" ")
        assert [words[0], words[2], words[4]] == ["part", "min_offset", "max_offset"]
        assert len(words) == 6
        assert topics[address][metaq_topic].startswith("partitions ")
        assert of_topic[address]["resultCode"] == "0"
        assert of_topic[address]["bytes"].isdecimal()
        for name in ("put", "message_size"):
            assert RESULT.fullmatch(of_topic[address][f"topic_realtime_{name}"])
            assert RESULT.fullmatch(realtime[address][f"realtime_{name}"])
        assert told[address]["offsets"] == "Returns partitions detail info."
