"""Pulls that wait by the fast path end as those that wait by the table."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.core import wake_pace
from imago_broker.core.waiting import Ticket
from imago_broker.processors.rocketmq.pull.held_pull import HeldPull
from imago_broker.processors.rocketmq.pull.pull import _Pull
from imago_log.results import ReadStatus
from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.remoting import RemotingPeer, pull_ext
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from imago_broker.app import Broker
    from imago_broker.model.access.access import Need
    from imago_broker.processors.rocketmq.exchange import Exchange, Reply
    from imago_wire.remoting.command import RemotingCommand

    Scenario = Callable[[Broker, RemotingPeer], Awaitable[None]]

SUSPEND = 0x2 | 0x4
COMMIT = 0x1


class OnlyLooks:
    """A hook that refuses nothing: with one, every request goes through the table."""

    def before(self, exchange: Exchange) -> None:
        """Let it pass."""

    def require(self, exchange: Exchange, needs: Sequence[Need]) -> None:
        """Let it have this."""

    def after(self, exchange: Exchange, reply: Reply) -> None:
        """Let it pass, too."""


async def held(broker: Broker, count: int) -> None:
    """Wait until so many pulls are held."""
    while len(broker.rocketmq.delivery.hold) != count:  # noqa: ASYNC110  nothing tells when it happens
        await asyncio.sleep(0)


async def tagged(peer: RemotingPeer, tag: str) -> None:
    answer = await peer.put("T", tag.encode(), properties=f"TAGS\x01{tag}\x02")
    assert answer.code == ResponseCode.SUCCESS


async def arrives(_: Broker, peer: RemotingPeer) -> None:
    await tagged(peer, "a")


async def passes_over_first(_: Broker, peer: RemotingPeer) -> None:
    for tag in "cca":
        await tagged(peer, tag)


async def passes_over(_: Broker, peer: RemotingPeer) -> None:
    await tagged(peer, "c")


async def nothing(_: Broker, __: RemotingPeer) -> None:
    """Its time will be up."""


async def topic_is_deleted(_: Broker, peer: RemotingPeer) -> None:
    assert (await peer.call(215, {"topic": "T"})).code == ResponseCode.SUCCESS


async def group_may_not_read(broker: Broker, peer: RemotingPeer) -> None:
    group = broker.rocketmq.broker.groups.get("consumers")
    assert group is not None
    broker.rocketmq.broker.groups.update(replace(group, consume_enable=False))
    await tagged(peer, "a")


async def is_released(broker: Broker, _: RemotingPeer) -> None:
    broker.rocketmq.delivery.hold.release_all()


async def group_is_reset(broker: Broker, peer: RemotingPeer) -> None:
    broker.rocketmq.clients.resets.add("consumers", "T", 0, 0)
    await tagged(peer, "a")


SCENARIOS: list[tuple[Scenario, dict[str, Any]]] = [
    (arrives, {}),
    (arrives, {"subscription": "a"}),
    (arrives, {"sysFlag": SUSPEND | COMMIT, "commitOffset": 1}),
    (passes_over_first, {"subscription": "a || b"}),
    (passes_over, {"subscription": "a", "suspendTimeoutMillis": 300}),
    (nothing, {"suspendTimeoutMillis": 100}),
    (topic_is_deleted, {}),
    (group_may_not_read, {}),
    (is_released, {}),
    (group_is_reset, {}),
]


async def ended(
    folder: Path, scenario: Scenario, asked: dict[str, Any], *hooks: OnlyLooks
) -> tuple[RemotingCommand, list[tuple[int, bytes]], tuple[object, ...]]:
    """Hold a pull, let something happen; return its answer, messages, and what was counted."""
    async with running_broker(folder) as broker:
        table = broker.ports.rocketmq.protocol_factory.__self__.table  # type: ignore[attr-defined]
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        await tagged(peer, "x")
        assert (await peer.pull("T")).code == ResponseCode.SUCCESS  # makes the group
        table.hooks = hooks
        waiting = await RemotingPeer.connect(broker.rocketmq_port)
        opaque = waiting.send(11, pull_ext("T", 1, **({"sysFlag": SUSPEND} | asked)))
        await held(broker, 1)
        assert broker.rocketmq.lanes.pull.running == 1
        await scenario(broker, peer)
        answer = await waiting.answer(opaque)
        messages = []
        if answer.code == ResponseCode.SUCCESS:
            messages = [(found.queue_offset, found.body) for found in decode_messages(answer.body)]
        counted = (
            broker.rocketmq.delivery.traffic.missed,
            broker.rocketmq.delivery.traffic.messages,
            broker.rocketmq.lanes.pull.running,
            len(broker.rocketmq.delivery.hold),
            broker.rocketmq.broker.offsets.query("consumers", "T", 0),
        )
        await waiting.close()
        await peer.close()
    return answer, messages, counted


@pytest.mark.parametrize(("scenario", "asked"), SCENARIOS)
async def test_a_held_pull_ends_as_the_table_ends_it(
    tmp_path: Path, scenario: Scenario, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[HeldPull] = []
    wait = HeldPull.wait

    def counted(self: HeldPull, hold_ms: int) -> bool:
        waits.append(self)
        return wait(self, hold_ms)

    monkeypatch.setattr(HeldPull, "wait", counted)
    whole = await ended(tmp_path / "table", scenario, asked, OnlyLooks())
    assert not waits
    short = await ended(tmp_path / "short", scenario, asked)
    assert len(waits) == 1
    assert (short[0].code, short[0].remark, short[0].ext) == (
        whole[0].code,
        whole[0].remark,
        whole[0].ext,
    )
    assert short[1:] == whole[1:]


async def test_gone_connections_take_their_pulls_along(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        await tagged(peer, "x")
        await peer.pull("T")
        waiting = await RemotingPeer.connect(broker.rocketmq_port)
        for tags in ("*", "a", "*"):
            waiting.send(11, pull_ext("T", 1, sysFlag=SUSPEND, subscription=tags))
        await held(broker, 3)
        await waiting.close()
        await held(broker, 0)
        assert broker.rocketmq.lanes.pull.running == 0
        await tagged(peer, "a")
        await peer.close()


async def test_a_fault_of_the_short_way_leaves_the_pull_to_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path) as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        await tagged(peer, "x")
        await peer.pull("T")
        waiting = await RemotingPeer.connect(broker.rocketmq_port)
        opaque = waiting.send(11, pull_ext("T", 1, sysFlag=SUSPEND))
        await held(broker, 1)

        def fails(*_: object) -> bool:
            raise OSError(ReadStatus.FOUND.value)

        way = broker.ports.rocketmq.protocol_factory.__self__.take_pulls.__self__  # type: ignore[attr-defined]
        monkeypatch.setattr(type(way), "answer_held", fails)
        await tagged(peer, "a")
        answer = await waiting.answer(opaque)
        assert [found.body for found in decode_messages(answer.body)] == [b"a"]
        assert broker.rocketmq.lanes.pull.running == 0
        await waiting.close()
        await peer.close()


async def test_every_message_is_delivered_once_where_wake_ups_are_put_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake_pace, "AT_ONCE_MAX", 0)  # busy as soon as anything is wanted
    async with running_broker(tmp_path) as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        await tagged(peer, "x")
        await peer.pull("T")
        waiting = await RemotingPeer.connect(broker.rocketmq_port)

        async def follow() -> list[int]:
            found: list[int] = []
            while len(found) < 300:
                at = 1 + len(found)
                answer = await waiting.call(11, pull_ext("T", at, sysFlag=SUSPEND))
                if answer.code == ResponseCode.SUCCESS:
                    found += [each.queue_offset for each in decode_messages(answer.body)]
            return found

        following = asyncio.create_task(follow())
        for _ in range(300):
            await tagged(peer, "a")
        assert await following == list(range(1, 301))
        await waiting.close()
        await peer.close()


@pytest.mark.parametrize("scenario", [arrives, passes_over_first, is_released, topic_is_deleted])
@pytest.mark.parametrize("hooks", [(), (OnlyLooks(),)])
async def test_answered_pulls_leave_nothing_to_the_garbage_collector(
    tmp_path: Path, scenario: Scenario, hooks: tuple[OnlyLooks, ...]
) -> None:
    """A busy broker answers thousands a second: collecting what they leave would hold it up."""
    gc.collect()
    gc.disable()
    try:
        await ended(tmp_path, scenario, {"subscription": "a"}, *hooks)
        left = [each for each in gc.get_objects() if isinstance(each, HeldPull | Ticket | _Pull)]
    finally:
        gc.enable()
    assert not left
