"""Whether clients can put and get, as the status of a cluster says: measured, and dated."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from imago_operator.brokers.answers import probe_of
from imago_operator.model.state import Refusal
from imago_operator.plan import plan
from imago_operator.reporting.status import in_short, status_of
from imago_testing.kubernetes.custom_resources import CLUSTER, manifest
from imago_testing.operated.cluster import OperatedCluster
from imago_testing.operated.looks import answering, changed, lacking
from imago_testing.operated.resources import wanted
from imago_testing.operated.things import START
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    from imago_operator.model.state import Observed
    from imago_operator.spec.cluster.cluster_status import ClusterStatus


@pytest.fixture(name="world")
def _world() -> ClusterWorld:
    world = ClusterWorld(wanted())
    world.settle()
    return world


def told(seen: Observed) -> ClusterStatus:
    return status_of(wanted(), seen, plan(wanted(), seen, START), START)


def conditions(found: ClusterStatus) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status.value, c.reason) for c in found.conditions}


def master(seen: Observed, shard: int = 0) -> str:
    assert seen.registry is not None
    uuid = seen.registry.shards[shard].master
    return next(pod.name for pod in seen.pods if pod.broker and pod.broker.uuid == uuid)


def test_a_full_disk_of_a_master_is_told_and_that_of_a_follower_takes_nothing(
    world: ClusterWorld,
) -> None:
    leads = master(world.observe())
    world.full = {leads}
    found = told(world.observe())
    assert conditions(found)["Available"] == ("False", "PutsRefused")
    assert (found.shards[0].puts, found.shards[0].gets) == ("Refused", "Accepted")
    assert found.shards[0].refusal == "the disk is full"
    assert in_short(found) == ("False", "gets")
    world.full = {next(n for n in world.pods if n.startswith("demo-s0") and n != leads)}
    assert conditions(told(world.observe()))["Available"] == ("True", "EveryShardHasMaster")


@pytest.mark.parametrize("says", [True, False])
def test_too_few_in_sync_are_told_by_brokers_that_say_so_and_by_those_that_do_not(
    world: ClusterWorld, says: bool
) -> None:
    seen = world.observe()
    leads = master(seen)
    others = [p.name for p in seen.pods_of(0) if p.name != leads]
    why = Refusal("too few members are in sync")
    seen = answering(lacking(seen, *others), leads, puts=why if says else None)
    found = told(seen)
    assert conditions(found)["Available"] == ("False", "PutsRefused")
    assert conditions(found)["Ready"][0] == "False"
    assert found.shards[0].refusal == why.why


def test_a_master_that_does_not_answer_is_not_taken_for_one_that_serves(
    world: ClusterWorld,
) -> None:
    seen = world.observe()
    found = told(changed(seen, master(seen), broker=None))
    assert conditions(found)["Available"] == ("Unknown", "MasterSilent")
    assert (found.shards[0].puts, found.shards[1].puts) == ("Unknown", "Accepted")
    assert in_short(found)[1] == "unknown"


def test_a_master_that_delivers_nothing_is_told(world: ClusterWorld) -> None:
    seen = world.observe()
    found = told(answering(seen, master(seen), gets=Refusal("it waits for the others")))
    assert conditions(found)["Available"] == ("False", "GetsRefused")
    assert in_short(found) == ("False", "not every shard")


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        ({"accepted": True, "reasons": []}, Refusal("")),
        ({"accepted": False, "reasons": ["a", "b"]}, Refusal("a; b")),
        ({"accepted": False}, Refusal("the broker does not say why")),
        (None, None),
    ],
)
def test_what_brokers_answer_is_read(said: dict[str, object] | None, refusal: Refusal) -> None:
    answer = {"uuid": "u", "shard": "shard-0"} | ({"puts": said} if said else {})
    assert probe_of(answer, None, None, None).puts == refusal


def test_what_kubectl_shows_has_the_time_of_its_observation() -> None:
    found = manifest(CLUSTER, {"spec.brokers.shards": 1})
    found["metadata"]["namespace"] = "mq"
    made = OperatedCluster(found)
    made.run()
    before = made.cluster["status"]
    assert before["ready"] == f"True at {before['lookedAt'][11:]}"
    assert before["serving"] == f"puts, gets at {before['lookedAt'][11:]}"
    made.world.now += timedelta(minutes=1)
    asyncio.run(made.look())
    after = made.cluster["status"]
    assert after["lookedAt"] > before["lookedAt"]
    assert after["ready"] == f"True at {after['lookedAt'][11:]}"
