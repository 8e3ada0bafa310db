"""Filters of groups: runs of accepted messages, and moves to the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_broker.core.metaq.metaq_filters import GroupFilter, first_run
from imago_broker.core.sql92.errors import FilterError
from imago_broker.errors import RequestError
from imago_broker.model.topics.topics import TopicConfig
from imago_testing.peers.metaq import MetaqPeer, put_place, value_body
from imago_testing.searching import examples

if TYPE_CHECKING:
    from imago_broker.app import Broker


def attributed(attribute: str, payload: bytes) -> bytes:
    name = attribute.encode()
    return len(name).to_bytes(4, "big") + name + payload


async def put_all(peer: MetaqPeer, words: str) -> list[int]:
    """Put a message for each word, its first letter its attribute; return where they begin."""
    places = []
    for word in words.split():
        body = attributed(word[0], word.encode())
        places.append(put_place(await peer.put("test", 0, body, flag=1))[2])
    return places


def filtered(broker: Broker, **filters: str) -> None:
    attributes = {f"metaq.filter.{group}": text for group, text in filters.items()}
    old = broker.topics.get("test")
    assert old is not None
    config = TopicConfig(name="test", read_queues=4, write_queues=4, attributes=attributes)
    broker.topics.create_or_update(config)


async def asked(peer: MetaqPeer, offset: int, size: int = 1000, group: str = "gf") -> bytes:
    return await peer.ask(b"get test %b 0 %d %d 3\r\n" % (group.encode(), offset, size))


async def test_a_group_gets_runs_of_what_it_wants_and_is_sent_on_over_the_rest(
    broker: Broker, peer: MetaqPeer
) -> None:
    """The log of the captured original: b1 a1 b2 a2 b3 b4, of which the group gets a's."""
    at = await put_all(peer, "b1 a1 b2 a2 b3 b4")
    size = at[1]
    end = 6 * size
    filtered(broker, gf="tags: a || x", other="sql: TAGS = 'b'")
    assert await asked(peer, 0) == b"result 301 %d 3\r\n%d" % (len(str(size)), at[1])
    assert value_body(await asked(peer, at[1]))[-2:] == b"a1"
    assert len(value_body(await asked(peer, at[1]))) == size, "b2 follows, and is not in it"
    assert (await asked(peer, at[2])).endswith(b"\r\n%d" % at[3])
    assert (await asked(peer, at[4])).endswith(b"\r\n%d" % end)
    assert (await asked(peer, end)).startswith(b"result 404 ")
    # A size below one message: all of it, or on to the next; never the same place again.
    assert len(value_body(await asked(peer, at[3], 10))) == size
    assert (await asked(peer, at[4], 10)).endswith(b"\r\n%d" % at[5])
    assert value_body(await asked(peer, at[4], group="other")).count(b"b") == 4
    assert len(value_body(await asked(peer, 0, group="none"))) == end, "no filter, all of it"


async def test_a_consumer_that_follows_the_answers_gets_each_wanted_message_once(
    broker: Broker, peer: MetaqPeer
) -> None:
    words = " ".join(("a" if number % 3 else "b") + str(number) for number in range(60))
    await put_all(peer, words)
    filtered(broker, gf="sql: TAGS IN ('a', 'c')")
    position, found = 0, b""
    while not (answer := await asked(peer, position, 120)).startswith(b"result 404"):
        if answer.startswith(b"value"):
            found += value_body(answer)
            position += len(value_body(answer))
        else:
            position = int(answer.partition(b"\r\n")[2])
    assert [word.encode() in found for word in words.split()] == [
        word.startswith("a") for word in words.split()
    ]


async def test_a_filter_that_is_none_is_refused(broker: Broker) -> None:
    for text in ("com.example.Filter", "tags:", "tags: a || ", "sql: TAGS =", "x" * 5000):
        with pytest.raises(RequestError, match=r"metaq\.filter\.gf"):
            filtered(broker, gf=text)


async def test_a_filter_ends_with_its_topic_and_its_setting(
    broker: Broker, peer: MetaqPeer
) -> None:
    await put_all(peer, "b1")
    filtered(broker, gf="tags: a")
    assert (await asked(peer, 0)).startswith(b"result 301")
    filtered(broker)
    assert (await asked(peer, 0)).startswith(b"value")


def test_tags_compare_the_attribute_as_a_whole() -> None:
    wanted = GroupFilter("tags:red||blue green")
    assert wanted.accepts(b"red")
    assert wanted.accepts(b"blue green")
    assert not wanted.accepts(b"re")
    assert not wanted.accepts(None)
    assert GroupFilter("sql: TAGS IS NULL").accepts(None)
    with pytest.raises(FilterError):
        GroupFilter("")


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b""]), st.binary(max_size=20))), st.data())
@settings(max_examples=examples(300))
def test_the_first_run_is_what_a_plain_search_finds(
    messages: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    stored = [
        (len(body).to_bytes(4, "big") + bytes(8 + 4) + (1).to_bytes(4, "big") + body, name == b"a")
        for name, payload in messages
        for body in [len(name).to_bytes(4, "big") + name + payload]
    ]
    whole = b"".join(message for message, _ in stored)
    cut = data.draw(st.integers(0, len(whole)))
    start, at, size = None, 0, 0
    for message, accepted in stored:
        if at + len(message) > cut:
            break
        if accepted and start is None:
            start = at
        if not accepted and start is not None:
            break
        at += len(message)
        size += len(message) if start is not None else 0
    assert first_run(whole[:cut], GroupFilter("tags: a")) == (at if start is None else start, size)
