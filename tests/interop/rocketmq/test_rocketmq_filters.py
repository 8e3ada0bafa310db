"""SQL92 filters: what original clients receive, and what a bad expression does to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.rocketmq import Outgoing
from imago_testing.java.driver import DriverError

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_testing.interop.rocketmq import Received, RocketmqClient

pytestmark = [pytest.mark.interop]
PARSE_FAILED = 23


def priced(first: int, last: int) -> list[Outgoing]:
    """Messages with their number as price, every third without."""
    return [
        Outgoing(
            body=f"{n}".encode(),
            tags="even" if n % 2 == 0 else "odd",
            properties={"price": f"{n}", "city": "Köln"} if n % 3 else {},
        )
        for n in range(first, last)
    ]


def numbers(messages: list[Received]) -> list[int]:
    return sorted(int(each.body) for each in messages)


@pytest.mark.shows("filter")
@pytest.mark.both_clients
def test_push_consumer_receives_what_its_sql_selects(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    sql = "price > 3 AND price BETWEEN 0 AND 25 AND TAGS = 'even' AND city = 'Köln'"
    wanted = [n for n in range(40) if n % 3 and n % 2 == 0 and 3 < n <= 25]
    with rocketmq.producer() as producer:
        producer.send(topic, priced(0, 20))
        with rocketmq.push(topic, unique("group"), sql=sql) as consumer:
            producer.send(topic, priced(20, 40))
            found = consumer.take(len(wanted))
            assert numbers(found) == wanted
            producer.send(topic, [*priced(2, 4), *priced(8, 9)])
            assert numbers(consumer.take(1)) == [8]


@pytest.mark.shows("filter")
@pytest.mark.both_clients
def test_lite_pull_consumer_polls_what_its_sql_selects(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    with rocketmq.producer() as producer:
        producer.send(topic, priced(0, 30))
        with rocketmq.lite(
            unique("group"), topic=topic, sql="price IS NULL OR price IN ('1')"
        ) as one:
            found = one.poll(11)
    assert numbers(found) == [n for n in range(30) if n % 3 == 0 or n == 1]


@pytest.mark.shows("filter")
@pytest.mark.both_clients
def test_consumer_with_a_bad_expression_does_not_start(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    with (
        pytest.raises(DriverError) as refused,
        rocketmq.push(topic, unique("group"), sql="price > 'ten'"),
    ):
        raise AssertionError("the consumer started")
    assert refused.value.code == PARSE_FAILED
    assert "cannot be compared" in refused.value.text
