"""What waits on all shards: for its time, or for the end of a transaction."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.admin.current import waiting
from imago_broker.model.groups import GroupConfig
from imago_broker.service.delays import waiting_messages
from imago_broker.service.puts import copies
from imago_testing.clusters.shard_pair import Pair, eventually, make
from imago_testing.peers.remoting import RemotingPeer
from imago_testing.peers.transactions import ROLLBACK, end, half
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from imago_testing.peers.admin import Admin

SCHEDULED, HALVES = "/admin/v1/cluster/scheduled", "/admin/v1/cluster/halves"
HOUR_MS = 3_600_000
IDS = [f"{number:032X}" for number in range(8)]
Connect = Callable[["Admin"], Awaitable[RemotingPeer]]


@pytest.fixture
async def connect(pair: Pair) -> AsyncIterator[Connect]:
    """Connects to a broker of two that have the topics T and U."""
    for admin in (pair.one, pair.two):
        for topic in ("T", "U"):
            make(admin, topic)
    peers: list[RemotingPeer] = []

    async def opened(admin: Admin) -> RemotingPeer:
        peers.append(await RemotingPeer.connect(admin.broker.rocketmq_port))
        return peers[-1]

    yield opened
    for peer in peers:
        await peer.close()


async def shown(admin: Admin, path: str) -> list[dict[str, Any]]:
    """Return what each shard shows."""
    status, body = await admin.call("GET", path)
    assert (status, body.get("missing")) == (200, []), body
    assert [each["shard"] for each in body["items"]] == ["shard-0", "shard-1"]
    return list(body["items"])


async def ids(admin: Admin, path: str) -> list[list[int]]:
    """Return which messages each shard shows."""
    return [
        [IDS.index(one["uniqueId"]) for one in each["messages"]]
        for each in await shown(admin, path)
    ]


async def timed(peer: RemotingPeer, number: int, due_ms: int, topic: str = "T") -> str:
    """Put a message that waits until then; return its recall handle."""
    said = (
        f"TIMER_DELIVER_MS\x01{due_ms}\x02KEYS\x01k\x02TAGS\x01a\x02UNIQ_KEY\x01{IDS[number]}\x02"
    )
    sent = await peer.put(topic, b"later", properties=said)
    assert sent.code == ResponseCode.SUCCESS
    return str(sent.ext["recallHandle"])


async def delayed(peer: RemotingPeer, number: int, level: int) -> None:
    """Put a message that waits as long as a level does."""
    said = f"DELAY\x01{level}\x02UNIQ_KEY\x01{IDS[number]}\x02"
    assert (await peer.put("T", b"later", properties=said)).code == ResponseCode.SUCCESS


async def test_what_waits_is_shown_in_the_order_in_which_it_is_due(
    pair: Pair, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_messages, "UNITS_AT_ONCE", 2)
    now_ms = time.time_ns() // 1_000_000
    one, two = await connect(pair.one), await connect(pair.two)
    handle = await timed(one, 0, now_ms + 3 * HOUR_MS)
    await timed(one, 1, now_ms + HOUR_MS)
    await timed(one, 2, now_ms + 3 * HOUR_MS - 1, "U")
    await delayed(one, 3, 18)  # two hours
    await delayed(one, 4, 18)
    await delayed(one, 5, 14)  # ten minutes
    await timed(two, 6, now_ms + 2 * HOUR_MS)
    assert await ids(pair.two, SCHEDULED) == [[5, 1, 3, 4, 2, 0], [6]]
    first, second = await shown(pair.one, f"{SCHEDULED}?limit=2")
    assert (first["waiting"], first["cut"]) == (6, True)
    assert (second["waiting"], second["cut"]) == (1, False)
    level, timer = first["messages"]
    assert (level["level"], level["recallHandle"], level["topic"]) == (14, None, "T")
    assert abs(level["deliverTime"] - now_ms - 600_000) < HOUR_MS
    assert (timer["level"], timer["deliverTime"]) == (None, now_ms + HOUR_MS)
    assert (timer["keys"], timer["tags"], timer["queue"], timer["size"]) == ("k", "a", 0, 5)
    assert await ids(pair.one, f"{SCHEDULED}?topic=U") == [[2], []]
    assert await ids(pair.one, f"{SCHEDULED}?from={now_ms + 2 * HOUR_MS + 60_000}") == [[2, 0], []]
    (found,), none = [
        each["messages"] for each in await shown(pair.two, f"{SCHEDULED}?id={IDS[0]}")
    ]
    assert (found["recallHandle"], none) == (handle, [])


async def give_back(peer: RemotingPeer, group: str, times: int) -> None:
    """Have a group fail on a message of T that often."""
    await peer.put("T", b"m")
    message = (await peer.messages("T"))[0]
    asked = {"offset": message.physical_offset, "group": group, "delayLevel": 18}
    for _ in range(times):
        answer = await peer.call(RequestCode.CONSUMER_SEND_MSG_BACK, asked)
        assert answer.code == ResponseCode.SUCCESS


async def retries(admin: Admin, path: str) -> list[dict[str, Any]]:
    """Return what groups have to try again, as a list of them says it."""
    status, body = await admin.call("GET", f"/admin/v1/cluster/groups{path}")
    assert (status, body["missing"]) == (200, [])
    return [{"name": one.get("name")} | one["retries"] for one in body["items"]]


async def test_what_a_group_has_to_try_again_is_counted_on_all_shards(
    pair: Pair, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await connect(pair.one), await connect(pair.two)
    for admin in (pair.one, pair.two):
        for group in ("bad", "good"):
            admin.broker.groups.update(GroupConfig(name=group))
    await delayed(one, 0, 18)  # of a producer: no group has to try it again
    await give_back(one, "bad", 3)
    await give_back(two, "bad", 1)
    await give_back(two, "good", 1)
    bad, good = (
        {"name": name, "waiting": waiting, "cut": False}
        for name, waiting in (("bad", 4), ("good", 1))
    )
    assert await retries(pair.two, "?retries=true&group=bad&group=good") == [bad, good]
    assert await retries(pair.two, "?sort=-retries&limit=1") == [bad]
    of_shards = await retries(pair.one, "/bad")
    assert [(each["waiting"], each["cut"]) for each in of_shards] == [(3, False), (1, False)]
    reads: list[int] = []
    for store in (pair.one.broker.store, pair.two.broker.store):

        def counting(*args: Any, read: Any = store.read, **more: Any) -> Any:
            reads.append(1)
            return read(*args, **more)

        monkeypatch.setattr(store, "read", counting)
    await give_back(one, "good", 1)
    asked = len(reads)
    again = await retries(pair.two, "?retries=true&group=bad&group=good")
    assert [each["waiting"] for each in again] == [4, 2]
    assert len(reads) == asked + 1, "what was read once stays known"
    monkeypatch.setattr(waiting_messages, "LOOKED_MAX", 2)
    assert [each["cut"] for each in await retries(pair.one, "/bad")] == [True, False]
    _, listed = await pair.one.call("GET", "/admin/v1/cluster/groups")
    assert not any("retries" in each for each in listed["items"]), "only who asks is told"


async def test_how_much_is_read_to_count_retries_has_a_limit(
    pair: Pair, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_messages, "LOOKED_BYTES_MAX", 1)
    pair.one.broker.groups.update(GroupConfig(name="bad"))
    await give_back(await connect(pair.one), "bad", 2)
    found = [await retries(pair.one, "/bad") for _ in range(2)]
    assert [(of["waiting"], of["cut"]) for (of,) in found] == [(1, True), (2, False)]


async def test_levels_that_cannot_be_read_are_not_taken_for_empty(pair: Pair) -> None:
    pair.one.broker.groups.update(GroupConfig(name="bad"))
    pair.one.broker.rocketmq.delays.levels.stop()
    assert await retries(pair.two, "?retries=true") == [{"name": "bad", "waiting": 0, "cut": True}]


async def test_what_was_delivered_or_taken_back_waits_no_more(pair: Pair, connect: Connect) -> None:
    now_ms = time.time_ns() // 1_000_000
    peer = await connect(pair.one)
    for number, due_ms in ((0, 200), (1, HOUR_MS), (2, 30_000), (3, 40_000)):
        handle = await timed(peer, number, now_ms + due_ms)
        if number % 2:
            recall = {"topic": "T", "recallHandle": handle}
            answer = await peer.call(RequestCode.RECALL_MESSAGE, recall)
            assert answer.code == ResponseCode.SUCCESS
    await delayed(peer, 4, 1)
    await eventually(lambda: pair.one.broker.store.queue_range("T", 0)[1] == 2)
    assert await ids(pair.two, SCHEDULED) == [[2], []]
    for gone in (0, 1, 3, 4):
        assert await ids(pair.two, f"{SCHEDULED}?id={IDS[gone]}") == [[], []], gone
    assert await ids(pair.two, f"{SCHEDULED}?id={IDS[2]}") == [[2], []]


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [(waiting_messages, "LOOKED_MAX", 1), (waiting_messages, "LOOKED_BYTES_MAX", 1)],
)
async def test_how_much_is_looked_at_has_a_limit_and_that_is_said(
    pair: Pair,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
    value: int,
) -> None:
    monkeypatch.setattr(module, name, value)
    peer = await connect(pair.one)
    for number in range(2):
        await timed(peer, number, time.time_ns() // 1_000_000 + HOUR_MS, "TU"[number])
    assert [each["cut"] for each in await shown(pair.two, f"{SCHEDULED}?topic=U")] == [True, False]


async def test_copies_of_one_id_are_bounded(
    pair: Pair, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_messages, "COPIES_MAX", 2)
    peer = await connect(pair.one)
    for hours in (1, 2, 3):
        await timed(peer, 0, time.time_ns() // 1_000_000 + hours * HOUR_MS)
    assert await ids(pair.one, f"{SCHEDULED}?id={IDS[0]}") == [[0, 0], []]
    here, there = await shown(pair.one, f"{SCHEDULED}?id={IDS[0]}")
    assert (here["cut"], there["cut"]) == (True, False)


async def recalled(peer: RemotingPeer, handle: str) -> tuple[int, str]:
    asked = {"topic": "T", "recallHandle": handle}
    answer = await peer.call(RequestCode.RECALL_MESSAGE, asked)
    return answer.code, answer.remark or ""


async def often(peer: RemotingPeer) -> str:
    """Put a message that waits, and four of the same id that wait no more; return its handle."""
    now_ms = time.time_ns() // 1_000_000
    handle = await timed(peer, 0, now_ms + HOUR_MS)
    for number in range(4):
        again = await timed(peer, 0, now_ms + 2 * HOUR_MS + number)
        assert await recalled(peer, again) == (ResponseCode.SUCCESS, "")
    return handle


async def test_the_oldest_of_one_id_is_found_and_taken_back(
    pair: Pair, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await connect(pair.one)
    handle = await often(peer)
    monkeypatch.setattr(copies, "COPIES_AT_ONCE", 2)
    monkeypatch.setattr(waiting_messages, "COPIES_MAX", 1)
    (here, _) = await shown(pair.one, f"{SCHEDULED}?id={IDS[0]}")
    assert ([one["recallHandle"] for one in here["messages"]], here["cut"]) == ([handle], False)
    assert await recalled(peer, handle) == (ResponseCode.SUCCESS, "")
    assert await ids(pair.one, f"{SCHEDULED}?id={IDS[0]}") == [[], []]
    assert await ids(pair.one, SCHEDULED) == [[], []]


async def test_what_may_wait_behind_too_many_of_one_id_is_not_said_to_be_gone(
    pair: Pair, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await connect(pair.one)
    handle = await often(peer)
    monkeypatch.setattr(copies, "COPIES_AT_ONCE", 2)
    monkeypatch.setattr(copies, "COPIES_LOOKED_MAX", 2)
    (here, _) = await shown(pair.one, f"{SCHEDULED}?id={IDS[0]}")
    assert (here["messages"], here["cut"]) == ([], True)
    code, remark = await recalled(peer, handle)
    assert (code, remark) == (
        ResponseCode.ILLEGAL_OPERATION,
        "recall failed, too many messages have this id",
    )
    assert await ids(pair.one, SCHEDULED) == [[0], []]


async def test_open_transactions_are_shown_oldest_first(pair: Pair, connect: Connect) -> None:
    one, two = await connect(pair.one), await connect(pair.two)
    first = await half(one, b"1", unique=IDS[0])
    await half(one, b"2", unique=IDS[1])
    await half(two, b"3", unique=IDS[2])
    assert await ids(pair.two, HALVES) == [[0, 1], [2]]
    here, _ = await shown(pair.two, f"{HALVES}?group=P&topic=T&limit=1")
    assert (here["waiting"], here["cut"]) == (2, True)
    (told,) = here["messages"]
    assert (told["topic"], told["producerGroup"], told["keys"]) == ("T", "P", "k")
    assert (told["checks"], told["ageSeconds"] >= 0) == (0, True)
    assert await ids(pair.one, f"{HALVES}?group=other") == [[], []]
    assert await ids(pair.one, f"{HALVES}?topic=U") == [[], []]
    await end(one, first, ROLLBACK)
    assert await ids(pair.two, HALVES) == [[1], [2]]


@pytest.mark.parametrize("name", ["HALVES_LOOKED_MAX", "HALVES_BYTES_MAX"])
async def test_how_many_transactions_are_looked_at_has_a_limit(
    pair: Pair, connect: Connect, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(waiting, name, 1)
    peer = await connect(pair.one)
    for number in range(2):
        await half(peer, b"x", unique=IDS[number])
    here, _ = await shown(pair.one, f"{HALVES}?topic=U")
    assert (here["messages"], here["cut"]) == ([], True)


async def test_what_is_not_known_yet_is_said_and_not_taken_for_nothing(pair: Pair) -> None:
    pair.one.broker.rocketmq.transactions.service.term.ready = False
    for admin in (pair.one, pair.two):
        _, body = await admin.call("GET", HALVES)
        assert [each["shard"] for each in body["items"]] == ["shard-1"]
        (missing,) = body["missing"]
        assert missing["shard"] == "shard-0"


@pytest.mark.parametrize("limit", [0, waiting.SHOWN_LIMIT + 1])
async def test_a_limit_has_bounds(pair: Pair, limit: int) -> None:
    for path in (SCHEDULED, HALVES):
        status, body = await pair.one.call("GET", f"{path}?limit={limit}")
        assert (status, body["cure"]) == (400, "Send 1 to 200.")
    status, _ = await pair.one.call("GET", f"{SCHEDULED}?id=none")
    assert status == 400
