"""What is of a wrong kind is refused in our words, before anything is opened; by both clients."""

from __future__ import annotations

import asyncio
import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest

import imago_client
from imago_broker.model.names import PARTITIONS_MAX
from imago_client import (
    ClientConfig,
    ConsumerConfig,
    Message,
    MessageQueue,
    ProducerConfig,
    RetryLater,
    StartFrom,
    UsageError,
    batches,
    blocking,
    messages,
)
from imago_client.blocking.metaq_group import MetaqGroupConsumer as BlockingMetaqMember
from imago_client.core.administration.topic_changes import QUEUES_MAX
from imago_client.metaq import MetaqClient, MetaqConfig, MetaqSessionFactory
from imago_client.metaq.groups.group_config import MetaqGroupConsumerConfig
from imago_client.metaq.reading.consumer import MetaqConsumerConfig
from imago_client.metaq.values import put_command

if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY = "127.0.0.1:1"
PYTHONS = re.compile(
    "NoneType|argument of type|has no attribute|not supported between|unhashable|object is not"
    "|expected a|must be str|codec|positional"
)
FACES = {"asyncio": imago_client.Client, "blocking": blocking.Client}
QUEUE = MessageQueue("orders", "a", 0)
ORDER = Message("orders", b"x")


def refused(call: Callable[[], Any], said: str) -> None:
    """The call raises a UsageError, at once or when it is awaited."""

    async def made() -> None:
        found = call()
        if inspect.isawaitable(found):
            await found

    with pytest.raises(UsageError) as caught:
        asyncio.run(made())
    text = str(caught.value)
    assert text.startswith(said), text
    assert PYTHONS.search(text) is None, text
    assert len(text) < 240, text


async def handler(_: object) -> None:
    pass


WRONG_MESSAGES: list[tuple[dict[str, Any], str]] = [
    ({"topic": 5}, "topic: 5, must be text"),
    ({"topic": None}, "topic: None, must be text"),
    ({"body": None}, "body: None, must be bytes"),
    ({"body": "x"}, "body: 'x', must be bytes (text: .encode() it)"),
    ({"flag": "x"}, "flag: 'x', must be a number"),
    ({"flag": True}, "flag: True, must be a number"),
    ({"delay_level": True}, "delay_level: True, must be a whole number, 0 to 18"),
    ({"delay_level": "x"}, "delay_level: 'x'"),
    ({"delay_level": messages.DELAY_LEVEL_MAX + 1}, "delay_level: 19, must be a whole number"),
    ({"delay_ms": 1.5}, "delay_ms: 1.5"),
    ({"delay_ms": True}, "delay_ms: True"),
    ({"deliver_at_ms": "x"}, "deliver_at_ms: 'x'"),
    ({"ordering_key": 5}, "ordering_key: 5, must be text"),
    ({"keys": "x"}, "keys: 'x', must be a tuple"),
    ({"properties": {5: "a"}}, "properties: {5: 'a'}, must be a dict of texts"),
    ({"properties": {"a": 5}}, "properties: {'a': 5}, must be a dict of texts"),
    ({"properties": [("a", "b")]}, "properties: [('a', 'b')], must be a dict"),
    ({"properties": []}, "properties: [], must be a dict"),
    ({"properties": None}, "properties: None, must be a dict"),
    ({"tags": 5}, "tags: 5, must be text"),
    ({"tags": " "}, "tags: ' ', must be one name"),
    ({"tags": "a||b"}, "tags: 'a||b', must be one name"),
    ({"tags": "a|b"}, "tags: 'a|b', must be one name"),
    ({"tags": "*"}, "tags: '*', must be one name"),
    ({"tags": "\n"}, "tags: '\\n', must be one name"),
    ({"tags": "a\n"}, "tags: 'a\\n', must be one name"),
    ({"tags": " a"}, "tags: ' a', must be one name"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG_MESSAGES)
def test_a_message_is_made_of_what_it_says(wrong: dict[str, Any], said: str) -> None:
    refused(lambda: Message(**({"topic": "orders", "body": b"x"} | wrong)), said)


@pytest.mark.parametrize("tag", ["paid", "a b", "\u00a0x", "ß", "**", ""])
def test_a_tag_that_somebody_can_ask_for_is_taken(tag: str) -> None:
    assert Message("orders", b"x", tags=tag).tags == tag


@pytest.mark.parametrize(
    ("kind", "wrong", "said"),
    [
        (ClientConfig, {"sends_max": "x"}, "sends_max: 'x', must be a whole number"),
        (ClientConfig, {"sends_max": 1.5}, "sends_max: 1.5, must be a whole number"),
        (ClientConfig, {"request_timeout_s": "x"}, "request_timeout_s: 'x', must be a number"),
        (ClientConfig, {"idle_s_max": float("nan")}, "idle_s_max: nan, must be above 0"),
        (ClientConfig, {"bootstrap": 5}, "bootstrap: 5, must be a tuple"),
        (ClientConfig, {"bootstrap": "b:1"}, "bootstrap: 'b:1', must be a tuple"),
        (ClientConfig, {"user": 5, "password": "p"}, "user: 5, must be text"),
        (ClientConfig, {"user": "u", "password": 5}, "password: '…', must be text"),
        (ClientConfig, {"tls_ca_file": 5}, "tls_ca_file: 5, must be the path"),
        (ProducerConfig, {"send_timeout_s": "x"}, "send_timeout_s: 'x', must be a number"),
        (ProducerConfig, {"retries_max": True}, "retries_max: True, must be a whole number"),
        (ProducerConfig, {"retries_max": -1}, "retries_max: -1, must be a whole number, at least"),
        (ProducerConfig, {"idempotent": "no"}, "idempotent: 'no', must be True or False"),
        (ProducerConfig, {"group": 5}, "producer group: 5, must be text"),
        (ConsumerConfig, {"group": 5}, "consumer group: 5, must be text"),
        (ConsumerConfig, {"start_timestamp_ms": "x"}, "start_timestamp_ms: 'x', must be a whole"),
        (ConsumerConfig, {"start_timestamp_ms": -1}, "start_timestamp_ms: -1, must be a whole"),
        (ConsumerConfig, {"start_from": "timestamp"}, "start_from: timestamp needs start_time"),
        (ConsumerConfig, {"start_from": StartFrom.TIMESTAMP}, "start_from: timestamp needs"),
        (ConsumerConfig, {"concurrency": None}, "concurrency: None, must be a whole number"),
        (ConsumerConfig, {"reconsume_times_max": "x"}, "reconsume_times_max: 'x'"),
        (MetaqConfig, {"servers": 5}, "servers: 5, must be a tuple"),
        (MetaqConfig, {"heartbeat_s": "x"}, "heartbeat_s: 'x', must be a number"),
        (MetaqConfig, {"zookeeper": 5}, "zookeeper: 5, must be text"),
        (MetaqConsumerConfig, {"group": 5}, "group: 5, must be text"),
        (MetaqConsumerConfig, {"commit_s": 0}, "commit_s: 0, must be above 0"),
        (MetaqGroupConsumerConfig, {"group": None}, "group: None, must be text"),
        (MetaqGroupConsumerConfig, {"fetch_bytes": "x"}, "fetch_bytes: 'x'"),
    ],
)
def test_settings_are_of_their_kinds(kind: type, wrong: dict[str, Any], said: str) -> None:
    least: dict[str, Any] = {"bootstrap": (NOBODY,)} if kind is ClientConfig else {}
    if kind is MetaqConfig:
        least = {"servers": (NOBODY,)}
    if "group" in kind.__dataclass_fields__:  # type: ignore[attr-defined]
        least = {"group": "g"}
    refused(lambda: kind(**(least | wrong)), said)


def member(client: Any, config: Any, topics: Any) -> Any:
    if isinstance(client, imago_client.Client):
        return client.push_consumer(config, topics, handler)
    return client.group_consumer(config, topics)


CALLS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda c: c.producer().send(b"x"), "message: b'x', must be a Message"),
    (lambda c: c.producer().send(None), "message: None, must be a Message"),
    (lambda c: c.producer().send([ORDER]), "message: [Message("),
    (lambda c: c.producer().send_oneway("x"), "message: 'x', must be a Message"),
    (lambda c: c.producer(idempotent=True).send("x"), "message: 'x', must be a Message"),
    (lambda c: c.producer().send_batch("xy"), "message: 'x', must be a Message"),
    (lambda c: c.producer().send_batch(ORDER), "batch: Message("),
    (lambda c: c.producer().send_batch([ORDER, None]), "message: None, must be a Message"),
    (lambda c: c.producer().send(ORDER, queue="x"), "queue: 'x', must be a MessageQueue"),
    (lambda c: c.producer(idempotent=True).send(ORDER, queue=1), "queue: 1, must be a MessageQ"),
    (lambda c: c.producer().queues(5), "topic: 5, must be text"),
    (lambda c: c.producer().recall(5), "handle: 5, must be text"),
    (lambda c: c.producer().reply("x", b""), "request: 'x', must be a message"),
    (lambda c: c.producer("x"), "config: 'x', must be a ProducerConfig"),
    (lambda c: c.transaction_producer([], handler), "producer group: [], must be text"),
    (lambda c: c.requester("x"), "config: 'x', must be a ProducerConfig"),
    (lambda c: c.requester().request(ORDER, timeout_s="x"), "timeout_s: 'x', must be a number"),
    (lambda c: c.requester().request("x"), "message: 'x', must be a Message"),
    (lambda c: c.pull_consumer(5), "consumer group: 5, must be text"),
    (lambda c: c.pull_consumer("g").queues(5), "topic: 5, must be text"),
    (lambda c: c.pull_consumer("g").pull("nosuch9", 0), "queue: 'nosuch9', must be a MessageQ"),
    (lambda c: c.pull_consumer("g").pull(QUEUE, "x"), "offset: 'x', must be a whole number"),
    (lambda c: c.pull_consumer("g").pull(QUEUE, 0, tags=5), "tags: 5, must be text"),
    (lambda c: c.pull_consumer("g").pull(QUEUE, 0, tags=None), "tags: None, must be text"),
    (lambda c: c.pull_consumer("g").pull(QUEUE, 0, poll_s="x"), "poll_s: 'x', must be a number"),
    (lambda c: c.pull_consumer("g").pull(QUEUE, 0, messages_max="x"), "messages_max: 'x'"),
    (lambda c: c.pull_consumer("g").min_offset(5), "queue: 5, must be a MessageQueue"),
    (lambda c: c.pull_consumer("g").max_offset(5), "queue: 5, must be a MessageQueue"),
    (lambda c: c.pull_consumer("g").end(5), "queue: 5, must be a MessageQueue"),
    (lambda c: c.pull_consumer("g").offset_at(QUEUE, "x"), "timestamp_ms: 'x', must be a whole"),
    (lambda c: c.pull_consumer("g").committed(5), "queue: 5, must be a MessageQueue"),
    (lambda c: c.pull_consumer("g").commit(QUEUE, "x"), "offset: 'x', must be a whole number"),
    (lambda c: c.pop_consumer(5), "consumer group: 5, must be text"),
    (lambda c: c.pop_consumer("g").pop(["orders"]), "topic: ['orders'], must be text"),
    (lambda c: c.pop_consumer("g").pop("orders", tags=5), "tags: 5, must be text"),
    (lambda c: c.pop_consumer("g").pop("orders", invisible_s="x"), "invisible_s: 'x', must be a"),
    (lambda c: c.pop_consumer("g").pop("orders", poll_s=None), "poll_s: None, must be a number"),
    (lambda c: c.pop_consumer("g").pop("orders", messages_max="x"), "messages_max: 'x', must be"),
    (lambda c: c.pop_consumer("g").acknowledge("x"), "messages: 'x', must be what `pop`"),
    (lambda c: c.pop_consumer("g").acknowledge(5), "messages: 5, must be a list"),
    (lambda c: c.pop_consumer("g").postpone(None, 5), "message: None, must be what `pop`"),
    (lambda c: member(c, 5, ["orders"]), "config: 5, must be a ConsumerConfig"),
    (lambda c: member(c, "g", "orders"), "topics: 'orders', must be a dict of topic and tags: {\""),
    (lambda c: member(c, "g", b"orders"), "topics: b'orders', must be a dict of topic and tags"),
    (lambda c: member(c, "g", 5), "topics: 5, must be a dict of topic and tags"),
    (lambda c: member(c, "g", None), "topics: None, must be a dict of topic and tags"),
    (lambda c: member(c, "g", [5]), "topics: (5,), must be a dict of topic and tags"),
    (lambda c: member(c, "g", []), "topics: a consumer needs at least one"),
    (lambda c: member(c, "g", {5: "*"}), "topics: (5,), must be a dict of topic and tags"),
    (lambda c: member(c, "g", {"orders": 5}), "tags: 5, must be text"),
    (lambda c: member(c, "g", {"orders": None}), "tags: None, must be text"),
    (lambda c: c.admin.create_topic(5), "topic: 5, must be text"),
    (lambda c: c.admin.create_topic("t", attributes="x"), "attributes: 'x', must be a dict"),
    (lambda c: c.admin.create_topic("t", attributes={"a": 5}), "attributes: {'a': 5}, must be"),
    (lambda c: c.admin.create_topic("t", queues=70_000), "queues: 70000, must be a whole number"),
    (lambda c: c.admin.alter_topic("t", queues="x"), "queues: 'x', must be a whole number, 1 to"),
    (lambda c: c.admin.alter_topic("t", perm="x"), "perm: 'x', must be 4"),
    (lambda c: c.admin.delete_topic(5), "topic: 5, must be text"),
    (lambda c: c.admin.topic_bounds(5), "topic: 5, must be text"),
    (lambda c: c.admin.topic_settings(5), "topic: 5, must be text"),
    (lambda c: c.admin.messages_by_key("t", 5), "key: 5, must be text"),
    (lambda c: c.admin.create_group("g"), "config: 'g', must be a SubscriptionGroupConfig"),
    (lambda c: c.admin.delete_group(5), "group: 5, must be text"),
    (lambda c: c.admin.describe_group(5), "group: 5, must be text"),
    (lambda c: c.admin.reset_group(5, "t", 0), "group: 5, must be text"),
    (lambda c: c.admin.reset_group("g", "t", None), "to: None, must be a whole number"),
]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(("call", "said"), CALLS, ids=[str(at) for at, _ in enumerate(CALLS)])
def test_a_call_is_refused_before_anything_is_opened(
    call: Callable[[Any], Any], said: str, face: str
) -> None:
    refused(lambda: call(FACES[face](NOBODY)), said)


def test_one_topic_as_a_text_is_shown_as_it_has_to_be() -> None:
    said = 'topics: \'orders\', must be a dict of topic and tags: {"orders": "*"}'
    refused(lambda: member(blocking.Client(NOBODY), "g", "orders"), said)


@pytest.mark.parametrize("topics", [["orders"], ("orders",), {"orders"}, {"orders": "*"}])
def test_names_of_topics_are_still_taken(topics: Any) -> None:
    found = member(blocking.Client(NOBODY), "g", topics)
    assert "orders" in found._subscriptions


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: imago_client.Client(5), "bootstrap: 5, must be a string"),  # type: ignore[arg-type]
        (lambda: list(batches("x")), "message: 'x', must be a Message"),  # type: ignore[arg-type]
        (lambda: RetryLater("x"), "delay_level: 'x', must be a whole"),  # type: ignore[arg-type]
        (lambda: blocking.Client(NOBODY).pull_consumer("g").scan(5, 0, 1), "queue: 5, must be"),  # type: ignore[arg-type]
        (lambda: MetaqClient(5), "servers: 5, must be text"),  # type: ignore[arg-type]
        (lambda: MetaqSessionFactory(5), "zookeeper: 5, must be text"),  # type: ignore[arg-type]
        (lambda: put_command(5, b"", None, None, 0), "topic: 5, must be text"),  # type: ignore[arg-type]
        (lambda: put_command("t", b"", 5, None, 0), "attribute: 5, must be text"),  # type: ignore[arg-type]
        (lambda: put_command("t", None, None, None, 0), "payload: None, must be bytes"),  # type: ignore[arg-type]
        (
            lambda: MetaqClient(NOBODY).consumer("g", "orders", handler),
            "topics: 'orders', must be a list of names: [\"orders\"]",
        ),
        (
            lambda: BlockingMetaqMember(
                None,  # type: ignore[arg-type]
                None,  # type: ignore[arg-type]
                MetaqGroupConsumerConfig(group="g"),
                "orders",
                None,  # type: ignore[arg-type]
            ),
            "topics: 'orders', must be a list of names",
        ),
    ],
)
def test_what_one_client_alone_has(call: Callable[[], Any], said: str) -> None:
    refused(call, said)


def test_topics_have_as_many_queues_as_brokers_give_them() -> None:
    assert QUEUES_MAX == PARTITIONS_MAX


def test_a_value_of_another_kind_is_a_type_error_as_well() -> None:
    given: dict[str, Any] = {"topic": "orders", "body": b"x"}
    for other in ({"tags": 5}, {"body": "x"}, {"keys": "one"}, {"topic": 7}, {"flag": "x"}):
        with pytest.raises(TypeError) as caught:
            Message(**(given | other))
        assert isinstance(caught.value, UsageError)
    with pytest.raises(UsageError) as refused_value:
        Message("orders", b"x", tags="a||b")
    assert not isinstance(refused_value.value, TypeError)
