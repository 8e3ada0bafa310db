"""The original Java clients in a pod, and a load of them that is accounted for exactly."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from imago_e2e.kube import is_ready, is_rig, until
from imago_testing.interop import streams
from imago_testing.interop.drivers import METAQ, PARTS, ROCKETMQ4, ROCKETMQ5, running_commands
from imago_testing.interop.metaq import MetaqClient
from imago_testing.interop.pairs import metaq_pair, rocketmq_pair
from imago_testing.interop.rocketmq import RocketmqClient
from imago_testing.interop.streams import OWN_TIMEOUT, Reader, errors_by_kind, until_acknowledged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube
    from imago_testing.interop.streams import Stream
    from imago_testing.java.driver import JavaDriver

ALL = (METAQ, ROCKETMQ4, ROCKETMQ5)
POD = "clients"
OWN_DOING_MAX = 1
IMAGE = "docker.io/imago/e2e-clients:1"
_JVM = ("-Xmx96m", "-Xss512k", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")


def start_pod(kube: Kube, namespace: str) -> None:
    """Start the pod of the clients, in the suite's own cluster on the node that is never cut."""
    place = {"nodeSelector": {"kubernetes.io/hostname": "node1"}} if is_rig() else {}
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "clients", "image": IMAGE, "securityContext": security}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1, **place}
    metadata = {"name": POD, "namespace": namespace}
    kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    until(
        lambda: is_ready(kube.get("pod", POD, "-n", namespace)),
        f"the pod of the clients in {namespace} is ready",
        seconds_max=120,
    )


@contextmanager
def drivers_in_pod(
    namespace: str, folder: Path, names: Sequence[str] = ALL, *, flags: Sequence[str] = ()
) -> Iterator[dict[str, JavaDriver]]:
    """Run the drivers of these clients in the pod; `flags`: of their Java machines."""

    def command(name: str, _: Path) -> list[str]:
        module, main = PARTS[name]
        home = f"/opt/java/{module.name}"
        own = f"/tmp/{name}"
        java = ["java", *_JVM, *flags, f"-Duser.home={own}", "-Dfile.encoding=UTF-8"]
        java += ["-cp", f"{home}/classes:{home}/lib/*", main]
        # The MetaQ client keeps what it could not send below its home, which must be there.
        shell = f'mkdir -p {own} && cd {own} && exec "$@"'
        return ["kubectl", "exec", "-i", "-n", namespace, POD, "--", "sh", "-c", shell, "-", *java]

    with running_commands(names, command, lambda name: folder / name) as started:
        for driver in started.values():
            driver.wait_ready()
        yield started


class Load:
    """A producer with a consumer of each kind of client, all of the time."""

    def __init__(self, pairs: Sequence[tuple[Stream, Reader]]) -> None:
        self.pairs = pairs

    @property
    def producers(self) -> list[Stream]:
        return [stream for stream, _ in self.pairs]

    def go_on(self, count: int = 100) -> None:
        """Wait until every producer has got so many acknowledgements more."""
        until_acknowledged(self.producers, count)

    def calm(self) -> None:
        """Begin to measure gaps anew."""
        for stream in self.producers:
            stream.gap_seconds = 0.0

    def gaps(self) -> dict[str, float]:
        """Longest time without an acknowledgement, of each producer."""
        return {stream.name: round(stream.gap_seconds, 2) for stream in self.producers}

    def errors(self) -> dict[str, int]:
        """How many messages of each producer were refused or not answered in time."""
        return {stream.name: len(stream.errors) for stream in self.producers}

    def finish(self) -> str:
        """Stop sending, and see that every acknowledged message is consumed; return the account."""
        account = []
        for stream in self.producers:
            stream.stop()
        for stream, reader in self.pairs:
            reader.until_got(set(stream.acknowledged))
            strangers = set(reader.got) - stream.sent
            assert not strangers, f"{reader.name} got what nobody sent"
            again = len(reader.got) - len(set(reader.got))
            account.append(
                f"{stream.name}: {len(stream.acknowledged)} acknowledged and read, {again} again,"
                f" {len(stream.errors)} errors, longest gap {stream.gap_seconds:.2f} s"
            )
        kinds = {name: kind for name, kind in errors_by_kind(self.producers).items() if kind}
        return "\n".join([*account, *([f"errors: {kinds}"] if kinds else [])])

    def acknowledged(self) -> dict[str, list[bytes]]:
        """Return what each producer has been told is stored."""
        return {stream.name: list(stream.acknowledged) for stream in self.producers}

    def unrefused(self) -> None:
        """No producer was told of an error by a broker.

        A MetaQ client may close a connection under a request of its own when the registry names
        another master, and answers that request itself (docs/failover.md).
        """
        for stream in self.producers:
            own = stream.name == METAQ and len(stream.errors) <= OWN_DOING_MAX
            told = [text for text in stream.errors.values() if not (own and text == OWN_TIMEOUT)]
            assert told == [], stream.name

    def unharmed(self) -> None:
        """No producer was told of an error, and no consumer got a message twice."""
        self.unrefused()
        for stream, reader in self.pairs:
            assert len(set(reader.got)) == len(reader.got), f"{stream.name}: once each"


def load(
    brokers: Brokers,
    drivers: dict[str, JavaDriver],
    topic: str,
    retries: Mapping[str, int] = MappingProxyType({}),
) -> AbstractContextManager[Load]:
    """Let clients of both protocols work with topics of their own while the block runs.

    `retries`: how often producers try again, by client; those of MetaQ never do.
    """
    ways = {"namesrv": brokers.bootstrap, "zookeeper": brokers.zookeeper}
    return load_of(brokers, drivers, topic, **ways, retries=retries)


@contextmanager
def load_of(
    brokers: Brokers,
    drivers: dict[str, JavaDriver],
    topic: str,
    *,
    namesrv: str,
    zookeeper: str,
    retries: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[Load]:
    """The same, by other ways in than those inside of the Kubernetes cluster."""
    with ExitStack() as stack:
        pairs = []
        if METAQ in drivers:
            brokers.make_topic(f"{topic}-metaq")
            pairs.append(metaq_pair(stack, drivers[METAQ], zookeeper, f"{topic}-metaq", topic))
        for name, version in ((ROCKETMQ4, 4), (ROCKETMQ5, 5)):
            if name in drivers:
                named = f"{topic}-{name}"
                again = retries.get(name)
                pair = rocketmq_pair(stack, drivers[name], version, namesrv, named, retries=again)
                pairs.append(pair)
        for stream, reader in pairs:
            stack.enter_context(reader)
            stack.enter_context(stream)
        running = Load(pairs)
        running.go_on()
        running.calm()
        yield running


@contextmanager
def reading_again(
    brokers: Brokers, drivers: dict[str, JavaDriver], topic: str
) -> Iterator[dict[str, Reader]]:
    """Let new groups of each kind of client read the topics of a load from their beginning."""
    readers: dict[str, Reader] = {}
    with ExitStack() as stack:
        for name, driver in drivers.items():
            named, group = f"{topic}-{name}", f"again-{time.time_ns() % 10**9}"
            if name == METAQ:
                factory = stack.enter_context(MetaqClient(driver, brokers.zookeeper, []).factory())
                consumer = stack.enter_context(factory.consumer([named], group))
                taking = streams.taking(consumer)
            else:
                client = RocketmqClient(int(name[-1]), driver, brokers.bootstrap)
                stack.callback(client.settle)
                taking = streams.taking(stack.enter_context(client.push(named, group)))
            readers[name] = stack.enter_context(Reader(f"{name} once more", taking))
        yield readers


def read_again(
    brokers: Brokers,
    drivers: dict[str, JavaDriver],
    topic: str,
    wanted: Mapping[str, set[bytes]],
) -> None:
    """See that new groups get all of this."""
    with reading_again(brokers, drivers, topic) as readers:
        for name, reader in readers.items():
            reader.until_got(wanted[name])
