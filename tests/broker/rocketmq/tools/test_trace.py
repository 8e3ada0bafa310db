"""What clients read in a message that may be traced: those of 5.x need its region for that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from imago_broker.config import BrokerConfig
    from imago_testing.peers.remoting import RemotingPeer


@pytest.fixture(params=[True, False], ids=["traced", "not traced"])
def config(config: BrokerConfig, request: pytest.FixtureRequest) -> BrokerConfig:
    settings = replace(config.rocketmq, trace_on=request.param, region="north")
    return replace(config, rocketmq=settings)


async def test_message_says_whether_it_is_to_be_traced(
    peer: RemotingPeer, config: BrokerConfig
) -> None:
    traced, key = config.rocketmq.trace_on, "UNIQ_KEY\x01u\x02"
    former = "CLUSTER\x01c\x02MSG_REGION\x01south\x02TRACE_ON\x01maybe\x02"
    for properties in ("", key, key + former):
        await peer.put("T", b"", properties=properties)
    messages = await peer.messages("T")
    assert len(messages) == 3
    for message in messages:
        assert message.properties.get("MSG_REGION") == ("north" if traced else None)
        assert message.properties.get("TRACE_ON") == (None if traced else "false")
