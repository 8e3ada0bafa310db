"""What every coordinator promises about the feature level: it begins, rises and never falls."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.model.feature_level import NEWEST, NEWS
from imago_broker.ports import CoordinatorConflictError
from imago_testing.clusters.registry import broker, until

if TYPE_CHECKING:
    from imago_testing.clusters.registry import Registry

ID = "/imago/imago/id"


async def older(registry: Registry) -> None:
    """Make the registry as version 0.1 begins it."""
    old = {"format": 1, "id": "i", "metaqRoot": "/meta", "brokerIdBase": 0}
    await registry.write(ID, json.dumps(old).encode())


async def test_a_new_cluster_begins_with_all_that_its_first_process_understands(
    registry: Registry,
) -> None:
    one = await registry.join()
    assert one.view().feature_level == NEWEST
    assert set(NEWS) == set(range(1, NEWEST + 1))
    said = json.loads(await registry.data(ID) or "")
    assert (said["format"], said["featureLevel"]) == (2, NEWEST), "0.1 knows format 1 alone"


async def test_a_cluster_of_before_stays_where_it_is_until_somebody_raises_it(
    registry: Registry,
) -> None:
    await older(registry)
    one, two = await registry.join(), await registry.join()
    assert one.view().feature_level == 1
    await one.register(broker("a"))
    with pytest.raises(CoordinatorConflictError, match=r"shard-0/0 understand less: upgrade"):
        await two.marks.raise_feature_level(NEWEST)
    assert json.loads(await registry.data(ID) or "")["format"] == 1, "0.1 still starts"
    await one.register(replace(broker("a"), feature_level=NEWEST))
    await until(two, lambda view: view.brokers[0].feature_level == NEWEST)
    await two.marks.raise_feature_level(NEWEST)
    assert (await until(one, lambda view: view.feature_level == NEWEST)).cluster_id == "i"
    await two.marks.raise_feature_level(NEWEST)
    with pytest.raises(CoordinatorConflictError, match="never go down"):
        await two.marks.raise_feature_level(1)
    with pytest.raises(CoordinatorConflictError, match=f"this version understands {NEWEST}"):
        await two.marks.raise_feature_level(NEWEST + 1)
    assert json.loads(await registry.data(ID) or "")["featureLevel"] == NEWEST


async def test_who_is_not_there_is_not_presumed_to_understand(registry: Registry) -> None:
    await older(registry)
    one, two = await registry.join(), await registry.join()
    await one.register(replace(broker("a"), feature_level=NEWEST))
    await two.register(replace(broker("b", process=1), feature_level=NEWEST))
    await two.stop()
    await until(one, lambda view: len(view.brokers) == 1)
    with pytest.raises(CoordinatorConflictError, match=r"nobody knows what shard-0/1"):
        await one.marks.raise_feature_level(NEWEST)
    await one.marks.raise_feature_level(NEWEST, without_absent=True)
    assert one.view().feature_level == NEWEST


async def test_a_process_that_understands_less_does_not_start(registry: Registry) -> None:
    await registry.join()
    said = json.loads(await registry.data(ID) or "")
    await registry.write(ID, json.dumps({**said, "featureLevel": NEWEST + 1}).encode())
    words = rf"at feature level {NEWEST + 1}, this version understands {NEWEST}: start a version"
    with pytest.raises(CoordinatorConflictError, match=words):
        await registry.join()
    await registry.write(ID, json.dumps({**said, "format": 3}).encode())
    with pytest.raises(CoordinatorConflictError, match=r"format 3, this version knows 2: start"):
        await registry.join()
