"""What becomes of a cluster's pods while something else goes on, told by Kubernetes itself."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from imago_e2e.kube import is_ready

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from imago_e2e.brokers import Brokers

_STOP_SECONDS_MAX = 10.0
_BY_KUBERNETES: Final = frozenset({"DeletionByTaintManager", "DeletionByPodGC"})
"""Why Kubernetes deletes pods of a node that is not ready for too long, or is gone. It says so on
the pod before it deletes it, and of nothing that anybody else deletes or evicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One state of one broker's pod."""

    at: float
    """By the monotonic clock."""
    pod: str
    shard: int
    uid: str
    deleting: bool
    ready: bool
    gone: bool
    evicted: bool
    """Whether Kubernetes takes it from a node that is not ready, or is gone."""
    dark: bool = False
    """Whether its node has no power, which Kubernetes learns later: it is away by itself."""


class Watch:
    """Sees every change of the brokers' pods as long as its block lasts."""

    def __init__(self, brokers: Brokers) -> None:
        self.seen: list[Seen] = []
        self.dark: set[str] = set()
        """Nodes without power now."""
        self._brokers = brokers
        self._stopping = False
        self._watching: subprocess.Popen[str]
        self._thread = threading.Thread(target=self._run, name="watch")

    def __enter__(self) -> Self:
        chosen = f"imago.dev/cluster={self._brokers.name},imago.dev/component=broker"
        words = ["get", "pods", "-n", self._brokers.namespace, "-l", chosen]
        watching = ["--watch", "--output-watch-events", "-o", "json"]
        self._watching = subprocess.Popen(
            ["kubectl", *words, *watching], stdout=subprocess.PIPE, text=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._watching.terminate()
        self._watching.wait(_STOP_SECONDS_MAX)
        self._thread.join()
        assert self._watching.stdout is not None
        self._watching.stdout.close()

    def _run(self) -> None:
        assert self._watching.stdout is not None
        for line in self._watching.stdout:  # kubectl writes one event a line
            self.seen.append(seen_in(json.loads(line), time.monotonic(), self.dark))
        if not self._stopping:
            self.seen.clear()  # a story that did not see all of it must not pass

    def taken(self) -> list[str]:
        """Return the pods that somebody deleted, in order; not those that Kubernetes evicted."""
        return [each.pod for each in deletions(self.seen) if not each.evicted]

    def evicted(self) -> list[str]:
        """Return the pods that Kubernetes took from nodes that were not ready, in order."""
        return [each.pod for each in deletions(self.seen) if each.evicted]

    def disturbed_together(self, shards: int = 1) -> list[str]:
        """Return whenever more brokers were away than may be, in words."""
        assert self.seen, "the watch saw nothing, or ended before its time"
        return disturbed_together(self.seen, shards)


def deletions(seen: Iterable[Seen]) -> list[Seen]:
    """Return how each pod that was deleted was seen first after that, in order.

    Who deleted it shows there: of a pod that is going already on a node that is not ready
    Kubernetes says later that it would evict it, too.
    """
    found: dict[str, Seen] = {}
    for each in seen:
        if each.deleting:
            found.setdefault(each.uid, each)
    return list(found.values())


def disturbed_together(seen: Iterable[Seen], shards: int = 1) -> list[str]:
    """Return who was away at one time that should not have been, in words.

    A pod is away from its deletion until one of its name is ready. Never are two of one shard, nor
    some of more than so many shards; and none is taken away beside another of its shard that was
    not ready by itself. That Kubernetes evicts a pod from a node that is not ready is nobody's
    doing; whoever takes another away then has to count it as away. The same holds of a pod whose
    node has no power: whoever deletes it takes nothing away.
    """
    last: dict[str, Seen] = {}
    away: dict[str, Seen] = {}
    found = []
    for each in seen:
        before = away.get(each.pod)
        if each.deleting or each.gone:
            lost = before is not None and (before.evicted or before.dark)
            if before is None or (lost and each.uid != before.uid):
                away[each.pod] = each
                found += [] if each.evicted or each.dark else _too_many(each, away, last, shards)
        elif before is not None and each.ready and each.uid != before.uid:
            del away[each.pod]
        last[each.pod] = each
    return found


def _too_many(
    taken: Seen, away: Mapping[str, Seen], last: Mapping[str, Seen], shards: int
) -> list[str]:
    """Return what is wrong with taking a pod away now."""
    fellows = [
        each for each in last.values() if each.shard == taken.shard and each.pod != taken.pod
    ]
    lacking = sorted(each.pod for each in fellows if each.pod in away or not each.ready)
    concerned = {each.shard for each in away.values()}
    found = [f"{taken.pod} beside {' and '.join(lacking)}"] if lacking else []
    return found + ([f"{' and '.join(sorted(away))}"] if len(concerned) > shards else [])


def seen_in(event: Mapping[str, Any], at: float, dark: Collection[str] = ()) -> Seen:
    """Return what an event of a watch says."""
    pod = event["object"]
    metadata = pod["metadata"]
    return Seen(
        at=at,
        pod=metadata["name"],
        shard=int(metadata["labels"]["imago.dev/shard"]),
        uid=metadata["uid"],
        deleting="deletionTimestamp" in metadata,
        ready=is_ready(pod),
        gone=event["type"] == "DELETED",
        dark=pod.get("spec", {}).get("nodeName") in dark,
        evicted=any(
            condition["type"] == "DisruptionTarget"
            and condition["status"] == "True"
            and condition.get("reason") in _BY_KUBERNETES
            for condition in pod["status"].get("conditions", ())
        ),
    )
