"""Names that may become folders, and names that may not."""

from __future__ import annotations

import pytest

from imago_broker.model import names


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
    assert names.is_system("IMAGO_META")
    assert names.is_system("rmq_sys_wheel_timer")
    assert not names.is_system("orders")
    assert names.is_derived(names.dlq_topic("g"))
    assert not names.is_derived("RETRY")
