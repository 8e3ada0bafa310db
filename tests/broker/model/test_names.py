"""Names that may become folders, and names that may not."""

from __future__ import annotations

import pytest

from imago_broker.model import names
from imago_broker.model.topics.system_topics import system_topics
from imago_wire.system_topics import SYSTEM_TOPICS


@pytest.mark.parametrize(
    "name",
    ["test", "a.b", "a-b_c", "%RETRY%group", "%DLQ%" + "g" * 200, "x" * 127, "A|b", "0", "-"],
)
def test_topic_is_allowed(name: str) -> None:
    assert names.topic_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".hidden",
        "../etc/passwd",
        "a/b",
        "a\\b",
        "a\0b",
        "a b",
        "a@b",
        "a\n",
        "x" * 128,
        "%RETRY%" + "g" * 249,
        "tøpic",
        "主题",
        "a%2e%2e/",
        "a" * 4096,
        "\u0660",
    ],
)
def test_topic_is_refused(name: str) -> None:
    assert names.topic_problem(name)


@pytest.mark.parametrize("name", ["", "a/b", "../g", "g\0", "a@b", "g" * 256, "grüppe"])
def test_group_is_refused(name: str) -> None:
    assert names.group_problem(name)


def test_group_is_allowed_where_its_retry_topic_is() -> None:
    group = "g" * 248
    assert names.group_problem(group) is None
    assert names.topic_problem(names.retry_topic(group)) is None


def test_system_topics_are_told_apart() -> None:
    assert names.is_system("IMAGO_META", "c")
    assert names.is_system("rmq_sys_wheel_timer", "c")
    assert names.is_system("c_REPLY_TOPIC", "c")
    for theirs in ("orders", "rmq_sys_mine", "orders_REPLY_TOPIC"):
        assert not names.is_system(theirs, "c")
    assert names.is_derived(names.dlq_topic("g"))
    assert not names.is_derived("RETRY")


def test_every_topic_that_the_broker_names_is_in_the_list_of_its_own() -> None:
    """A topic that is missing there would be a client's, and leave a shard that is drained."""
    named = {value for name, value in vars(names).items() if name.endswith("_TOPIC")}
    made = {config.name for config in system_topics("c", 4)}
    assert named | names.CLOSED_TO_SENDERS <= SYSTEM_TOPICS
    assert {name for name in made if not names.is_system(name, "c")} == set()


def test_what_clients_may_put_into_is_nobody_elses() -> None:
    """Of the broker's own, each either takes nothing from clients or leaves with a drain."""
    theirs = SYSTEM_TOPICS - names.BROKERS_ALONE
    assert theirs == {
        names.DEFAULT_TOPIC, names.GIVEN_UP_TOPIC, "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC",
    }  # fmt: skip
