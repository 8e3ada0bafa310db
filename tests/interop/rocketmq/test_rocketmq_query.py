"""Original RocketMQ look-ups: by offset id, by unique id, by key."""

from __future__ import annotations

import pytest

from imago_testing.interop.rocketmq import Admin, Outgoing, Received, RocketmqClient
from imago_testing.java.driver import DriverError
from imago_testing.processes.servers import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.shows("query")]


@pytest.mark.both_clients
def test_message_is_found_by_both_of_its_ids(
    rocketmq: RocketmqClient, admin: Admin, topic: str
) -> None:
    with rocketmq.producer() as producer:
        [sent] = producer.send(topic, [Outgoing(body=b"find me", tags="T", keys="K")])
    by_offset_id = admin.by_id(topic, sent.offset_id)
    by_unique_id = indexed_by_id(admin, topic, sent.id)
    for found in (by_offset_id, by_unique_id):
        assert (found.body, found.tags, found.keys) == (b"find me", "T", "K")
        assert (found.queue.topic, found.queue.queue) == (topic, sent.queue.queue)
        assert found.offset == sent.offset


def test_unknown_offset_id_is_an_error(rocketmq: RocketmqClient, admin: Admin, topic: str) -> None:
    with rocketmq.producer() as producer:
        [sent] = producer.send(topic, [Outgoing(body=b"here")])
    nowhere = sent.offset_id[:16] + "00000FFFFFFFFFFF"
    with pytest.raises(DriverError):
        admin.by_id(topic, nowhere)


def test_messages_are_found_by_any_of_their_keys(
    rocketmq: RocketmqClient, admin: Admin, topic: str
) -> None:
    with rocketmq.producer() as producer:
        producer.send(
            topic,
            [
                Outgoing(body=b"one", keys="apple"),
                Outgoing(body=b"two", keys="apple pear"),
                Outgoing(body=b"three", keys="pear"),
            ],
        )
    assert indexed(admin, topic, "apple", 2) == [b"one", b"two"]
    assert indexed(admin, topic, "pear", 2) == [b"three", b"two"]


def test_key_that_nobody_used_is_an_error(admin: Admin, topic: str) -> None:
    with pytest.raises(DriverError) as caught:
        admin.by_key(topic, "no-such-key")
    assert "no message" in caught.value.text


def indexed_by_id(admin: Admin, topic: str, unique_id: str) -> Received:
    found: list[Received] = []

    def there() -> bool:
        try:
            found.append(admin.by_id(topic, unique_id))
        except DriverError:
            return False
        return True

    wait_until(there, seconds_max=60, what=f"the message with the unique id {unique_id}")
    return found[0]


def indexed(admin: Admin, topic: str, key: str, count: int) -> list[bytes]:
    """The bodies under a key, sorted, once the index of the broker has `count` of them."""
    found: list[Received] = []

    def there() -> bool:
        try:
            found[:] = admin.by_key(topic, key)
        except DriverError:
            return False
        return len(found) >= count

    wait_until(there, seconds_max=60, what=f"{count} messages under the key {key}")
    return sorted(each.body for each in found)
