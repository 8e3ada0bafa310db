"""Long lists are searched and sorted where they are, and come in pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.admin.errors import AdminError
from imago_broker.admin.paging import page
from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics.topics import TopicConfig

if TYPE_CHECKING:
    from imago_testing.peers.admin import Admin

NAMES = [f"orders-{number:05d}" for number in range(10_000)]


def shown(**query: str) -> dict[str, Any]:
    return page(NAMES, query, str, {"last": lambda name: name[-1]})


def test_of_ten_thousand_those_with_a_text_are_found() -> None:
    assert shown(contains="S-0999", limit="3") == {
        "items": ["orders-09990", "orders-09991", "orders-09992"],
        "next": "orders-09993",
        "total": 10,
    }
    rest = shown(contains="S-0999", limit="100", next="orders-09993")
    assert len(rest["items"]) == 7
    assert shown(contains="nothing") == {"items": [], "next": None, "total": 0}


def test_all_pages_of_another_order_are_the_whole_list() -> None:
    found: list[str] = []
    start: str | None = "0"
    while start:
        part = shown(sort="-last", limit="999", next=start)
        found += part["items"]
        start = part["next"]
    assert found[:2] == ["orders-00009", "orders-00019"]
    assert found[-1] == "orders-09990"
    assert sorted(found) == NAMES
    assert shown(sort="-name", limit="1")["items"] == ["orders-09999"]


@pytest.mark.parametrize("query", [{"sort": "age"}, {"sort": "last", "next": "x"}, {"sort": ""}])
def test_an_order_that_is_none_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(AdminError) as refused:
        shown(**query)
    assert refused.value.status == 400


async def test_topics_and_groups_are_sorted_by_what_people_look_for(admin: Admin) -> None:
    broker = admin.broker
    for name, queues in (("small", 1), ("large", 9), ("middle", 5)):
        config = TopicConfig(name=name, read_queues=queues, write_queues=queues)
        broker.topics.create_or_update(config)
        broker.groups.update(GroupConfig(name=name))
    _, topics = await admin.call("GET", "/admin/v1/topics?sort=-queues&limit=2")
    assert [topic["name"] for topic in topics["items"]] == ["large", "middle"]
    assert topics["total"] == 3
    _, groups = await admin.call("GET", "/admin/v1/groups?sort=lag&contains=L")
    assert [group["name"] for group in groups["items"]] == ["large", "middle", "small"]
    status, error = await admin.call("GET", "/admin/v1/topics?sort=size")
    assert (status, error["cure"]) == (400, "Send one of name, messages, queues, or - before it.")
