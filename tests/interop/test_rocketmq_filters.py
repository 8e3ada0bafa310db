"""SQL92 filters: what original clients receive, and what original brokers say of an expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.core.sql92.errors import FilterError
from imago_broker.core.sql92.filters import PropertyFilter
from imago_testing.interop.rocketmq import Outgoing
from imago_testing.interop.sql92 import Expressions, original_answers, property_string
from imago_testing.java.driver import DriverError
from imago_testing.java.modules import ROCKETMQ4_SERVER, ROCKETMQ5_SERVER
from imago_testing.searching import examples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imago_testing.interop.rocketmq import Received, RocketmqClient
    from imago_testing.interop.sql92 import Case
    from imago_testing.java.modules import JavaModule

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.shows("filter")]
PARSE_FAILED = 23
ONLY_NEWER = ("CONTAINS", "STARTSWITH", "ENDSWITH")
"""Words that RocketMQ 4.9 does not know."""


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


@pytest.mark.parametrize("module", [ROCKETMQ4_SERVER, ROCKETMQ5_SERVER], ids=["4.9", "5"])
def test_filters_decide_as_the_original_s(module: JavaModule, tmp_path: Path) -> None:
    made = Expressions(92)
    cases = [made.case() for _ in range(examples(20_000))]
    # The original's decoder of records drops properties without a value, which is not asked here.
    cases = [(text, {k: v for k, v in given.items() if v}) for text, given in cases]
    if module is ROCKETMQ4_SERVER:
        cases = [case for case in cases if not any(word in case[0].upper() for word in ONLY_NEWER)]
    theirs = original_answers(module, tmp_path, cases)
    assert len(theirs) == len(cases)
    different = [
        (case, ours, other)
        for case, other in zip(cases, theirs, strict=True)
        if (ours := decision(case)) != (other if other in ("true", "refused") else "false")
        # What follows a whole expression is an error here and nothing to the original.
        and not ours.endswith("the end of the expression")
        and not (ours.startswith("refused") and other.startswith("refused"))
    ]
    assert different == []
    assert {"true", "false", "null", "thrown"} <= {answer.split()[0] for answer in theirs}


def decision(case: Case) -> str:
    """Return true, false, or refused and why."""
    expression, properties = case
    try:
        found = PropertyFilter(expression)
    except FilterError as error:
        return f"refused {error}"
    return "true" if found.matches(property_string(properties)) else "false"
