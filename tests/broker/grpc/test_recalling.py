"""Recalls that a broker gets of messages which wait on another shard."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest

from imago_broker.model import names
from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.grpc import recalling
from imago_broker.server.broker_calls import MasterCalls
from imago_broker.service.access.access_edits import Actor
from imago_broker.service.delays.timers.timer_bucket import bucket_of
from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.sdk_calls import message, named, sends
from imago_testing.peers.sdk_peer import SdkPeer, signed_headers
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import make, timestamp
from imago_wire.remoting.texts.handles import RecallHandle, parse_recall_handle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker

ANN = User(name="ann", secret="password-of-ann")
RULES = [AccessRule(Resource(AccessKind.TOPIC, "late"), frozenset({Operation.PUBLISH}))]
SIGNED = signed_headers("ann", "password-of-ann")
LATE = TopicConfig(name="late", read_queues=1, write_queues=1, attributes={"message.type": "DELAY"})
FAILED = SdkCode.INTERNAL_SERVER_ERROR


class Shards(NamedTuple):
    """Two brokers, and a message that waits on the other one."""

    peer: SdkPeer
    """Of our own broker."""
    other: Broker
    handle: RecallHandle

    def recorded(self) -> int:
        """Return how many records the message's time has: it, and its recalls."""
        bucket = bucket_of(self.handle.deliver_ms)
        return self.other.store.queue_range(names.TIMER_TOPIC, bucket)[1]

    async def recalled(self, handle: object) -> tuple[int, str]:
        request = make("RecallMessageRequest", topic=named("late"), recall_handle=str(handle))
        answer = await self.peer.call("RecallMessage", request, SIGNED)
        return answer.status.code, answer.message_id or answer.status.message


@asynccontextmanager
async def two_shards(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *settings: str
) -> AsyncIterator[Shards]:
    async with (
        running_broker(folder / "own", *settings) as own,
        running_broker(folder / "other", "broker.shard=1", *settings) as other,
    ):
        for each in (own, other):
            each.core.access.put_account(ANN, RULES, Actor("test", "127.0.0.1"))
        other.topics.create_or_update(LATE)
        there = {other.record().broker_name: ("127.0.0.1", other.rocketmq_port)}
        monkeypatch.setattr(MasterCalls, "_address", lambda _, broker: there.get(broker))
        peer, producer = [await SdkPeer.connect(each.ports.grpc_port) for each in (own, other)]
        due = timestamp(int(time.time() * 1000) + 3_600_000)
        told = message("late", delivery_timestamp=due, message_id="01AB")
        sent = await producer.call("SendMessage", sends(told), SIGNED)
        yield Shards(peer, other, parse_recall_handle(sent.entries[0].recall_handle))
        await peer.close()
        await producer.close()


@pytest.mark.parametrize("secured", [False, True])
async def test_a_recall_reaches_the_shard_that_its_handle_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, secured: bool
) -> None:
    (tmp_path / "token").write_text("t" * 40)
    secret = (f"admin.token_file={tmp_path / 'token'}", "acl.enabled=true")
    async with two_shards(tmp_path, monkeypatch, *(secret if secured else ())) as shards:
        assert shards.recorded() == 1
        assert await shards.recalled(shards.handle) == (SdkCode.OK, "01AB")
        assert shards.recorded() == 2


async def test_recalls_that_cannot_be_say_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_shards(tmp_path, monkeypatch) as shards:
        handle = shards.handle
        over = replace(handle, deliver_ms=1)
        assert await shards.recalled(over) == (FAILED, "recall failed, timestamp invalid")
        gone = replace(handle, broker_name="nobody")
        why = "broker nobody has no master at the moment"
        assert await shards.recalled(gone) == (FAILED, why)
        code, _ = await shards.recalled("no handle")
        assert code == SdkCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "this broker has no such topic"
        monkeypatch.setattr(recalling, "RECALL_HANDLE_MAX", len(str(handle)) - 1)
        assert await shards.recalled(handle) == (FAILED, "this is no recall handle")
        assert shards.recorded() == 1
