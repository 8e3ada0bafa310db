"""What every coordinator promises about the number that a follower has as MetaQ slave."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.cluster.desired import keeper
from imago_broker.model.registry.cluster import Role
from imago_testing.clusters.registry import Registry, broker, topic

if TYPE_CHECKING:
    import pytest


async def test_a_slave_whose_address_changed_takes_the_place_of_its_former_life(
    registry: Registry,
) -> None:
    one, two = await registry.join(), await registry.join()
    follower = replace(broker(), role=Role.SLAVE)
    await one.register(replace(follower, client_host="10.0.0.7"))
    await two.register(replace(follower, client_host="10.0.0.8"))
    await two.publish_topic(topic("orders"))
    assert await registry.data("/meta/brokers/ids/0/slave1") == "meta://10.0.0.8:8123"
    assert await registry.names("/meta/brokers/topics-sub/orders") == ["0-s1"]


async def test_a_slave_takes_its_number_when_the_stranger_is_gone(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keeper, "LOOK_AGAIN_MS", 20)
    number, topics = "/meta/brokers/ids/0/slave1", "/meta/brokers/topics-sub/orders"
    await registry.write(number, b"meta://10.9.9.9:8123", ephemeral=True)
    await registry.write(f"{topics}/other", b"", ephemeral=True)
    one = await registry.join()
    await one.register(replace(broker(), role=Role.SLAVE))
    await one.publish_topic(topic("orders"))
    for _ in range(3):
        await asyncio.sleep(0.05)
        await one.publish_topics([])
    assert await registry.names(topics) == ["other"]
    assert caplog.text.count("metaq_slave_number_taken") == 1
    await registry.delete(number)
    async with asyncio.timeout(50):
        while await registry.names(topics) != ["0-s1", "other"]:  # noqa: ASYNC110  no watch here
            await asyncio.sleep(0.01)
    assert await registry.data(number) == "meta://127.0.0.1:8123"
