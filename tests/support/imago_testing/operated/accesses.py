"""Walks of small clusters from one way to ZooKeeper to another: nobody is ever shut out."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from imago_operator.spec.cluster.zookeeper import QuorumTls, RegistryAccess, RegistryTls
from imago_testing.operated.cluster import OperatedCluster
from imago_testing.operated.faults import heal
from imago_testing.operated.resources import resource, wanted
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    import random

    from imago_operator.model.desired import Desired


def managed(access: RegistryAccess = RegistryAccess.NONE) -> dict[str, Any]:
    return {"spec.zookeeper": {"managed": {"authentication": access.value}}}


def operated(access: RegistryAccess, **spec: Any) -> OperatedCluster:
    changes = {"spec.brokers.shards": 2, **{f"spec.{name}": said for name, said in spec.items()}}
    return OperatedCluster(resource(managed(access) | changes))


def ways(cluster: OperatedCluster) -> set[RegistryAccess]:
    """Return who may change the nodes of brokers that are there."""
    pods = (pod for pod in cluster.world.pods.values() if pod.shard is not None)
    return {pod.registry_access for pod in pods}


def uids(cluster: OperatedCluster) -> dict[str, str]:
    return {pod.name: pod.uid for pod in cluster.world.pods.values() if pod.shard is not None}


@cache
def accessing(
    shards: int, replicas: int, access: RegistryAccess, tls: RegistryTls = RegistryTls.NONE
) -> Desired:
    sizes = {"spec.brokers.shards": shards, "spec.brokers.replicasPerShard": replicas}
    zookeeper = {"managed": {"authentication": access.value, "tls": tls.value}}
    policy = {"onOperatorUpgrade": "Roll"}
    return wanted(sizes | {"spec.zookeeper": zookeeper, "spec.updatePolicy": policy})


def check_access_walk(rng: random.Random, steps: int = 25) -> None:
    """Raise AssertionError if a broker is shut out, or the cluster never is as it is to be.

    Pods are away for a while, all at once too, and so is the Secret, or the right to read it.
    """
    sizes = rng.choice(((1, 1), (1, 1), (1, 2), (2, 1)))
    world = ClusterWorld(accessing(*sizes, *_said(rng)))
    world.absence = rng.choice((0, 1, 3))
    if rng.random() < 0.8:
        world.settle()
    made = world.registry_user
    for _ in range(steps):
        _event(rng, world, sizes)
        for _ in range(rng.randrange(6)):
            world.look(dies_after=rng.choice((None, None, None, 0, 1, 2, 3, 4, 5)))
            made |= world.registry_user
            if rng.random() < 0.8:
                world.turn()
    heal(world)
    world.secret_refused = False
    world.registry_user |= made
    access, tls = _said(rng)
    world.desired = accessing(*sizes, access, tls)
    # Up to five rounds of three servers, each of which the others find after half a minute.
    world.settle(looks=900)
    there = {pod.registry_access for pod in world.pods.values() if pod.shard is not None}
    assert there == {access}, f"{there} are not {access}"
    servers = {pod.registry_tls for pod in world.pods.values() if pod.shard is None}
    assert servers == {tls}, f"{servers} are not {tls}"
    meets = QuorumTls.NONE if tls is RegistryTls.NONE else QuorumTls.ENFORCING
    quorum = {pod.quorum_tls for pod in world.pods.values() if pod.shard is None}
    assert quorum == {meets}, f"{quorum} are not {meets}"


def _said(rng: random.Random) -> tuple[RegistryAccess, RegistryTls]:
    return rng.choice(list(RegistryAccess)), rng.choice(list(RegistryTls))


def _event(rng: random.Random, world: ClusterWorld, sizes: tuple[int, int]) -> None:
    brokers = [pod.name for pod in world.pods.values() if pod.shard is not None]
    match rng.randrange(8):
        case 0 | 1:
            world.desired = accessing(*sizes, *_said(rng))
        case 2 | 3:
            world.kill(rng.choice(brokers) if brokers else "")
        case 4:
            for name in brokers:
                world.kill(name)
        case 5:
            world.secret_refused = not world.secret_refused
        case 6:
            world.registry_user = False
        case _:
            world.scale(0, rng.randrange(sizes[1]))
