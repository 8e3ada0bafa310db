"""What goes wrong on a random walk of the operator, and its end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

    from imago_testing.operated.world import ClusterWorld

SHARDS_MAX: Final = 3


def heal(world: ClusterWorld) -> None:
    """End every fault."""
    world.zookeeper = True
    world.wrong = False
    world.broken_images.clear()
    world.refused.clear()
    world.full.clear()
    world.silent.clear()
    world.dark.clear()
    for node in world.nodes:
        world.cordon(node, open_again=True)
    world.pods = {n: replace(p, waiting=None) for n, p in world.pods.items()}
    world.unread = min(world.unread, 3)


def on_nodes(rng: random.Random, world: ClusterWorld) -> None:
    """Do something to a node, and so to ZooKeeper's servers on it, or to one of those."""
    node = rng.choice(sorted(world.nodes))
    servers = sorted(pod.name for pod in world.pods.values() if pod.shard is None)
    match rng.randrange(6):
        case 0 | 1:
            world.drain(node)
        case 2:
            world.cordon(node, open_again=True)
        case 3:
            world.cut_power(node)
        case 4:
            world.dark.clear()
        case _:
            rng.choice((world.kill, world.crash))(rng.choice(servers) if servers else "")


def fault(rng: random.Random, world: ClusterWorld, some: str) -> None:
    """Have something in the way that says nothing of who is in sync."""
    match rng.randrange(5):
        case 0:
            world.full ^= {p.name for p in world.pods.values() if p.shard is not None}
        case 1:
            world.full ^= {some}
        case 2:
            world.silent ^= {some}
        case 3:
            world.scale(rng.randrange(SHARDS_MAX), rng.choice((0, 1, 2, 4, 5)))
        case _:
            world.crash(some)


def mistake(rng: random.Random, world: ClusterWorld, some: str) -> None:
    """Have somebody edit what is refused, or let members begin anew while that stands."""
    match rng.randrange(4):
        case 0:
            world.wrong = not world.wrong
        case 1:
            world.refused ^= {"scrub_interval_ms = 5"}
        case 2:
            world.broken_images ^= {rng.choice(("mine:2", "mine:3", "imago/broker:1.3.0"))}
        case _:
            world.reboot(some)
