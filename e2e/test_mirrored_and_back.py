"""Topics are mirrored to a cluster in another namespace; clients fail over to it and come back.

The mirror is killed, its pod deleted, the source loses its master and the target is rolled while
original clients of both protocols work at the source. At the target is then what the source has,
queue by queue, once and in order; groups go on where they were, there and back.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from imago_e2e import clusters, machine
from imago_e2e.clients import load
from imago_e2e.kube import KubeError, until
from imago_e2e.operator import condition, defects, status
from imago_e2e.ordering import order
from imago_testing.interop import streams
from imago_testing.interop.drivers import METAQ, ROCKETMQ4, ROCKETMQ5
from imago_testing.interop.metaq import MetaqClient
from imago_testing.interop.rocketmq import RocketmqClient
from imago_testing.interop.streams import Reader, Stream, until_acknowledged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imago_e2e.brokers import Brokers
    from imago_e2e.clients import Load
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator
    from imago_testing.java.driver import JavaDriver

    Drivers = dict[str, JavaDriver]

pytestmark = [pytest.mark.own_nodes, pytest.mark.timeout(1200)]
HOME, AWAY = "e2e-home", "e2e-away"
COPIED_SECONDS_MAX: Final = 120.0
COUNT: Final = 100
AGAIN_MAX: Final = 64
"""Messages that a group may get again: what its clients had not yet said that they have read."""
_KIND: Final = {"apiVersion": "imago.dev/v1alpha1", "kind": "ImagoMirror"}


@pytest.fixture(scope="module")
def sides(kube: Kube, operator: Operator) -> Iterator[tuple[Brokers, Brokers]]:
    """Two clusters of three members each; mirrors of other namespaces may name them."""
    assert operator.installed()
    zookeeper = {"managed": {"replicas": 1, "storage": {"size": "1Gi"}}}
    given = [
        clusters.manifest(
            kube.namespace(name), zookeeper=zookeeper, allowedNamespaces={"from": "All"}
        )
        for name in (HOME, AWAY)
    ]
    kube.apply(*given)
    yield clusters.make(kube, given[0]), clusters.make(kube, given[1])
    for name in (HOME, AWAY):
        kube.delete_namespace(name)


def test_clients_go_to_the_mirrored_cluster_and_come_back(
    sides: tuple[Brokers, Brokers], drivers: Drivers, topic: str, account: list[str]
) -> None:
    home, away = sides
    names = {name: f"{topic}-{name}" for name in drivers}
    groups = [names[ROCKETMQ4], names[ROCKETMQ5]]
    with load(home, drivers, topic) as running:
        mirror(home, away, "dr", topic, groups)
        until_copying(away, "dr")
        break_all(home, away, running)
        account.append(running.finish())
    # Their groups have gone; what comes now is for them to read at the other side.
    late = produced(home, drivers, topic, "late")
    lag = until(lambda: _copied(home, away, names), "all is copied", seconds_max=COPIED_SECONDS_MAX)
    for name in names.values():
        stored = [in_order(each, drivers, name) for each in sides]
        assert stored[0] == stored[1], name
    account.append(f"as at the source {lag:.0f} s later: {_stored(away, names)}")

    fail_over(away, "dr")
    there = go_on(away, drivers, topic, late, account)

    mirror(away, home, "back", topic, groups)
    until(lambda: _has(home, drivers, names, there), "all is back", seconds_max=COPIED_SECONDS_MAX)
    until_copying(home, "back")
    fail_over(home, "back")
    _patch(away, "dr", "Copying")
    again = go_on(home, drivers, topic, {}, account)
    until(lambda: _has(away, drivers, names, again), "copied", seconds_max=COPIED_SECONDS_MAX)
    for name in names.values():
        found = [_bodies(each, drivers, name) for each in sides]
        assert found[0] == found[1], f"{name}: nothing went in circles"
    assert defects(home.kube, HOME) + defects(home.kube, AWAY) == []


def break_all(home: Brokers, away: Brokers, running: Load) -> None:
    """Break what a mirror stands on, one after the other, under load."""
    machine.send(_pod(away, "dr"), "mirror run", signal.SIGKILL)
    running.go_on()
    _delete(away, "dr")
    running.go_on()
    before = home.master()
    pod = home.kube.get("pod", before, "-n", HOME)
    machine.send(pod, "imago broker", signal.SIGKILL)
    until(lambda: home.master() != before, "another member leads", seconds_max=30)
    running.go_on()
    uids = away.uids()
    order(away, brokers={"config": {"broker.drain_seconds": 11}})
    until(lambda: _all_new(away, uids), "the target is rolled", seconds_max=300)
    for side in (home, away):
        side.settled()
    running.go_on()


def mirror(source: Brokers, target: Brokers, name: str, topic: str, groups: Sequence[str]) -> None:
    """Have topics and groups of a story copied; the mirror runs beside its target."""
    away, here = ({"clusterRef": {"name": side.name}} for side in (source, target))
    away["clusterRef"]["namespace"] = source.namespace
    spec = {"source": away, "target": here, "topics": [f"{topic}-.*"], "groups": list(groups)}
    metadata = {"name": name, "namespace": target.namespace}
    target.kube.apply({**_KIND, "metadata": metadata, "spec": spec})


def until_copying(target: Brokers, name: str) -> None:
    def copying() -> bool:
        found = condition(target.kube, "imm", target.namespace, name, "Ready")
        return bool(found["status"] == "True" and found["reason"] == "Copying")

    until(copying, f"mirror {name} copies", seconds_max=COPIED_SECONDS_MAX)


def fail_over(target: Brokers, name: str) -> None:
    """Have a mirror stop for good; it says that the target has everything."""
    _patch(target, name, "FailedOver")

    def over() -> bool:
        found = condition(target.kube, "imm", target.namespace, name, "Ready")
        return bool(found["reason"] == "FailedOver")

    until(over, f"mirror {name} has failed over", seconds_max=COPIED_SECONDS_MAX)
    assert status(target.kube, "imm", target.namespace, name)["lacks"] == 0


def produced(
    at: Brokers, drivers: Drivers, topic: str, what: str, *names: str
) -> dict[str, set[bytes]]:
    """Send some messages to the topics of a load; return by client what was acknowledged."""
    with ExitStack() as stack:
        found = []
        for name in names or tuple(drivers):
            driver, named = drivers[name], f"{topic}-{name}"
            if name == METAQ:
                factory = stack.enter_context(MetaqClient(driver, at.zookeeper, []).factory())
                send = streams.metaq_puts(stack.enter_context(factory.producer([named])), named)
            else:
                client = RocketmqClient(int(name[-1]), driver, at.bootstrap)
                producer = stack.enter_context(client.producer())
                streams.until_routed(producer.queues, named)
                send = streams.rocketmq_sends(producer, named)
            found.append((name, stack.enter_context(Stream(f"{what}-{name}", send))))
        until_acknowledged([stream for _, stream in found], COUNT)
        for _, stream in found:
            stream.stop()
            assert stream.errors == {}
    return {name: set(stream.acknowledged) for name, stream in found}


def go_on(
    at: Brokers,
    drivers: Drivers,
    topic: str,
    left: Mapping[str, set[bytes]],
    account: list[str],
) -> dict[str, set[bytes]]:
    """Have RocketMQ's clients work at this side, their groups with what they had left first."""
    with ExitStack() as stack:
        readers = {}
        for name in (ROCKETMQ4, ROCKETMQ5):
            client = RocketmqClient(int(name[-1]), drivers[name], at.bootstrap)
            stack.callback(client.settle)
            named = f"{topic}-{name}"
            taking = streams.taking(stack.enter_context(client.push(named, named)))
            readers[name] = stack.enter_context(Reader(f"{name} in {at.namespace}", taking))
        sent = produced(at, drivers, topic, f"at-{at.namespace}", *readers)
        for name, reader in readers.items():
            wanted = left.get(name, set()) | sent[name]
            reader.until_got(wanted)
            other = [body for body in reader.got if body not in wanted]
            account.append(f"{reader.name}: {len(wanted)} read, {len(other)} of before again")
            assert len(other) <= AGAIN_MAX, reader.name
    return sent


def in_order(at: Brokers, drivers: Drivers, topic: str) -> dict[int, list[bytes]]:
    """Return what each queue of a topic holds."""
    found: dict[int, list[bytes]] = {}
    with RocketmqClient(5, drivers[ROCKETMQ5], at.bootstrap).pull() as consumer:
        for message in consumer.stored(topic):
            found.setdefault(message.queue.queue, []).append(message.body)
    return found


def _bodies(at: Brokers, drivers: Drivers, topic: str) -> Counter[bytes]:
    return Counter(body for queue in in_order(at, drivers, topic).values() for body in queue)


def _has(
    at: Brokers, drivers: Drivers, names: dict[str, str], wanted: dict[str, set[bytes]]
) -> bool:
    return all(bodies <= set(_bodies(at, drivers, names[name])) for name, bodies in wanted.items())


def _stored(at: Brokers, names: dict[str, str]) -> list[int]:
    return [at.stored(name) for name in names.values()]


def _copied(source: Brokers, target: Brokers, names: dict[str, str]) -> bool:
    told = status(target.kube, "imm", target.namespace, "dr")
    return told.get("lagMessages") == 0 and _stored(source, names) == _stored(target, names)


def _pod(target: Brokers, name: str) -> dict[str, Any]:
    """Return the pod of a mirror; KubeError: none runs."""
    for pod in target.kube.pods(target.namespace, f"imago.dev/mirror={name}"):
        if "deletionTimestamp" not in pod["metadata"]:
            return dict(pod)
    raise KubeError(f"mirror {name} has no pod")


def _delete(target: Brokers, name: str) -> None:
    now = ("--grace-period=0", "--force", "--wait=false")
    pod = _pod(target, name)["metadata"]["name"]
    target.kube.run("delete", "pod", pod, "-n", target.namespace, *now)


def _all_new(at: Brokers, before: dict[str, str]) -> bool:
    pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in at.pods()}
    return len(pods) == 3 and all(before[name] != uid for name, uid in pods.items())


def _patch(target: Brokers, name: str, state: str) -> None:
    named = ("imm", name, "-n", target.namespace)
    spec = json.dumps({"spec": {"state": state}})
    target.kube.run("patch", *named, "--type=merge", "-p", spec)
