"""What each command is answered with by a member of a shard that is not its master."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import pytest

from imago_broker.model.registry.cluster import Role
from imago_broker.processors.metaq.asks import ASKS
from imago_broker.service.serving_rules import Asks
from imago_testing.clusters.roles import LEADER_PORT, OTHER_ROLES, lead_again, step_down
from imago_testing.peers.metaq import put_frame, put_place, value_body
from imago_wire.text import commands

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_testing.peers.metaq import MetaqPeer

END = 9223372036854775807
FAILED = b"] failed.Detail:this broker is not the master, "


def test_every_command_says_what_it_asks_of_a_member() -> None:
    assert set(ASKS) == set(get_args(commands.Command))
    asking = {kind for kind, asks in ASKS.items() if asks is not Asks.MEMBER}
    assert asking == {commands.Put, commands.Get, commands.Offset, commands.Transaction}


@pytest.mark.parametrize("role", OTHER_ROLES)
async def test_put_fails_in_the_original_s_words_and_makes_nothing(
    broker: Broker, peer: MetaqPeer, role: Role
) -> None:
    step_down(broker, role)
    end = broker.store.log_end
    many = put_frame("test", 0, b"x") + put_frame("test", -1, b"x") + put_frame("none", 0, b"x")
    await peer.send(many)
    for frame in await peer.frames(3):
        line, _, text = frame.partition(b"\r\n")
        assert line.startswith(b"result 500 ")
        assert text.startswith(b"Put message to [broker 'meta://")
        assert FAILED in text
        assert (str(LEADER_PORT).encode() in text) == (role is Role.SLAVE)
    assert broker.store.log_end == end


@pytest.mark.parametrize("role", OTHER_ROLES)
async def test_reads_fail_where_slaves_serve_none(
    broker: Broker, peer: MetaqPeer, role: Role
) -> None:
    await peer.put("test", 0, b"m")
    step_down(broker, role)
    for answer in (await peer.get("test", 0, 0), await peer.ask(b"offset test g 0 0 5\r\n")):
        assert answer.startswith(b"result 500 ")
        assert FAILED in answer


async def test_slave_that_serves_reads_never_sends_a_consumer_back(
    broker: Broker, peer: MetaqPeer
) -> None:
    await peer.put("test", 0, b"m")
    broker.serving_rules.slave_reads = True
    step_down(broker)
    end = broker.store.log_end
    assert b"m" in value_body(await peer.get("test", 0, 0))
    assert (await peer.ask(b"offset test g 0 0 5\r\n")).endswith(b"\r\n0")
    beyond = 10_000
    assert (await peer.get("test", 0, beyond)).startswith(b"result 404 ")
    assert (await peer.get("test", 0, END)).startswith(b"result 301 ")
    assert broker.store.log_end == end


async def test_heartbeats_and_statistics_are_answered(broker: Broker, peer: MetaqPeer) -> None:
    assert b"slave false" in await peer.ask(b"stats  1\r\n")
    step_down(broker)
    assert (await peer.ask(b"version 1\r\n")).startswith(b"result 200 ")
    assert b"slave true" in await peer.ask(b"stats  1\r\n")


async def test_new_master_has_nothing_new_until_it_knows_what_readers_were_told(
    broker: Broker, peer: MetaqPeer
) -> None:
    await peer.put("test", 0, b"m")
    broker.serving_rules.role.settled_at = broker.store.log_end + 1
    assert (await peer.get("test", 0, 0)).startswith(b"result 404 ")
    assert (await peer.ask(b"offset test g 0 0 5\r\n")).startswith(b"result 500 ")
    put_place(await peer.put("test", 0, b"fills"))
    assert b"m" in value_body(await peer.get("test", 0, 0))


async def test_a_connection_is_served_through_both_roles(broker: Broker, peer: MetaqPeer) -> None:
    step_down(broker)
    assert (await peer.put("test", 0, b"no")).startswith(b"result 500 ")
    lead_again(broker)
    put_place(await peer.put("test", 0, b"yes"))
