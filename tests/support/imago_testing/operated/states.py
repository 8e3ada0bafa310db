"""Random clusters for the operator: single looks, and walks through edits and faults.

    python -m imago_testing.operated.states --seeds 100000

A state that breaks a promise is printed with its seed: `--from SEED --seeds 1` shows it again.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from imago_operator.manifests.brokers import template_notes
from imago_operator.manifests.render import render
from imago_operator.manifests.zookeeper import zookeeper_notes
from imago_operator.model import names
from imago_operator.model.state import (
    Claim,
    KubeNode,
    Observed,
    OwnedObject,
    Pod,
    Probe,
    RegistryView,
    RemainingContent,
    RestartCheck,
    Shard,
    ShardBroker,
    TopicNeeds,
    written,
)
from imago_operator.plan import plan
from imago_operator.reporting.status import status_of
from imago_operator.spec.cluster.cluster_status import (
    ClusterStatus,
    MovedMember,
    ReconcileProgress,
    ReplacedMember,
    Rollout,
    ScaleDownStatus,
    ShardStatus,
)
from imago_testing.operated.accesses import check_access_walk
from imago_testing.operated.edits import (
    EDITS,
    admitted,
    awake,
    desired_pipeline,
    random_desired,
)
from imago_testing.operated.faults import SHARDS_MAX, fault, heal, mistake, on_nodes
from imago_testing.operated.rules import violations
from imago_testing.operated.things import START
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    from imago_operator.model.desired import Desired

RISKS: Final = ("noMasterAfter", "belowMinInSync", "unreplicatedBytes", "singleReplica")


def random_look(rng: random.Random) -> tuple[Desired, Observed]:
    """Return any desired, and anything that may be seen of a cluster that once had another."""
    replicas = rng.randint(1, 3)
    desired = random_desired(rng, replicas)
    before = random_desired(rng, rng.choice((replicas, replicas, rng.randint(1, 3))))
    numbers = [n for n in range(SHARDS_MAX + 1) if rng.random() < 0.7]
    nodes = {
        f"node-{n}": KubeNode(name=f"node-{n}", rack=rng.choice("ab ").strip()) for n in range(3)
    }
    if rng.random() < 0.3:
        nodes.pop(rng.choice(sorted(nodes)))
    applied = rng.choice((desired, desired, before))
    children = [] if rng.random() < 0.1 else _children(rng, applied, numbers)
    pods = [p for n in numbers for p in _pods(rng, rng.choice((desired, before)), n)]
    shards = {n: s for n in numbers if (s := _shard(rng, n, pods))}
    return desired, Observed(
        synced=rng.random() < 0.95,
        children=tuple(children),
        pods=(*pods, *_servers(rng, desired)),
        claims=tuple(c for n in numbers for c in _claims(rng, desired, n)),
        nodes=None if rng.random() < 0.1 else nodes,
        expandable={"": rng.random() < 0.8},
        registry=_registry(rng, shards),
        remaining={n: _remaining(rng) for n in numbers if rng.random() < 0.7},
        topics=(TopicNeeds(name="t", count=2),) if rng.random() < 0.1 else (),
        window_open=rng.random() < 0.8,
        status=_status(rng, numbers, pods),
    )


def _registry(rng: random.Random, shards: dict[int, Shard]) -> RegistryView | None:
    if rng.random() < 0.1:
        return None
    identity = rng.choice(("c-1", "c-1", "c-1", "c-2", None))
    return RegistryView(cluster_id=identity, connected=rng.random() < 0.9, shards=shards)


def _remaining(rng: random.Random) -> RemainingContent:
    return RemainingContent(
        writable_queues=rng.choice((0, 3)), unread_messages=rng.choice((0, 0, 7))
    )


def _children(rng: random.Random, applied: Desired, numbers: list[int]) -> list[OwnedObject]:
    found = [OwnedObject(kind="Secret", name=names.token(applied.name), uid="token")]
    for manifest in render(applied, numbers):
        metadata = manifest["metadata"]
        shard = metadata["labels"].get(names.SHARD_LABEL)
        if rng.random() < 0.99:
            found.append(
                OwnedObject(
                    kind=manifest["kind"],
                    name=metadata["name"],
                    uid=f"uid-{metadata['name']}",
                    annotations=metadata["annotations"],
                    shard=None if shard is None else int(shard),
                    replicas=rng.choice((manifest["spec"].get("replicas"), 0))
                    if manifest["kind"] == "StatefulSet" and rng.random() < 0.2
                    else manifest.get("spec", {}).get("replicas"),
                    deleting=rng.random() < 0.01,
                )
            )
    return found


def _pods(rng: random.Random, template: Desired, shard: int) -> list[Pod]:
    found = []
    # A pause of ZooKeeper, full disks: no pod of the shard is ready, and all answer.
    all_ready = rng.random() < 0.8
    answers = 0.3 if all_ready else 0.97
    for ordinal in range(template.replicas):
        if rng.random() < 0.07:
            continue
        name = names.pod("demo", shard, ordinal)
        notes = dict(template_notes(template, shard))
        if rng.random() < 0.05:
            notes[names.RESTART] = "mine"
        ready = all_ready and rng.random() < 0.93
        waiting = (
            None if ready else rng.choice((None, None, "ImagePullBackOff", "ContainerCreating"))
        )
        found.append(
            Pod(
                name=name,
                uid=f"uid-{name}-{rng.randrange(9)}",
                shard=shard,
                ordinal=ordinal,
                annotations=notes,
                node=f"node-{ordinal}" if ready or rng.random() < 0.5 else None,
                ready=ready,
                turned=rng.choice((None, START - timedelta(seconds=rng.choice((1, 100, 9999))))),
                deleting=rng.random() < 0.03,
                waiting=waiting,
                role_label=rng.choice((None, "master", "slave")),
                edited=rng.random() < 0.05,
                broker=_probe(rng, shard, name) if ready or rng.random() < answers else None,
            )
        )
    return found


def _probe(rng: random.Random, shard: int, name: str) -> Probe | None:
    if rng.random() < 0.03:
        return None
    risks = tuple(risk for risk in RISKS if rng.random() < 0.05)
    check = None if rng.random() < 0.05 else RestartCheck(safe=not risks, risks=risks)
    return Probe(
        uuid=f"broker-{name}",
        shard=shard,
        role=rng.choice(("master", "slave", "electing")),
        settled=True,
        version="1.2.0",
        config={"rocketmq.pull_hold_ms_max": rng.choice((5, 30_000))},
        restart=check,
        caught_up=rng.random() < 0.97,
        log=(rng.randrange(3), rng.randrange(99)),
    )


def _shard(rng: random.Random, number: int, pods: list[Pod]) -> Shard | None:
    if rng.random() < 0.05:
        return None
    alive = [p.broker.uuid for p in pods if p.shard == number and p.broker]
    master = rng.choice(alive) if alive and rng.random() < 0.93 else None
    members = tuple(
        ShardBroker(uuid=uuid, in_sync=uuid == master or rng.random() < 0.93) for uuid in alive
    )
    drained = rng.random() < 0.15
    return Shard(
        id=number,
        master=master,
        epoch=rng.randrange(9),
        members=members,
        cordoned=drained or rng.random() < 0.3,
        drained=drained,
    )


def _servers(rng: random.Random, desired: Desired) -> list[Pod]:
    found = []
    for ordinal in range(3):
        name = f"demo-zookeeper-{ordinal}"
        notes = dict(zookeeper_notes(desired)) if rng.random() < 0.9 else {}
        ready = rng.random() < 0.95
        if rng.random() < 0.98:
            found.append(
                Pod(
                    name=name,
                    uid=f"uid-{name}",
                    shard=None,
                    ordinal=ordinal,
                    annotations=notes,
                    node=f"node-{rng.randrange(3)}",
                    ready=ready,
                    deleting=rng.random() < 0.03,
                    waiting=None if ready else rng.choice((None, "CrashLoopBackOff")),
                )
            )
    return found


def _claims(rng: random.Random, desired: Desired, shard: int) -> list[Claim]:
    size, found = desired.storage_bytes or 0, []
    for ordinal in range(desired.replicas):
        name = names.claim("demo", shard, ordinal)
        asked = rng.choice((size, size, size, size // 2, size * 2))
        found.append(
            Claim(
                name=name,
                uid=f"uid-{name}",
                shard=shard,
                ordinal=ordinal,
                requested=asked,
                capacity=rng.choice((asked, asked, asked // 2)),
                phase=rng.choice(("Bound", "Bound", "Bound", "Lost")),
                conditions=frozenset({"FileSystemResizePending"} if rng.random() < 0.05 else ()),
                node=rng.choice((None, f"node-{ordinal}")),
                owned=rng.random() < 0.2,
            )
        )
    return found


def _status(rng: random.Random, numbers: list[int], pods: list[Pod]) -> ClusterStatus:
    early = written(START - timedelta(seconds=rng.choice((1, 100, 100_000))))
    claims = tuple(names.claim("demo", n, o) for n in numbers for o in range(3))
    victims = tuple(n for n in numbers if rng.random() < 0.5)
    down = ScaleDownStatus(
        victims=victims,
        step="Draining",
        claims=tuple(c for c in claims if rng.random() < 0.5),
        started_at=early,
    )
    lost = tuple(
        ReplacedMember(claim=c, uid=f"uid-{c}", node="node-1", at=early)
        for c in claims
        if rng.random() < 0.1
    )
    step = rng.choice(("master of shard-0", "zookeeper", "bootstrap", "Settled"))
    rolling = Rollout(revision="r", cause="SpecChanged", started_at=early)
    return ClusterStatus(
        cluster_id=rng.choice(("c-1", "c-1", "c-1", None)),
        version=rng.choice(("1.2.0", "1.2.0", "1.1.0", None)),
        shards=tuple(
            ShardStatus(id=n, phase="Serving", master=pods[0].name if pods else None)
            for n in numbers
            if rng.random() < 0.8
        ),
        progress=ReconcileProgress(row="x", step=step, since=early) if rng.random() < 0.8 else None,
        rollout=rolling if rng.random() < 0.3 else None,
        scale_down=down if rng.random() < 0.4 else None,
        replaced_members=lost if rng.random() < 0.4 else (),
        moved_member=_moved(rng, claims, early),
    )


def _moved(rng: random.Random, claims: tuple[str, ...], early: str) -> MovedMember | None:
    if rng.random() < 0.6 or not claims:
        return None
    claim = rng.choice(claims)
    pod, why = claim.removeprefix("data-"), rng.choice(("Ordered", "StorageClass", "Size"))
    return MovedMember(pod=pod, claim=claim, uid=f"uid-{claim}", reason=why, at=early)


def check_look(rng: random.Random) -> None:
    """Raise AssertionError if a plan of a random look breaks a promise."""
    desired, seen = random_look(rng)
    found = plan(desired, seen, START)
    broken = violations(desired, seen, found, START)
    assert not broken, f"{broken} by {found.actions}"
    if rng.random() < 0.75:
        return
    history = [seen.status]
    for _ in range(7):
        same = replace(seen, status=history[-1])
        history.append(status_of(desired, same, plan(desired, same, START), START))
    assert history[-1] == history[-2], "a status that is written again and again"


def check_walk(rng: random.Random, steps: int = 25) -> None:
    """Raise AssertionError if edits and faults, once over, leave a cluster that never settles."""
    replicas = rng.choice((1, 2, 3, 3))
    world = ClusterWorld(desired_pipeline(2, replicas, 0, 0, False))
    world.grace, world.behind, world.unready = rng.choice(((0, 0, 0), (1, 1, 1), (3, 2, 4)))
    if rng.random() < 0.5:
        world.settle()
    for _ in range(steps):
        replicas = rng.choice((replicas, replicas, replicas, rng.randint(1, 3)))
        _event(rng, world, replicas)
        for _ in range(rng.randrange(6)):
            world.look(dies_after=rng.choice((None, None, None, 0, 1, 2, 3)))
            if rng.random() < 0.8:
                world.turn()
    heal(world)
    edit = rng.randrange(len(EDITS))
    last = desired_pipeline(rng.randint(1, SHARDS_MAX), replicas, edit, 0, True)
    world.desired = admitted(world, last)  # the newest operator, which nothing keeps from working
    world.settle(looks=1500)
    if last.spec.hibernated:
        world.check_asleep()
        world.desired = awake(last)
        world.settle(looks=1500)
    assert len(world.observe().sets()) == last.spec.brokers.shards


def _event(rng: random.Random, world: ClusterWorld, replicas: int) -> None:
    chance = rng.random()
    some = rng.choice(sorted(world.pods)) if world.pods else ""
    if chance < 0.3:
        world.desired = admitted(world, random_desired(rng, replicas))
    elif chance < 0.42:
        mistake(rng, world, some)
    elif chance < 0.5:
        world.kill(some)
    elif chance < 0.62:
        world.zookeeper = not world.zookeeper
    elif chance < 0.7:
        world.status = ClusterStatus(
            cluster_id=world.status.cluster_id, scale_down=world.status.scale_down
        )
    elif chance < 0.73:
        world.unread = rng.randrange(4)
    elif chance < 0.87:
        on_nodes(rng, world)
    else:
        fault(rng, world, some)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    asked = parser.parse_args(arguments)
    for seed in range(asked.first, asked.first + asked.seeds):
        for check, every in ((check_look, 1), (check_walk, 50), (check_access_walk, 50)):
            if seed % every == 0 or asked.seeds == 1:
                try:
                    check(random.Random(seed))
                except Exception:
                    print(f"seed {seed}: {check.__name__}", file=sys.stderr)
                    raise
    print(f"{asked.seeds} looks and {asked.seeds // 50 * 2} walks kept every promise")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
