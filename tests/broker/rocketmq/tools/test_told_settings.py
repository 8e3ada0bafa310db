"""What RocketMQ's tools tell a broker to be stays so over restarts."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imago_broker.app import Broker
from imago_broker.app.kept_settings.tool_settings import FILE, ToldSettings
from imago_broker.ports import CoordinatorUnavailableError
from imago_broker.processors.rocketmq.tools.original_settings import with_told
from imago_log.errors import NoSpaceError
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.texts.properties_text import decode_properties_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.config import BrokerConfig

TOLD = b"defaultQueryMaxNum=64\nmaxMessageSize=1000\nautoCreateTopicEnable=false\n"


async def once(config: BrokerConfig, do: Callable[[Broker, RemotingPeer], Awaitable[None]]) -> None:
    """Run a broker for one visit."""
    broker = Broker(config)
    await broker.start()
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    try:
        await do(broker, peer)
    finally:
        await peer.close()
        await broker.stop()


async def tell(peer: RemotingPeer, text: bytes) -> None:
    answer = await peer.call(Code.UPDATE_BROKER_CONFIG, {}, text)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def shown(peer: RemotingPeer) -> dict[str, str]:
    return decode_properties_text((await peer.call(Code.GET_BROKER_CONFIG)).body)


async def test_what_was_told_stays_and_wins_over_the_configuration(config: BrokerConfig) -> None:
    async def first(_: Broker, peer: RemotingPeer) -> None:
        assert (await peer.put("T", b"x" * 1001)).code == ResponseCode.SUCCESS
        await tell(peer, TOLD)

    async def second(broker: Broker, peer: RemotingPeer) -> None:
        settings = await shown(peer)
        assert decode_properties_text(TOLD).items() <= settings.items()
        assert (await peer.put("T", b"x" * 1001)).code == ResponseCode.MESSAGE_ILLEGAL
        assert (await peer.put("New", b"x")).code == ResponseCode.TOPIC_NOT_EXIST
        broker.reload(config)
        assert broker.config.rocketmq.message_bytes_max == 1000
        await tell(peer, b"maxMessageSize=2000\n")

    async def third(_: Broker, peer: RemotingPeer) -> None:
        settings = await shown(peer)
        assert (settings["maxMessageSize"], settings["defaultQueryMaxNum"]) == ("2000", "64")

    for visit in (first, second, third):
        await once(config, visit)


async def test_what_is_told_is_in_force_in_every_part_at_once(
    peer: RemotingPeer, broker: Broker
) -> None:
    await tell(peer, b"autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false\n")
    assert (await peer.put("New", b"x")).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await peer.pull("TBW102")).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert broker.groups.get("consumers") is None
    await tell(peer, b"autoCreateTopicEnable=true\n")
    assert (await peer.put("New", b"x")).code == ResponseCode.SUCCESS


async def test_permission_is_the_shards_in_the_routes_of_producers(
    peer: RemotingPeer, broker: Broker
) -> None:
    async def perm() -> tuple[str, frozenset[str]]:
        return (await shown(peer))["brokerPermission"], broker.coordinator.view().wiped

    name = broker.config.broker_name
    assert await perm() == ("6", frozenset())
    await tell(peer, b"brokerPermission=4\nmaxMessageSize=1000\n")
    assert await perm() == ("4", frozenset({name}))
    assert broker.config.rocketmq.message_bytes_max == 1000
    # As of the originals: who has an old route still sends.
    assert (await peer.put("T", b"x")).code == ResponseCode.SUCCESS
    for wrong in (b"brokerPermission=2\nmaxMessageSize=2000\n", b"brokerPermission=x\n"):
        refused = await peer.call(Code.UPDATE_BROKER_CONFIG, {}, wrong)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "brokerPermission" in (refused.remark or "")
    for wrong in (b"brokerPermission=6\nmaxMessageSize=-1\n", b"brokerPermission=6\nno=1\n"):
        refused = await peer.call(Code.UPDATE_BROKER_CONFIG, {}, wrong)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert await perm() == ("4", frozenset({name}))
    assert broker.config.rocketmq.message_bytes_max == 1000
    await tell(peer, b"brokerPermission=6\n")
    assert await perm() == ("6", frozenset())


@pytest.mark.parametrize("error", [CoordinatorUnavailableError, RuntimeError])
async def test_nothing_changes_where_the_registry_cannot_keep_the_permission(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    async def away(*_: object) -> None:
        raise error("the registry is away")

    before = await shown(peer)
    monkeypatch.setattr(type(broker.coordinator.marks), "set_write_wiped", away)
    answer = await peer.call(Code.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4\n" + TOLD)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "the registry is away" in (answer.remark or "")
    assert await shown(peer) == before


@pytest.mark.parametrize("permission", ["4", "6"])
async def test_permission_stays_where_the_other_settings_cannot_be_kept(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch, permission: str
) -> None:
    def full(_: ToldSettings, __: object) -> None:
        raise NoSpaceError.of("replace", Path(FILE), OSError(errno.ENOSPC, "full"))

    before = await shown(peer)
    monkeypatch.setattr(ToldSettings, "write", full)
    text = f"brokerPermission={permission}\n".encode() + TOLD
    answer = await peer.call(Code.UPDATE_BROKER_CONFIG, {}, text)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "nothing was changed" in (answer.remark or "")
    assert await shown(peer) == before
    assert not broker.coordinator.view().wiped


async def test_nothing_changes_where_it_cannot_be_kept(
    peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: ToldSettings, __: object) -> None:
        raise NoSpaceError.of("replace", Path(FILE), OSError(errno.ENOSPC, "full"))

    before = await shown(peer)
    monkeypatch.setattr(ToldSettings, "write", full)
    answer = await peer.call(Code.UPDATE_BROKER_CONFIG, {}, TOLD)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "nothing was changed" in (answer.remark or "")
    assert await shown(peer) == before
    assert (await peer.put("New", b"x")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("content", [b"", b"0000000000\n{}", b"garbage", b"\xff" * 50])
def test_damaged_file_is_left_out_and_named(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    told = ToldSettings(tmp_path)
    (tmp_path / FILE).parent.mkdir()
    assert told.read() == {}
    told.write({"b": "2", "a": "ä\\"})
    assert told.read() == {"a": "ä\\", "b": "2"}
    assert not caplog.messages
    (tmp_path / FILE).write_bytes(content)
    assert told.read() == {}
    assert [one.split()[0] for one in caplog.messages] == ["told_settings_damaged"]


def test_value_that_this_version_refuses_is_left_out(
    config: BrokerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    told = {"maxMessageSize": "-1", "transactionCheckMax": "3", "defaultQueryMaxNum": "1"}
    changed = with_told(config.rocketmq, told)
    assert changed == replace(config.rocketmq, transaction_checks_max=3)
    assert [one.split()[:2] for one in caplog.messages] == [
        ["told_setting_left_out", "name=maxMessageSize"]
    ]
